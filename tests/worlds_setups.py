"""Worlds of models with memory and of other ways to compile: hidden states, caches, precision."""

from __future__ import annotations

import functools

from worlds import Config, Training, attempt, batch, case, mat, network, vec

import tapegrad as tg
from tapegrad import nn
from tapegrad.utils.checkpoint import checkpoint

F = nn.functional


# -- states that are carried over ----------------------------------------------------------------


class Recurrent(nn.Module):
    """A cell that carries its hidden state from call to call."""

    def __init__(self):
        super().__init__()
        tg.manual_seed(0)
        self.cell, self.head = nn.RNNCell(4, 5), nn.Linear(5, 3)
        self.h = None
        self.double()

    def forward(self, x):
        h = self.cell(x, self.h)
        self.h = h.detach()
        return self.head(h)


@case
def hidden_state_in_an_attribute(compile):
    model = Recurrent()
    optimizer = tg.optim.SGD(model.parameters(), lr=0.1)

    @compile
    def step(x, y):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    for i in range(12):
        if i == 8:
            model.h = None
        yield step(*batch(i)), model, model.h


@case
def hidden_state_in_an_attribute_of_a_compiled_model(compile):
    model = Recurrent()
    fast = compile(model)
    for i in range(10):
        model.zero_grad()
        F.cross_entropy(fast(batch(i)[0]), batch(i)[1]).backward()
        yield model, model.h


@case(replays=True)
def hidden_state_as_argument_and_result(compile):
    tg.manual_seed(0)
    cell, head = nn.GRUCell(4, 5).double(), nn.Linear(5, 3).double()
    optimizer = tg.optim.SGD([*cell.parameters(), *head.parameters()], lr=0.1)

    @compile
    def step(x, y, h):
        optimizer.zero_grad()
        h = cell(x, h)
        loss = F.cross_entropy(head(h), y)
        loss.backward()
        optimizer.step()
        return loss, h.detach()

    h = tg.zeros(6, 5).double()
    for i in range(10):
        loss, h = step(*batch(i), h)
        yield loss, h, cell


@case(replays=True)
def hidden_state_in_a_buffer_changed_in_place(compile):
    cell = nn.RNNCell(4, 4)
    cell.register_buffer("h", tg.zeros(4, 4))

    @compile
    def step(x):
        cell.zero_grad()
        h = cell(x, cell.h)
        h.sum().backward()
        cell.h.copy_(h.detach())
        return h.detach()

    for i in range(8):
        if i == 5:
            cell.h.zero_()
        yield step(mat(i)), cell


class Attention(nn.Module):
    """Attention that keeps keys and values of earlier positions."""

    def __init__(self, joined):
        super().__init__()
        tg.manual_seed(0)
        self.qkv, self.joined = nn.Linear(4, 12, bias=False), joined
        self.cache = None
        self.keys, self.values = tg.zeros(10, 4), tg.zeros(10, 4)

    def forward(self, x, position):
        q, k, v = self.qkv(x).chunk(3, -1)
        if self.joined:
            if self.cache is not None:
                k = tg.cat([self.cache[0], k])
                v = tg.cat([self.cache[1], v])
            self.cache = (k, v)
        else:
            self.keys[position], self.values[position] = k[0], v[0]
            k, v = self.keys[: position + 1], self.values[: position + 1]
        return (q @ k.T).softmax(-1) @ v


@case
def decoding_with_a_cache_that_is_joined(compile):
    model = Attention(True)
    fast = compile(model)
    with tg.no_grad():
        for i in range(9):
            if i == 6:
                model.cache = None
            yield fast(mat(i, 1), i), model.cache


@case
def decoding_with_a_cache_that_is_filled(compile):
    model = Attention(False)
    fast = compile(model)
    with tg.no_grad():
        for i in range(9):
            yield fast(mat(i, 1), i), model.keys, model.values


@case(replays=True)
def decoding_with_a_position_in_a_tensor(compile):
    model = Attention(False)
    places = tg.arange(10)

    @compile
    def step(x, position):
        q, k, v = model.qkv(x).chunk(3, -1)
        model.keys.index_copy_(0, position, k)
        model.values.index_copy_(0, position, v)
        scores = (q @ model.keys.T).masked_fill(places > position, float("-inf"))
        return scores.softmax(-1) @ model.values

    with tg.no_grad():
        for i in range(9):
            yield step(mat(i, 1), tg.tensor([i])), model.keys


@case
def decoding_that_grows_its_input(compile):
    model = nn.Embedding(5, 4)
    fast = compile(lambda ids: model(ids).mean(0).argmax())
    ids = tg.tensor([0])
    for _ in range(8):
        ids = tg.cat([ids, fast(ids).reshape(1)])
        yield ids


