"""Worlds that the function itself changes: counters, lists, dictionaries, output."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import io
import logging
import types
import warnings

from worlds import Config, case, mat, vec

import tapegrad as tg
from tapegrad import nn

# -- counters ------------------------------------------------------------------------------------


class Counting(nn.Module):
    """A model that counts its calls."""

    def __init__(self, use=lambda n, x: x):
        super().__init__()
        self.n = 0
        self.use = use

    def forward(self, x):
        self.n += 1
        return self.use(self.n, x * 2 + 1)


def with_counter(compile, use=lambda n, x: x, calls=8):
    """Calls of a model that counts, seen together with its count."""
    model = Counting(use)
    f = compile(model)
    for i in range(calls):
        yield f(vec(i)), model.n


@case
def counter_that_is_passed_on(compile):
    return with_counter(compile)


class Counted(nn.Module):
    """A model that counts its calls for nobody."""

    def __init__(self):
        super().__init__()
        self.n = 0

    def forward(self, x):
        self.n += 1
        return x * 2 + 1


@case(replays=True)
def counter_that_nothing_reads(compile):
    model = Counted()
    f = compile(model)
    for i in range(8):
        yield f(vec(i)), model.n


@case
def counter_that_decides_every_second_call(compile):
    return with_counter(compile, lambda n, x: x * 2 if n % 2 == 0 else x, 12)


@case
def counter_that_decides_once(compile):
    return with_counter(compile, lambda n, x: x * 2 if n > 5 else x, 12)


@case
def counter_as_factor(compile):
    return with_counter(compile, lambda n, x: x * n)


@case(replays=True)
def counter_set_back_outside(compile):
    model = Counted()
    f = compile(model)
    for i in range(10):
        if i == 5:
            model.n = 100
        yield f(vec(i)), model.n


@case
def counter_of_another_kind(compile):
    model = Counting()
    f = compile(model)
    for i in range(10):
        if i == 5:
            model.n = 0.5
        yield f(vec(i)), model.n


@case
def counter_in_a_dict(compile):
    stats = {"calls": 0, "items": 0}

    @compile
    def f(x):
        stats["calls"] += 1
        stats["items"] += x.shape[0]
        return x * 2

    for i in range(8):
        yield f(vec(i)), stats


@case
def counter_of_a_class(compile):
    class Model(nn.Module):
        calls = 0

        def forward(self, x):
            Model.calls += 1
            return x * 2

    f = compile(Model())
    for i in range(8):
        yield f(vec(i)), Model.calls


@case
def counter_of_collections(compile):
    seen: collections.Counter[str] = collections.Counter()

    @compile
    def f(x, name):
        seen[name] += 1
        return x * 2

    for i in range(9):
        yield f(vec(i), "ab"[i % 2]), seen


@case
def flag_set_in_the_first_call(compile):
    class Model(nn.Module):
        ready = False

        def forward(self, x):
            if not self.ready:
                self.offset = x.detach() * 0 + 5
                self.ready = True
            return x + self.offset

    model = Model()
    f = compile(model)
    for i in range(9):
        if i == 5:
            model.ready = False
        yield f(vec(i)), model.offset


@case
def running_number_in_an_attribute(compile):
    c = Config(1.0)

    @compile
    def f(x):
        c.rate = 0.9 * c.rate + 0.1 * 5
        return x * 2

    for i in range(8):
        yield f(vec(i)), c.rate


# -- lists and dictionaries ----------------------------------------------------------------------


@case(replays=True)
def list_of_detached_losses(compile):
    model, losses = nn.Linear(4, 4), []

    @compile
    def f(x):
        loss = model(x).sum()
        losses.append(loss.detach())
        return loss

    for i in range(8):
        yield f(mat(i)), losses


@case
def list_of_tensors(compile):
    seen = []

    @compile
    def f(x):
        y = x * 2 + 1
        seen.append(y)
        return y.sum()

    for i in range(8):
        yield f(vec(i)), seen


@case
def list_of_numbers(compile):
    seen = []

    @compile
    def f(x):
        seen.append(float(x.shape[0]))
        seen.append(len(seen))
        return x * 2

    for i in range(8):
        yield f(vec(i)), seen


@case
def list_of_items(compile):
    seen = []

    @compile
    def f(x):
        seen.append((x * 2).sum().item())
        return x * 2

    for i in range(8):
        yield f(vec(i)), seen


@case
def list_that_is_read_too(compile):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.outs = []

        def forward(self, x):
            self.outs.append(x * 2)
            return sum(self.outs)

    model = Model()
    f = compile(model)
    for i in range(8):
        yield f(vec(i)), len(model.outs)


@case
def list_emptied_outside(compile):
    seen = []

    @compile
    def f(x):
        seen.append(x * 2)
        return tg.stack(seen).sum(0)

    for i in range(9):
        if i % 3 == 0:
            seen.clear()
        yield f(vec(i)), seen


@case
def list_made_longer_by_plus(compile):
    seen = [0]

    @compile
    def f(x):
        nonlocal seen
        seen += [seen[-1] + 1]
        return x * 2

    for i in range(8):
        yield f(vec(i)), seen


@case
def result_kept_in_a_dict(compile):
    cache = {}

    @compile
    def f(x):
        h = x * 2 + 1
        cache["h"] = h
        return h.sum()

    for i in range(8):
        yield f(vec(i)), cache


@case
def result_kept_in_an_attribute(compile):
    class Model(nn.Module):
        def forward(self, x):
            h = x * 2 + 1
            self.last = h.detach()
            return h.sum()

    model = Model()
    f = compile(model)
    kept = []
    for i in range(8):
        y = f(vec(i))
        kept.append(model.last)
        yield y, kept


@case
def result_kept_if_asked(compile):
    cache = {}

    @compile
    def f(x, keep):
        h = x * 2 + 1
        if keep not in cache:
            cache[keep] = h
        return h * cache[keep]

    for i in range(9):
        yield f(vec(i), i // 3), cache


@case
def recurrent_state_in_an_attribute(compile):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.h = tg.zeros(4)

        def forward(self, x):
            self.h = tg.tanh(self.h * 0.5 + x)
            return self.h

    model = Model()
    f = compile(model)
    for i in range(9):
        if i == 6:
            model.h = tg.ones(4)
        yield f(vec(i)), model.h


@case
def recurrent_state_that_is_none_at_first(compile):
    class Model(nn.Module):
        h = None

        def forward(self, x):
            self.h = x if self.h is None else self.h * 0.5 + x
            return self.h * 2

    model = Model()
    f = compile(model)
    for i in range(10):
        if i % 5 == 0:
            model.h = None
        yield f(vec(i)), model.h


@case
def recurrent_state_in_a_dict_argument(compile):
    @compile
    def f(c, x):
        c["h"] = c["h"] + x
        return c["h"] * 2

    c = {"h": tg.zeros(4)}
    for i in range(8):
        yield f(c, vec(i)), c


@case
def recurrent_state_in_a_list_argument(compile):
    @compile
    def f(states, x):
        for i, h in enumerate(states):
            states[i] = x = h * 0.5 + x
        return x

    states = [tg.zeros(4), tg.ones(4)]
    for i in range(8):
        yield f(states, vec(i)), states


@case
def recurrent_state_in_a_tuple(compile):
    c = Config((tg.zeros(4), tg.ones(4)))

    @compile
    def f(x):
        a, b = c.rate
        c.rate = (b, a + x)
        return a + b

    for i in range(8):
        yield f(vec(i)), c.rate


@case
def keys_deleted_and_popped(compile):
    @compile
    def f(batch):
        scale = batch.pop("scale", 1.0)
        del batch["unused"]
        batch.update(y=batch["x"] * scale)
        batch.setdefault("z", 3)
        return batch

    for i in range(8):
        batch = {"x": vec(i), "unused": 1}
        if i % 2:
            batch["scale"] = 2.0
        yield f(batch), batch


@case
def members_added_to_a_set(compile):
    seen = set()

    @compile
    def f(x, name):
        new = name not in seen
        seen.add(name)
        return x * 2 if new else x + 1

    for i in range(9):
        yield f(vec(i), "abc"[i % 3]), seen


@case
def window_of_the_last_results(compile):
    window = collections.deque(maxlen=3)

    @compile
    def f(x):
        window.append(x * 2)
        return sum(window)

    for i in range(9):
        yield f(vec(i)), window


@case
def result_kept_in_a_dataclass(compile):
    @dataclasses.dataclass
    class Metrics:
        loss: object = None
        steps: int = 0

    metrics = Metrics()

    @compile
    def f(x):
        metrics.loss = (x * 2).sum()
        metrics.steps += 1
        return x * 2

    for i in range(8):
        yield f(vec(i)), metrics


@case
def attribute_made_and_deleted_inside(compile):
    c = Config()

    @compile
    def f(x):
        c.scratch = x * 2
        y = c.scratch + 1
        del c.scratch
        return y

    for i in range(8):
        yield f(vec(i)), hasattr(c, "scratch")


@case
def object_made_inside_and_kept(compile):
    history = []

    @compile
    def f(x):
        history.append(types.SimpleNamespace(mean=x.mean(), index=len(history)))
        return x * 2

    for i in range(8):
        yield f(vec(i)), history


@case
def setattr_by_name(compile):
    c = Config()

    @compile
    def f(x, name):
        setattr(c, name, getattr(c, name, 0) + 1)
        return x * getattr(c, name)

    for i in range(9):
        yield f(vec(i), "ab"[i % 2]), c


# -- output --------------------------------------------------------------------------------------


@case
def printing(compile):
    @compile
    def f(x):
        print("called with", tuple(x.shape))
        return x * 2

    for i in range(8):
        with contextlib.redirect_stdout(io.StringIO()) as out:
            y = f(vec(i))
        yield y, out.getvalue()


@case
def printing_by_a_submodule(compile):
    class Loud(nn.Module):
        def forward(self, x):
            print(f"{x.mean():.3f}")
            return x * 2

    f = compile(nn.Sequential(Loud(), nn.ReLU()))
    for i in range(8):
        with contextlib.redirect_stdout(io.StringIO()) as out:
            y = f(vec(i))
        yield y, out.getvalue()


@case
def writing_to_a_text(compile):
    text = io.StringIO()

    @compile
    def f(x):
        text.write("step\n")
        return x * 2

    for i in range(8):
        yield f(vec(i)), text.getvalue()


@case
def logging_a_line(compile):
    records = []
    handler = logging.Handler()
    handler.emit = lambda record: records.append(record.getMessage())
    logger = logging.getLogger("worlds")
    logger.propagate, logger.handlers = False, [handler]
    logger.setLevel(logging.INFO)

    @compile
    def f(x):
        logger.info("shape %s", tuple(x.shape))
        return x * 2

    for i in range(8):
        if i == 5:
            logger.setLevel(logging.ERROR)
        yield f(vec(i)), records


@case
def warning_inside(compile):
    @compile
    def f(x):
        warnings.warn("deprecated", FutureWarning, stacklevel=2)
        return x * 2

    for i in range(8):
        yield f(vec(i))
