"""Discrete Fourier transforms along several dimensions, by SciPy: three primitives and their rules.

Comes in: an array and the dimensions to transform. Goes out: complex numbers (`fft_c2c`); for real
input the half of them that determines the others (`fft_r2c`); or the real numbers whose transform
has a given half (`fft_c2r`). `norm` is the divisor of the sums: "none" for 1, "root" for the square
root of the number of elements n, "n" for n. float32 stays float32. Used by `transforms.py` and
`short_time.py`; SciPy is loaded when one of them runs.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...core import xp
from ...core.batch_rules import adapted, shifted
from ...core.complexes import HOLOMORPHIC, OWN
from ...core.primitive import OPAQUE, Primitive, define
from ...core.tensor import wrap
from ..elementwise.complexes import real_
from ..shape.padding import padded

#: SciPy's names of norms, which depend on the direction
_FORWARD = {"none": "backward", "root": "ortho", "n": "forward"}
_BACKWARD = {"none": "forward", "root": "ortho", "n": "backward"}


def _library(x: Any) -> Any:
    """The Fourier transforms of SciPy, or of CuPy for its arrays."""
    if xp.module(x) is np:
        import scipy.fft as transforms
    else:
        import cupyx.scipy.fft as transforms
    return transforms


def _complex_to_complex(x: Any, *, dims: tuple[int, ...], forward: bool, norm: str) -> Any:
    library = _library(x)
    if forward:
        return library.fftn(x, axes=dims, norm=_FORWARD[norm])
    return library.ifftn(x, axes=dims, norm=_BACKWARD[norm])


fft_c2c: Primitive = define(
    "fft_c2c",
    _complex_to_complex,
    kind=OPAQUE,
    # The matrix of a transform is symmetric.
    vjp=lambda g, dims, forward, norm: fft_c2c(g, dims=dims, forward=forward, norm=norm),
    batch=adapted(dims=shifted),
    abstract=lambda x, *, dims, forward, norm: (x[0], np.result_type(x[1], np.complex64)),
    linear=True,
    loads=True,
    complex=HOLOMORPHIC,
)


def _real_to_complex(x: Any, *, dims: tuple[int, ...], norm: str) -> Any:
    return _library(x).rfftn(x, axes=dims, norm=_FORWARD[norm])


def _half_shape(x: Any, dims: tuple[int, ...]) -> tuple[int, ...]:
    return tuple([n // 2 + 1 if d == dims[-1] else n for d, n in enumerate(x[0])])


def _real_to_complex_gradient(g: Any, x_shape: Any, dims: tuple[int, ...], norm: str) -> Any:
    """The real part of the backward transform of the gradient, with zeros in the missing half."""
    last = dims[-1]
    missing = x_shape[last] - g.shape[last]
    whole = padded(g, tuple([(0, missing if d == last else 0) for d in range(len(x_shape))]))
    return real_(fft_c2c(whole, dims=dims, forward=False, norm=norm))


fft_r2c: Primitive = define(
    "fft_r2c",
    _real_to_complex,
    kind=OPAQUE,
    vjp=_real_to_complex_gradient,
    batch=adapted(dims=shifted),
    abstract=lambda x, *, dims, norm: (_half_shape(x, dims), np.result_type(x[1], np.complex64)),
    linear=True,
    loads=True,
    complex=OWN,
)


def _complex_to_real(x: Any, *, dims: tuple[int, ...], size: int, norm: str) -> Any:
    sizes = [x.shape[d] for d in dims[:-1]]
    return _library(x).irfftn(x, s=(*sizes, size), axes=dims, norm=_BACKWARD[norm])


def _complex_to_real_gradient(
    g: Any, x_shape: Any, x_dtype: Any, dims: tuple[int, ...], size: int, norm: str
) -> Any:
    """The transform of the gradient, doubled where an element also represents its conjugate."""
    out = fft_r2c(g, dims=dims, norm=norm)
    last, half = dims[-1], x_shape[dims[-1]]
    counts = np.ones(half, np.empty(0, x_dtype).real.dtype)
    counts[1 : 1 + size - half] = 2
    counts = counts.reshape([half if d == last else 1 for d in range(len(x_shape))])
    is_tensor = hasattr(out, "_array")
    beside = xp.module(out._array if is_tensor else out).asarray(counts)
    return out * (wrap(beside) if is_tensor else beside)


fft_c2r: Primitive = define(
    "fft_c2r",
    _complex_to_real,
    kind=OPAQUE,
    vjp=_complex_to_real_gradient,
    batch=adapted(dims=shifted),
    abstract=lambda x, *, dims, size, norm: (
        tuple([size if d == dims[-1] else n for d, n in enumerate(x[0])]),
        np.empty(0, x[1]).real.dtype,
    ),
    linear=True,
    loads=True,
    complex=OWN,
)