@case
def activations_collected_by_hooks(compile):
    t, seen = Training(compile), {}

    def keep(name):
        return lambda module, args, out: seen.__setitem__(name, out.detach())

    handles = [m.register_forward_hook(keep(n)) for n, m in t.model.named_children()]
    for i in range(10):
        if i == 6:
            handles[0].remove()
        loss = t.step(*batch(i))
        yield loss, dict(seen), t.model
        seen.clear()


@case
def running_mean_of_the_loss_in_a_number(compile):
    t, c = Training(compile), Config(0.0)

    def plain_step(x, y):
        loss = t.plain_step(x, y)
        c.rate = 0.9 * c.rate + 0.1 * loss.item()
        return loss

    step = compile(plain_step)
    for i in range(8):
        yield step(*batch(i)), c.rate


@case
def running_mean_of_the_loss_in_a_tensor(compile):
    t, c = Training(compile), Config(tg.tensor(0.0, dtype=tg.float64))

    def plain_step(x, y):
        loss = t.plain_step(x, y)
        c.rate = 0.9 * c.rate + 0.1 * loss.detach()
        return loss

    step = compile(plain_step)
    for i in range(8):
        yield step(*batch(i)), c.rate


@case
def step_skipped_if_the_loss_is_large(compile):
    t = Training(compile)

    def plain_step(x, y):
        t.optimizer.zero_grad()
        loss = F.cross_entropy(t.model(x), y)
        if loss < 1.15:
            loss.backward()
            t.optimizer.step()
        return loss

    step = compile(plain_step)
    for i in range(8):
        yield step(*batch(i)), t.model


# -- precision and memory ------------------------------------------------------------------------


@case
def scaled_gradients(compile):
    model = nn.Linear(4, 3)
    optimizer = tg.optim.SGD(model.parameters(), lr=0.01)
    scaler = tg.amp.GradScaler("cpu", init_scale=8.0, growth_interval=3)

    def step(x):
        optimizer.zero_grad()
        loss = (model(x) ** 2).mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        return loss

    step = compile(step)
    for i in range(10):
        x = mat(i) * (float("inf") if i == 6 else 1)
        yield attempt(step, x), model, scaler.get_scale()


@case(replays=True)
def scaled_gradients_with_the_update_outside(compile):
    model = nn.Linear(4, 3)
    optimizer = tg.optim.SGD(model.parameters(), lr=0.01)
    scaler = tg.amp.GradScaler("cpu", init_scale=8.0, growth_interval=3)

    @compile
    def backward(x):
        optimizer.zero_grad()
        loss = (model(x) ** 2).mean()
        scaler.scale(loss).backward()
        return loss

    for i in range(12):
        loss = backward(mat(i))
        scaler.step(optimizer)
        scaler.update()
        yield loss, model, scaler.get_scale()


@case(replays=True)
def precision_switched(compile):
    model, c = nn.Linear(4, 3), Config(True)

    @compile
    def step(x):
        model.zero_grad()
        with tg.autocast("cpu", dtype=tg.bfloat16, enabled=c.rate):
            y = model(x)
        (y.float() ** 2).mean().backward()
        return y

    for i in range(10):
        c.rate = i % 2 == 0
        y = step(mat(i))
        exact = tg.allclose(y.float(), model(mat(i)), atol=1e-6)
        yield str(y.dtype), exact, model.weight.grad.dtype is tg.float32


@case(replays=True)
def activations_computed_again(compile):
    model, c = network(), Config(True)
    front = model[:2]
    optimizer = tg.optim.SGD(model.parameters(), lr=0.1)

    @compile
    def step(x, y):
        optimizer.zero_grad()
        h = checkpoint(front, x, use_reentrant=False) if c.rate else front(x)
        loss = F.cross_entropy(model[2](h), y)
        loss.backward()
        optimizer.step()
        return loss

    for i in range(10):
        c.rate = i % 2 == 0
        yield step(*batch(i)), model


@case
def layers_sliced_inside(compile):
    model = network()

    @compile
    def step(x, y):
        model.zero_grad()
        h = checkpoint(model[:2], x, use_reentrant=False)
        loss = F.cross_entropy(model[2:](h), y)
        loss.backward()
        return loss

    for i in range(8):
        yield step(*batch(i)), model


@case(replays=True)
def activations_computed_again_with_a_setting(compile):
    model, c = network(), Config(1.0)

    def body(x):
        return model[0](x).tanh() * c.rate

    @compile
    def step(x, y):
        model.zero_grad()
        loss = F.cross_entropy(model[2](checkpoint(body, x, use_reentrant=False)), y)
        loss.backward()
        return loss

    for i in range(10):
        c.rate = 1.0 if i < 5 else 2.0
        yield step(*batch(i)), model


# -- ways to compile -----------------------------------------------------------------------------


@case(replays=True)
def compiled_bound_method(compile):
    t = Training(lambda f: f)
    t.step = compile(t.plain_step)
    return t.run()


