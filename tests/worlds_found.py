"""Programs like those in which a random search has found a difference, each once."""

from __future__ import annotations

from types import SimpleNamespace

from worlds import Config, attempt, case, mat, network, vec

import tapegrad as tg
from tapegrad import nn


@case
def captured_tensor_stored_again_and_replaced(compile):
    c = Config(None)
    kept = {"b": vec()}

    @compile
    def f(x):
        c.rate = kept["b"]
        return x * 2

    for i in range(12):
        if i in (4, 8):
            kept["b"] = kept["b"].clone() * 0.5
        yield f(vec(i)), c.rate, c.rate is kept["b"]


@case
def argument_stored_again_and_another_one(compile):
    c = Config(None)

    @compile
    def f(x):
        c.rate = x
        return x * 2

    a, b = vec(), vec(3)
    for i in range(14):
        x = a if i < 5 or i % 2 else b
        yield f(x), c.rate is x


@case
def argument_put_again_under_a_key(compile):
    d = {"x": None}

    @compile
    def f(x):
        d["x"] = x
        return x * 2

    a, b = vec(), vec(3)
    for i in range(14):
        x = a if i < 5 or i % 2 else b
        yield f(x), d["x"] is x


@case
def rate_of_an_optimizer_is_a_tensor_for_a_while(compile):
    p = nn.Parameter(vec())
    optimizer = tg.optim.Adam([p], lr=0.05)

    @compile
    def step(x):
        loss = (p * x).sum()
        loss.backward()
        optimizer.step()
        return loss

    for i in range(14):
        if i in (3, 9):
            optimizer.param_groups[0]["lr"] = tg.tensor(0.01 * i)
        if i == 6:
            optimizer.param_groups[0]["lr"] = 0.05
        if i == 12:
            optimizer.param_groups[0]["lr"].fill_(0.5)
        yield step(vec(i)), p


@case
def counter_of_a_module_and_its_compiled_copy(compile):
    class Cell(nn.Module):
        def __init__(self):
            super().__init__()
            self.calls = 0

        def forward(self, x):
            self.calls += 1
            return x * 0.5

    cell = Cell()
    copy = compile(cell)

    @compile
    def f(x):
        return copy(cell(x))

    for i in range(8):
        yield f(vec(i)), cell.calls


@case
def history_that_was_used_up_before(compile):
    c = Config(tg.zeros(()))
    p, q = nn.Parameter(vec()), nn.Parameter(vec(1))

    @compile
    def f(x):
        c.rate = c.rate * 0.5 + q.mean()
        return p * 2 + c.rate + x

    for i in range(7):
        y = f(vec(i))
        found = attempt(tg.autograd.grad, y.sum(), [p, q], allow_unused=True)
        yield y, found


@case(replays=True)
def history_that_was_used_up_inside(compile):
    p, q = nn.Parameter(vec()), nn.Parameter(vec(1))

    @compile
    def f(x):
        loss = (p * x).sum()
        loss.backward()
        return loss

    for i in range(7):
        loss = f(vec(i))
        yield attempt(tg.autograd.grad, loss, [p], allow_unused=True)
        yield attempt(tg.autograd.grad, loss, [q], allow_unused=True)


@case
def used_up_histories_of_several_calls(compile):
    p = nn.Parameter(vec())
    losses = []

    @compile
    def f(x):
        loss = (p * x).sum()
        loss.backward()
        return loss

    for i in range(7):
        losses.append(f(vec(i, requires_grad=bool(i % 2))))
        yield attempt(sum(losses).backward)


@case
def argument_and_a_view_of_it_written_with_gradients(compile):
    p = nn.Parameter(vec())

    @compile
    def f(x, view):
        x.copy_(p * 1.0)
        return (view * 2).sum()

    for i in range(8):
        p.grad = None
        x = vec(i)
        attempt(f(x, x[:]).backward)
        yield p.grad, x


@case
def returned_twin_of_overlapping_memory(compile):
    b = mat(0)
    detached = b.detach()
    kept = []

    @compile
    def f(row, x):
        doubled = row * 2
        detached.add_(x.mean())
        return doubled, b.detach()

    for i in range(9):
        doubled, whole = f(b[:1], vec(i))
        kept.append(whole)
        yield doubled, [k[0, 0].item() for k in kept], b


@case
def result_that_shows_an_argument_or_a_captured_tensor(compile):
    b = vec()
    f = compile(lambda x: b.detach())
    for i in range(12):
        result = f(b.detach() if i in (4, 8) else vec(i))
        yield result, result.data_ptr() == b.data_ptr()


@case
def expanded_result_is_written_to(compile):
    f = compile(lambda x: (x * 2)[:1].expand(3))
    for i in range(7):
        yield f(vec(i)), attempt(f(vec(i)).add_, 1)


@case
def transposed_result_is_viewed(compile):
    f = compile(lambda x: (x * 2).t())
    for i in range(7):
        y = f(mat(i, 2, 3))
        yield y, y.stride(), attempt(y.view, 6)


@case
def view_read_by_a_composite_after_a_write(compile):
    p, q = nn.Parameter(mat(0)), nn.Parameter(mat(1))

    @compile
    def f(x):
        whole = p * x
        row = whole[None, ..., 0]
        whole.copy_(q * 1.0)
        row.mean(-1).sum().backward()

    for i in range(7):
        p.grad = q.grad = None
        f(vec(i))
        yield p.grad, q.grad


