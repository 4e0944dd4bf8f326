"""Worlds of tensors that stay: parameters, buffers, gradients, results and who shares them."""

from __future__ import annotations

import copy
import pickle

from worlds import Config, attempt, case, mat, vec

import tapegrad as tg
from tapegrad import nn

# -- parameters ----------------------------------------------------------------------------------


class Trained:
    """A layer, its optimizer, and a step as people write it."""

    def __init__(self, compile, **options):
        tg.manual_seed(0)
        self.model = nn.Linear(4, 4)
        self.optimizer = tg.optim.SGD(self.model.parameters(), lr=0.1, **options)
        self.step = compile(self.plain_step)

    def plain_step(self, x):
        self.optimizer.zero_grad()
        loss = (self.model(x) ** 2).mean()
        loss.backward()
        self.optimizer.step()
        return loss


def with_changes(compile, change, when=(3, 6), **options):
    """Steps of a training; `change(trained, i)` comes before some of them."""
    trained = Trained(compile, **options)
    for i in range(9):
        if i in when:
            change(trained, i)
        yield trained.step(mat(i)), trained.model, trained.optimizer


@case(replays=True)
def data_of_a_parameter_replaced(compile):
    def change(t, i):
        t.model.weight.data = mat(i)

    return with_changes(compile, change, (3,))


@case
def data_of_a_parameter_shared_with_another(compile):
    other = mat(5)

    def change(t, i):
        t.model.weight.data = other.data

    for seen in with_changes(compile, change, (3,)):
        yield seen, other


@case(replays=True)
def data_of_a_parameter_copied(compile):
    return with_changes(compile, lambda t, i: t.model.weight.data.copy_(mat(i)))


@case(replays=True)
def data_of_a_parameter_scaled(compile):
    return with_changes(compile, lambda t, i: t.model.weight.data.mul_(0.5))


@case(replays=True)
def state_of_a_model_loaded(compile):
    state = nn.Linear(4, 4).state_dict()
    return with_changes(compile, lambda t, i: t.model.load_state_dict(state))


@case
def state_of_a_model_assigned(compile):
    def change(t, i):
        t.model.load_state_dict({"weight": mat(i), "bias": vec(i)}, assign=True)
        t.optimizer.param_groups[0]["params"] = list(t.model.parameters())

    return with_changes(compile, change)


@case(replays=True)
def parameters_initialised_anew(compile):
    def change(t, i):
        tg.manual_seed(i)
        t.model.reset_parameters()

    return with_changes(compile, change)


@case
def parameters_swapped(compile):
    a, b = nn.Parameter(vec()), nn.Parameter(vec(2))
    c = Config((a, b))
    f = compile(lambda x: x * c.rate[0] - c.rate[1])
    for i in range(10):
        if i in (3, 6, 8):
            c.rate = c.rate[::-1]
        a.grad = b.grad = None
        f(vec(i)).sum().backward()
        yield a.grad, b.grad


@case
def contents_of_two_parameters_swapped(compile):
    a, b = nn.Parameter(vec()), nn.Parameter(vec(2))
    f = compile(lambda x: x * a - b)
    for i in range(10):
        if i in (3, 6):
            a.data, b.data = b.data, a.data
        yield f(vec(i)), a, b


@case(replays=True)
def tied_parameters(compile):
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    model[1].weight = model[0].weight
    optimizer = tg.optim.SGD(model.parameters(), lr=0.1)

    @compile
    def step(x):
        optimizer.zero_grad()
        (model(x) ** 2).mean().backward()
        optimizer.step()

    for i in range(8):
        step(mat(i))
        yield model


@case
def parameters_tied_and_untied_later(compile):
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))

    @compile
    def step(x):
        model.zero_grad()
        (model(x) ** 2).mean().backward()

    for i in range(10):
        if i == 3:
            model[1].weight = model[0].weight
        elif i == 6:
            model[1].weight = nn.Parameter(model[0].weight.detach().clone())
        step(mat(i))
        yield model


@case
def buffer_registered_later(compile):
    class Model(nn.Module):
        def forward(self, x):
            scale = getattr(self, "scale", None)
            return x * 2 if scale is None else x * scale

    model = Model()
    f = compile(model)
    for i in range(9):
        if i == 3:
            model.register_buffer("scale", vec())
        elif i == 6:
            model.scale = None
        yield f(vec(i))


