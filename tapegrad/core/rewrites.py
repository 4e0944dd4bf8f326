"""Rewrites: patterns of instructions that one operation replaces.

An operation in `ops/` that can replace several others registers here how it finds them. Comes in: a
program of recorded primitives. Goes out: an `Edit`, which `replay/passes/rewrite.py` applies. So
passes need not know any operation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple


class Edit:
    """Instructions to drop, by id(), and to add, by the id() of the instruction after them."""

    __slots__ = ("added", "dropped")

    def __init__(self) -> None:
        self.dropped: set[int] = set()
        self.added: dict[int, list[Any]] = {}

    def add(self, before: Any, instructions: list[Any]) -> None:
        self.added.setdefault(id(before), []).extend(instructions)


class Rewrite(NamedTuple):
    """A function that finds instructions, and the settings on which it depends."""

    edit: Callable[[Any], Edit]  # takes a program
    settings: Callable[[], tuple[Any, ...]]


#: by name
REWRITES: dict[str, Rewrite] = {}

#: functions that register further rewrites, run when all are needed
LOADERS: list[Callable[[], None]] = []


def all_rewrites() -> dict[str, Rewrite]:
    """Every rewrite by name, including those of operations that are not loaded yet."""
    while LOADERS:
        LOADERS[-1]()
        LOADERS.pop()
    return REWRITES


def settings() -> str:
    """The settings of all rewrites, as text."""
    return repr([(name, rewrite.settings()) for name, rewrite in all_rewrites().items()])
