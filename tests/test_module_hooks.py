"""Hooks of all modules, hooks that cannot run, containers as lists and dictionaries."""

from __future__ import annotations

from collections import OrderedDict, namedtuple
from collections.abc import Iterator
from typing import Any

import pytest

import tapegrad
from tapegrad import nn
from tapegrad.nn.hooks import (
    EVERYWHERE,
    register_module_forward_hook,
    register_module_forward_pre_hook,
    register_module_full_backward_hook,
    register_module_full_backward_pre_hook,
)


@pytest.fixture
def seen() -> Iterator[list[Any]]:
    yield []
    assert not EVERYWHERE.hooks


def test_hooks_of_all_modules(seen: list[Any]) -> None:
    net = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    net[0].register_forward_hook(lambda m, args, out: seen.append("own"))
    x = tapegrad.ones(1, 2, requires_grad=True)
    handles = [
        register_module_forward_pre_hook(lambda m, args: seen.append(f"before {m._get_name()}")),
        register_module_forward_hook(lambda m, args, out: seen.append(m._get_name())),
        register_module_full_backward_pre_hook(lambda m, out: seen.append("gradient")),
        register_module_full_backward_hook(lambda m, into, out: seen.append(len(into))),
    ]
    loss = net(x).sum()
    forward = ["before Sequential", "before Linear", "Linear", "own", "before ReLU", "ReLU"]
    assert seen == [*forward, "Sequential"]
    seen.clear()
    loss.backward()
    assert seen == ["gradient", "gradient", 1, "gradient", 1, 1]
    for handle in handles:
        handle.remove()
    seen.clear()
    net(x)
    assert seen == ["own"]


def test_hooks_of_all_modules_stand_where_pytorch_has_them() -> None:
    assert nn.modules.module.register_module_forward_hook is register_module_forward_hook


def test_hooks_of_all_modules_in_compiled_functions(seen: list[Any]) -> None:
    net = nn.Linear(2, 2)
    step = tapegrad.compile(lambda x: net(x))
    x = tapegrad.ones(1, 2)
    plain = step(x).tolist()
    with register_module_forward_hook(lambda m, args, out: out * 2):
        assert step(x).tolist() == [[2 * v for v in plain[0]]]
    assert step(x).tolist() == plain


def test_backward_hooks_of_a_module_that_returns_no_tensors() -> None:
    class Named(nn.Module):
        def forward(self, x: Any) -> Any:
            return {"y": x * 2}

    module, x = Named(), tapegrad.ones(2, requires_grad=True)
    module.register_full_backward_hook(lambda m, into, out: pytest.fail("called"))
    with pytest.warns(UserWarning, match="Named returned dict"):
        y = module(x)["y"]
    y.sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [2.0, 2.0]


def test_backward_hooks_of_a_namedtuple() -> None:
    Pair = namedtuple("Pair", "double negative")

    class Both(nn.Module):
        def forward(self, x: Any) -> Any:
            return Pair(x * 2, -x)

    seen: list[Any] = []
    module, x = Both(), tapegrad.ones(2, requires_grad=True)
    module.register_full_backward_hook(lambda m, into, out: seen.append([g is None for g in out]))
    result = module(x)
    assert isinstance(result, Pair)
    result.negative.sum().backward()
    assert seen == [[True, False]]


def test_the_first_error_is_raised_though_a_hook_fails_too() -> None:
    def failing(*args: Any) -> None:
        raise KeyError("late")

    class Broken(nn.Module):
        def forward(self, x: Any) -> Any:
            raise ValueError("early")

    module = Broken()
    module.register_forward_hook(failing, always_call=True)
    with pytest.warns(UserWarning, match="late"), pytest.raises(ValueError, match="early"):
        module(1)


def test_a_module_cannot_take_the_name_of_a_parameter() -> None:
    net = nn.Linear(2, 2)
    with pytest.raises(TypeError, match="'weight' must be a Parameter or None"):
        net.weight = nn.ReLU()  # type: ignore[assignment]
    assert list(net.state_dict()) == ["weight", "bias"]


def test_loading_one_element_where_there_is_a_number() -> None:
    old = nn.ParameterList([tapegrad.zeros(())])
    old.load_state_dict({"0": tapegrad.tensor([4.0])})
    assert old[0].shape == ()
    assert old[0].item() == 4.0
    with pytest.raises(RuntimeError, match="size mismatch"):
        old.load_state_dict({"0": tapegrad.ones(2)})


