"""Families of elementwise operations.

One call of `unary` or `binary` makes a primitive from its kernel, gradient rules and scalar
expression, and enters the public function with its samples. `operator` attaches a primitive to
Python's symbols. Called by the files that define elementwise operations.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from ..core import fast
from ..core.casting import Policy
from ..core.primitive import ELEMENTWISE, Primitive, define
from ..core.tensor import Tensor
from .table import In, Sample, not_a_tensor, op

if TYPE_CHECKING:
    from .annotations import Operand


def unary(
    name: str,
    kernel: Callable[..., Any],
    vjp: Callable[..., Any] | None,
    expression: str | None,
    *,
    low: float = -2.0,
    high: float = 2.0,
    promote: str | None = "float",
    aliases: tuple[str, ...] = (),
    inplace: bool = True,
    torch: str | None = "",
    public: bool = True,
    distinct: bool = False,
    kind: str = "float",
    autocast: Policy | None = None,
    scipy: bool = False,
    module: str = "",
    complex: str | None = None,
    stores: bool = False,
    casts: bool | None = None,
    families: bool = False,
    doc: str | None = None,
    example: tuple[str, str] | None = None,
) -> Primitive:
    """A function of one tensor, differentiable when `vjp` is given.

    By default, functions with floating results cast them for `out=` (`casts`). `scipy` means that
    the kernel calls SciPy, which takes 0.15 s and 24 MB to load.
    """
    p = define(
        name,
        kernel,
        kind=ELEMENTWISE,
        vjp=vjp,
        inputs=("x",),
        promote=promote,
        expression=expression,
        abstract=(lambda x: x) if scipy else None,
        loads=scipy,
        families=families,
        complex=complex,
        stores=stores,
    )
    if public:

        def samples() -> list[Sample]:
            shapes = [(3, 4), (), (0, 3), (2, 1, 3)]
            return [
                Sample(In(*s, low=low, high=high, distinct=distinct, kind=kind)) for s in shapes
            ]

        body = fast.unary(p, kernel, autocast)
        body.__name__ = name
        body.__annotations__ = {"input": "Tensor", "return": "Tensor"}
        body.__doc__ = _docstring(doc or f"`{name}` of each element.", example)
        op(
            samples=samples,
            aliases=aliases,
            module=module,
            inplace=inplace,
            torch=torch,
            differentiable=vjp is not None,
            primitive=p,
            autocast=autocast,
            applies=True,
            casts=promote == "float" if casts is None else casts,
        )(body)
    return p


def binary(
    name: str,
    kernel: Callable[..., Any],
    vjp: tuple[Callable[..., Any] | None, ...] | None,
    expression: str | None,
    *,
    promote: str = "same",
    samples: Callable[[], list[Sample]] | None = None,
    low: float = -2.0,
    high: float = 2.0,
    distinct: bool = False,
    aliases: tuple[str, ...] = (),
    inplace: bool = True,
    public: bool = True,
    torch: str | None = "",
    kind: str = "float",
    autocast: Policy | None = None,
    numbers: str = "second",
    module: str = "",
    wide_numbers: bool = False,
    complex: str | None = None,
    stores: bool = False,
    families: bool = False,
    doc: str | None = None,
    example: tuple[str, str] | None = None,
) -> Primitive:
    """A function of two tensors, or of a tensor and a number, with broadcasting.

    `numbers` says where the public function takes a number: as the "second" operand, as "both", or
    as "none".
    """
    p = define(
        name,
        kernel,
        kind=ELEMENTWISE,
        vjp=vjp if vjp is not None else (None, None),
        inputs=("x", "y"),
        promote=promote,
        expression=expression,
        wide_numbers=wide_numbers,
        complex=complex,
        stores=stores,
        families=families,
    )
    if public:

        def default_samples() -> list[Sample]:
            return pairs(low=low, high=high, distinct=distinct, kind=kind)

        short = fast.binary(p, kernel, autocast=autocast)

        def body(input: Operand, other: Operand) -> Any:
            return short(input, other) if isinstance(input, Tensor) else p(input, other)

        if numbers == "none":

            def body(input: Operand, other: Operand) -> Any:
                if other.__class__ is not Tensor and isinstance(other, (int, float)):
                    raise not_a_tensor(name, other)
                return short(input, other) if isinstance(input, Tensor) else p(input, other)

        body.__annotations__["input"] = "Operand" if numbers == "both" else "Tensor"
        body.__annotations__["other"] = "Tensor" if numbers == "none" else "Operand"
        body.__name__ = name
        usual = f"`{name}` of two tensors, element by element, with broadcasting."
        body.__doc__ = _docstring(doc or usual, example)
        op(
            samples=samples or default_samples,
            aliases=aliases,
            module=module,
            inplace=inplace,
            differentiable=vjp is not None,
            primitive=p,
            torch=torch,
            autocast=autocast,
            applies=True,
            casts=True,
        )(body)
    return p


def without_gradient(what: str, instead: str) -> Callable[..., Any]:
    """A rule for an input without a gradient, as in PyTorch: an error that names an alternative."""

    def rule(g: Any) -> Any:
        raise NotImplementedError(f"{what} has no gradient; use {instead}")

    return rule


def _docstring(text: str, example: tuple[str, str] | None) -> str:
    """A docstring made of a text and an example: a call and its output."""
    if example is None:
        return text
    call, shown = example
    return f"{text}\n\n>>> import tapegrad\n>>> {call}\n{shown}\n"


def pairs(**domain: Any) -> list[Sample]:
    """Samples of two operands: equal shapes, broadcast both ways, 0-d, empty."""
    shapes: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
        ((3, 4), (3, 4)),
        ((3, 4), (4,)),
        ((3, 1), (1, 4)),
        ((2, 3, 4), ()),
        ((), (3,)),
        ((), ()),
        ((0, 3), (3,)),
    ]
    return [Sample(In(*a, **domain), In(*b, **domain)) for a, b in shapes]


def operator(
    name: str,
    p: Primitive,
    reflected: str | None = None,
    changing: str | None = None,
    special: Callable[[Any, Any], Any] | None = None,
    autocast: Policy | None = None,
) -> None:
    """Attach a binary primitive as Python operators.

    `special` may refuse operands, or return the result for some of them instead of None.
    """
    short = fast.binary(p, p.kernel, False, autocast, name, _is_operand)

    def accept(x: Tensor, y: Operand) -> Any:
        found = _special(x, y)
        return short(x, y) if found is None else found

    _special: Any = special
    short.__annotations__ = accept.__annotations__
    short.__name__ = accept.__name__ = name
    setattr(Tensor, name, short if special is None else accept)
    if reflected is not None:
        back = fast.binary(p, p.kernel, True, autocast, reflected, _is_operand)
        back.__annotations__ = accept.__annotations__
        back.__name__ = reflected
        setattr(Tensor, reflected, back)
    if changing is not None:
        from ..core import inplace

        def change(x: Tensor, y: Operand) -> Any:
            found = None if special is None else special(x, y)
            if found is not None:
                return inplace.assign(x, found, f"{p.name}_")
            if isinstance(y, Tensor) or _is_operand(y):
                return inplace.apply(p, x, (y,))
            return NotImplemented

        change.__name__ = changing
        setattr(Tensor, changing, change)


def _is_operand(y: Any) -> bool:
    return isinstance(y, (Tensor, int, float, complex, np.ndarray, np.generic)) or hasattr(
        y, "__cuda_array_interface__"
    )
