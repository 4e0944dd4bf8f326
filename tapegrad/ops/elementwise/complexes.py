"""Complex numbers: their parts, their conjugates, and making them of real numbers.

Comes in: complex tensors, or the real ones that they are made of. `real`, `imag` and `view_as_real`
are views, so writing to them changes the complex tensor. Rules take and return gradients in
PyTorch's convention, dL/dx + i dL/dy (`core/complexes.py`). A conjugate is computed eagerly into
its own memory, so `is_conj` is always False.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...core import numeric, xp
from ...core.batch_rules import leading
from ...core.complexes import OWN
from ...core.dtypes import as_dtype, float32, float64
from ...core.primitive import ELEMENTWISE, MOVEMENT, NO_PARAMS, Primitive, define
from ...core.tensor import Tensor
from ..table import In, Sample, attach, op
from .comparison import equal, where
from .copies import cast, clone_
from .rounding import abs, zero

# -- parts -------------------------------------------------------------------------------------

real_: Primitive = define(
    "real",
    lambda x: x.real,
    kind=MOVEMENT,
    vjp=lambda g, x_dtype: cast(g, dtype=as_dtype(x_dtype)),
    view=True,
    batch=leading,
)
imag_: Primitive = define(
    "imag",
    lambda x: x.imag,
    kind=MOVEMENT,
    vjp=lambda g, x_dtype: cast(g, dtype=as_dtype(x_dtype)) * 1j,
    view=True,
    batch=leading,
)


def _pairs_of(x: Any) -> Any:
    """A view with one more dimension, for the real and imaginary parts."""
    return x[..., None].view(x.real.dtype)


def _numbers_of(x: Any) -> Any:
    if x.strides[-1] != x.itemsize:
        x = xp.module(x).ascontiguousarray(x)
    return x.view(np.result_type(x.dtype, np.complex64))[..., 0]


view_as_real_: Primitive = define(
    "view_as_real",
    _pairs_of,
    kind=MOVEMENT,
    vjp=lambda g: view_as_complex_(g),
    view=True,
    batch=leading,
)
view_as_complex_: Primitive = define(
    "view_as_complex",
    _numbers_of,
    kind=MOVEMENT,
    vjp=lambda g: view_as_real_(g),
    view=True,
    batch=leading,
)


def is_complex(x: Any) -> bool:
    """Whether a Tensor or a raw array holds complex numbers."""
    return (x._array if isinstance(x, Tensor) else x).dtype.kind in numeric.COMPLEX


def refuse_complex(x: Tensor, what: str) -> None:
    """Raise if a tensor is complex, for functions whose operations would accept it."""
    if x._array.dtype.kind in numeric.COMPLEX:
        raise RuntimeError(f"{what} is not implemented for complex numbers; use .real and .imag")


@op(samples=lambda: [Sample((3, 4)), Sample(In(3, 4, kind="complex"))], method=False)
def real(input: Tensor) -> Any:
    """The real part, as a view; a real tensor is its own.

    >>> import tapegrad
    >>> tapegrad.real(tapegrad.tensor([1 + 2j, 3 - 4j]))
    tensor([1., 3.])
    """
    return real_.direct(input, NO_PARAMS) if is_complex(input) else input


@op(samples=lambda: [Sample(In(3, 4, kind="complex")), Sample(In(kind="complex"))], method=False)
def imag(input: Tensor) -> Any:
    """The imaginary part, as a view.

    >>> import tapegrad
    >>> tapegrad.imag(tapegrad.tensor([1 + 2j, 3 - 4j]))
    tensor([ 2., -4.])
    """
    if not is_complex(input):
        raise RuntimeError(f"{input.dtype} has no imaginary part: use zeros_like")
    return imag_.direct(input, NO_PARAMS)


@op(samples=lambda: [Sample(In(3, 4, kind="complex")), Sample(In(kind="complex"))], method=False)
def view_as_real(input: Tensor) -> Any:
    """A real view of a complex tensor: the last dimension has the real and the imaginary part.

    >>> import tapegrad
    >>> tapegrad.view_as_real(tapegrad.tensor([1 + 2j, 3 - 4j]))
    tensor([[ 1.,  2.],
            [ 3., -4.]])
    """
    if not is_complex(input):
        raise RuntimeError(f"view_as_real needs a complex tensor, got {input.dtype}")
    return view_as_real_.direct(input, NO_PARAMS)


@op(
    samples=lambda: [Sample((3, 2)), Sample((2,)), Sample((2, 3, 2))],
    method=False,
    half=None,
    autocast={"cpu": "full"},
)
def view_as_complex(input: Tensor) -> Any:
    """A complex view of a real tensor whose last dimension has real and imaginary parts.

    >>> import tapegrad
    >>> tapegrad.view_as_complex(tapegrad.tensor([[1.0, 2.0], [3.0, -4.0]]))
    tensor([1.+2.j, 3.-4.j])
    """
    array = input._array
    if input.dtype not in (float32, float64):
        raise RuntimeError(
            f"view_as_complex does not exist for {input.dtype}; use float32 or float64"
        )
    if array.ndim == 0 or array.shape[-1] != 2:
        raise RuntimeError(
            f"view_as_complex needs a last dimension of size 2, got {tuple(array.shape)}"
        )
    steps = [s // array.itemsize for s in array.strides]
    if array.size and (steps[-1] != 1 or any(s % 2 for s in steps[:-1])):
        raise RuntimeError(
            f"view_as_complex needs pairs in memory: strides {tuple(steps)} must end in 1 and be "
            "even before; use contiguous() first"
        )
    return view_as_complex_.direct(input, NO_PARAMS)


# -- conjugates --------------------------------------------------------------------------------

conj_: Primitive = define(
    "conj",
    np.conjugate,
    kind=ELEMENTWISE,
    inputs=("x",),
    vjp=lambda g: conj_(g),
    expression="conj(x)",
    linear=True,
    complex=OWN,
)


def conjugate(x: Any) -> Any:
    """The conjugate of a Tensor or raw array; a real one is returned unchanged."""
    return conj_(x) if is_complex(x) else x


@op(samples=lambda: [Sample((3, 4)), Sample(In(3, 4, kind="complex"))])
def conj(input: Tensor) -> Any:
    """The conjugate of each element, as a copy; a real tensor is its own conjugate.

    >>> import tapegrad
    >>> tapegrad.conj(tapegrad.tensor([1 + 2j, 3 - 4j]))
    tensor([1.-2.j, 3.+4.j])
    """
    return conjugate(input)


@op(samples=lambda: [Sample((3, 4)), Sample(In(3, 4, kind="complex"))], inplace=True)
def conj_physical(input: Tensor) -> Any:
    """The conjugate of each element, as `conj`.

    >>> import tapegrad
    >>> tapegrad.conj_physical(tapegrad.tensor([1 + 2j]))
    tensor([1.-2.j])
    """
    return conj_(input) if is_complex(input) else clone_(input)


@op(samples=lambda: [Sample(In(3, kind="complex"))])
def resolve_conj(input: Tensor) -> Any:
    """The tensor itself: conjugates are computed at once.

    >>> import tapegrad
    >>> tapegrad.resolve_conj(tapegrad.tensor([1 + 2j]).conj())
    tensor([1.-2.j])
    """
    return input


@op(samples=lambda: [Sample(In(3, kind="complex"))])
def resolve_neg(input: Tensor) -> Any:
    """The tensor itself: negatives are computed at once.

    >>> import tapegrad
    >>> tapegrad.resolve_neg(tapegrad.tensor([1 + 2j]).conj().imag)
    tensor([-2.])
    """
    return input


@op(
    samples=lambda: [Sample(In(3, kind="complex"))],
    differentiable=False,
    torch=None,
    result="bool",
)
def is_conj(input: Tensor) -> Any:
    """False: conjugates are computed at once.

    >>> import tapegrad
    >>> tapegrad.is_conj(tapegrad.tensor([1 + 2j]).conj())
    False
    """
    return False


@op(
    samples=lambda: [Sample(In(3, kind="complex"))],
    differentiable=False,
    torch=None,
    result="bool",
)
def is_neg(input: Tensor) -> Any:
    """False: negatives are computed at once.

    >>> import tapegrad
    >>> tapegrad.is_neg(tapegrad.tensor([1 + 2j]).conj().imag)
    False
    """
    return False


@op(samples=lambda: [Sample((3, 4)), Sample(In(2, 3, 4, kind="complex"))])
def adjoint(input: Tensor) -> Any:
    """The conjugate transpose of matrices: the last two dimensions exchanged.

    >>> import tapegrad
    >>> tapegrad.adjoint(tapegrad.tensor([[1 + 2j, 3 - 4j]]))
    tensor([[1.-2.j],
            [3.+4.j]])
    """
    if input._array.ndim == 0:
        return conjugate(input)
    if input._array.ndim < 2:
        raise RuntimeError(f"adjoint needs matrices, got {input._array.ndim} dimensions")
    return conjugate(input.transpose(-2, -1))


# -- absolute value and angle ------------------------------------------------------------------


def _angle(x: Any) -> Any:
    if numeric.is_complex(x.dtype):
        return np.arctan2(x.imag, x.real)
    kind = x.dtype.type
    turned = np.where(x < 0, kind(math.pi), kind(0))
    return np.where(np.isnan(x), x, turned).astype(x.dtype)


def _angle_vjp(g: Any, x: Any) -> Any:
    if not is_complex(x):
        return zero(g)
    size = abs(x)
    return where(equal(x, 0), 0.0, g * (x * 1j) / (size * size))


angle_: Primitive = define(
    "angle",
    _angle,
    kind=ELEMENTWISE,
    promote="float",
    vjp=_angle_vjp,
    expression="where(x < 0, 3.141592653589793, where(x != x, x, 0))",
    complex=OWN,
)


@op(casts=True, samples=lambda: [Sample(In(3, 4, distinct=True)), Sample(In(3, 4, kind="complex"))])
def angle(input: Tensor) -> Any:
    """The angle of each complex number, from -pi to pi; of a real one, 0 or pi.

    >>> import tapegrad
    >>> tapegrad.angle(tapegrad.tensor([1j, -1 + 0j]))
    tensor([1.5708, 3.1416])
    """
    return angle_.direct(input, NO_PARAMS)


# -- of real numbers ---------------------------------------------------------------------------


def _complex(x: Any, y: Any) -> Any:
    dtype = np.result_type(x.dtype, np.complex64)
    out = xp.module(x).empty(np.broadcast_shapes(x.shape, y.shape), dtype)
    out.real = x
    out.imag = y
    return out


complex_: Primitive = define(
    "complex",
    _complex,
    kind=ELEMENTWISE,
    vjp=(lambda g: real_(g), lambda g: imag_(g)),
    expression="complex(x, y)",
    linear=True,
    complex=OWN,
)


def _check_parts(name: str, x: Tensor, y: Tensor) -> None:
    for part in (x, y):
        if not isinstance(part, Tensor):
            raise TypeError(f"{name} needs two tensors, got {type(part).__name__}")
        if part.dtype not in (float32, float64):
            raise RuntimeError(f"{name} does not exist for {part.dtype}; use float32 or float64")
    if x.dtype is not y.dtype:
        raise RuntimeError(f"{name} needs tensors of one dtype, got {x.dtype} and {y.dtype}")


@op(
    "complex",
    samples=lambda: [Sample((3, 4), (3, 4)), Sample((3, 1), (4,)), Sample((), ())],
    method=False,
    half=None,
)
def complex_of(real: Tensor, imag: Tensor) -> Any:
    """`real + i imag`, with broadcasting.

    >>> import tapegrad
    >>> tapegrad.complex(tapegrad.tensor([1.0, 2.0]), tapegrad.tensor([3.0, 4.0]))
    tensor([1.+3.j, 2.+4.j])
    """
    _check_parts("complex", real, imag)
    return complex_(real, imag)


@op(
    samples=lambda: [Sample(In(3, 4, low=0.3), (3, 4)), Sample(In(3, 1, low=0.3), (4,))],
    method=False,
    half=None,
    autocast={"cpu": "full"},
)
def polar(abs: Tensor, angle: Tensor) -> Any:
    """The complex numbers with these absolute values and angles.

    >>> import tapegrad
    >>> tapegrad.polar(tapegrad.tensor([1.0, 2.0]), tapegrad.tensor([0.0, 1.0]))
    tensor([1.0000+0.0000j, 1.0806+1.6829j])
    """
    _check_parts("polar", abs, angle)
    return complex_(abs * angle.cos(), abs * angle.sin())


def _set_part(part: Any) -> Any:
    def assign(self: Tensor, value: Any) -> None:
        shown = part(self)
        shown.copy_(value if isinstance(value, Tensor) else shown.new_tensor(value))

    return assign


def _matrix_adjoint(self: Tensor) -> Any:
    """The conjugate transpose of matrices."""
    return adjoint(self)


def _adjoint_of_one(self: Tensor) -> Any:
    """The conjugate transpose of a matrix."""
    if self._array.ndim not in (0, 2):
        raise RuntimeError(f".H needs a matrix, got {self._array.ndim} dimensions; use .mH")
    return adjoint(self) if self._array.ndim else conj(self)


attach(
    real=property(real, _set_part(real)),
    imag=property(imag, _set_part(imag)),
    mH=property(_matrix_adjoint),
    H=property(_adjoint_of_one),
)