@case(replays=True)
def compiled_method_of_a_class(compile):
    class Model(nn.Module):
        def __init__(self, seed):
            super().__init__()
            self.net, self.scale = network(seed), 1.0 + seed

        @compile
        def loss(self, x, y):
            return F.cross_entropy(self.net(x) * self.scale, y)

    models = [Model(0), Model(1)]
    for i in range(12):
        model = models[i % 2]
        if i == 8:
            models[0].scale = 5.0
        model.zero_grad()
        loss = model.loss(*batch(i))
        loss.backward()
        yield loss, model


@case(replays=True)
def compiled_object(compile):
    class Step:
        def __init__(self):
            self.model, self.rate = network(), 0.1

        def __call__(self, x, y):
            self.model.zero_grad()
            loss = F.cross_entropy(self.model(x), y)
            loss.backward()
            with tg.no_grad():
                for p in self.model.parameters():
                    p -= self.rate * p.grad
            return loss

    stepper = Step()
    step = compile(stepper)
    for i in range(10):
        stepper.rate = 0.1 if i < 5 else 0.01
        yield step(*batch(i)), stepper.model


@case(replays=True)
def compiled_closure_of_a_factory(compile):
    def make(model, rate):
        optimizer = tg.optim.SGD(model.parameters(), lr=rate)

        @compile
        def step(x, y):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            return loss

        return step

    models = [network(0), network(1)]
    steps = [make(models[0], 0.1), make(models[1], 0.01)]
    for i in range(12):
        yield steps[i % 2](*batch(i)), models


@case(replays=True)
def compiled_partial_with_an_optimizer(compile):
    def train_step(model, optimizer, x, y):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    model = network()
    optimizer = tg.optim.SGD(model.parameters(), lr=0.1)
    step = compile(functools.partial(train_step, model, optimizer))
    for i in range(10):
        optimizer.param_groups[0]["lr"] = 0.1 / (i + 1)
        yield step(*batch(i)), model


@case(replays=True)
def model_and_optimizer_as_arguments(compile):
    @compile
    def train_step(model, optimizer, x, y):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    models = [network(0), network(1)]
    optimizers = [tg.optim.SGD(m.parameters(), lr=0.1, momentum=0.9) for m in models]
    for i in range(12):
        k = i % 2
        yield train_step(models[k], optimizers[k], *batch(i)), models


@case(replays=True)
def compiled_with_decorators_around(compile):
    calls = []

    def counted(function):
        @functools.wraps(function)
        def wrapper(*args):
            calls.append(len(args))
            return function(*args)

        return wrapper

    model = network()
    step = counted(compile(tg.no_grad()(lambda x: model(x))))
    for i in range(8):
        yield step(batch(i)[0]), calls


@case
def compiled_with_decorators_inside(compile):
    calls = []

    def counted(function):
        @functools.wraps(function)
        def wrapper(*args):
            calls.append(len(args))
            return function(*args)

        return wrapper

    model = network()
    step = compile(counted(lambda x: model(x)))
    for i in range(8):
        yield step(batch(i)[0]), calls


@case(replays=True)
def loop_inside_the_step(compile):
    model, c = network(), Config(2)
    optimizer = tg.optim.SGD(model.parameters(), lr=0.1)

    @compile
    def epoch(xs, ys):
        total = 0.0
        for x, y in zip(xs.split(2), ys.split(2), strict=True):
            for _ in range(c.rate):
                optimizer.zero_grad()
                loss = F.cross_entropy(model(x), y)
                loss.backward()
                optimizer.step()
                total = total + loss.detach()
        return total

    for i in range(9):
        c.rate = 1 if 3 <= i < 6 else 2
        yield epoch(*batch(i)), model


@case(replays=True)
def inputs_optimised_instead_of_weights(compile):
    model, x = network().requires_grad_(False), mat(0, 6).double().requires_grad_()
    optimizer = tg.optim.Adam([x], lr=0.1)
    target = Config(0)

    @compile
    def step():
        optimizer.zero_grad()
        loss = -model(x)[:, target.rate].mean()
        loss.backward()
        optimizer.step()
        return loss

    for i in range(12):
        target.rate = 0 if i < 4 else 1 if i < 8 else 2
        yield step(), x


@case(replays=True)
def parameters_without_a_module(compile):
    w, b = mat().double().requires_grad_(), vec().double().requires_grad_()

    @compile
    def step(x, rate=0.1):
        loss = ((x @ w + b) ** 2).mean()
        gradients = tg.autograd.grad(loss, [w, b])
        with tg.no_grad():
            for p, g in zip([w, b], gradients, strict=True):
                p -= rate * g
        return loss

    for i in range(10):
        yield step(mat(i).double(), 0.1 if i % 2 else 0.2), w, b
