"""Padding: borders around a tensor, of constants or of its own elements.

Comes in: a tensor and the widths of its borders; negative widths crop. Goes out: a tensor of other
sizes. `pad` is the public function. `padded` adds constant borders inside other operations, such as
convolutions and pools.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import numpy as np

from ...core import xp
from ...core.batch_rules import adapted, borderless
from ...core.primitive import MOVEMENT, Primitive, define
from ...core.tensor import Tensor, wrap
from ..elementwise.copies import clone_
from ..index.indexing import take_
from ..precision import check_numbers
from ..table import Sample, op

if TYPE_CHECKING:
    from collections.abc import Sequence


def _pad_in_loops(b: Any, out: Any, x: Any, *, widths: Any, value: Any) -> None:
    b.fill(out, value)
    b.copy(out[tuple(slice(a, a + n) for (a, _), n in zip(widths, x.shape, strict=True))], x)


pad_: Primitive = define(
    "pad",
    lambda x, *, widths, value: np.pad(x, widths, constant_values=value),
    kind=MOVEMENT,
    lower=_pad_in_loops,
    vjp=lambda g, widths: unpad_(g, widths=widths),
    jvp=lambda primals, tangents, outs, *, widths, value: pad_(tangents[0], widths=widths, value=0),
    batch=adapted(widths=borderless),
)
unpad_: Primitive = define(
    "unpad",
    lambda x, *, widths: x[
        tuple(slice(a, n - b) for (a, b), n in zip(widths, x.shape, strict=True))
    ],
    kind=MOVEMENT,
    vjp=lambda g, widths: pad_(g, widths=widths, value=0),
    view=True,
    batch=adapted(widths=borderless),
)


def padded(x: Any, widths: tuple[tuple[int, int], ...], value: float = 0) -> Any:
    """`x` with constant borders; negative widths crop."""
    if any(a < 0 or b < 0 for a, b in widths):
        cut = tuple((max(-a, 0), max(-b, 0)) for a, b in widths)
        x = unpad_(x, widths=cut)
        if isinstance(x, Tensor):
            x = clone_(x)
        widths = tuple((max(a, 0), max(b, 0)) for a, b in widths)
    return pad_(x, widths=widths, value=value) if any(a or b for a, b in widths) else x


def _source(n: int, before: int, after: int, mode: str) -> Any:
    """For each element of a padded dimension of size n, the index of the element it copies."""
    positions = np.arange(-before, n + after)
    if mode == "circular":
        # Elements cropped by negative widths do not wrap around.
        first, last = max(-before, 0), n - max(-after, 0)
        return first + (positions - first) % (last - first)
    if mode == "replicate":
        return np.clip(positions, 0, n - 1)
    return (n - 1) - np.abs((n - 1) - np.abs(positions))


def _check_width(n: int, before: int, after: int, mode: str) -> None:
    limit = n - 1 if mode == "reflect" else n if mode == "circular" else None
    if limit is not None and max(before, after) > limit:
        raise RuntimeError(
            f"pad: mode {mode!r} can add at most {limit} elements to a dimension of size {n}, got "
            f"{before} and {after}"
        )
    if mode == "replicate" and n == 0:
        raise RuntimeError("pad: mode 'replicate' needs at least 1 element to copy")


def _autocast(input: Any, pad: Any, mode: str = "constant", value: Any = None) -> str | None:
    """The autocast choice of PyTorch: some borders in float32, the others in any dtype."""
    full = mode == "replicate" or (mode == "reflect" and len(pad) < 6)
    return "full" if full else None


@op(
    module="nn.functional",
    samples=lambda: [
        Sample((3, 4), [1, 2]),
        Sample((2, 3, 4), [1, 0, 2, 1], value=1.5),
        Sample((3, 4), [-1, 2]),
        Sample((2, 3, 4), [1, 2], "reflect"),
        Sample((1, 2, 3, 4), [1, 2, 2, 0], "replicate"),
        Sample((1, 2, 3, 4), [1, 2, 2, 1], "circular"),
        Sample((1, 2, 3, 4), [3, 0, 0, 2], mode="reflect"),
    ],
    autocast={"cpu": _autocast},
)
def pad(
    input: Tensor, pad: Sequence[int], mode: str = "constant", value: float | None = None
) -> Any:
    """Pad the last dimensions: before and after the last one, then the one before it.

    Modes are "constant", "reflect", "replicate" and "circular". Negative widths crop.

    >>> import tapegrad
    >>> tapegrad.nn.functional.pad(tapegrad.tensor([1.0, 2.0]), [1, 2], value=0.5)
    tensor([0.5000, 1.0000, 2.0000, 0.5000, 0.5000])
    """
    shape = input._array.shape
    widths = [operator.index(n) for n in pad]
    if len(widths) % 2 or len(widths) > 2 * len(shape):
        raise RuntimeError(
            f"pad needs two widths for each of at most {len(shape)} dimensions, got {widths}"
        )
    sides = [(widths[i], widths[i + 1]) for i in range(0, len(widths), 2)]
    whole = tuple([(0, 0)] * (len(shape) - len(sides)) + sides[::-1])
    for n, (before, after) in zip(shape, whole, strict=True):
        if n + before + after < 0:
            raise RuntimeError(f"pad: widths {widths} cut more than there is of {tuple(shape)}")
    if mode == "constant":
        out = padded(input, whole, 0 if value is None else value)
        return input.clone() if out is input else out
    if mode not in ("reflect", "replicate", "circular"):
        raise NotImplementedError(
            f"pad: mode must be 'constant', 'reflect', 'replicate' or 'circular', got {mode!r}"
        )
    if value is not None and value != 0:
        raise RuntimeError(f"pad: mode {mode!r} takes no value")
    if mode != "circular":
        check_numbers(input, f"pad with mode {mode!r}")
    filled = shape[1:] if len(shape) >= len(sides) + 2 else shape
    if mode != "circular" and 0 in filled:
        raise RuntimeError(
            f"pad: mode {mode!r} needs an input that is empty along no dimension but the batch, "
            f"got shape {tuple(shape)}"
        )
    for n, (before, after) in zip(shape, whole, strict=True):
        if before or after:
            _check_width(n, before, after, mode)
    out = input
    for d, (n, (before, after)) in enumerate(zip(shape, whole, strict=True)):
        if before or after:
            source = xp.module(input._array).asarray(_source(n, before, after, mode))
            out = take_(out, wrap(source), dims=(d,))
    return input.clone() if out is input else out
