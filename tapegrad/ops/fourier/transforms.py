"""`tapegrad.fft`: Fourier transforms along one, two or more dimensions, with PyTorch's names.

Comes in: a tensor, dimensions, and sizes to cut or pad them to. Goes out: its transform, computed
by the primitives of `primitives.py`. Loaded with `tapegrad.fft`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ...core import numeric
from ...core.dtypes import get_default_dtype
from ..elementwise.complexes import conjugate, is_complex
from ..elementwise.copies import cast
from ..shape.dims import normal_dim
from ..shape.padding import padded
from ..shape.reordering import roll
from ..table import In, Sample, op
from .primitives import fft_c2c, fft_c2r, fft_r2c

if TYPE_CHECKING:
    from ...core.tensor import Tensor
    from ..annotations import Dims, Ints

M = "fft"

#: by `norm`: the norm of the primitives, forward and backward
_NORMS = {
    None: ("none", "n"),
    "backward": ("none", "n"),
    "ortho": ("root", "root"),
    "forward": ("n", "none"),
}


def _norm(norm: Any, forward: bool) -> str:
    if norm not in _NORMS:
        raise RuntimeError(
            f"Invalid normalization mode: {norm!r}; use 'forward', 'backward' or 'ortho'"
        )
    return _NORMS[norm][0 if forward else 1]


def inexact(what: str, x: Any) -> Any:
    """The tensor as a floating or complex one; refuses half precision."""
    if numeric.is_half(x._array.dtype):
        raise RuntimeError(f"{what} does not exist for {x.dtype}; use .float() first")
    return x if numeric.is_inexact(x._array.dtype) else cast(x, dtype=get_default_dtype())


def _real(what: str, x: Any) -> Any:
    if is_complex(x):
        raise RuntimeError(f"{what} takes real numbers, got {x.dtype}")
    return inexact(what, x)


def _sized(x: Any, sizes: dict[int, int]) -> Any:
    """`x` with the given dimensions cut or padded with zeros at their end."""
    for d, n in sizes.items():
        if n < 1:
            raise RuntimeError(
                f"dimension {d} of a Fourier transform must have at least one element, got {n}"
            )
    shape = x._array.shape
    widths = tuple([(0, sizes.get(d, n) - n) for d, n in enumerate(shape)])
    return padded(x, widths)


def _one(x: Any, n: int | None, dim: int) -> tuple[int, int]:
    """The dimension and its size after cutting or padding."""
    if not x._array.ndim:
        raise IndexError("a Fourier transform needs at least one dimension")
    d = normal_dim(dim, x._array.ndim)
    return d, x._array.shape[d] if n is None else int(n)


def _several(what: str, x: Any, s: Any, dim: Any) -> dict[int, int]:
    """The dimensions, in order, and their sizes after cutting or padding."""
    shape = x._array.shape
    sizes = None if s is None else [int(s)] if isinstance(s, int) else [int(n) for n in s]
    if dim is not None:
        dims = [normal_dim(d, len(shape)) for d in ([dim] if isinstance(dim, int) else dim)]
        if len(set(dims)) < len(dims):
            raise RuntimeError(f"{what}: FFT dims must be unique, got {tuple(dims)}")
        if sizes is not None and len(sizes) != len(dims):
            raise RuntimeError(
                f"{what}: s and dim must be equally long, got {len(sizes)} and {len(dims)}"
            )
    elif sizes is not None:
        if len(sizes) > len(shape):
            raise RuntimeError(
                f"{what}: got {len(sizes)} sizes for a tensor of {len(shape)} dimensions"
            )
        dims = list(range(len(shape) - len(sizes), len(shape)))
    else:
        dims = list(range(len(shape)))
    chosen = [-1] * len(dims) if sizes is None else sizes
    return {d: shape[d] if n == -1 else n for d, n in zip(dims, chosen, strict=True)}


def _transformed(what: str, x: Any, sizes: dict[int, int], norm: Any, forward: bool) -> Any:
    """The complex-to-complex transform."""
    x = inexact(what, x)
    mode = _norm(norm, forward)
    if not sizes:
        return x if is_complex(x) else cast(x, dtype=x.dtype.to_complex())
    return fft_c2c(_sized(x, sizes), dims=tuple(sizes), forward=forward, norm=mode)


def _halved(what: str, x: Any, sizes: dict[int, int], norm: str) -> Any:
    """The half of the transform of a real tensor."""
    if not sizes:
        raise RuntimeError(f"{what} needs at least one dimension to transform")
    return fft_r2c(_sized(_real(what, x), sizes), dims=tuple(sizes), norm=norm)


def _whole(what: str, x: Any, sizes: dict[int, int], last: int | None, norm: str) -> Any:
    """The real tensor of half a transform; `last` is the size of its last transformed dimension."""
    x = inexact(what, x)
    x = x if is_complex(x) else cast(x, dtype=x.dtype.to_complex())
    if not sizes:
        raise RuntimeError(f"{what} needs at least one dimension to transform")
    d = tuple(sizes)[-1]
    size = 2 * (x._array.shape[d] - 1) if last is None else last
    if size < 1:
        raise RuntimeError(f"{what}: dimension {d} must have at least one element, got {size}")
    half = _sized(x, {**sizes, d: size // 2 + 1})
    return fft_c2r(half, dims=tuple(sizes), size=size, norm=norm)


def _last_size(s: Any) -> int | None:
    """The requested size of the last dimension; None if it is missing or -1."""
    if s is None:
        return None
    last = int(s) if isinstance(s, int) else int(s[-1])
    return None if last == -1 else last


# -- one dimension -----------------------------------------------------------------------------


def _samples(kinds: tuple[str, ...], least: int = 1) -> Callable[[], list[Sample]]:
    def samples() -> list[Sample]:
        found = []
        for kind in kinds:
            found += [
                Sample(In(3, 4, kind=kind)),
                Sample(In(5, 2, kind=kind), 3, 0, "ortho"),
                Sample(In(6, kind=kind), 5 + least, norm="forward"),
            ]
        return found

    return samples


_BOTH = ("float", "complex")


@op(casts=True, module=M, half=None, autocast={"cpu": "full"}, samples=_samples(_BOTH))
def fft(input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None) -> Any:
    """The discrete Fourier transform along a dimension.

    out[k] = sum over j of x[j] exp(-2 pi i j k / n). The dimension is first cut or padded with
    zeros to the size `n`. `norm="forward"` divides by n, "ortho" by its square root.

    >>> import tapegrad
    >>> tapegrad.fft.fft(tapegrad.tensor([1.0, 2.0, 3.0, 4.0])).abs()
    tensor([10.0000,  2.8284,  2.0000,  2.8284])
    """
    d, size = _one(input, n, dim)
    return _transformed("fft", input, {d: size}, norm, True)


@op(casts=True, module=M, half=None, autocast={"cpu": "full"}, samples=_samples(_BOTH))
def ifft(input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None) -> Any:
    """The inverse of `fft`.

    >>> import tapegrad
    >>> tapegrad.fft.ifft(tapegrad.tensor([10 + 0j, -2 + 2j, -2, -2 - 2j]))
    tensor([1.+0.j, 2.+0.j, 3.+0.j, 4.+0.j])
    """
    d, size = _one(input, n, dim)
    return _transformed("ifft", input, {d: size}, norm, False)


@op(casts=True, module=M, half=None, autocast={"cpu": "full"}, samples=_samples(("float",)))
def rfft(input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None) -> Any:
    """The first n // 2 + 1 elements of the `fft` of a real tensor, which determine the others.

    >>> import tapegrad
    >>> tapegrad.fft.rfft(tapegrad.tensor([1.0, 2.0, 3.0, 4.0]))
    tensor([10.+0.j, -2.+2.j, -2.+0.j])
    """
    d, size = _one(input, n, dim)
    return _halved("rfft", input, {d: size}, _norm(norm, True))


@op(casts=True, module=M, half=None, autocast={"cpu": "full"}, samples=_samples(("complex",), 2))
def irfft(input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None) -> Any:
    """The inverse of `rfft`; the default of `n` is even: 2 * (size of the input - 1).

    >>> import tapegrad
    >>> tapegrad.fft.irfft(tapegrad.tensor([10 + 0j, -2 + 2j, -2]))
    tensor([1., 2., 3., 4.])
    """
    d, size = _one(input, n, dim)
    return _whole("irfft", input, {d: size}, None if n is None else size, _norm(norm, False))


@op(casts=True, module=M, half=None, autocast={"cpu": "full"}, samples=_samples(("complex",), 2))
def hfft(input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None) -> Any:
    """The `fft`, which is real, of a Hermitian-symmetric signal whose first half is the input.

    >>> import tapegrad
    >>> tapegrad.fft.hfft(tapegrad.tensor([1 + 0j, 2 + 1j, 3]))
    tensor([ 8.,  0.,  0., -4.])
    """
    d, size = _one(input, n, dim)
    given = conjugate(input)
    return _whole("hfft", given, {d: size}, None if n is None else size, _norm(norm, True))


@op(casts=True, module=M, half=None, autocast={"cpu": "full"}, samples=_samples(("float",)))
def ihfft(input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None) -> Any:
    """The inverse of `hfft`.

    >>> import tapegrad
    >>> tapegrad.fft.ihfft(tapegrad.tensor([8.0, 0.0, 0.0, -4.0])).real
    tensor([1., 2., 3.])
    """
    d, size = _one(input, n, dim)
    return conjugate(_halved("ihfft", input, {d: size}, _norm(norm, False)))


# -- several dimensions ------------------------------------------------------------------------


def _plane_samples(kinds: tuple[str, ...]) -> Callable[[], list[Sample]]:
    def samples() -> list[Sample]:
        return [
            *[Sample(In(3, 4, kind=kind)) for kind in kinds],
            Sample(In(4, 2, 3, kind=kinds[0]), [3, 4], [0, 2], "ortho"),
            Sample(In(3, 4, kind=kinds[-1]), [-1, 5], norm="forward"),
        ]

    return samples


def _space_samples(kinds: tuple[str, ...]) -> Callable[[], list[Sample]]:
    def samples() -> list[Sample]:
        return [
            *_plane_samples(kinds)(),
            Sample(In(2, 3, 4, kind=kinds[-1])),
            Sample(In(2, 3, 4, kind=kinds[0]), dim=[1]),
        ]

    return samples


@op(casts=True, module=M, half=None, autocast={"cpu": "full"}, samples=_plane_samples(_BOTH))
def fft2(
    input: Tensor, s: Ints | None = None, dim: Dims = (-2, -1), norm: str | None = None
) -> Any:
    """`fftn` of the last two dimensions.

    >>> import tapegrad
    >>> tapegrad.fft.fft2(tapegrad.tensor([[1.0, 2.0], [3.0, 4.0]])).real
    tensor([[10., -2.],
            [-4.,  0.]])
    """
    return _transformed("fft2", input, _several("fft2", input, s, dim), norm, True)


@op(casts=True, module=M, half=None, autocast={"cpu": "full"}, samples=_plane_samples(_BOTH))
def ifft2(
    input: Tensor, s: Ints | None = None, dim: Dims = (-2, -1), norm: str | None = None
) -> Any:
    """The inverse of `fft2`.

    >>> import tapegrad
    >>> tapegrad.fft.ifft2(tapegrad.tensor([[10.0, -2.0], [-4.0, 0.0]])).real
    tensor([[1., 2.],
            [3., 4.]])
    """
    return _transformed("ifft2", input, _several("ifft2", input, s, dim), norm, False)


@op(casts=True, module=M, half=None, autocast={"cpu": "full"}, samples=_plane_samples(("float",)))
def rfft2(
    input: Tensor, s: Ints | None = None, dim: Dims = (-2, -1), norm: str | None = None
) -> Any:
    """`rfftn` of the last two dimensions.

    >>> import tapegrad
    >>> tapegrad.fft.rfft2(tapegrad.tensor([[1.0, 2.0], [3.0, 4.0]]))
    tensor([[10.+0.j, -2.+0.j],
            [-4.+0.j,  0.+0.j]])
    """
    return _halved("rfft2", input, _several("rfft2", input, s, dim), _norm(norm, True))


@op(casts=True, module=M, half=None, autocast={"cpu": "full"}, samples=_plane_samples(("complex",)))
def irfft2(
    input: Tensor, s: Ints | None = None, dim: Dims = (-2, -1), norm: str | None = None
) -> Any:
    """The inverse of `rfft2`.

    >>> import tapegrad
    >>> tapegrad.fft.irfft2(tapegrad.tensor([[10.0, -2.0], [-4.0, 0.0]]))
    tensor([[1., 2.],
            [3., 4.]])
    """
    sizes = _several("irfft2", input, s, dim)
    return _whole("irfft2", input, sizes, _last_size(s), _norm(norm, False))


@op(casts=True, module=M, half=None, autocast={"cpu": "full"}, samples=_plane_samples(("complex",)))
def hfft2(
    input: Tensor, s: Ints | None = None, dim: Dims = (-2, -1), norm: str | None = None
) -> Any:
    """`hfftn` of the last two dimensions.

    >>> import tapegrad
    >>> tapegrad.fft.hfft2(tapegrad.tensor([[1 + 0j, 2], [3, 4]]))
    tensor([[10., -2.],
            [-4.,  0.]])
    """
    sizes = _several("hfft2", input, s, dim)
    return _whole("hfft2", conjugate(input), sizes, _last_size(s), _norm(norm, True))


@op(casts=True, module=M, half=None, autocast={"cpu": "full"}, samples=_plane_samples(("float",)))
def ihfft2(
    input: Tensor, s: Ints | None = None, dim: Dims = (-2, -1), norm: str | None = None
) -> Any:
    """The inverse of `hfft2`.

    >>> import tapegrad
    >>> tapegrad.fft.ihfft2(tapegrad.tensor([[10.0, -2.0], [-4.0, 0.0]])).real
    tensor([[1., 2.],
            [3., 4.]])
    """
    sizes = _several("ihfft2", input, s, dim)
    return conjugate(_halved("ihfft2", input, sizes, _norm(norm, False)))


@op(casts=True, module=M, half=None, autocast={"cpu": "full"}, samples=_space_samples(_BOTH))
def fftn(
    input: Tensor, s: Ints | None = None, dim: Dims | None = None, norm: str | None = None
) -> Any:
    """The discrete Fourier transform along all dimensions, or those in `dim`.

    `s` has the sizes to cut or pad them to; -1 keeps a size. With `s` but no `dim`, the last
    len(s) dimensions are transformed.

    >>> import tapegrad
    >>> tapegrad.fft.fftn(tapegrad.ones(2, 2, 2)).abs().sum()
    tensor(8.)
    """
    return _transformed("fftn", input, _several("fftn", input, s, dim), norm, True)


@op(casts=True, module=M, half=None, autocast={"cpu": "full"}, samples=_space_samples(_BOTH))
def ifftn(
    input: Tensor, s: Ints | None = None, dim: Dims | None = None, norm: str | None = None
) -> Any:
    """The inverse of `fftn`.

    >>> import tapegrad
    >>> tapegrad.fft.ifftn(tapegrad.tensor([[10.0, -2.0], [-4.0, 0.0]])).real
    tensor([[1., 2.],
            [3., 4.]])
    """
    return _transformed("ifftn", input, _several("ifftn", input, s, dim), norm, False)


@op(casts=True, module=M, half=None, autocast={"cpu": "full"}, samples=_space_samples(("float",)))
def rfftn(
    input: Tensor, s: Ints | None = None, dim: Dims | None = None, norm: str | None = None
) -> Any:
    """The `fftn` of a real tensor, with only half of the last dimension: it determines the rest.

    >>> import tapegrad
    >>> tapegrad.fft.rfftn(tapegrad.ones(2, 4)).shape
    Size([2, 3])
    """
    return _halved("rfftn", input, _several("rfftn", input, s, dim), _norm(norm, True))


@op(casts=True, module=M, half=None, autocast={"cpu": "full"}, samples=_space_samples(("complex",)))
def irfftn(
    input: Tensor, s: Ints | None = None, dim: Dims | None = None, norm: str | None = None
) -> Any:
    """The inverse of `rfftn`; without `s` the size of the last dimension is even.

    >>> import tapegrad
    >>> tapegrad.fft.irfftn(tapegrad.fft.rfftn(tapegrad.ones(2, 4))).sum()
    tensor(8.)
    """
    sizes = _several("irfftn", input, s, dim)
    return _whole("irfftn", input, sizes, _last_size(s), _norm(norm, False))


@op(casts=True, module=M, half=None, autocast={"cpu": "full"}, samples=_space_samples(("complex",)))
def hfftn(
    input: Tensor, s: Ints | None = None, dim: Dims | None = None, norm: str | None = None
) -> Any:
    """The `fftn`, which is real, of a tensor given by half of its last dimension.

    The other half consists of conjugates, as for `hfft`.

    >>> import tapegrad
    >>> tapegrad.fft.hfftn(tapegrad.tensor([[1 + 0j, 2], [3, 4]]))
    tensor([[10., -2.],
            [-4.,  0.]])
    """
    sizes = _several("hfftn", input, s, dim)
    return _whole("hfftn", conjugate(input), sizes, _last_size(s), _norm(norm, True))


@op(casts=True, module=M, half=None, autocast={"cpu": "full"}, samples=_space_samples(("float",)))
def ihfftn(
    input: Tensor, s: Ints | None = None, dim: Dims | None = None, norm: str | None = None
) -> Any:
    """The inverse of `hfftn`.

    >>> import tapegrad
    >>> tapegrad.fft.ihfftn(tapegrad.tensor([[10.0, -2.0], [-4.0, 0.0]])).real
    tensor([[1., 2.],
            [3., 4.]])
    """
    sizes = _several("ihfftn", input, s, dim)
    return conjugate(_halved("ihfftn", input, sizes, _norm(norm, False)))


# -- order of frequencies ----------------------------------------------------------------------


def _shifted_dims(x: Any, dim: Any) -> list[int]:
    if dim is None:
        return list(range(x._array.ndim))
    return [normal_dim(d, x._array.ndim) for d in ([dim] if isinstance(dim, int) else dim)]


@op(module=M, samples=lambda: [Sample((5, 4)), Sample((5, 4), 0), Sample((3, 5), [0, 1])])
def fftshift(input: Tensor, dim: Dims | None = None) -> Any:
    """The elements of a transform in order of frequency, with frequency 0 in the middle.

    >>> import tapegrad
    >>> tapegrad.fft.fftshift(tapegrad.fft.fftfreq(4))
    tensor([-0.5000, -0.2500,  0.0000,  0.2500])
    """
    dims = _shifted_dims(input, dim)
    return roll(input, [input._array.shape[d] // 2 for d in dims], dims) if dims else input


@op(module=M, samples=lambda: [Sample((5, 4)), Sample((5, 4), 0), Sample((3, 5), [0, 1])])
def ifftshift(input: Tensor, dim: Dims | None = None) -> Any:
    """The inverse of `fftshift`.

    >>> import tapegrad
    >>> tapegrad.fft.ifftshift(tapegrad.tensor([-2, -1, 0, 1]))
    tensor([ 0,  1, -2, -1])
    """
    dims = _shifted_dims(input, dim)
    shifts = [(input._array.shape[d] + 1) // 2 for d in dims]
    return roll(input, shifts, dims) if dims else input
