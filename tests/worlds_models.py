"""Worlds whose models change between calls: layers, hooks, functions of one's own."""

from __future__ import annotations

from worlds import TURNS, Config, case, mat, vec, with_rates

import tapegrad as tg
from tapegrad import nn


def linear(i=0, size=4):
    """A layer with known weights."""
    tg.manual_seed(i)
    return nn.Linear(size, size)


class Stack(nn.Module):
    """Layers in a list of modules."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([linear(0), linear(1)])

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


class Scale(nn.Module):
    def __init__(self, rate=2.0):
        super().__init__()
        self.rate = rate

    def forward(self, x):
        return x * self.rate + 1


# -- layers --------------------------------------------------------------------------------------


@case
def layer_appended_and_removed(compile):
    model = Stack()
    f = compile(model)
    for i in range(10):
        if i == 3:
            model.layers.append(linear(2))
        elif i == 6:
            del model.layers[0]
        elif i == 8:
            model.layers[0], model.layers[1] = model.layers[1], model.layers[0]
        yield f(mat(i))


@case(replays=True)
def layer_replaced(compile):
    model = Stack()
    f = compile(model)
    for i in range(8):
        if i == 3:
            model.layers[1] = linear(5)
        yield f(mat(i))


@case
def layers_in_a_plain_list(compile):
    layers = [linear(0), linear(1)]

    @compile
    def f(x):
        for layer in layers:
            x = layer(x)
        return x

    for i in range(10):
        if i == 3:
            layers.append(linear(2))
        elif i == 6:
            layers.pop(0)
        elif i == 8:
            layers.reverse()
        yield f(mat(i))


@case
def layers_in_a_dict(compile):
    layers = nn.ModuleDict({"a": linear(0), "b": linear(1)})
    c = Config("a")
    f = compile(lambda x: layers[c.rate](x))
    for i, name in enumerate("aaabbbabab"):
        c.rate = name
        if i == 8:
            layers["a"] = linear(7)
        yield f(mat(i))


@case(replays=True)
def layers_shared_and_swapped(compile):
    first, second = linear(0), linear(1)
    c = Config(first)
    f = compile(lambda x: c.rate(x))
    for i in range(10):
        c.rate = first if i % 2 else second
        yield f(mat(i))


@case(replays=True)
def layers_turned_off(compile):
    class Skipping(Stack):
        def forward(self, x):
            for layer, on in zip(self.layers, self.on, strict=True):
                x = layer(x) if on else x
            return x

    model = Skipping()
    f = compile(model)
    for i, rate in enumerate(TURNS):
        model.on = [True, rate > 2.5]
        yield f(mat(i))


@case(replays=True)
def setting_of_a_submodule(compile):
    model = nn.Sequential(linear(), Scale(), nn.Sequential(Scale(), nn.ReLU()))
    return with_rates(compile(model), model[2][0])


@case(replays=True)
def setting_of_a_layer_of_the_library(compile):
    model = nn.Sequential(nn.LeakyReLU(0.1), nn.Identity())
    f = compile(model)
    for rate in TURNS:
        model[0].negative_slope = rate / 10
        yield f(vec())


@case(replays=True)
def rate_of_dropout(compile):
    model = nn.Sequential(nn.Dropout(0.5), nn.Identity())
    f = compile(model)
    for i, rate in enumerate(TURNS):
        model[0].p = rate / 10
        tg.manual_seed(i)
        yield f(vec())


@case(replays=True)
def training_and_evaluation(compile):
    model = nn.Sequential(linear(), nn.BatchNorm1d(4), nn.Dropout(0.5))
    f = compile(model)
    for i in range(10):
        model.train(i % 2 == 0)
        tg.manual_seed(i)
        yield f(mat(i)), model


@case(replays=True)
def evaluation_of_one_layer(compile):
    model = nn.Sequential(linear(), nn.BatchNorm1d(4))
    f = compile(lambda x: model(x))
    for i in range(10):
        model[1].train(i % 4 < 2)
        yield f(mat(i)), model


@case(replays=True)
def training_is_asked(compile):
    class Model(nn.Module):
        def forward(self, x):
            return x * 2 + 1 if self.training else x

    model = nn.Sequential(Model())
    f = compile(model)
    for i in range(10):
        model.train(i % 2 == 0)
        yield f(vec(i))


@case
def momentum_of_batch_norm(compile):
    model = nn.BatchNorm1d(4)
    f = compile(model)
    for i in range(9):
        model.momentum = 0.1 if i < 3 else 0.5 if i < 6 else None
        yield f(mat(i)), model


@case
def parameter_replaced(compile):
    model = linear()
    f = compile(model)
    for i in range(9):
        if i in (3, 6):
            model.weight = nn.Parameter(mat(i))
        yield f(mat(i))


@case
def parameter_set_to_none(compile):
    model = linear()
    f = compile(lambda x: model(x))
    for i in range(9):
        if i == 3:
            model.bias = None
        elif i == 6:
            model.bias = nn.Parameter(vec())
        yield f(mat(i))


@case
def buffer_replaced(compile):
    model = Scale()
    del model.rate
    model.register_buffer("rate", vec())
    f = compile(model)
    for i in range(9):
        if i in (3, 6):
            model.rate = vec(i)
        yield f(vec())


@case
def forward_of_the_instance_patched(compile):
    model = nn.Sequential(Scale(), Scale())
    f = compile(lambda x: model(x))
    for i in range(9):
        if i == 3:
            model[0].forward = lambda x: x * 5
        elif i == 6:
            del model[0].forward
        yield f(vec())


@case
def forward_of_the_class_patched(compile):
    class Layer(Scale):
        pass

    model = nn.Sequential(Layer(), Scale())
    f = compile(model)
    for i in range(9):
        if i == 3:
            Layer.forward = lambda self, x: x * 5
        elif i == 6:
            del Layer.forward
        yield f(vec())


@case
def method_of_the_instance_patched(compile):
    class Model(Scale):
        def activate(self, x):
            return x * 2

        def forward(self, x):
            return self.activate(x) + 1

    model = Model()
    f = compile(model)
    for i in range(9):
        if i == 3:
            model.activate = lambda x: x * 7
        elif i == 6:
            del model.activate
        yield f(vec())


@case
def activation_in_an_attribute(compile):
    class Model(nn.Module):
        activation = staticmethod(tg.relu)

        def forward(self, x):
            return self.activation(x * 2 + 1)

    model = Model()
    f = compile(model)
    for i in range(9):
        model.activation = (tg.relu, tg.tanh, nn.functional.softplus)[i // 3]
        yield f(vec())


@case
def base_class_called_by_super(compile):
    class Base(nn.Module):
        rate = 2.0

        def forward(self, x):
            return x * self.rate

    class Model(Base):
        def forward(self, x):
            return super().forward(x) + 1

    model = nn.Sequential(Model())
    return with_rates(compile(model), Base)


# -- hooks ---------------------------------------------------------------------------------------


@case
def hook_added_and_removed(compile):
    model = nn.Sequential(Scale(), Scale())
    f, handle = compile(model), None
    for i in range(9):
        if i == 3:
            handle = model[0].register_forward_hook(lambda m, args, out: out * 3)
        elif i == 6:
            handle.remove()
        yield f(vec())


@case
def hook_before_added_and_removed(compile):
    model = nn.Sequential(Scale(), Scale())
    f, handle = compile(lambda x: model(x)), None
    for i in range(9):
        if i == 3:
            handle = model[1].register_forward_pre_hook(lambda m, args: (args[0] * 3,))
        elif i == 6:
            handle.remove()
        yield f(vec())


@case
def hook_on_the_compiled_module(compile):
    f = compile(Scale())
    seen, handle = [], None
    for i in range(9):
        if i == 3:
            handle = f.register_forward_hook(lambda m, args, out: seen.append(out.detach()))
        elif i == 6:
            handle.remove()
        yield f(vec(i)), seen


@case(replays=True)
def hook_that_reads_an_object(compile):
    model, c = nn.Sequential(Scale(), Scale()), Config()
    model[0].register_forward_hook(lambda m, args, out: out * c.rate)
    return with_rates(compile(model), c)


@case
def hook_that_collects(compile):
    model, seen = nn.Sequential(linear(), nn.ReLU()), {}
    model[0].register_forward_hook(lambda m, args, out: seen.update(hidden=out.detach()))
    f = compile(model)
    for i in range(8):
        yield f(mat(i)), seen


@case
def hook_that_counts(compile):
    model, c = nn.Sequential(linear(), nn.ReLU()), Config(0)

    def count(module, args, out):
        c.rate += 1

    model[0].register_forward_hook(count)
    f = compile(model)
    for i in range(8):
        yield f(mat(i)), c.rate


@case
def hook_on_a_parameter(compile):
    model, handle = linear(), None

    @compile
    def step(x):
        model.zero_grad()
        model(x).sum().backward()

    for i in range(9):
        if i == 3:
            handle = model.weight.register_hook(lambda g: g * 2)
        elif i == 6:
            handle.remove()
        step(mat(i))
        yield model


@case(replays=True)
def hook_on_a_parameter_that_reads_an_object(compile):
    model, c = linear(), Config()
    model.weight.register_hook(lambda g: g * c.rate)

    @compile
    def step(x):
        model.zero_grad()
        model(x).sum().backward()

    for i, rate in enumerate(TURNS):
        c.rate = rate
        step(mat(i))
        yield model


@case(replays=True)
def hook_on_a_tensor_inside(compile):
    model, c = linear(), Config()

    @compile
    def step(x):
        model.zero_grad()
        h = model(x)
        h.register_hook(lambda g: g.clamp(-c.rate, c.rate))
        (h * h).sum().backward()

    for i, rate in enumerate(TURNS):
        c.rate = rate / 4
        step(mat(i))
        yield model


@case
def hook_on_a_tensor_that_collects(compile):
    model, seen = linear(), []

    @compile
    def step(x):
        model.zero_grad()
        h = model(x)
        h.register_hook(lambda g: seen.append(g.sum()))
        (h * h).sum().backward()

    for i in range(8):
        step(mat(i))
        yield model, seen


@case
def backward_hook_of_a_module(compile):
    model, norms = nn.Sequential(linear(), nn.Tanh(), linear(1)), []
    model[0].register_full_backward_hook(lambda m, gi, go: norms.append(go[0].detach().sum()))

    @compile
    def step(x):
        model.zero_grad()
        model(x).sum().backward()

    for i in range(8):
        step(mat(i))
        yield model, norms


@case
def hook_after_accumulation(compile):
    model, count = linear(), []
    model.weight.register_post_accumulate_grad_hook(lambda p: count.append(len(count)))

    @compile
    def step(x):
        model.zero_grad()
        model(x).sum().backward()

    for i in range(8):
        step(mat(i))
        yield model, count


# -- functions of one's own ----------------------------------------------------------------------


TABLE = {"forward": 2.0, "backward": 1.0}


class Scaled(tg.autograd.Function):
    rate = 1.0

    @staticmethod
    def forward(ctx, x):
        return x * TABLE["forward"]

    @staticmethod
    def backward(ctx, g):
        return g * TABLE["backward"] * Scaled.rate


def with_function(compile):
    """A compiled step that gives the gradient of the argument."""
    TABLE.update(forward=2.0, backward=1.0)
    Scaled.rate = 1.0

    @compile
    def step(x):
        x = x.detach().requires_grad_()
        y = Scaled.apply(x)
        (g,) = tg.autograd.grad((y * y).sum(), x)
        return y.detach(), g

    return step


@case(replays=True)
def own_function_reads_a_dict_in_forward(compile):
    step = with_function(compile)
    for rate in TURNS:
        TABLE["forward"] = rate
        yield step(vec())


@case(replays=True)
def own_function_reads_a_dict_in_backward(compile):
    step = with_function(compile)
    for rate in TURNS:
        TABLE["backward"] = rate
        yield step(vec())


@case(replays=True)
def own_function_reads_its_class_in_backward(compile):
    return with_rates(with_function(compile), Scaled)


@case(replays=True)
def own_function_keeps_a_number(compile):
    class Power(tg.autograd.Function):
        @staticmethod
        def forward(ctx, x, k):
            ctx.save_for_backward(x)
            ctx.k = k
            return x**k

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return g * ctx.k * x ** (ctx.k - 1), None

    c, x = Config(), vec(requires_grad=True)
    f = compile(lambda x: Power.apply(x, int(c.rate)))
    for rate in TURNS:
        c.rate, x.grad = rate, None
        f(x).sum().backward()
        yield x.grad
