"""`grid_sample` under PyTorch's internal names, with numbered modes. Imported at first use."""

from __future__ import annotations

from typing import Any

from ...core.tensor import Tensor
from ..table import In, Sample, op
from .sampling import grid_sample

_MODES = ("bilinear", "nearest", "bicubic")
_PADDINGS = ("zeros", "border", "reflection")


def _sampled(
    what: str, dims: int, input: Any, grid: Any, mode: int, padding: int, corners: bool
) -> Any:
    if input._array.ndim != dims + 2:
        raise RuntimeError(
            f"{what} needs an input of {dims + 2} dimensions, got shape {tuple(input.shape)}"
        )
    if not 0 <= mode < len(_MODES) or not 0 <= padding < len(_PADDINGS):
        raise ValueError(f"{what}: modes are 0 to 2, got {mode} and {padding}")
    return grid_sample(input, grid, _MODES[mode], _PADDINGS[padding], bool(corners))


_IMAGE = (1, 2, 3, 4)
_GRID = In(1, 2, 2, 2, low=-1.2, high=1.2)


@op(method=False, samples=lambda: [Sample(In(*_IMAGE), _GRID, 0, 0, False)])
def grid_sampler_2d(
    input: Tensor, grid: Tensor, interpolation_mode: int, padding_mode: int, align_corners: bool
) -> Any:
    """`nn.functional.grid_sample` of images, with modes by number.

    Modes are 0 bilinear, 1 nearest, 2 bicubic; paddings 0 zeros, 1 border, 2 reflection.

    >>> import tapegrad
    >>> image, grid = tapegrad.arange(4.0).reshape(1, 1, 2, 2), tapegrad.zeros(1, 1, 1, 2)
    >>> tapegrad.grid_sampler_2d(image, grid, 0, 0, True).item()
    1.5
    """
    return _sampled(
        "grid_sampler_2d", 2, input, grid, interpolation_mode, padding_mode, align_corners
    )


@op(
    method=False,
    samples=lambda: [Sample((1, 1, 2, 3, 2), In(1, 2, 1, 2, 3, low=-1.2, high=1.2), 0, 1, True)],
)
def grid_sampler_3d(
    input: Tensor, grid: Tensor, interpolation_mode: int, padding_mode: int, align_corners: bool
) -> Any:
    """`nn.functional.grid_sample` of volumes, with modes by number.

    >>> import tapegrad
    >>> volume, grid = tapegrad.arange(8.0).reshape(1, 1, 2, 2, 2), tapegrad.zeros(1, 1, 1, 1, 3)
    >>> tapegrad.grid_sampler_3d(volume, grid, 0, 0, True).item()
    3.5
    """
    return _sampled(
        "grid_sampler_3d", 3, input, grid, interpolation_mode, padding_mode, align_corners
    )


@op(
    method=False,
    samples=lambda: [
        Sample(In(*_IMAGE), _GRID, 1, 2, False),
        Sample(In(*_IMAGE), _GRID, 2, 1, True),
    ],
    autocast={"cuda": "widest"},
)
def grid_sampler(
    input: Tensor, grid: Tensor, interpolation_mode: int, padding_mode: int, align_corners: bool
) -> Any:
    """`nn.functional.grid_sample` with modes by number, as in `grid_sampler_2d`.

    >>> import tapegrad
    >>> image, grid = tapegrad.arange(4.0).reshape(1, 1, 2, 2), tapegrad.zeros(1, 1, 1, 2)
    >>> tapegrad.grid_sampler(image, grid, 0, 0, True).item()
    1.5
    """
    dims = input._array.ndim - 2
    return _sampled(
        "grid_sampler", dims, input, grid, interpolation_mode, padding_mode, align_corners
    )
