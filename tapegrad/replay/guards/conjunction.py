"""Conjunctions: many small tests, written out as one Python function.

`world.py` and `replay.py` test hundreds of identities before each replay. One function with all of
them takes 30 ns for each; loops over lists take twice as long, and 0.4 µs more for every list.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...core.source import LIBRARY


class Conjunction:
    """Tests that must all hold; values stand in their text under names of their own."""

    def __init__(self) -> None:
        self._clauses: dict[str, None] = {}  # each once, in order
        self._values: dict[str, Any] = {}
        self._known: dict[int, str] = {}

    def name(self, value: Any) -> str:
        """The name of a value in the text of the tests."""
        name = self._known.get(id(value))
        if name is None:
            name = self._known[id(value)] = f"v{len(self._known)}"
            self._values[name] = value
        return name

    def add(self, text: str) -> None:
        """One more test, an expression."""
        self._clauses[text] = None

    def add_is(self, text: str, value: Any) -> None:
        """What an expression gives is this very object."""
        shown = repr(value) if value is None or value is True or value is False else None
        self.add(f"{text} is {shown or self.name(value)}")

    def function(self, parameter: str = "") -> Callable[..., bool]:
        """All tests as a function. It may raise what an expression raises.

        Values are defaults of parameters: reading a local takes a tenth less than a global.
        """
        text = " and ".join(self._clauses) or "True"
        made: dict[str, Any] = dict(self._values)
        names = ", ".join([parameter] * bool(parameter) + [f"{name}={name}" for name in made])
        text = f"def test({names}):\n    return {text}"
        exec(compile(text, f"{LIBRARY}conjunction", "exec"), made)
        found: Callable[..., bool] = made["test"]
        return found
