"""Short-time Fourier transforms: `stft` transforms the frames of a signal, `istft` inverts it.

Comes in: a signal (..., length), or its transform (..., frequencies, frames). Goes out: the other.
Both functions consist of other operations, which have the gradients. Imported at first use
(`late.py`).
"""

from __future__ import annotations

import warnings
from typing import Any

from ...core import numeric, source
from ...core.tensor import Tensor
from ..checks import checked
from ..creation import ones
from ..elementwise.complexes import complex_, is_complex, view_as_real
from ..shape.padding import pad, padded
from ..shape.pieces import unfold
from ..table import In, Sample, op
from ..window.columns import fold
from .primitives import fft_c2c, fft_c2r, fft_r2c
from .transforms import inexact


def _window(what: str, window: Any, length: int, n_fft: int, like: Any) -> Any:
    """A window of `length` elements (default: ones), padded with zeros to `n_fft` around it."""
    if window is None:
        window = ones(length, dtype=like.dtype.to_real(), device=like.device)
    elif window._array.shape != (length,):
        raise RuntimeError(
            f"{what}: the window must be a vector of win_length = {length} elements, got the "
            f"shape {tuple(window.shape)}"
        )
    before = (n_fft - length) // 2
    return padded(window, ((before, n_fft - length - before),))


def _lengths(what: str, n_fft: int, hop_length: int | None, win_length: int | None) -> Any:
    hop = n_fft // 4 if hop_length is None else int(hop_length)
    length = n_fft if win_length is None else int(win_length)
    if hop <= 0:
        raise RuntimeError(f"{what}: hop_length must be at least 1, got {hop}")
    if not 0 < length <= n_fft:
        raise RuntimeError(f"{what}: win_length must lie between 1 and n_fft, got {length}")
    return hop, length


def _norm(normalized: bool, otherwise: str) -> str:
    return "root" if normalized else otherwise


_WINDOW = In(8, low=0.2, high=1.0)


@op(
    samples=lambda: [
        Sample((20,), 8, return_complex=True),
        Sample((2, 20), 8, 3, 6, In(6, low=0.2), normalized=True, return_complex=True),
        Sample((2, 20), 8, window=_WINDOW, center=False, onesided=False, return_complex=True),
        Sample((20,), 6, pad_mode="constant", return_complex=True),
        Sample(In(20, kind="complex"), 8, 4),
    ],
    half=None,
    autocast={"cpu": "full"},
)
def stft(
    input: Tensor,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Tensor | None = None,
    center: bool = True,
    pad_mode: str = "reflect",
    normalized: bool = False,
    onesided: bool | None = None,
    return_complex: bool | None = None,
    align_to_window: bool | None = None,
) -> Any:
    """Fourier transforms of the frames of a signal (length) or of several (batch, length).

    A frame has `n_fft` elements and starts `hop_length` (default n_fft // 4) elements after the
    previous one. It is multiplied by `window`, which has `win_length` (default n_fft) elements and
    is centred in the frame. With `center`, the signal is padded by half a frame at both ends, in
    the mode `pad_mode`. The result is (batch, frequencies, frames): n_fft // 2 + 1 frequencies of a
    real signal, or all n_fft with `onesided=False`.

    >>> import tapegrad
    >>> x = tapegrad.sin(tapegrad.arange(64) * 0.5)
    >>> tapegrad.stft(x, 16, window=tapegrad.hann_window(16), return_complex=True).shape
    Size([9, 17])
    """
    if not numeric.is_inexact(input._array.dtype):
        raise RuntimeError(f"stft: expected a floating or complex signal, got {input.dtype}")
    input = inexact("stft", input)
    shape = input._array.shape
    n_fft = int(n_fft)
    if not 1 <= len(shape) <= 2:
        raise RuntimeError(f"stft takes a signal or a batch of them, got the shape {tuple(shape)}")
    if return_complex is None:
        if not is_complex(input) and (window is None or not is_complex(window)):
            raise RuntimeError(
                "stft of a real signal needs to be told return_complex: True for a complex "
                "result; view_as_real makes pairs of it"
            )
        return_complex = True
    if align_to_window is not None and center:
        raise RuntimeError(
            "stft: with center=True each window lies around its sample, so align_to_window has "
            "no meaning"
        )
    hop, length = _lengths("stft", n_fft, hop_length, win_length)
    x = input if len(shape) == 2 else input.unsqueeze(0)
    if center:
        half = n_fft // 2
        x = pad(x.unsqueeze(0), (half, half), pad_mode).squeeze(0)
    if not 0 < n_fft <= x._array.shape[1]:
        raise RuntimeError(
            f"stft: n_fft must lie between 1 and the {x._array.shape[1]} samples of the signal, "
            f"got {n_fft}"
        )
    if align_to_window:
        cut = (n_fft - length) // 2
        x = x[:, cut : x._array.shape[1] - (n_fft - length - cut)]
        frames = unfold(x, -1, length, hop)
        whole = padded(frames, ((0, 0), (0, 0), (cut, n_fft - length - cut)))
    else:
        whole = unfold(x, -1, n_fft, hop)
    shown = _window("stft", window, length, n_fft, input)
    framed = whole * shown if window is not None or length < n_fft else whole
    if onesided is None:
        onesided = not is_complex(framed)
    norm = _norm(normalized, "none")
    if onesided:
        if is_complex(framed):
            raise RuntimeError("stft: a complex signal or window needs onesided=False")
        out = fft_r2c(framed, dims=(2,), norm=norm)
    else:
        out = fft_c2c(framed, dims=(2,), forward=True, norm=norm)
    out = out.transpose(1, 2)
    out = out if len(shape) == 2 else out.squeeze(0)
    return out if return_complex else view_as_real(out)