@case(replays=True)
def buffer_changed_in_place_inside(compile):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("total", tg.zeros(4))
            self.register_buffer("calls", tg.zeros((), dtype=tg.int64))

        def forward(self, x):
            self.total += x.detach()
            self.calls += 1
            return x * self.total

    model = Model()
    f = compile(model)
    for i in range(8):
        if i == 5:
            model.total.zero_()
        yield f(vec(i)), model


@case
def buffer_replaced_inside(compile):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("total", tg.zeros(4))

        def forward(self, x):
            self.total = self.total * 0.5 + x
            return x * self.total

    model = Model()
    f = compile(model)
    kept = []
    for i in range(8):
        kept.append(model.total)
        yield f(vec(i)), model, kept


@case(replays=True)
def model_copied_after_recording(compile):
    model = nn.Linear(4, 4)
    f = compile(model)
    for i in range(8):
        if i == 4:
            other = copy.deepcopy(f)
            with tg.no_grad():
                other.weight.zero_()
        yield f(mat(i)), model, other(mat(i)) if i >= 4 else None


@case
def model_pickled_after_recording(compile):
    model = nn.Linear(4, 4)
    f = compile(model)
    for i in range(9):
        if i == 4:
            f = pickle.loads(pickle.dumps(f))
            with tg.no_grad():
                f.bias.zero_()
        yield f(mat(i)), model


# -- gradients -----------------------------------------------------------------------------------


def with_gradients(compile, change, when=(3, 6)):
    """Backward passes in a compiled function that adds to `.grad`."""
    model = nn.Linear(4, 4)

    @compile
    def backward(x):
        (model(x) ** 2).mean().backward()

    for i in range(10):
        if i in when:
            change(model, i)
        backward(mat(i))
        yield model


@case(replays=True)
def gradients_that_add_up(compile):
    return with_gradients(compile, lambda model, i: None)


@case(replays=True)
def gradients_set_to_none(compile):
    return with_gradients(compile, lambda model, i: model.zero_grad(), range(0, 10, 2))


@case(replays=True)
def gradients_set_to_zero(compile):
    return with_gradients(compile, lambda model, i: model.zero_grad(set_to_none=False), range(10))


@case
def gradient_preset(compile):
    def change(model, i):
        model.weight.grad = mat(i)

    return with_gradients(compile, change)


@case
def gradient_shared_by_two_parameters(compile):
    a, b = nn.Parameter(vec()), nn.Parameter(vec(1))

    @compile
    def backward(x):
        (x * a + x * x * b).sum().backward()

    for i in range(9):
        if i in (3, 6):
            a.grad = b.grad = tg.ones(4)
        backward(vec(i))
        yield a.grad, b.grad


@case
def gradient_that_is_a_view(compile):
    flat = tg.zeros(20)

    def change(model, i):
        flat.zero_()
        model.weight.grad = flat[:16].view(4, 4)
        model.bias.grad = flat[16:]

    for seen in with_gradients(compile, change, (0, 4)):
        yield seen, flat


@case
def gradient_that_is_a_transposed_view(compile):
    def change(model, i):
        model.weight.grad = mat(i).T

    return with_gradients(compile, change)


@case
def gradient_of_one_parameter_none(compile):
    def change(model, i):
        model.weight.grad = None

    return with_gradients(compile, change, (2, 4, 5, 8))


@case
def gradients_kept_by_the_caller(compile):
    trained, kept = Trained(compile), []
    for i in range(8):
        trained.step(mat(i))
        kept.append(trained.model.weight.grad)
        yield kept


@case
def gradients_kept_while_they_add_up(compile):
    model, kept = nn.Linear(4, 4), []

    @compile
    def backward(x):
        (model(x) ** 2).mean().backward()

    for i in range(8):
        backward(mat(i))
        kept.append(model.weight.grad)
        yield kept, kept[0] is kept[-1]


@case
def gradients_changed_by_the_caller(compile):
    trained = Trained(compile, momentum=0.9)
    for i in range(8):
        loss = trained.step(mat(i))
        trained.model.weight.grad.mul_(100)
        yield loss, trained.model, trained.optimizer


@case
def mapping_of_gradients_kept(compile):
    w, kept = nn.Parameter(vec()), []
    trained = Trained(compile)
    for i in range(8):
        w.grad = None
        gradients = (w * w * (i + 1)).sum().backward()
        kept.append(gradients[w])
        trained.step(mat(i))
        w.grad.add_(1)
        yield kept, w.grad


@case
def mapping_of_gradients_from_inside(compile):
    w, kept = nn.Parameter(vec()), []

    @compile
    def backward(x):
        return (w * w * x).sum().backward()[w]

    for i in range(9):
        if i % 3 == 0:
            w.grad = None
        kept.append(backward(vec(i)))
        yield kept, w.grad


