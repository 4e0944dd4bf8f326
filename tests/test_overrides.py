"""Subclasses of Tensor, `__torch_function__`, modes, operands of other classes, attributes."""

from __future__ import annotations

import copy
import operator as op
import pickle
import warnings
from typing import Any, ClassVar

import numpy as np
import pytest

import tapegrad
from tapegrad import Tensor, nn
from tapegrad.compat.torch._C import _is_torch_function_enabled
from tapegrad.nn import functional as F
from tapegrad.overrides import (
    DisableTorchFunction,
    DisableTorchFunctionSubclass,
    TorchFunctionMode,
    get_ignored_functions,
    get_overridable_functions,
    handle_torch_function,
    has_torch_function,
    is_tensor_like,
    is_tensor_method_or_property,
    resolve_name,
    wrap_torch_function,
)


class Named(Tensor):
    """A subclass without anything of its own."""


class Logged(Tensor):
    """A subclass that writes down what is called."""

    calls: ClassVar[list[Any]] = []

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        cls.calls.append(func)
        return super().__torch_function__(func, types, args, kwargs)


class Duck:
    """No tensor, but functions take it."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func, types, args, kwargs


def named(*values: float) -> Any:
    return tapegrad.tensor(values).as_subclass(Named)


def test_results_are_of_the_subclass() -> None:
    s, t = named(1.0, 2.0), tapegrad.tensor([3.0, 4.0])
    for result in (
        *(s + 1, 1 + s, 1 - s, 2 / s, s**2, 2**s, -s, s @ t, t + s, t * s, t @ s, s < t, t == s),
        *(s.sum(), s.exp(), s[0], s.T, s.data, s.detach(), s.clone(), s.to(tapegrad.float64)),
        *(s.view(2, 1), s.new_zeros(3), s.expand(3, 2), *s, *s.split(1), s.max(0).values),
        *(tapegrad.exp(s), tapegrad.add(t, s), tapegrad.stack([t, s]), tapegrad.where(t > 0, t, s)),
        *(tapegrad.zeros_like(s), tapegrad.cat((s, t)), F.relu(s), F.mse_loss(s, t)),
        *(nn.Linear(2, 3)(s), nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.LayerNorm(3))(s)),
    ):
        assert type(result) is Named
    assert type(t + 1) is Tensor
    assert type(tapegrad.add(t, t)) is Tensor
    assert type(s.shape) is tapegrad.Size
    assert type(s.tolist()) is list
    assert type(s.numpy()) is np.ndarray
    assert isinstance(s.item() if s.numel() == 1 else s.sum().item(), float)


def test_in_place_operations_return_the_object_itself() -> None:
    s = named(1.0, 2.0)
    before = s
    s += 1
    s.mul_(2).add_(tapegrad.ones(2))
    s[0] = 7
    assert s is before
    assert type(s) is Named
    assert s.tolist() == [7, 7]
    out = named(0.0, 0.0)
    assert tapegrad.add(tapegrad.ones(2), 1, out=out) is out


def test_gradients_flow_through_subclasses() -> None:
    w = tapegrad.tensor([1.0, 2.0], requires_grad=True)
    s = w.as_subclass(Named)
    loss = (s * s).sum()
    assert type(loss) is Named
    loss.backward()
    assert w.grad is not None
    assert w.grad.tolist() == [2, 4]
    leaf = Named([1.0, 2.0]).requires_grad_()
    (leaf**3).sum().backward()
    assert leaf.grad.tolist() == [3, 12]
    assert type(leaf.grad) is Tensor
    (g,) = tapegrad.autograd.grad((leaf**3).sum(), leaf, create_graph=True)
    (second,) = tapegrad.autograd.grad(g.sum(), leaf)
    assert second.tolist() == [6, 12]


def test_constructors() -> None:
    class WithExtra(Tensor):
        extra: Any

        @staticmethod
        def __new__(cls: Any, data: Any, extra: Any) -> Any:
            return super().__new__(cls, data)

        def __init__(self, data: Any, extra: Any) -> None:
            super().__init__()
            self.extra = extra

    x = WithExtra([1.0, 2.0], extra="a")
    assert (type(x), x.extra, x.tolist()) == (WithExtra, "a", [1, 2])
    assert type(x + 1) is WithExtra
    assert not hasattr(x + 1, "extra")
    made = Tensor._make_subclass(Named, tapegrad.ones(2), True)
    assert type(made) is Named
    assert made.requires_grad
    assert made.is_leaf
    assert type(Named(3)) is Named
    assert Named(3).shape == (3,)
    with pytest.raises(TypeError, match="derived from Tensor"):
        tapegrad.ones(2).as_subclass(int)


def test_methods_of_the_subclass_reach_those_of_tensor() -> None:
    class Shifted(Tensor):
        def add(self, other: Any) -> Any:
            return super().add(other) + 100

    s = tapegrad.ones(2).as_subclass(Shifted)
    assert type(s.add(1)) is Shifted
    assert s.add(1).tolist() == [102, 102]


def test_what_is_called() -> None:
    s = tapegrad.ones(2).as_subclass(Logged)
    t = tapegrad.ones(2)
    for call, expected in (
        (lambda: s + 1, Tensor.add),
        (lambda: t + s, Tensor.add),
        (lambda: s.add(1), Tensor.add),
        (lambda: tapegrad.add(t, s), tapegrad.add),
        (lambda: 1 - s, Tensor.__rsub__),
        (lambda: s @ t, Tensor.matmul),
        (lambda: s[0], Tensor.__getitem__),
        (lambda: s.shape, Tensor.shape.__get__),  # type: ignore[attr-defined]
        (lambda: F.softmax(s, 0), F.softmax),
        (lambda: F.linear(s, tapegrad.ones(3, 2)), F.linear),
        (lambda: len(s), Tensor.__len__),
        (lambda: repr(s), Tensor.__repr__),
        (lambda: tapegrad.zeros_like(s), tapegrad.zeros_like),
        (lambda: s.mul_(1), Tensor.mul_),
    ):
        Logged.calls.clear()
        call()
        assert Logged.calls == [expected]


def test_the_innermost_class_decides() -> None:
    class Base(Tensor):
        pass

    class Derived(Base):
        pass

    class Other(Tensor):
        @classmethod
        def __torch_function__(cls, *args: Any) -> Any:
            return NotImplemented

    b, d = tapegrad.ones(2).as_subclass(Base), tapegrad.ones(2).as_subclass(Derived)
    assert type(b + d) is Derived
    assert type(tapegrad.add(d, b)) is Derived
    o = tapegrad.ones(2).as_subclass(Other)
    with pytest.raises(TypeError, match="declined"):
        tapegrad.add(o, o)
    with pytest.raises(TypeError, match="declined"):
        tapegrad.add(b, o)  # neither knows the other


def test_disabling() -> None:
    s = named(1.0)
    with DisableTorchFunctionSubclass():
        assert type(s + 1) is Tensor
        assert type(tapegrad.exp(s)) is Tensor
        assert not has_torch_function((s,))
    assert has_torch_function((s,))
    assert type(s + 1) is Named


def test_parameters_are_plain() -> None:
    p = nn.Parameter(tapegrad.ones(2))
    assert type(p + 1) is Tensor
    assert type(p + named(1.0, 2.0)) is Named

    class Special(nn.Parameter):
        pass

    s = Special(tapegrad.ones(2))
    assert (type(s), type(s + 1), s.requires_grad) == (Special, Tensor, True)
    layer = nn.Linear(2, 1)
    layer.weight = Special(tapegrad.ones(1, 2))
    assert [n for n, _ in layer.named_parameters()] == ["weight", "bias"]


def test_copies_and_pickles() -> None:
    s = named(1.0, 2.0)
    s.note = {"a": 1}
    for other in (copy.deepcopy(s), copy.copy(s), pickle.loads(pickle.dumps(s))):
        assert type(other) is Named
        assert other.tolist() == [1, 2]
        assert other.note == {"a": 1}


def test_ducks() -> None:
    duck, t = Duck(), tapegrad.ones(2)
    func, types, args, kwargs = tapegrad.mean(duck, dim=0)
    assert func is tapegrad.mean
    assert types == (Duck,)
    assert args == (duck,)
    assert kwargs == {"dim": 0}
    assert tapegrad.add(t, duck)[0] is tapegrad.add
    assert tapegrad.stack([t, duck])[0] is tapegrad.stack
    assert (t + duck)[0] is Tensor.add
    assert is_tensor_like(duck)
    assert is_tensor_like(t)
    assert not is_tensor_like(3)


def test_helpers_for_functions_of_ones_own() -> None:
    def double(x: Any) -> Any:
        if has_torch_function((x,)):
            return handle_torch_function(double, (x,), x)
        return x * 2

    @wrap_torch_function(lambda x: (x,))
    def triple(x: Any) -> Any:
        return x * 3

    assert double(Duck())[0] is double
    assert triple(Duck())[0] is triple
    assert type(double(named(1.0))) is Named
    assert double(tapegrad.ones(1)).tolist() == [2]
    assert triple(tapegrad.ones(1)).tolist() == [3]
    functions = get_overridable_functions()
    assert tapegrad.add in functions[tapegrad]
    assert Tensor.add in functions[Tensor]
    assert F.relu in functions[F]
    assert tapegrad.zeros in get_ignored_functions()
    assert is_tensor_method_or_property(Tensor.add)
    assert not is_tensor_method_or_property(tapegrad.add)
    assert resolve_name(Tensor.add) == "tapegrad.Tensor.add"


class Counting(TorchFunctionMode):
    """A mode that writes down what is called."""

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.calls.append(func)
        return func(*args, **(kwargs or {}))


def test_modes() -> None:
    t = tapegrad.ones(2)
    add = Tensor.add
    with Counting() as outer:
        t + 1
        tapegrad.exp(t)
        tapegrad.zeros(2)
        assert outer.calls == [add, tapegrad.exp, tapegrad.zeros]
        with Counting() as inner:
            tapegrad.exp(t)
            t.sum()
            assert len(inner.calls) == 2
            assert inner.calls[0] is tapegrad.exp
        assert outer.calls[3] is tapegrad.exp
        assert len(outer.calls) == 5
        assert _is_torch_function_enabled()
        with DisableTorchFunction():
            t + 1
            assert not _is_torch_function_enabled()
        assert len(outer.calls) == 5
    t + 1
    assert len(outer.calls) == 5
    assert Tensor.add is add
    with pytest.raises(ZeroDivisionError), Counting():
        raise ZeroDivisionError
    assert Tensor.add is add


class Reflecting:
    """An operand that tensors do not know."""

    def __eq__(self, other: object) -> Any:
        return "eq"

    def __lt__(self, other: Any) -> str:
        return "lt"

    __hash__ = None  # type: ignore[assignment]


for _name in [
    "add",
    "sub",
    "mul",
    "truediv",
    "floordiv",
    "mod",
    "pow",
    "matmul",
    "and",
    "or",
    "xor",
    "lshift",
    "rshift",
]:
    setattr(Reflecting, f"__r{_name}__", lambda self, other, name=_name: name)


@pytest.mark.parametrize("x", [tapegrad.ones(2), tapegrad.ones(40000), tapegrad.arange(3)])
def test_other_operands_are_asked(x: Any) -> None:
    other = Reflecting()
    assert [x + other, x - other, x * other, x / other] == ["add", "sub", "mul", "truediv"]
    assert [x // other, x % other, x**other, x @ other] == ["floordiv", "mod", "pow", "matmul"]
    assert [x & other, x | other, x ^ other] == ["and", "or", "xor"]
    assert [x == other, x > other] == ["eq", "lt"]
    changed = x
    changed += other
    assert changed == "add"
    for bad in ([1.0], "a", object(), None):
        for operation in (op.add, op.matmul, op.lt):
            with pytest.raises(TypeError):
                operation(x, bad)
        with pytest.raises(TypeError):
            op.sub(bad, x)
    with pytest.raises(TypeError):
        x += "a"
    assert (x == "a") is False
    assert (x != "a") is True


def test_attributes() -> None:
    t = tapegrad.ones(2)
    t.anything = [1]
    assert t.anything == [1]
    assert copy.deepcopy(t).anything == [1]
    assert pickle.loads(pickle.dumps(t)).anything == [1]
    del t.anything
    with pytest.raises(AttributeError):
        t.anything  # noqa: B018
    assert not hasattr(t + 1, "anything")


def test_compiled_functions_run_subclasses_and_attributes_eagerly() -> None:
    fast = tapegrad.compile(lambda x: (x + 1) * 2)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for i in range(4):
            result = fast(named(1.0 + i))
            assert type(result) is Named
            assert result.tolist() == [4 + 2 * i]
    assert any("derived from Tensor" in str(w.message) for w in caught)
    assert type(fast(tapegrad.ones(2))) is Tensor
    scaled = tapegrad.compile(lambda x: x * x.scale)
    for i in range(5):
        x = tapegrad.ones(1)
        x.scale = float(i)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert scaled(x).tolist() == [i]


def test_compiled_functions_run_eagerly_inside_modes() -> None:
    fast = tapegrad.compile(lambda x: (x + 1) * 2)
    x = tapegrad.ones(2)
    for _ in range(3):
        fast(x)
    with Counting() as mode, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(3):
            assert fast(x).tolist() == [4, 4]
    assert mode.calls.count(Tensor.add) == 3
    assert fast(x).tolist() == [4, 4]
