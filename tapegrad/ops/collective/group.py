"""Groups: the processes that take part in a collective operation.

A `Group` is a static parameter of the primitives in this folder, and their kernels call its methods
on raw arrays. This class is the group of a single process; the groups of `distributed/` send
messages. Except with `in_place`, methods only read the arrays passed and return new ones.
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
    """The processes that decide together; here only this one."""

    def agree(self, bits: int) -> int:
        """The bits that all processes have set."""
        return bits

    def checking(self) -> AbstractContextManager[Any]:
        """A context that compares collectives with those of the other processes."""
        return nullcontext()


class Group:
    """The group of this process alone."""

    #: the rank of this process within the group, and the number of members
    rank = 0
    size = 1
    #: the members' ranks in the whole job
    ranks: tuple[int, ...] = (0,)
    name = "self"

    def __repr__(self) -> str:
        return f"<group {self.name}>"

    def __deepcopy__(self, memo: Any) -> Group:
        """The same group: a copied model communicates with the same processes."""
        return self

    def connected(self, groups: list[Group]) -> Quorum:
        """The processes connected by collectives of these groups."""
        return Quorum()

    def all_reduce(self, x: Any, op: str) -> Any:
        """The reduction of all members' arrays."""
        return x.copy()

    def begin(
        self, kind: str, x: Any, *args: Any, in_place: bool = False, alone: bool = False
    ) -> int:
        """Start an `all_reduce`, `all_gather` or `reduce_scatter`; returns its handle.

        With `in_place` it may use the memory of `x` until it ends; an `all_reduce` leaves its
        result there. With `alone` nothing is computed before the wait.
        """
        handle = next(_handles)
        _started[handle] = x if in_place and kind == "all_reduce" else getattr(self, kind)(x, *args)
        return handle

    def end(self, handle: int) -> Any:
        """Wait for a started collective; returns its result."""
        return _started.pop(handle)

    def abandon(self, handle: int, memory: Any = None) -> None:
        """Let a started collective finish without a wait; `memory` is kept alive until then."""
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
        """The reduction of all members' arrays on member `target`; zeros on the others."""
        return x.copy()

    def gather(self, x: Any, target: int) -> Any:
        """The stacked arrays of all members on member `target`; zeros on the others."""
        return x[np.newaxis].copy()

    def scatter(self, x: Any, source: int) -> Any:
        """Row `rank` of one member's array."""
        return x[0].copy()

    def all_to_all(self, x: Any, sent: Sequence[int], received: Sequence[int]) -> Any:
        """Exchange rows: `sent[i]` rows of `x` go to member i, `received[i]` rows come from it."""
        return x.copy()

    def permute(self, x: Any, targets: Sequence[int]) -> Any:
        """The array that arrives here when each member i sends its array to member `targets[i]`."""
        return x.copy()

    def send(self, x: Any, target: int, tag: int) -> None:
        """Send an array to a member."""
        _mail.setdefault(tag, deque()).append(x.copy())

    def receive(self, shape: tuple[int, ...], dtype: Any, source: int, tag: int) -> Any:
        """Receive an array from a member."""
        if not _mail.get(tag):
            raise RuntimeError(f"nothing was sent to this process, and it is alone in {self!r}")
        return _mail[tag].popleft()

    def barrier(self, timeout: float | None = None) -> None:
        """Wait for all members, for at most `timeout` seconds."""


_handles = itertools.count(1)
#: results of started collectives, by handle
_started: dict[int, Any] = {}
#: arrays that this process has sent to itself and not yet received, by tag
_mail: dict[int, deque[Any]] = {}


def zeros(shape: tuple[int, ...], like: Any) -> Any:
    """Zeros of a shape, with the dtype and device of an array."""
    return xp.module(like).zeros(shape, like.dtype)


#: the group of this process alone
SELF = Group()