@case
def view_written_without_gradients_and_asked(compile):
    @compile
    def f(x):
        flat = x.flatten()
        flat.sub_(flat.mean())
        return flat * 1, flat.requires_grad

    for i in range(7):
        x = mat(i).requires_grad_() * 2
        with tg.no_grad():
            yield f(x[:2])


@case
def address_of_an_argument(compile):
    f = compile(lambda x: x * (x.data_ptr() % 2 + x.storage_offset()))
    data = tg.arange(20.0)
    for i in range(9):
        yield f(data[i : i + 4])


@case
def turned_argument_is_a_view(compile):
    @compile
    def f(x):
        x.t_()
        return x * 2

    model = network()
    for i in range(6):
        x = (mat(i, 2, 4).double() @ model[0].weight.t())[:, :3]
        y = f(x)
        y.sum().backward()
        yield y, x.shape, model
        model.zero_grad()


@case
def result_in_another_layout_is_fed_back(compile):
    @compile
    def f(x):
        x.reshape(-1)[::2].sub_(0.1)
        return (x.abs() + 0.1).sqrt()

    for i in range(9):
        y = f(mat(i, 4, 3).T)
        yield y, y.stride(), f(y)


@case
def results_keep_their_layout(compile):
    w = mat(0, 3, 4).requires_grad_()

    @compile
    def f(x):
        y = (x.T * w.T).exp()
        return y, y.detach(), y[1:], x.T + 1

    for i in range(6):
        y, detached, part, z = f(mat(i, 3, 4))
        yield [t.stride() for t in (y, detached, part, z)], (y * z).sum().backward(), w.grad
        detached.mul_(2)
        yield y, detached, part


@case
def gradient_is_stored_and_then_replaced(compile):
    p = vec(0).requires_grad_()
    store = SimpleNamespace(own=None, given=None)

    @compile
    def f(x):
        store.own, store.given = p.grad, x.grad
        loss = (p * x).tanh().square().mean()
        loss.backward()
        return loss.detach()

    x, other = vec(1).requires_grad_(), vec(2).requires_grad_()
    for i in range(18):
        if i == 5:
            p.grad = tg.ones_like(p)
        elif i == 10:
            x, other = other, x
        f(x)
        yield p.grad, x.grad, store.own, store.given, store.own is p.grad, store.given is x.grad


@case
def gradient_is_stored_and_comes_and_goes(compile):
    p = vec(0).requires_grad_()
    store = SimpleNamespace(g=None)

    @compile
    def f():
        store.g = p.grad

    for i in range(15):
        if i in (3, 7, 12):
            p.grad = tg.ones_like(p) * i
        elif i in (6, 10):
            p.grad = None
        f()
        yield store.g, store.g is p.grad


@case
def gradient_of_the_last_call_is_stored(compile):
    p = vec(0).requires_grad_()
    optimizer = tg.optim.SGD([p], lr=0.05)
    memory = {}

    @compile
    def f(x):
        memory["g"] = p.grad
        optimizer.zero_grad()
        loss = (p * x).sin().square().mean()
        loss.backward()
        return loss.detach()

    for i in range(7):
        yield f(vec(i)), p.grad, memory["g"], memory["g"] is p.grad


@case
def captured_view_of_an_argument_that_changes(compile):
    """It is derived anew from its base, which may be another tensor than the next argument."""
    p, buffer = vec(0).requires_grad_(), vec(1)
    turned = buffer[None]

    @compile
    def f(x):
        p.grad = None
        y = p * turned.sum()
        y.square().mean().backward()
        return y.detach()

    for i, letter in enumerate("AAABBBABAABB"):
        if i in (3, 4, 9):
            buffer.mul_(0.5 + i)
        yield f(vec(i) if letter == "A" else buffer), p.grad


@case
def captured_view_of_an_argument_that_the_call_changes(compile):
    buffer = vec(1)
    part = buffer[:2]

    @compile
    def f(x):
        x.mul_(0.9)
        return part * 2

    for i, letter in enumerate("BBBBABAABB"):
        buffer.add_(0.25)
        yield f(vec(i) if letter == "A" else buffer), buffer, part


def _arguments_on_captured_memory(compile, requires):
    captured, other = vec(0).requires_grad_(requires), vec(1) * 3

    @compile
    def f(x, turned):
        turned[0] = 0.25
        captured.data.mul_(0.9)
        x.narrow(0, 0, 1).copy_(x.narrow(0, len(x) - 1, 1))
        return captured * 2

    for letter in "AAABBBABAABB":
        x = (other if letter == "A" else captured).detach()
        turned = tg.from_numpy(x.numpy()[::-1])
        yield f(x, turned), x, turned, captured


@case
def arguments_overlap_and_show_a_captured_tensor(compile):
    yield from _arguments_on_captured_memory(compile, False)


@case
def arguments_overlap_and_show_a_captured_leaf(compile):
    yield from _arguments_on_captured_memory(compile, True)


@case
def results_with_separate_histories(compile):
    """The backward pass of one result does not use up the history of another."""
    p, q = vec(0).requires_grad_(), vec(1).requires_grad_()
    memory = {"last": None}

    @compile
    def f(x):
        kept, y = p * 1.0, (q * x).exp()
        y = y if memory["last"] is None else y + memory["last"].mean()
        memory["last"] = kept
        return y

    for i in range(8):
        p.grad = q.grad = None
        f(vec(i)).sum().backward()
        yield p.grad, q.grad
