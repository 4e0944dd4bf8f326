"""The error when a GPU runs out of memory: it names the largest tensors and the lines behind them.

Comes in: CuPy's allocator, which frees its cache before it gives up. Goes out: an allocator that
raises `OutOfMemoryError` instead of CuPy's error. Set by `device.py` when CuPy is first used.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

from . import source
from .amounts import shown

#: how many tensors the message names
MOST_NAMED = 5


class OutOfMemoryError(RuntimeError):
    """A GPU has not enough memory for an allocation."""


def watched(library: Any) -> None:
    """Replace CuPy's allocator by one with a detailed error message."""
    allocate: Callable[[int], Any] = library.cuda.get_allocator()
    given_up = library.cuda.memory.OutOfMemoryError

    def allocate_or_tell(size: int) -> Any:
        try:
            return allocate(size)
        except given_up:
            raise OutOfMemoryError(_told(library, size)) from None

    library.cuda.set_allocator(allocate_or_tell)


def _told(library: Any, size: int) -> str:
    free, total = library.cuda.runtime.memGetInfo()
    lines = [
        f"the GPU has no {shown(size)} left: {shown(free)} of {shown(total)} are "
        "free, after memory that was kept for reuse was given back"
    ]
    found = largest(library.ndarray)
    if found:
        lines.append("the largest tensors there:")
        lines += [f"  {line}" for line in found]
    lines.append(
        "smaller batches, autocast, checkpoint() or compile(memory=...) take less; `del` what is "
        "not needed"
    )
    return "\n".join(lines)


def largest(kind: Any) -> list[str]:
    """Descriptions of the largest arrays of a class: those of tensors, and saved values."""
    from .tape import Entry, Output
    from .tensor import Tensor

    owners: dict[int, tuple[int, str]] = {}
    for one in gc.get_objects():
        is_a = type(one).__mro__  # isinstance() would ask objects that run code of other packages
        if Tensor in is_a:
            edge = one._edge.entry if isinstance(one._edge, Output) else one._edge
            _note(owners, kind, one._array, edge, "")
        elif Entry in is_a and isinstance(one.saved, tuple):
            for value in one.saved:
                _note(owners, kind, value, one, "saved for the gradient of ")
    ordered = sorted(owners.values(), key=lambda pair: -pair[0])
    return [line for _, line in ordered[:MOST_NAMED]]


def _note(
    owners: dict[int, tuple[int, str]], kind: Any, array: Any, entry: Any, saved: str
) -> None:
    """Describe the memory behind an array; a tensor with all of it takes precedence."""
    if array.__class__ is not kind:
        return
    whole = array
    while whole.base.__class__ is kind:
        whole = whole.base
    if id(whole) in owners and (saved or array is not whole):
        return
    shape = "x".join(map(str, array.shape)) or "1"
    what = f"{shown(whole.nbytes)}: {shape} {array.dtype}"
    if entry is None:
        where = "a leaf, such as a parameter or data"
    else:
        where = f"{saved}{entry.primitive.name}, at {source.describe(entry.location)}"
    owners[id(whole)] = (whole.nbytes, f"{what}, {where}")
