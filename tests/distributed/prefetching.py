"""Programs of ranks with sharded models: what is gathered when, hostile orders, accumulation.

Every function runs in all ranks and returns what JSON can hold; `test_distributed_prefetching.py`
runs them. Without a process group `accumulated(...)` trains in one process.
"""

from __future__ import annotations

import copy
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import tapegrad as tg
import tapegrad.distributed as dist
from tapegrad.distributed import process_group
from tapegrad.distributed.fsdp import full_state_dict, fully_shard
from tapegrad.distributed.process_group import ProcessGroup
from tapegrad.distributed.shards import shard_of
from tapegrad.replay import Compiled

STEPS, BATCH = 20, 16


class Chain(tg.nn.Module):
    """Layers of different sizes, called in an order that can be changed."""

    def __init__(self) -> None:
        super().__init__()
        sizes = [(4, 5), (5, 5), (5, 5), (5, 3)]
        self.layers = tg.nn.ModuleList([tg.nn.Linear(a, b) for a, b in sizes])
        self.scale = tg.nn.Parameter(tg.ones(3))
        self.order = [0, 1, 2, 3]
        self.fails_at: int | None = None

    def forward(self, x: Any) -> Any:
        for i in self.order:
            x = self.layers[i](x).tanh()
            if i == self.fails_at:
                raise ArithmeticError("on purpose")
        return x * self.scale


def chain() -> Any:
    tg.manual_seed(0)
    return Chain().double()


def sharded(model: Any) -> Any:
    """The same model, divided among the ranks: a unit for each layer and one for the rest."""
    if dist.is_initialized():
        for layer in model.layers:
            fully_shard(layer)
        fully_shard(model)
    return model


def rows(seed: int, size: int = 3) -> Any:
    """Data of this rank."""
    return tg.tensor(np.random.default_rng([seed, dist.get_rank()]).normal(size=(size, 4)))


def check_gradients(model: Any, plain: Any) -> int:
    """Gradients of shards are averages of those of plain models; returns how many there are."""
    compared = 0
    for p, q in zip(model.parameters(), plain.parameters(), strict=True):
        shard = shard_of(p)
        assert shard is not None
        assert (p.grad is None) == (q.grad is None)
        if q.grad is not None:
            whole = q.grad.clone()
            dist.all_reduce(whole, dist.ReduceOp.AVG)
            part = whole.reshape(-1)[shard.start : shard.stop].numpy()
            np.testing.assert_allclose(p.grad.numpy(), part, rtol=1e-12, atol=1e-14)
            compared += 1
    return compared


# -- what happens when ---------------------------------------------------------------------------


@contextmanager
def watched(model: Any) -> Iterator[list[str]]:
    """What happens inside: gathers begun and done at once, waits, reductions, calls of layers."""
    events: list[str] = []
    handles: dict[int, str] = {}
    old = {name: getattr(ProcessGroup, name) for name in ("begin", "end", "abandon", "all_gather")}

    def begin(group: Any, kind: str, x: Any, *args: Any, **more: Any) -> int:
        handle: int = old["begin"](group, kind, x, *args, **more)
        handles[handle] = f"{kind} {x.size}"
        events.append(f"begin {handles[handle]}")
        return handle

    def end(group: Any, handle: int) -> Any:
        events.append(f"wait {handles.pop(handle)}")
        return old["end"](group, handle)

    def abandon(group: Any, handle: int, memory: Any = None) -> None:
        events.append(f"abandon {handles.pop(handle)}")
        old["abandon"](group, handle, memory)

    def all_gather(group: Any, x: Any) -> Any:
        events.append(f"gather {x.size}")
        return old["all_gather"](group, x)

    for function in (begin, end, abandon, all_gather):
        setattr(ProcessGroup, function.__name__, function)
    removed = [
        layer.register_forward_pre_hook(lambda m, x, i=i: events.append(f"call {i}"))
        for i, layer in enumerate(model.layers)
    ]
    try:
        yield events
    finally:
        for handle in removed:
            handle.remove()
        for name, function in old.items():
            setattr(ProcessGroup, name, function)
    assert not handles, f"begun and never waited for: {handles}"