@case(replays=True)
def gradient_returned(compile):
    w, kept = nn.Parameter(vec()), []

    @compile
    def backward(x):
        w.grad = None
        (w * w * x).sum().backward()
        return w.grad

    for i in range(8):
        kept.append(backward(vec(i)))
        yield kept, kept[-1] is w.grad


@case
def gradient_of_a_tensor_inside(compile):
    w = nn.Parameter(vec())

    @compile
    def f(x):
        h = w * x
        h.retain_grad()
        (h * h).sum().backward()
        return h.grad

    for i in range(8):
        w.grad = None
        yield f(vec(i)), w.grad


@case
def gradient_of_an_argument_that_is_no_leaf(compile):
    f = compile(lambda h: (h * h).sum())
    for i in range(8):
        w = vec(i, requires_grad=True)
        h = w * 2
        h.retain_grad()
        f(h).backward()
        yield w.grad, h.grad


@case(replays=True)
def several_calls_before_one_backward(compile):
    model = nn.Linear(4, 4)
    f = compile(model)
    for i in range(6):
        model.zero_grad()
        (f(mat(i)) * f(mat(i + 1))).sum().backward()
        yield model


@case
def backward_twice_through_a_result(compile):
    f = compile(lambda x: (x * x).sum())
    for i in range(8):
        x = vec(i, requires_grad=True)
        y = f(x)
        y.backward(retain_graph=i % 2 == 0)
        yield x.grad, attempt(y.backward), x.grad


@case
def parameter_changed_between_forward_and_backward(compile):
    w = nn.Parameter(vec())
    f = compile(lambda x: (w * w * x).sum())
    for i in range(8):
        w.grad = None
        y = f(vec(i))
        if i in (4, 6):
            with tg.no_grad():
                w.add_(1)
        yield attempt(y.backward), w.grad


# -- results -------------------------------------------------------------------------------------


@case(replays=True)
def results_kept(compile):
    f, kept = compile(lambda x: x * 2 + 1), []
    for i in range(8):
        kept.append(f(vec(i)))
        yield kept


@case(replays=True)
def results_written_to(compile):
    f, kept = compile(lambda x: x * 2 + 1), []
    for i in range(8):
        kept.append(f(vec(i)))
        for y in kept:
            y.add_(1)
        yield kept


@case
def result_and_its_view(compile):
    @compile
    def f(x):
        y = x * 2
        return y, y[0], y.view(2, 2)

    for i in range(8):
        y, first, square = f(vec(i))
        y.add_(1)
        first.mul_(3)
        yield y, first, square


@case
def view_of_the_argument_returned(compile):
    f = compile(lambda x: (x[1:3], x.view(2, 2), x.detach()))
    for i in range(8):
        x = vec(i)
        part, square, bare = f(x)
        part.add_(1)
        bare[0] = 7.0
        yield x, part, square, bare


@case
def view_of_a_captured_tensor_returned(compile):
    w = mat()
    f = compile(lambda x: (w[1], w[0] * x))
    for i in range(8):
        row, y = f(vec(i))
        row.add_(1)
        yield w, row, y


@case
def results_given_back_as_arguments(compile):
    f = compile(lambda a, b: (b * 0.5, a + 1))
    a, b = vec(), vec(1)
    kept = []
    for _ in range(8):
        a, b = f(a, b)
        kept.append(a)
        yield kept, b


@case
def state_replaced_by_results(compile):
    @compile
    def step(state, x):
        return {"h": state["h"] * 0.5 + x, "n": state["n"] + 1}

    state = {"h": tg.zeros(4), "n": 0}
    for i in range(8):
        state = step(state, vec(i))
        yield state


@case(replays=True)
def tensors_made_inside(compile):
    def f(x):
        a = tg.tensor([1.0, 2.0, 3.0, 4.0])
        a[0] = 9.0
        return x * a + tg.arange(4) + tg.full((4,), 2.0)

    f = compile(f)
    for i in range(8):
        yield f(vec(i))


@case
def tensor_made_of_a_list_that_changes(compile):
    values = [1.0, 2.0, 3.0, 4.0]
    f = compile(lambda x: x * tg.tensor(values))
    for i in range(9):
        if i in (3, 6):
            values[0] += 1
        yield f(vec(i))


@case
def tensor_made_of_an_argument_that_changes(compile):
    f = compile(lambda x, values: x * tg.tensor(values))
    for i in range(9):
        yield f(vec(i), [1.0, 2.0, 3.0, float(i // 3)])