def test_what_was_not_loaded_is_shown() -> None:
    found = nn.Linear(1, 1).load_state_dict({"x": tapegrad.ones(1)}, strict=False)
    shown = "missing_keys=['weight', 'bias'], unexpected_keys=['x']"
    assert repr(found) == f"_IncompatibleKeys({shown})"


def names(module: nn.Module) -> list[str]:
    return [m._get_name() for m in module.children()]


def test_adding_and_repeating_sequences() -> None:
    one, two = nn.Sequential(nn.ReLU()), nn.Sequential(nn.Tanh(), nn.ELU())
    assert names(one + two) == ["ReLU", "Tanh", "ELU"]
    assert len(two * 2) == len(2 * two) == 4
    assert (two * 2)[0] is (two * 2)[2]
    one += two
    one *= 2
    assert [m._get_name() for m in one] == ["ReLU", "Tanh", "ELU"] * 2
    with pytest.raises(ValueError, match="a Sequential can be added, got ModuleList"):
        _ = two + nn.ModuleList([nn.ReLU()])
    with pytest.raises(ValueError, match="once or more often, got 0"):
        _ = two * 0
    with pytest.raises(TypeError, match="whole number"):
        _ = two * 1.5
    with pytest.raises(IndexError, match="out of range for 2 modules"):
        two.insert(3, nn.ReLU())
    assert len(two) == 2


def test_deleting_numbers_the_rest_anew() -> None:
    net = nn.Sequential(OrderedDict(a=nn.ReLU(), b=nn.Linear(1, 1)))
    del net[0]
    assert list(net.state_dict()) == ["0.weight", "0.bias"]


def test_parameter_dictionaries_as_dictionaries() -> None:
    values = nn.ParameterDict({"b": tapegrad.ones(1), "a": tapegrad.ones(2)})
    assert list(reversed(values)) == ["b", "a"]  # a plain dictionary is sorted, as in PyTorch
    assert values.copy()["b"] is values["b"]
    assert list(values | nn.ParameterDict({"c": tapegrad.ones(1)})) == ["a", "b", "c"]
    values |= nn.ParameterDict({"d": tapegrad.ones(4)})
    assert values.setdefault("d", tapegrad.ones(1)).shape == (4,)
    assert values.setdefault("e", tapegrad.ones(5)).shape == (5,)
    assert values.popitem()[0] == "e"
    assert list(values.fromkeys(["x", "y"], tapegrad.ones(1))) == ["x", "y"]
    values.clear()
    with pytest.raises(KeyError, match="empty"):
        values.popitem()
    with pytest.raises(RuntimeError, match="cannot be called"):
        values(1)


def test_modules_have_hook_dictionaries_once_they_are_asked_for() -> None:
    module = nn.Linear(2, 2)
    assert not module._hooked
    assert "_forward_hooks" not in vars(module)
    seen: list[Any] = []
    step = tapegrad.compile(lambda x: module(x).sum())
    for _ in range(4):
        step(tapegrad.ones(2))
    handle = module.register_forward_hook(lambda m, args, out: out * 0)
    assert [step(tapegrad.ones(2)).item() for _ in range(4)] == [0, 0, 0, 0]
    handle.remove()
    assert step(tapegrad.ones(2)).item() == pytest.approx(module(tapegrad.ones(2)).sum().item())
    module._forward_hooks[7] = lambda m, args, out: seen.append(out)
    module(tapegrad.ones(2))
    assert len(seen) == 1


def test_a_hooked_module_returns_the_memory_of_its_result() -> None:
    layer = nn.Linear(3, 2)
    kept: list[Any] = []
    layer.register_forward_hook(lambda module, args, output: kept.append((args[0], output)))
    layer.register_full_backward_hook(lambda module, grad_input, grad_output: None)
    x = tapegrad.ones(4, 3, requires_grad=True)
    result = layer(x)
    ((given, made),) = kept
    assert (given.data_ptr(), made.data_ptr()) == (x.data_ptr(), result.data_ptr())
    with pytest.raises(RuntimeError, match="in place"):
        result.mul_(2)


def test_results_with_older_hooks_may_be_changed_in_place() -> None:
    layer, expected = nn.Linear(3, 2), nn.Linear(3, 2)
    expected.load_state_dict(layer.state_dict())
    shown: list[Any] = []
    layer.register_backward_hook(lambda module, grad_input, grad_output: shown.append(grad_output))
    x = tapegrad.ones(4, 3)
    layer(x).relu_().sum().backward()
    expected(x).relu().sum().backward()
    assert tapegrad.equal(layer.weight.grad, expected.weight.grad)
    assert len(shown) == 1
