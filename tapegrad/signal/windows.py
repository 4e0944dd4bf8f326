"""Window functions: weights that fade a piece of a signal out at both ends.

Comes in: a length and the parameters of the window. Goes out: a new tensor. A window is symmetric,
or with `sym=False` periodic: the symmetric one of one more element, without its last. NumPy
computes in float64. Older names such as `hann_window` are in the main namespace.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

import numpy as np

from ..core.dtypes import as_dtype, float32, float64, get_default_dtype
from ..core.tensor import Tensor
from ..ops.creation import finished

if TYPE_CHECKING:
    from ..ops.annotations import DeviceLike, DTypeLike

__all__ = [
    "bartlett",
    "blackman",
    "cosine",
    "exponential",
    "gaussian",
    "general_cosine",
    "general_hamming",
    "hamming",
    "hann",
    "kaiser",
    "nuttall",
]


class WindowOptions(TypedDict, total=False):
    """The options of all windows."""

    dtype: DTypeLike | None
    layout: Any
    device: DeviceLike | None
    requires_grad: bool


class OlderWindowOptions(WindowOptions, total=False):
    """The options of the older names. `pin_memory` has no effect: call the result's method."""

    pin_memory: bool


def _window(
    name: str,
    M: int,
    sym: bool,
    weights: Callable[[Any, int], Any],
    *,
    dtype: DTypeLike | None = None,
    layout: Any = None,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """A window of M elements; `weights` takes their indices and the symmetric window's size."""
    if M < 0:
        raise ValueError(f"{name} needs a length of at least 0, got {M}")
    wanted = get_default_dtype() if dtype is None else as_dtype(dtype)
    if wanted not in (float32, float64):
        raise ValueError(f"{name} needs float32 or float64, got {wanted}")
    _check_layout(name, layout)
    whole = M if sym or M <= 1 else M + 1
    alone = M <= 1 and name != "exponential"  # whose centre may lie elsewhere
    array = np.ones(M) if alone else weights(np.arange(M, dtype=np.float64), whole)
    return finished(np.asarray(array), wanted, device, requires_grad)


def _check_layout(name: str, layout: Any) -> None:
    if layout is not None and str(layout).rpartition(".")[2] != "strided":
        raise ValueError(f"{name} makes strided tensors, got layout={layout}")


def _cosines(n: Any, whole: int, a: list[float]) -> Any:
    angle = 2 * math.pi * n / (whole - 1)
    return sum((-1) ** k * factor * np.cos(k * angle) for k, factor in enumerate(a))


def _factors(name: str, a: Iterable[float]) -> list[float]:
    if not isinstance(a, Iterable):
        raise TypeError(f"{name} needs a list of factors, got {type(a).__name__}")
    factors = list(a)
    if not factors:
        raise ValueError(f"{name} needs at least one factor")
    return factors


def bartlett(M: int, *, sym: bool = True, **options: Unpack[WindowOptions]) -> Tensor:
    """A triangle: 1 - |2 n / (M - 1) - 1|.

    >>> import tapegrad
    >>> tapegrad.signal.windows.bartlett(5)
    tensor([0.0000, 0.5000, 1.0000, 0.5000, 0.0000])
    """
    return _window("bartlett", M, sym, _triangle, **options)


def _triangle(n: Any, whole: int) -> Any:
    return 1 - np.abs(2 * n / (whole - 1) - 1)


def blackman(M: int, *, sym: bool = True, **options: Unpack[WindowOptions]) -> Tensor:
    """0.42 - 0.5 cos(2 pi n / (M - 1)) + 0.08 cos(4 pi n / (M - 1)).

    >>> import tapegrad
    >>> tapegrad.signal.windows.blackman(3).round(decimals=4)
    tensor([-0.,  1., -0.])
    """
    return general_cosine(M, a=[0.42, 0.5, 0.08], sym=sym, **options)


def cosine(M: int, *, sym: bool = True, **options: Unpack[WindowOptions]) -> Tensor:
    """sin(pi (n + 1/2) / M).

    >>> import tapegrad
    >>> tapegrad.signal.windows.cosine(3)
    tensor([0.5000, 1.0000, 0.5000])
    """

    def weights(n: Any, whole: int) -> Any:
        return np.sin(math.pi * (n + 0.5) / whole)

    return _window("cosine", M, sym, weights, **options)


def exponential(
    M: int,
    *,
    center: float | None = None,
    tau: float = 1.0,
    sym: bool = True,
    **options: Unpack[WindowOptions],
) -> Tensor:
    """e^(-|n - center| / tau); `center` can be given only with `sym=False`.

    >>> import tapegrad
    >>> tapegrad.signal.windows.exponential(3)
    tensor([0.3679, 1.0000, 0.3679])
    """
    if tau <= 0:
        raise ValueError(f"exponential needs a positive tau, got {tau}")
    if sym and center is not None:
        raise ValueError("exponential: the centre of a symmetric window is fixed; use sym=False")

    def weights(n: Any, whole: int) -> Any:
        middle = (whole - 1) / 2 if center is None else center
        return np.exp(-np.abs(n - middle) / tau)

    return _window("exponential", M, sym, weights, **options)


def gaussian(
    M: int, *, std: float = 1.0, sym: bool = True, **options: Unpack[WindowOptions]
) -> Tensor:
    """e^(-(n - (M - 1) / 2)^2 / (2 std^2)).

    >>> import tapegrad
    >>> tapegrad.signal.windows.gaussian(3)
    tensor([0.6065, 1.0000, 0.6065])
    """
    if std <= 0:
        raise ValueError(f"gaussian needs a positive std, got {std}")

    def weights(n: Any, whole: int) -> Any:
        return np.exp(-(((n - (whole - 1) / 2) / std) ** 2) / 2)

    return _window("gaussian", M, sym, weights, **options)


def general_cosine(
    M: int,
    *,
    a: Iterable[float],
    sym: bool = True,
    **options: Unpack[WindowOptions],
) -> Tensor:
    """The sum of (-1)^k a[k] cos(2 pi k n / (M - 1)).

    >>> import tapegrad
    >>> tapegrad.signal.windows.general_cosine(3, a=[0.5, 0.5])
    tensor([0., 1., 0.])
    """
    factors = _factors("general_cosine", a)
    return _window(
        "general_cosine",
        M,
        sym,
        lambda n, whole: _cosines(n, whole, factors),
        **options,
    )


def general_hamming(
    M: int,
    *,
    alpha: float = 0.54,
    sym: bool = True,
    **options: Unpack[WindowOptions],
) -> Tensor:
    """alpha - (1 - alpha) cos(2 pi n / (M - 1)).

    >>> import tapegrad
    >>> tapegrad.signal.windows.general_hamming(3)
    tensor([0.0800, 1.0000, 0.0800])
    """
    return general_cosine(M, a=[alpha, 1.0 - alpha], sym=sym, **options)


def hamming(M: int, *, sym: bool = True, **options: Unpack[WindowOptions]) -> Tensor:
    """0.54 - 0.46 cos(2 pi n / (M - 1)).

    >>> import tapegrad
    >>> tapegrad.signal.windows.hamming(3)
    tensor([0.0800, 1.0000, 0.0800])
    """
    return general_hamming(M, sym=sym, **options)


def hann(M: int, *, sym: bool = True, **options: Unpack[WindowOptions]) -> Tensor:
    """(1 - cos(2 pi n / (M - 1))) / 2.

    >>> import tapegrad
    >>> tapegrad.signal.windows.hann(3), tapegrad.signal.windows.hann(2, sym=False)
    (tensor([0., 1., 0.]), tensor([0., 1.]))
    """
    return general_hamming(M, alpha=0.5, sym=sym, **options)


def kaiser(
    M: int, *, beta: float = 12.0, sym: bool = True, **options: Unpack[WindowOptions]
) -> Tensor:
    """I0(beta sqrt(1 - (2 n / (M - 1) - 1)^2)) / I0(beta), where I0 is `tapegrad.i0`.

    >>> import tapegrad
    >>> tapegrad.signal.windows.kaiser(3, beta=1.0)
    tensor([0.7898, 1.0000, 0.7898])
    """
    if beta < 0:
        raise ValueError(f"kaiser needs a beta of at least 0, got {beta}")
    return _window(
        "kaiser",
        M,
        sym,
        lambda n, whole: np.kaiser(whole, beta)[: len(n)],
        **options,
    )


def nuttall(M: int, *, sym: bool = True, **options: Unpack[WindowOptions]) -> Tensor:
    """Nuttall's window, which has low side lobes: a sum of four cosine terms.

    >>> import tapegrad
    >>> tapegrad.signal.windows.nuttall(3)
    tensor([3.6280e-04, 1.0000e+00, 3.6280e-04])
    """
    return general_cosine(M, a=[0.3635819, 0.4891775, 0.1365995, 0.0106411], sym=sym, **options)


# -- names of the main namespace ---------------------------------------------------------------


def _periodic(
    name: str,
    length: int,
    periodic: bool,
    weights: Callable[[Any, int], Any],
    *,
    dtype: DTypeLike | None = None,
    layout: Any = None,
    device: DeviceLike | None = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
) -> Tensor:
    if length < 0:
        raise RuntimeError(f"{name} needs a length of at least 0, got {length}")
    wanted = get_default_dtype() if dtype is None else as_dtype(dtype)
    if not wanted.is_floating_point:
        raise RuntimeError(f"{name} needs a floating dtype, got {wanted}")
    _check_layout(name, layout)
    whole = length + 1 if periodic else length
    n = np.arange(length, dtype=np.float64)
    array = np.ones(length) if length <= 1 else weights(n, whole)
    return finished(np.asarray(array), wanted, device, requires_grad)


def bartlett_window(
    window_length: int,
    periodic: bool = True,
    **options: Unpack[OlderWindowOptions],
) -> Tensor:
    """A triangle, periodic by default: see `signal.windows.bartlett`."""
    return _periodic("bartlett_window", window_length, periodic, _triangle, **options)


def blackman_window(
    window_length: int,
    periodic: bool = True,
    **options: Unpack[OlderWindowOptions],
) -> Tensor:
    """Blackman's window, periodic by default: see `signal.windows.blackman`."""

    def weights(n: Any, whole: int) -> Any:
        return _cosines(n, whole, [0.42, 0.5, 0.08])

    return _periodic("blackman_window", window_length, periodic, weights, **options)


def hamming_window(
    window_length: int,
    periodic: bool = True,
    alpha: float = 0.54,
    beta: float = 0.46,
    **options: Unpack[OlderWindowOptions],
) -> Tensor:
    """alpha - beta cos(2 pi n / length), or with `periodic=False` over length - 1."""

    def weights(n: Any, whole: int) -> Any:
        return _cosines(n, whole, [alpha, beta])

    return _periodic("hamming_window", window_length, periodic, weights, **options)


def hann_window(
    window_length: int,
    periodic: bool = True,
    **options: Unpack[OlderWindowOptions],
) -> Tensor:
    """Hann's window, periodic by default: see `signal.windows.hann`."""
    return _periodic(
        "hann_window",
        window_length,
        periodic,
        lambda n, whole: _cosines(n, whole, [0.5, 0.5]),
        **options,
    )


def kaiser_window(
    window_length: int,
    periodic: bool = True,
    beta: float = 12.0,
    **options: Unpack[OlderWindowOptions],
) -> Tensor:
    """Kaiser's window, periodic by default: see `signal.windows.kaiser`."""
    return _periodic(
        "kaiser_window",
        window_length,
        periodic,
        lambda n, whole: np.kaiser(whole, beta)[: len(n)],
        **options,
    )
