"""Module: registering, modes, state dictionaries, copies, hooks, containers."""

from __future__ import annotations

import copy
import pickle
from collections import OrderedDict
from typing import Any

import numpy as np
import pytest

import tapegrad
from tapegrad import Tensor, nn


class Net(nn.Module):
    """Two layers, a buffer that is saved and one that is not."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(3, 4)
        self.second = nn.Linear(4, 2, bias=False)
        self.scale = nn.Parameter(tapegrad.ones(2))
        self.register_buffer("mean", tapegrad.zeros(3))
        self.register_buffer("cache", tapegrad.zeros(1), persistent=False)
        self.note = "plain"

    def forward(self, x: Tensor) -> Any:
        return self.second(self.first(x - self.mean).relu()) * self.scale


# -- registering -------------------------------------------------------------------------------


def test_attributes_are_registered_by_their_kind() -> None:
    net = Net()
    names = ["scale", "first.weight", "first.bias", "second.weight"]
    assert [name for name, _ in net.named_parameters()] == names
    assert [name for name, _ in net.named_buffers()] == ["mean", "cache"]
    assert [name for name, _ in net.named_children()] == ["first", "second"]
    assert [name for name, _ in net.named_modules()] == ["", "first", "second"]
    assert len(list(net.parameters())) == 4
    assert list(net.parameters(recurse=False)) == [net.scale]
    assert net.get_submodule("first") is net.first
    assert net.get_submodule("") is net
    assert net.get_parameter("first.bias") is net.first.bias
    assert net.get_buffer("mean") is net.mean
    assert "scale" in dir(net)
    assert "first" in dir(net)
    with pytest.raises(AttributeError, match="no module 'third'"):
        net.get_submodule("third")
    with pytest.raises(AttributeError, match=r"no parameter 'first\.gain'"):
        net.get_parameter("first.gain")
    with pytest.raises(AttributeError, match="no attribute 'missing'"):
        _ = net.missing


def test_attributes_can_be_replaced_and_deleted() -> None:
    net = Net()
    net.scale = nn.Parameter(tapegrad.zeros(2))
    assert not net.get_parameter("scale").any()
    with pytest.raises(TypeError, match="must be a Parameter or None"):
        net.scale = tapegrad.ones(2)
    with pytest.raises(TypeError, match="must be a Module or None"):
        net.first = 3
    with pytest.raises(TypeError, match="must be a Tensor or None"):
        net.mean = "zero"
    net.mean = tapegrad.ones(3)
    assert net.get_buffer("mean").all()
    net.scale = None
    assert "scale" not in dict(net.named_parameters())
    assert net.scale is None
    net.note = nn.Linear(1, 1)
    assert "note" in dict(net.named_children())
    del net.first
    assert not hasattr(net, "first")
    net.first = nn.Identity()
    net.second = nn.Parameter(tapegrad.ones(1))
    assert "second" not in dict(net.named_children())


def test_bad_registrations() -> None:
    net = Net()
    with pytest.raises(KeyError, match="without dots"):
        net.register_parameter("a.b", None)
    with pytest.raises(KeyError, match="non-empty"):
        net.register_buffer("", None)
    with pytest.raises(KeyError, match="has an attribute 'forward' already"):
        net.register_parameter("forward", nn.Parameter(tapegrad.ones(1)))
    with pytest.raises(TypeError, match="must be a string"):
        net.register_buffer(3, None)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"wrap it with nn\.Parameter"):
        net.register_parameter("p", tapegrad.ones(1))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="must be a Module"):
        net.add_module("m", 3)  # type: ignore[arg-type]
    with pytest.raises(NotImplementedError, match="needs a method forward"):
        nn.Module()(1)

    class Hasty(nn.Module):
        def __init__(self) -> None:
            self.layer = nn.Linear(1, 1)

    with pytest.raises(AttributeError, match=r"call super\(\).__init__\(\)"):
        Hasty()


def test_shared_modules_and_parameters_are_listed_once() -> None:
    layer = nn.Linear(2, 2)
    both = nn.Sequential(layer, layer)
    assert len(list(both.parameters())) == 2
    assert len(list(both.named_parameters(remove_duplicate=False))) == 4
    assert list(both.state_dict()) == ["0.weight", "0.bias", "1.weight", "1.bias"]
    assert len(list(both.modules())) == 2
    tied = nn.Linear(2, 2)
    tied.weight = layer.weight
    assert len(list(nn.Sequential(layer, tied).parameters())) == 3


def test_parameter() -> None:
    data = tapegrad.ones(2)
    p = nn.Parameter(data)
    assert p.requires_grad
    assert p.is_leaf
    data[0] = 5.0
    assert p.tolist() == [5.0, 1.0]
    assert not nn.Parameter(tapegrad.ones(1), requires_grad=False).requires_grad
    assert type(p * 2) is Tensor
    assert "Parameter containing" in repr(p)
    for other in (copy.deepcopy(p), pickle.loads(pickle.dumps(p))):
        assert type(other) is nn.Parameter
        assert other.requires_grad
        assert other.tolist() == p.tolist()
    with pytest.raises(RuntimeError, match="only floating"):
        nn.Parameter(tapegrad.tensor([1, 2]))


# -- modes and places --------------------------------------------------------------------------


def test_modes() -> None:
    net = nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.5), nn.Sequential(nn.BatchNorm1d(2)))
    assert all(m.training for m in net.modules())
    assert net.eval() is net
    assert not any(m.training for m in net.modules())
    net[2].train()
    assert [m.training for m in net.modules()] == [False, False, False, True, True]
    with pytest.raises(ValueError, match="must be True or False"):
        net.train("yes")  # type: ignore[arg-type]
    net.requires_grad_(False)
    assert not any(p.requires_grad for p in net.parameters())


def test_conversion_keeps_parameters_and_converts_gradients() -> None:
    net = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    weight = net[0].weight
    net(tapegrad.randn(4, 2)).sum().backward()
    net.double()
    assert net[0].weight is weight
    assert weight.dtype is weight.grad.dtype is tapegrad.float64
    assert net[1].running_mean.dtype is tapegrad.float64
    assert net[1].num_batches_tracked.dtype is tapegrad.int64
    assert net.to(tapegrad.float16)[0].bias.dtype is tapegrad.float16
    assert net.to(tapegrad.zeros(1))[0].bias.dtype is tapegrad.float32
    assert net.bfloat16().half().float().cpu().to("cpu", dtype=tapegrad.float64) is net
    assert net.type(tapegrad.float32)[0].bias.dtype is tapegrad.float32
    with pytest.raises(TypeError, match="floating"):
        net.to(tapegrad.int64)
    with pytest.raises(TypeError, match="unexpected keyword"):
        net.to(place="cpu")


def test_zero_grad_and_apply() -> None:
    net = Net()
    net(tapegrad.ones(2, 3)).sum().backward()
    net.zero_grad(set_to_none=False)
    assert not net.scale.grad.any()
    net.zero_grad()
    assert net.scale.grad is None
    seen: list[str] = []
    assert net.apply(lambda m: seen.append(type(m).__name__)) is net
    assert seen == ["Linear", "Linear", "Net"]


# -- state -------------------------------------------------------------------------------------


def test_state_dict_shares_memory_and_skips_what_is_not_persistent() -> None:
    net = Net()
    state = net.state_dict()
    assert list(state) == ["scale", "mean", "first.weight", "first.bias", "second.weight"]
    assert not state["scale"].requires_grad
    state["scale"][0] = 7.0
    assert net.scale[0].item() == 7.0
    assert net.state_dict(keep_vars=True)["scale"] is net.scale
    assert list(net.first.state_dict(prefix="a.")) == ["a.weight", "a.bias"]


def test_load_state_dict() -> None:
    first, second = Net(), Net()
    assert repr(second.load_state_dict(first.state_dict())) == "<All keys matched successfully>"
    for a, b in zip(first.parameters(), second.parameters(), strict=True):
        np.testing.assert_array_equal(a.detach().numpy(), b.detach().numpy())
        assert a._array is not b._array
    weight = second.scale
    arrays = {k: v.numpy().astype(np.float64) + 1 for k, v in first.state_dict().items()}
    second.load_state_dict(arrays)
    assert second.scale is weight
    assert weight.dtype is tapegrad.float32
    assert weight.tolist() == [2.0, 2.0]


def test_loading_without_strict() -> None:
    net = Net()
    state = net.state_dict()
    del state["scale"]
    state["extra"] = tapegrad.ones(1)
    found = net.load_state_dict(state, strict=False)
    assert found.missing_keys == ["scale"]
    assert found.unexpected_keys == ["extra"]


def test_loading_by_assigning() -> None:
    net = Net()
    state = {k: v.double() for k, v in net.state_dict().items()}
    net.load_state_dict(state, assign=True)
    assert net.scale.dtype is tapegrad.float64
    assert net.scale._array is state["scale"]._array
    assert isinstance(net.scale, nn.Parameter)
    assert net.scale.requires_grad


def test_a_bad_state_dict_changes_nothing() -> None:
    net = Net()
    before = {k: v.numpy().copy() for k, v in net.state_dict().items()}
    state: dict[str, Any] = {k: v + 1 for k, v in net.state_dict().items()}
    del state["mean"]
    state["first.weight"] = tapegrad.zeros(9, 9)
    state["second.weight"] = "text"
    state["odd"] = tapegrad.zeros(1)
    with pytest.raises(RuntimeError) as error:
        net.load_state_dict(state)
    for part in (
        "nothing was changed",
        "missing keys: 'mean'",
        "unexpected keys: 'odd'",
        "size mismatch for 'first.weight': the state dict has shape (9, 9), the module (4, 3)",
        "'second.weight' must be a Tensor, got str",
    ):
        assert part in str(error.value)
    for name, value in net.state_dict().items():
        np.testing.assert_array_equal(value.numpy(), before[name])
    with pytest.raises(TypeError, match="must be a mapping"):
        net.load_state_dict([1])  # type: ignore[arg-type]


def test_copies_are_independent() -> None:
    net = nn.Sequential(OrderedDict(a=nn.Linear(2, 2), b=nn.BatchNorm1d(2)))
    net[0].weight.requires_grad_(False)
    for other in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        assert repr(other) == repr(net)
        assert other.a.weight._array is not net.a.weight._array
        assert not other.a.weight.requires_grad
        assert other.a.bias.requires_grad
        x = tapegrad.randn(4, 2)
        np.testing.assert_allclose(other(x).detach().numpy(), net(x).detach().numpy())
        with tapegrad.no_grad():
            other.a.weight.add_(1.0)
        assert not np.allclose(other.a.weight.numpy(), net.a.weight.numpy())


def test_deep_copies_keep_ties() -> None:
    net = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    net[1].weight = net[0].weight
    other = copy.deepcopy(net)
    assert other[1].weight is other[0].weight


# -- hooks -------------------------------------------------------------------------------------


def test_forward_hooks() -> None:
    layer = nn.Linear(2, 2)
    calls: list[str] = []

    def before(module: nn.Module, args: Any) -> Any:
        calls.append("before")
        return (args[0] * 0,)

    def after(module: nn.Module, args: Any, out: Any) -> Any:
        calls.append("after")
        return out + 1

    handles = [layer.register_forward_pre_hook(before), layer.register_forward_hook(after)]
    out = layer(tapegrad.ones(3, 2))
    np.testing.assert_allclose(out.detach().numpy(), np.tile(layer.bias.tolist(), (3, 1)) + 1)
    assert calls == ["before", "after"]
    for handle in handles:
        handle.remove()
        handle.remove()
    layer(tapegrad.ones(3, 2))
    assert calls == ["before", "after"]


def test_hooks_with_keywords_and_in_front() -> None:
    class Scaled(nn.Module):
        def forward(self, x: Tensor, factor: float = 1.0) -> Any:
            return x * factor

    module = Scaled()
    order: list[int] = []
    module.register_forward_pre_hook(
        lambda m, args, kwargs: (args, {"factor": kwargs["factor"] * 2}), with_kwargs=True
    )
    module.register_forward_hook(
        lambda m, args, kwargs, out: order.append(kwargs["factor"]), with_kwargs=True
    )
    module.register_forward_hook(lambda m, args, out: order.append(0), prepend=True)
    assert module(tapegrad.ones(1), factor=3).tolist() == [6.0]
    assert order == [0, 6]


def test_a_hook_that_is_always_called() -> None:
    class Failing(nn.Module):
        def forward(self, x: Tensor) -> Any:
            raise ValueError("broken")

    seen: list[str] = []
    module = Failing()
    module.register_forward_hook(lambda m, args, out: seen.append("always"), always_call=True)
    module.register_forward_hook(lambda m, args, out: seen.append("sometimes"))
    with pytest.raises(ValueError, match="broken"):
        module(tapegrad.ones(1))
    assert seen == ["always"]


def test_backward_hooks_see_and_replace_gradients() -> None:
    layer = nn.Linear(3, 2)
    x = tapegrad.randn(4, 3, requires_grad=True)
    seen: list[Any] = []

    def hook(module: nn.Module, grad_input: Any, grad_output: Any) -> Any:
        seen.append((module, grad_input, grad_output))
        return (grad_input[0] * 10,)

    handle = layer.register_full_backward_hook(hook)
    layer(x).sum().backward()
    (module, grad_input, grad_output), *_ = seen
    assert module is layer
    np.testing.assert_array_equal(grad_output[0].numpy(), np.ones((4, 2)))
    expected = np.tile(layer.weight.detach().numpy().sum(0), (4, 1))
    np.testing.assert_allclose(grad_input[0].numpy(), expected, rtol=1e-6)
    np.testing.assert_allclose(x.grad.numpy(), 10 * expected, rtol=1e-6)
    handle.remove()
    x.grad = None
    layer(x).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), expected, rtol=1e-6)
    assert len(seen) == 1


def test_backward_pre_hooks_and_modules_without_input_gradients() -> None:
    layer = nn.Linear(3, 2)
    seen: list[Any] = []
    layer.register_full_backward_pre_hook(lambda m, grad_output: (grad_output[0] * 3,))
    layer.register_full_backward_hook(lambda m, gi, go: seen.append((gi, go)))
    layer(tapegrad.ones(4, 3)).sum().backward()
    assert seen[0][0] == (None,)
    np.testing.assert_array_equal(seen[0][1][0].numpy(), 3 * np.ones((4, 2)))
    np.testing.assert_array_equal(layer.bias.grad.numpy(), [12.0, 12.0])


def test_backward_hooks_of_several_outputs() -> None:
    class Halves(nn.Module):
        def forward(self, x: Tensor, y: Tensor) -> Any:
            return x * 2, y * 3

    module = Halves()
    seen: list[Any] = []
    module.register_full_backward_hook(lambda m, gi, go: seen.append((gi, go)))
    x, y = (tapegrad.ones(2, requires_grad=True) for _ in range(2))
    first, _ = module(x, y)
    first.sum().backward()
    grad_input, grad_output = seen[0]
    assert grad_input[0].tolist() == [2.0, 2.0]
    assert grad_output[0].tolist() == [1.0, 1.0]
    assert grad_output[1] is None


def test_backward_hooks_differentiate_twice() -> None:
    layer = nn.Sequential(nn.Linear(2, 2), nn.Tanh()).double()
    layer.register_full_backward_hook(lambda m, gi, go: (gi[0] * 2,))
    x = tapegrad.randn(3, 2, dtype=tapegrad.float64, requires_grad=True)
    (g,) = tapegrad.autograd.grad(layer(x).sum(), x, create_graph=True)
    g.sum().backward()
    assert x.grad is not None
    assert x.grad.any()


# -- containers --------------------------------------------------------------------------------


def test_sequential() -> None:
    net = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
    assert len(net) == 3
    assert isinstance(net[-1], nn.Linear)
    assert [type(m).__name__ for m in net[:2]] == ["Linear", "ReLU"]
    net.insert(1, nn.Tanh())
    net.append(nn.Sigmoid()).extend([nn.Identity()])
    assert [type(m).__name__ for m in net] == [
        *("Linear", "Tanh", "ReLU", "Linear", "Sigmoid", "Identity"),
    ]
    assert list(dict(net.named_children())) == ["0", "1", "2", "3", "4", "5"]
    del net[1]
    assert isinstance(net.pop(-1), nn.Identity)
    net[1] = nn.GELU()
    assert net(tapegrad.ones(4, 2)).shape == (4, 1)
    with pytest.raises(IndexError, match="out of range"):
        _ = net[9]
    with pytest.raises(TypeError, match="must be a Module"):
        nn.Sequential(3)


def test_module_lists_and_dicts() -> None:
    layers = nn.ModuleList([nn.Linear(2, 2) for _ in range(3)])
    layers += [nn.Linear(2, 1)]
    assert len(layers + nn.ModuleList([nn.ReLU()])) == 5
    assert len(list(layers.parameters())) == 8
    assert isinstance(layers[1:], nn.ModuleList)
    assert list(dict(layers[1:].named_children())) == ["0", "1", "2"]
    assert "(0-2): 3 x Linear" in repr(layers)
    assert repr(nn.ModuleList()) == "ModuleList()"

    heads = nn.ModuleDict({"a": nn.Linear(2, 1), "b": nn.Linear(2, 2)})
    heads["c"] = nn.ReLU()
    heads.update([("d", nn.Identity())])
    assert list(heads) == list(heads.keys()) == ["a", "b", "c", "d"]
    assert "b" in heads
    assert isinstance(heads.pop("c"), nn.ReLU)
    assert len(heads) == len(heads.items()) == len(heads.values()) == 3
    heads.clear()
    assert not heads._modules


def test_parameter_lists_and_dicts() -> None:
    values = nn.ParameterList([tapegrad.ones(2), nn.Parameter(tapegrad.zeros(3))])
    values.append(tapegrad.ones(1))
    values += [tapegrad.ones(4)]
    assert [p.shape[0] for p in values] == [2, 3, 1, 4]
    assert all(p.requires_grad for p in values.parameters())
    values[-1] = tapegrad.ones(5)
    assert values[3].shape == (5,)
    assert len(values[1:3]) == 2
    assert "Parameter containing: [tapegrad.float32 of size 2]" in repr(values)
    values.append(3)  # not a parameter, but part of the list, as in PyTorch
    assert values[-1] == 3
    assert len(list(values.parameters())) == len(values) - 1
    with pytest.raises(IndexError, match="out of range"):
        _ = values[7]

    named = nn.ParameterDict({"a": tapegrad.ones(2)})
    named["b"] = nn.Parameter(tapegrad.zeros(1))
    assert list(named) == ["a", "b"]
    assert named.get("c") is None
    assert list(named.state_dict()) == ["a", "b"]
    named.pop("a")
    assert len(named) == 1
    named.clear()
    assert "b" not in named


def test_train_asks_the_modules_inside() -> None:
    """A module inside may say itself what `train` does, such as a frozen part of a model."""

    class Frozen(nn.Linear):
        def train(self, mode: bool = True) -> Frozen:
            return super().train(False)

    model = nn.Sequential(nn.Sequential(Frozen(2, 2), nn.Dropout()), nn.Linear(2, 2))
    model.train()
    inner, outer = model
    assert (inner[0].training, inner[1].training, outer.training) == (False, True, True)
    model.eval()
    assert not any(m.training for m in model.modules())


def test_a_module_may_have_the_name_of_a_class_attribute():
    class Wrapper(nn.Module):
        head = None

        def __init__(self):
            super().__init__()
            self.head = nn.Linear(2, 1)
            self.inner = nn.Linear(1, 1)

        def __getattr__(self, name):
            try:
                return super().__getattr__(name)
            except AttributeError:
                return getattr(self.inner, name)

    found = Wrapper()
    assert [*found._modules] == ["head", "inner"]
    assert found.head is None
    assert found.in_features == 1
