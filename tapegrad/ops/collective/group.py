"""Groups: the processes that take part in a collective operation.

A `Group` is a static parameter of the primitives in this folder, and their kernels call its methods
on raw arrays. This class is the group of one process, which needs no other; the groups of
`distributed/` send messages. Arrays that come in are only read, arrays that go out are new.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

from ...core import xp

#: reductions, by the name of the operation
SUM, AVG, MAX, MIN, PRODUCT = "sum", "avg", "max", "min", "product"
BAND, BOR, BXOR = "band", "bor", "bxor"
REDUCTIONS = (SUM, AVG, MAX, MIN, PRODUCT, BAND, BOR, BXOR)


class Quorum:
    """Processes that decide together: this one alone."""

    def agree(self, bits: int) -> int:
        """The bits that all processes have given."""
        return bits

    def checking(self) -> AbstractContextManager[Any]:
        """Inside, collectives are compared with those of the others."""
        return nullcontext()


class Group:
    """The group of this process alone."""

    #: this process among the members, and how many there are
    rank = 0
    size = 1
    #: the members' ranks in the whole job
    ranks: tuple[int, ...] = (0,)
    name = "self"

    def __repr__(self) -> str:
        return f"<group {self.name}>"

    def __deepcopy__(self, memo: Any) -> Group:
        """Itself: the copy of a model communicates with the same processes."""
        return self

    def connected(self, groups: list[Group]) -> Quorum:
        """The processes that collectives of these groups connect."""
        return Quorum()

    def all_reduce(self, x: Any, op: str) -> Any:
        """The reduction of all members' arrays."""
        return x.copy()

    def begin(
        self, kind: str, x: Any, *args: Any, in_place: bool = False, alone: bool = False
    ) -> int:
        """Begin an `all_reduce`, `all_gather` or `reduce_scatter`; returns its handle.

        With `in_place` it may use the memory of `x` until it has ended; a reduction stays there.
        With `alone` it is waited for at once.
        """
        handle = next(_handles)
        _started[handle] = x if in_place and kind == "all_reduce" else getattr(self, kind)(x, *args)
        return handle

    def end(self, handle: int) -> Any:
        """The result of a collective that was begun."""
        return _started.pop(handle)

    def abandon(self, handle: int, memory: Any = None) -> None:
        """Let a collective that was begun end by itself, in memory that is kept so long."""
        _started.pop(handle)

    def all_gather(self, x: Any) -> Any:
        """The arrays of all members, stacked in the order of ranks."""
        return x[np.newaxis].copy()

    def reduce_scatter(self, x: Any, op: str) -> Any:
        """The reduction of row `rank` of all members' arrays."""
        return x[0].copy()

    def broadcast(self, x: Any, source: int) -> Any:
        """The array of one member."""
        return x.copy()

    def reduce(self, x: Any, op: str, target: int) -> Any:
        """The reduction of all members' arrays for one of them; zeros for the others."""
        return x.copy()

    def gather(self, x: Any, target: int) -> Any:
        """The stacked arrays of all members for one of them; zeros for the others."""
        return x[np.newaxis].copy()

    def scatter(self, x: Any, source: int) -> Any:
        """Row `rank` of one member's array."""
        return x[0].copy()

    def all_to_all(self, x: Any, sent: Sequence[int], received: Sequence[int]) -> Any:
        """Rows from everybody: `sent[i]` rows of `x` go to member i, `received[i]` come from it."""
        return x.copy()

    def permute(self, x: Any, targets: Sequence[int]) -> Any:
        """The array of the member whose target this one is: member i sends to `targets[i]`."""
        return x.copy()

    def send(self, x: Any, target: int, tag: int) -> None:
        """Send an array to a member."""
        _mail.setdefault(tag, deque()).append(x.copy())

    def receive(self, shape: tuple[int, ...], dtype: Any, source: int, tag: int) -> Any:
        """The array that a member sends."""
        if not _mail.get(tag):
            raise RuntimeError(f"nothing was sent to this process, and it is alone in {self!r}")
        return _mail[tag].popleft()

    def barrier(self, timeout: float | None = None) -> None:
        """Wait until all members are here, for so many seconds at most."""


_handles = itertools.count(1)
#: results of collectives that were begun, by handle
_started: dict[int, Any] = {}
#: what this process has sent to itself and not received yet, by tag
_mail: dict[int, deque[Any]] = {}


def zeros(shape: tuple[int, ...], like: Any) -> Any:
    """Zeros of a shape, with the dtype and on the device of an array."""
    return xp.module(like).zeros(shape, like.dtype)


#: the group of this process alone
SELF = Group()
