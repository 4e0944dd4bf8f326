"""Functions of lists of tensors: PyTorch's `_foreach_add`, `_foreach_add_` and the like.

Comes in: a list of tensors, and another tensor or a number for each of them or for all. Goes out: a
tuple of results, each computed by the op table's function; names that end in an underscore write
the results into the tensors of the list and return it. The main namespace looks these names up at
first use.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .core import inplace
from .core.modes import numbers
from .core.tensor import Tensor
from .ops import public_functions

_functions = public_functions("")


def _checked(name: str, tensors: Any) -> Sequence[Tensor]:
    if not isinstance(tensors, (list, tuple)):
        raise TypeError(f"{name} needs a list of tensors, got {type(tensors).__name__}")
    if not tensors:
        raise RuntimeError(f"{name} needs a list of at least one tensor")
    for x in tensors:
        if not isinstance(x, Tensor):
            raise TypeError(f"{name} needs a list of tensors, one item is {type(x).__name__}")
    return tensors


def _spread(name: str, tensors: Sequence[Tensor], other: Any) -> list[Any]:
    """One operand for each tensor: items of a list, or the same tensor or number for all."""
    if not isinstance(other, (list, tuple)):
        return [other] * len(tensors)
    if len(other) != len(tensors):
        raise RuntimeError(
            f"{name}: the lists have {len(tensors)} and {len(other)} tensors, and must have "
            "equally many"
        )
    return list(other)


#: PyTorch's names of operands
_OPERANDS = (
    *("other", "scalar", "scalars", "tensors1", "tensor1", "tensor2", "exponent", "weight"),
    *("weights", "value", "src"),
)


def _define(name: str, one: Callable[..., Any], pure: bool = True) -> None:
    """Define the list functions that call `one(tensor, *operands, **options)` for each tensor."""

    def operands_of(
        label: str, tensors: Any, operands: tuple[Any, ...], options: dict[str, Any]
    ) -> list[tuple[Any, ...]]:
        operands += tuple([options.pop(n) for n in _OPERANDS if n in options])
        if len(operands) == 3 and isinstance(operands[2], Tensor):
            operands = (*operands[:2], list(operands[2]))  # a value for each tensor
        columns = [_spread(label, _checked(label, tensors), x) for x in operands]
        return [(x, *rest) for x, *rest in zip(tensors, *columns, strict=True)]

    def apply(self: Any, *operands: Any, **options: Any) -> tuple[Tensor, ...]:
        rows = operands_of(apply.__name__, self, operands, options)
        return tuple([one(*row, **options) for row in rows])

    def change(self: Any, *operands: Any, **options: Any) -> Any:
        for x, *rest in operands_of(change.__name__, self, operands, options):
            inplace.check_writable(x, change.__name__)
            started = next(numbers)
            inplace.assign(x, one(x, *rest, **options), change.__name__, started)
        return self

    apply.__doc__ = f"`{name}` of each tensor of a list."
    change.__doc__ = f"`{name}` of each tensor of a list, in place."
    for function, label in ((apply, f"_foreach_{name}"), (change, f"_foreach_{name}_")):
        function.__name__ = function.__qualname__ = label
        if pure or function is change:
            globals()[label] = function


def _scaled(name: str) -> Callable[..., Any]:
    function = _functions[name]

    def one(x: Tensor, other: Any, alpha: Any = 1) -> Any:
        return function(x, other) if alpha == 1 else function(x, other, alpha=alpha)

    return one


def _bound(name: str, of_number: str) -> Callable[..., Any]:
    """A function whose operand may be a number, in which case `of_number` handles it."""

    def one(x: Tensor, other: Any) -> Any:
        return _functions[name if isinstance(other, Tensor) else of_number](x, other)

    return one


def _with_value(name: str) -> Callable[..., Any]:
    function = _functions[name]

    def one(x: Tensor, first: Any, second: Any, value: Any = 1) -> Any:
        if isinstance(value, Tensor):
            product = first * second if name == "addcmul" else first / second
            return x + value * product
        return function(x, first, second, value=value)

    return one


def _copied(x: Tensor, source: Tensor, non_blocking: bool = False) -> Tensor:
    return source.to(x.dtype).expand(x.shape)


for _name in (
    *("abs", "acos", "asin", "atan", "ceil", "cos", "cosh", "erf", "erfc", "exp", "expm1", "floor"),
    *("frac", "lgamma", "log", "log10", "log1p", "log2", "neg", "reciprocal", "round", "rsqrt"),
    *("sigmoid", "sign", "sin", "sinh", "sqrt", "tan", "tanh", "trunc"),
):
    _define(_name, _functions[_name])
for _name in ("add", "sub"):
    _define(_name, _scaled(_name))
for _name in ("mul", "div", "pow", "lerp", "clamp_max", "clamp_min"):
    _define(_name, _functions[_name])
_define("maximum", _bound("maximum", "clamp_min"))
_define("minimum", _bound("minimum", "clamp_max"))
for _name in ("addcmul", "addcdiv"):
    _define(_name, _with_value(_name))
_define("copy", _copied, pure=False)
_define("zero", lambda x: x.new_zeros(x.shape), pure=False)


def _foreach_max(self: Any) -> tuple[Tensor, ...]:
    """The largest element of each tensor of a list."""
    return tuple([x.max() for x in _checked("_foreach_max", self)])


def _foreach_norm(self: Any, ord: float = 2, dtype: Any = None) -> tuple[Tensor, ...]:
    """The norm of each tensor of a list."""
    norm: Any = _functions["norm"]
    return tuple([norm(x, ord, dtype=dtype) for x in _checked("_foreach_norm", self)])


def _foreach_powsum(self: Any, ord: float = 2, dtype: Any = None) -> tuple[Tensor, ...]:
    """The sum of |x| to a power of each tensor of a list."""
    return tuple([(x.abs() ** ord).sum(dtype=dtype) for x in _checked("_foreach_powsum", self)])


def _foreach_clone(self: Any, *, memory_format: Any = None) -> tuple[Tensor, ...]:
    """A copy of each tensor of a list."""
    return tuple([x.clone() for x in _checked("_foreach_clone", self)])


def _foreach_mm(self: Any, mat2: Any) -> tuple[Tensor, ...]:
    """The products of matrices of two lists."""
    pairs = zip(self, _spread("_foreach_mm", _checked("_foreach_mm", self), mat2), strict=True)
    return tuple([x.mm(y) for x, y in pairs])


_power: Any = globals()["_foreach_pow"]


def _foreach_pow(self: Any, exponent: Any) -> tuple[Tensor, ...]:
    """Powers of each tensor of a list, or of one number with each tensor as the exponent."""
    if isinstance(self, (int, float)):
        return tuple([self**x for x in _checked("_foreach_pow", exponent)])
    powers: tuple[Tensor, ...] = _power(self, exponent)
    return powers