@op(
    samples=lambda: [
        Sample(In(5, 7, kind="complex"), 8, 2),
        Sample(In(2, 5, 7, kind="complex"), 8, 3, window=_WINDOW, length=20, normalized=True),
        Sample(In(5, 7, kind="complex"), 8, window=_WINDOW, center=False),
        Sample(In(8, 7, kind="complex"), 8, 2, onesided=False, return_complex=True),
    ],
    half=None,
    autocast={"cpu": "full"},
)
def istft(
    input: Tensor,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Tensor | None = None,
    center: bool = True,
    normalized: bool = False,
    onesided: bool | None = None,
    length: int | None = None,
    return_complex: bool = False,
) -> Any:
    """The signal whose `stft` with the same arguments is closest to `input`.

    `input` is (batch, frequencies, frames) or (frequencies, frames). The result has `length`
    elements, by default as many as the frames cover.

    >>> import tapegrad
    >>> x = tapegrad.sin(tapegrad.arange(64) * 0.5)
    >>> window = tapegrad.hann_window(16)
    >>> frames = tapegrad.stft(x, 16, window=window, return_complex=True)
    >>> tapegrad.allclose(tapegrad.istft(frames, 16, window=window), x, atol=1e-5)
    True
    """
    n_fft = int(n_fft)
    given = input if is_complex(input) else None
    if given is None:
        raise RuntimeError("istft takes the complex result of stft(..., return_complex=True)")
    shape = given._array.shape
    if not given._array.size:
        raise RuntimeError("istft: the input has no elements")
    if not 2 <= len(shape) <= 3:
        raise RuntimeError(
            f"istft takes (frequencies, frames) or a batch of that, got {len(shape)} dimensions"
        )
    hop, width = _lengths("istft", n_fft, hop_length, win_length)
    frequencies, count = shape[-2:]
    if onesided is None:
        onesided = frequencies != n_fft
    expected = n_fft // 2 + 1 if onesided else n_fft
    if frequencies != expected:
        raise RuntimeError(
            f"istft: the input must have n_fft{' / 2 + 1' if onesided else ''} = {expected} "
            f"frequencies in dimension -2, got {frequencies}"
        )
    if return_complex and onesided:
        raise RuntimeError("istft: a complex result needs all frequencies, so onesided=False")
    if window is not None and is_complex(window) and not return_complex:
        raise RuntimeError("istft: a complex window needs return_complex=True")
    x = given if len(shape) == 3 else given.unsqueeze(0)
    x = x.transpose(1, 2)  # (batch, frames, frequencies)
    norm = _norm(normalized, "n")
    if return_complex:
        frames = fft_c2c(x, dims=(2,), forward=False, norm=norm)
    else:
        half = x if onesided else x[:, :, : n_fft // 2 + 1]
        frames = fft_c2r(half, dims=(2,), size=n_fft, norm=norm)
    shown = _window("istft", window, width, n_fft, given)
    total = n_fft + hop * (count - 1)
    signal = _added(frames * shown, total, hop)
    weight = _added((shown * shown).expand(1, count, n_fft), total, hop)
    start = n_fft // 2 if center else 0
    stop = start + int(length) if length is not None else total - start
    signal, weight = signal[:, start:stop], weight[:, start:stop]
    weight = checked(
        weight,
        abs(weight.detach()),
        low=1e-11,
        message="istft: window overlap add min: the windows of the frames add up to {} somewhere, "
        "so the signal is unknown there; use another window or hop_length, or center=True",
    )
    out = signal / weight
    if length is not None and stop > total:
        warnings.warn(
            "istft: the signal ends before `length`, so the rest is 0; center and hop_length "
            "decide where it ends",
            stacklevel=source.stacklevel(),
        )
        out = padded(out, ((0, 0), (0, stop - total)))
    return out if len(shape) == 3 else out.squeeze(0)


def _added(frames: Any, total: int, hop: int) -> Any:
    """The sum of frames (batch, frames, elements), each `hop` elements after the previous one."""
    if is_complex(frames):
        parts = [_added(part, total, hop) for part in (frames.real, frames.imag)]
        return complex_(*parts)
    columns = frames.transpose(1, 2)
    size = frames._array.shape[2]
    return fold(columns, (1, total), (1, size), stride=(1, hop)).reshape(-1, total)