def _parts() -> list[int]:
    """Elements of each rank's part of the units: the layers, and the rest."""
    size = dist.get_world_size()
    return [-(-n // size) for n in (25, 30, 30, 18, 3)]


def eager_order() -> list[str]:
    """In the second step each gather begins one unit early, forward and backward."""
    model = sharded(chain())
    a, b, c, d, rest = _parts()
    with watched(model) as first:
        loss = model(rows(0)).square().sum()
        assert first == [
            f"gather {rest}", f"gather {a}", "call 0", f"gather {b}", "call 1", f"gather {c}",
            "call 2", f"gather {d}", "call 3",
        ]  # fmt: skip
        del first[:]
        loss.backward()
        # The first layer's weight is not needed for gradients of weights, and `scale` is: it
        # was saved last, by the operation that is the first one of backward.
        assert first == [
            f"gather {rest}", f"begin all_gather {d}", f"wait all_gather {d}",
            f"begin all_gather {c}", f"wait all_gather {c}", f"begin all_gather {b}",
            f"wait all_gather {b}",
        ]  # fmt: skip
    with watched(model) as second:
        model(rows(1))
        assert second == [
            f"gather {rest}", f"begin all_gather {a}", f"wait all_gather {a}",
            f"begin all_gather {b}", "call 0", f"wait all_gather {b}", f"begin all_gather {c}",
            "call 1", f"wait all_gather {c}", f"begin all_gather {d}", "call 2",
            f"wait all_gather {d}", "call 3",
        ]  # fmt: skip
        del second[:]
        with tg.no_grad():
            model(rows(1))
        assert sum("begin" in event for event in second) == 4
    return second


def compiled_order() -> list[str]:
    """In a compiled step too; reductions are waited for where the next one begins."""
    model = sharded(chain())
    optimizer = tg.optim.SGD(model.parameters(), lr=0.1)

    @tg.compile
    def step(x: Any) -> Any:
        optimizer.zero_grad()
        loss = model(x).square().sum()
        loss.backward()
        optimizer.step()
        return loss

    for i in range(4):
        step(rows(i))
    assert len(step.replays) == 1, step.explain()
    with watched(model) as events:
        step(rows(5))
    a, b, c, d, rest = _parts()
    gathers = [event for event in events if "all_gather" in event]
    order = [rest, a, b, c, d, rest, d, c, b]
    assert [e for e in gathers if "begin" in e] == [f"begin all_gather {n}" for n in order]
    ahead = 0
    for event in gathers:
        ahead += 1 if event.startswith("begin") else -1
        assert 0 <= ahead <= 1
    reductions = [event for event in events if "reduce_scatter" in event]
    assert len(reductions) == 10
    under_way = 0
    for event in reductions:
        under_way += 1 if event.startswith("begin") else -1
        assert 0 <= under_way <= 1
    # the next gather begins before the reduction of the layer before, which runs beside it
    first = next(i for i, e in enumerate(events) if "begin reduce_scatter" in e)
    assert any("begin all_gather" in e for e in events[:first])
    assert any("wait all_gather" in e for e in events[first : first + 4])
    return events


# -- hostile orders ------------------------------------------------------------------------------


def _plain_step(model: Any, x: Any) -> None:
    model(x).square().sum().backward()


def _twice(model: Any, x: Any) -> None:
    model.order = [0, 1, 2, 1, 3]
    _plain_step(model, x)


def _unused(model: Any, x: Any) -> None:
    model.order = [0, 1, 3]
    _plain_step(model, x)


def _another_order(model: Any, x: Any) -> None:
    model.order = [0, 1, 2, 3] if model.order == [0, 2, 1, 3] else [0, 2, 1, 3]
    _plain_step(model, x)


def _shorter(model: Any, x: Any) -> None:
    model.order = [0, 3] if len(model.order) == 4 else [0, 1, 2, 3]
    _plain_step(model, x)


def _failing_forward(model: Any, x: Any) -> None:
    _plain_step(model, x)
    model.fails_at = 1
    with pytest.raises(ArithmeticError):
        model(x)
    model.fails_at = None
    _change(model)
    model.zero_grad()
    _plain_step(model, x)


def _failing_backward(model: Any, x: Any) -> None:
    def fail(g: Any) -> None:
        raise ArithmeticError("on purpose")

    y = model.layers[1](model.layers[0](x))
    y.register_hook(fail)
    z = model.layers[3](model.layers[2](y))
    with pytest.raises(ArithmeticError):
        z.sum().backward()
    y = model(x)
    hooked = model.layers[2].register_full_backward_hook(lambda *given: fail(None))
    y = model(x)
    with pytest.raises(ArithmeticError):
        y.sum().backward()
    hooked.remove()
    _change(model)
    model.zero_grad()
    _plain_step(model, x)


def _change(model: Any) -> None:
    """What was gathered before must not be used after this."""
    with tg.no_grad():
        for p in model.parameters():
            p.mul_(1.5)


def _evaluated(model: Any, x: Any) -> None:
    model.eval()
    with tg.no_grad():
        model(x)
        _change(model)
        model(x)
    model.train()
    _plain_step(model, x)


def _two_forwards(model: Any, x: Any) -> None:
    first, second = model(x), model(2 * x)
    (first.square().sum() + second.sin().sum()).backward()


def _interleaved(model: Any, x: Any) -> None:
    first, second = model(x), model(2 * x)
    first.square().sum().backward()
    second.sin().sum().backward()


def _retained(model: Any, x: Any) -> None:
    y = model(x)
    y.sum().backward(retain_graph=True)
    y.square().sum().backward()


def _by_grad(model: Any, x: Any) -> None:
    x = x.clone().requires_grad_()
    (g,) = tg.autograd.grad(model(x).square().sum(), x, create_graph=True)
    g.square().sum().backward()


def _checkpointed(model: Any, x: Any) -> None:
    x = x.clone().requires_grad_()
    for i in (0, 1, 2):
        x = tg.checkpoint(model.layers[i], x)
    model.layers[3](x).square().sum().backward()
    _plain_step(model, x.detach()[:, :4])


def _layers_alone(model: Any, x: Any) -> None:
    for layer in model.layers:
        x = layer(x).tanh()
    x.square().sum().backward()


def _unsharded(model: Any, x: Any) -> None:
    if not hasattr(model, "unshard"):
        _plain_step(model, x)
        return
    handle = model.layers[1].unshard(async_op=True)
    _plain_step(model, x)
    assert model.layers[1].weight.shape == (5, 5)
    handle.wait()
    model.layers[1].reshard()
    assert model.layers[1].weight.ndim == 1
    other = model.layers[2].unshard(async_op=True)
    other.wait()
    assert model.layers[2].weight.shape == (5, 5)
    model.layers[2].reshard()
    model.layers[2].unshard(async_op=True)
    model.layers[2].reshard()  # which abandons it


def _compiled_layer(model: Any, x: Any) -> None:
    if not isinstance(model.layers[1].forward, Compiled):
        model.layers[1].compile()
    with tg.no_grad():  # in which the layer's calls replay, and the others gather ahead
        for _ in range(3):
            model(x)
            _change(model)
    _plain_step(model, x)


def _kept_whole(model: Any, x: Any) -> None:
    if hasattr(model, "set_reshard_after_forward"):
        model.layers[1].set_reshard_after_forward(False)
    _plain_step(model, x)


HOSTILE: dict[str, Callable[[Any, Any], None]] = {
    f.__name__.strip("_"): f
    for f in (
        _plain_step, _twice, _unused, _another_order, _shorter, _failing_forward,
        _failing_backward, _evaluated, _two_forwards, _interleaved, _retained, _by_grad,
        _checkpointed, _layers_alone, _unsharded, _compiled_layer, _kept_whole,
    )
}  # fmt: skip


def hostile_orders() -> dict[str, int]:
    """Gradients are right whatever the order is, with a thread in the background or without."""
    compared: dict[str, int] = {}
    background = process_group.background()
    for threaded in (background.threaded, True):
        background.drain()
        background.threaded = threaded
        for name, train in HOSTILE.items():
            plain, model = chain(), sharded(chain())
            for i in range(4):
                for m in (plain, model):
                    m.zero_grad()
                    train(m, rows(i))
                found = check_gradients(model, plain)
                compared[name] = compared.get(name, 0) + found
            copied = copy.deepcopy(model)
            for m in (plain, copied):
                m.zero_grad()
                train(m, rows(9))
            check_gradients(copied, plain)
    return compared


def compiled_failure() -> int:
    """A compiled step that fails while a gather is under way; the steps after it are right."""
    background = process_group.background()
    compared = 0
    for threaded in (background.threaded, True):
        background.drain()
        background.threaded = threaded
        tg.manual_seed(0)
        plain = Looking().double()
        model = sharded(copy.deepcopy(plain))

        def step(x: Any, index: Any, model: Any = model) -> None:
            model.zero_grad()
            model(x, index).square().sum().backward()

        run = tg.compile(step)
        good = tg.tensor([0, 2, 1])
        for i in range(4):
            run(rows(i), good)
        assert len(run.replays) == 1, run.explain()
        with watched(model) as events:  # which says that nothing is left under way
            for i in range(4):  # with the hooks of `watched` it is recorded anew
                run(rows(i), good)
                step(rows(i), good, plain)
                compared += check_gradients(model, plain)
            for i in range(3):
                with pytest.raises(IndexError):
                    run(rows(i), tg.tensor([0, 3, 1]))
                run(rows(i), good)
                step(rows(i), good, plain)
                compared += check_gradients(model, plain)
        assert any("abandon" in event for event in events)
        assert not process_group._started
    return compared


class Looking(Chain):
    """A chain that looks rows up between two layers."""

    def forward(self, x: Any, index: Any) -> Any:
        x = self.layers[1](self.layers[0](x).tanh())[index]
        return self.layers[3](self.layers[2](x).tanh()) * self.scale


# -- accumulation --------------------------------------------------------------------------------


def data() -> tuple[Any, Any]:
    x = np.random.default_rng(1).normal(size=(STEPS, 2, BATCH // 2, 4))
    return x, np.sin(x[..., :3])


def mine(batch: Any) -> Any:
    """This rank's rows of a batch."""
    if not dist.is_initialized():
        return tg.tensor(batch)
    size = len(batch) // dist.get_world_size()
    return tg.tensor(batch[dist.get_rank() * size :][:size])


def accumulated(way: str) -> list[float]:
    """Losses of a training with two microbatches in each step."""
    model = sharded(chain())
    optimizer = tg.optim.Adam(model.parameters(), lr=0.02)

    def part(x: Any, y: Any, is_last: bool) -> Any:
        if dist.is_initialized():
            model.set_requires_gradient_sync(is_last)
        loss = (called(x) - y).square().mean() / 2
        loss.backward()
        return loss.detach()

    def step(x1: Any, y1: Any, x2: Any, y2: Any) -> Any:
        loss = run(x1, y1, False) + run(x2, y2, True)
        optimizer.step()
        optimizer.zero_grad()
        return loss

    called = tg.compile(model) if way == "model" else model
    if way == "layers":
        for layer in model.layers:
            layer.compile()
    run = tg.compile(part) if way == "parts" else part
    whole = tg.compile(step) if way == "step" else step
    losses = []
    for x, y in zip(*data(), strict=True):
        loss = whole(mine(x[0]), mine(y[0]), mine(x[1]), mine(y[1]))
        loss = dist.functional.all_reduce(loss, "avg") if dist.is_initialized() else loss
        losses.append(float(loss))
    compiled = {"model": called, "parts": run, "step": whole}.get(way)
    if compiled is not None:
        assert compiled.replays, compiled.explain()
    return losses


WAYS = ("eager", "step", "parts", "model", "layers")


def accumulation() -> dict[str, list[float]]:
    """Losses of all ways to accumulate."""
    return {way: accumulated(way) for way in WAYS}


def accumulation_sends_once() -> int:
    """Without synchronization nothing is sent but parameters; then each gradient once."""
    model, plain = sharded(chain()), chain()
    with watched(model) as events:
        reductions: list[int] = []
        old = ProcessGroup.reduce_scatter

        def reduce_scatter(group: Any, x: Any, op: str) -> Any:
            reductions.append(x.size)
            return old(group, x, op)

        ProcessGroup.reduce_scatter = reduce_scatter  # type: ignore[method-assign]
        try:
            for i in range(3):
                model.set_requires_gradient_sync(i == 2)
                _plain_step(model, rows(i))
                _plain_step(plain, rows(i))
                assert len(reductions) == (5 if i == 2 else 0)
                assert (model.scale.grad is None) == (i < 2)
        finally:
            ProcessGroup.reduce_scatter = old  # type: ignore[method-assign]
        assert not any("reduce" in event for event in events)
    return check_gradients(model, plain)


def accumulation_of_some() -> int:
    """Units that the last pass leaves out; one that synchronizes alone; copies; what is last."""
    model, plain = sharded(chain()), chain()
    for m in (model, plain):
        m.order = [0, 1, 2, 3]
    model.set_requires_gradient_sync(False)
    _plain_step(model, rows(0))
    _plain_step(plain, rows(0))
    copied = copy.deepcopy(model)
    for m in (model, copied):
        m.set_requires_gradient_sync(True)
    for m in (model, plain, copied):
        m.order = [0, 1, 3]
    _plain_step(plain, rows(1))
    compared = 0
    for m in (model, copied):
        m.set_is_last_backward(False)
        _plain_step(m, rows(1))
        assert m.layers[1].weight.grad is not None
        assert m.layers[2].weight.grad is None
        m.set_is_last_backward(True)
        _plain_step(m, rows(2))
    _plain_step(plain, rows(2))
    for m in (model, copied):
        compared += check_gradients(m, plain)

    model, plain = sharded(chain()), chain()
    model.set_requires_gradient_sync(False)
    model.layers[1].set_requires_gradient_sync(True, recurse=False)
    for i in range(2):
        for m in (model, plain):
            _plain_step(m, rows(i))
        assert model.layers[1].weight.grad is not None
        assert model.layers[2].weight.grad is None
    model.set_requires_gradient_sync(True)
    for m in (model, plain):
        _plain_step(m, rows(3))
    compared += check_gradients(model, plain)

    # said between forward and backward: nothing is lost
    for sync in (True, False):
        model, plain = sharded(chain()), chain()
        model.set_requires_gradient_sync(not sync)
        y = model(rows(0))
        model.set_requires_gradient_sync(sync)
        y.square().sum().backward()
        model.set_requires_gradient_sync(True)
        _plain_step(model, rows(1))
        _plain_step(plain, rows(0))
        _plain_step(plain, rows(1))
        compared += check_gradients(model, plain)
    return compared


# -- two steps in one program, parts of nothing but padding ----------------------------------------


class Tiny(tg.nn.Module):
    """Units of one element, of which most ranks have nothing; another dtype within a unit."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = tg.nn.ModuleList([One() for _ in range(3)])
        self.last = tg.nn.Linear(4, 3)

    def forward(self, x: Any) -> Any:
        for layer in self.layers:
            x = layer(x).tanh()
        return self.last(x)


class One(tg.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = tg.nn.Parameter(tg.tensor([1.25]))
        self.single = tg.nn.Parameter(tg.tensor([0.5], dtype=tg.float32))

    def forward(self, x: Any) -> Any:
        return x * self.weight + self.single.to(x.dtype)


def two_steps() -> list[float]:
    """Two steps in one compiled function are those of one process."""
    found = []
    for divides in (False, True):
        tg.manual_seed(0)
        model = Tiny()
        for p in (model.last.weight, model.last.bias, *(m.weight for m in model.layers)):
            p.data = p.data.double()
        if divides:
            sharded(model)
        optimizer = tg.optim.Adam(model.parameters(), lr=0.05)

        def one(x: Any, model: Any = model, optimizer: Any = optimizer, divides: bool = divides):  # type: ignore[no-untyped-def]
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            if not divides:
                for p in model.parameters():
                    dist.all_reduce(p.grad, dist.ReduceOp.AVG)
            optimizer.step()
            return loss

        def two(x: Any, y: Any, one: Any = one) -> Any:
            return one(x), one(y)

        run = tg.compile(two) if divides else two
        for i in range(5):
            for loss in run(rows(2 * i), rows(2 * i + 1)):
                found.append(float(dist.functional.all_reduce(loss.detach(), "avg")))
        if divides:
            assert len(run.replays) == 1, run.explain()
    half = len(found) // 2
    np.testing.assert_allclose(found[half:], found[:half], rtol=1e-6)
    return found


# -- memory --------------------------------------------------------------------------------------


def memory() -> dict[str, Any]:
    """Bytes that a step takes at most, in forward and in backward, besides the shards."""
    width, count = 512, 8
    layers = [tg.nn.Linear(width, width, bias=False) for _ in range(count)]
    model = tg.nn.Sequential(*layers)
    for layer in layers:
        fully_shard(layer)
    fully_shard(model)
    x = tg.ones(1, width)
    found: dict[str, Any] = {"layer": 4 * width * width, "layers": count}
    for _ in range(3):
        model.zero_grad()
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        loss = model(x).sum()
        found["forward"] = tracemalloc.get_traced_memory()[1] - before
        tracemalloc.reset_peak()
        loss.backward()
        found["backward"] = tracemalloc.get_traced_memory()[1] - before
        tracemalloc.stop()

    optimizer = tg.optim.SGD(model.parameters(), lr=0.1)

    @tg.compile
    def step(x: Any) -> None:
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()

    for _ in range(4):
        step(x)
    assert len(step.replays) == 1, step.explain()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    step(x)
    found["compiled"] = tracemalloc.get_traced_memory()[1] - before
    found["scratch"] = step.replays[0].executable._layout.scratch
    tracemalloc.stop()
    return found


def whole_state() -> int:
    """A model that was trained with prefetched parameters can be read whole."""
    model = sharded(chain())
    for i in range(3):
        _plain_step(model, rows(i))
    state = full_state_dict(model)
    for name, value in chain().state_dict().items():
        np.testing.assert_array_equal(state[name].numpy(), value.numpy())
    return len(state)
