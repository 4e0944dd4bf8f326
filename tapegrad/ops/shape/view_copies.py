"""Copies of views: `squeeze_copy(x)` has the values of `squeeze(x)` in memory of its own.

In come the arguments of a function that makes views; out come new tensors with the same values and
gradients. `as_strided_scatter` puts values where such a view shows them. Imported at first use
(`late.py`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from ...core.tensor import Tensor
from ..elementwise.copies import clone_
from ..linalg.diagonals import diagonal
from ..reduce.scans import replaced, split_with_sizes
from ..table import In, Sample, op
from .dims import normal_dim
from .expanding import expand
from .joining import split, unbind
from .pieces import as_strided, unfold
from .reordering import permute, t, transpose
from .reshaping import squeeze, unsqueeze, view
from .slicing import narrow, select


def _copying(
    name: str, function: Callable[..., Any], example: tuple[str, str], *samples: Sample
) -> None:
    """Enter the copy of a view."""

    @functools.wraps(function)
    def copied(*args: Any, **kwargs: Any) -> Any:
        made = function(*args, **kwargs)
        return clone_(made) if isinstance(made, Tensor) else tuple([clone_(m) for m in made])

    call, result = example
    copied.__doc__ = (
        f"`{function.__name__}` with memory of its own: no view.\n\n>>> import tapegrad\n"
        f">>> {call}\n{result}\n"
    )
    op(name, samples=lambda: list(samples), method=name == "narrow_copy")(copied)


def alias(input: Tensor) -> Any:
    return input


def slices(
    input: Tensor, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Any:
    key = (slice(None),) * normal_dim(dim, input._array.ndim) + (slice(start, end, step),)
    return input[key]


alias.__name__, slices.__name__ = "view_as", "slice"
_PAIR = "tapegrad.tensor([[1, 2]])"

_copying("alias_copy", alias, (f"tapegrad.alias_copy({_PAIR})", "tensor([[1, 2]])"), Sample((3, 4)))
_copying(
    "as_strided_copy",
    as_strided,
    ("tapegrad.as_strided_copy(tapegrad.arange(4), [2], [2])", "tensor([0, 2])"),
    Sample((3, 4), [2, 3], [4, 1], 5),
)
_copying(
    "diagonal_copy",
    diagonal,
    ("tapegrad.diagonal_copy(tapegrad.tensor([[1, 2], [3, 4]]))", "tensor([1, 4])"),
    Sample((3, 4)),
    Sample((3, 4), 1),
)
_copying(
    "expand_copy",
    expand,
    (f"tapegrad.expand_copy({_PAIR}, (2, 2))", "tensor([[1, 2],\n        [1, 2]])"),
    Sample((3, 1), [2, 3, 4]),
)
_copying(
    "narrow_copy",
    narrow,
    ("tapegrad.narrow_copy(tapegrad.arange(4), 0, 1, 2)", "tensor([1, 2])"),
    Sample((3, 4), 1, 1, 2),
)
_copying(
    "permute_copy",
    permute,
    (f"tapegrad.permute_copy({_PAIR}, (1, 0))", "tensor([[1],\n        [2]])"),
    Sample((2, 3, 4), [2, 0, 1]),
)
_copying(
    "select_copy",
    select,
    (f"tapegrad.select_copy({_PAIR}, 1, 0)", "tensor([1])"),
    Sample((3, 4), 0, 1),
)
_copying(
    "slice_copy",
    slices,
    ("tapegrad.slice_copy(tapegrad.arange(4), 0, 1, 3)", "tensor([1, 2])"),
    Sample((3, 4), 1, 0, 3, 2),
    Sample((3, 4)),
)
_copying(
    "split_copy",
    split,
    ("tapegrad.split_copy(tapegrad.arange(3), 2)", "(tensor([0, 1]), tensor([2]))"),
    Sample((3, 4), 2),
)
_copying(
    "split_with_sizes_copy",
    split_with_sizes,
    ("tapegrad.split_with_sizes_copy(tapegrad.arange(3), [1, 2])", "(tensor([0]), tensor([1, 2]))"),
    Sample((3, 4), [1, 3], 1),
)
_copying(
    "squeeze_copy",
    squeeze,
    (f"tapegrad.squeeze_copy({_PAIR})", "tensor([1, 2])"),
    Sample((3, 1, 4)),
    Sample((3, 1, 4), 1),
)
_copying("t_copy", t, (f"tapegrad.t_copy({_PAIR})", "tensor([[1],\n        [2]])"), Sample((3, 4)))
_copying(
    "transpose_copy",
    transpose,
    (f"tapegrad.transpose_copy({_PAIR}, 0, 1)", "tensor([[1],\n        [2]])"),
    Sample((2, 3, 4), 0, 2),
)
_copying(
    "unbind_copy",
    unbind,
    ("tapegrad.unbind_copy(tapegrad.arange(2))", "(tensor(0), tensor(1))"),
    Sample((3, 4), 1),
)
_copying(
    "unfold_copy",
    unfold,
    (
        "tapegrad.unfold_copy(tapegrad.arange(4), 0, 2, 2)",
        "tensor([[0, 1],\n        [2, 3]])",
    ),
    Sample((5, 2), 0, 2, 1),
)
_copying(
    "unsqueeze_copy",
    unsqueeze,
    ("tapegrad.unsqueeze_copy(tapegrad.arange(2), 0)", "tensor([[0, 1]])"),
    Sample((3, 4), 1),
)
_copying(
    "view_copy",
    view,
    ("tapegrad.view_copy(tapegrad.arange(4), (2, 2))", "tensor([[0, 1],\n        [2, 3]])"),
    Sample((3, 4), [2, 6]),
)


@op(
    samples=lambda: [
        Sample(In(3, 4, grad=False), (2, 2), [2, 2], [4, 1], 1),  # PyTorch's gradient is wrong
        Sample(In(6, grad=False), (3,), [3], [2]),
    ]
)
def as_strided_scatter(
    input: Tensor,
    src: Tensor,
    size: Sequence[int],
    stride: Sequence[int],
    storage_offset: int | None = None,
) -> Any:
    """A copy with the elements replaced that `as_strided` would show.

    >>> import tapegrad
    >>> tapegrad.as_strided_scatter(tapegrad.zeros(4), tapegrad.ones(2), [2], [2])
    tensor([1., 0., 1., 0.])
    """
    return replaced(
        input,
        lambda x: as_strided(x, size, stride, storage_offset),
        src,
        "as_strided_scatter",
    )
