"""Conjunctions: many small tests in one generated Python function.

Comes in: tests of identity, hundreds for each replay. Goes out: one function that runs all of them.
It takes 30 ns per test; loops over lists take twice as long, and 0.4 µs more for each list. If many
tests are of dictionaries, a native function runs before them (`entries.py`). Called by `world.py`,
`trace/signature.py` and `use/replay.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...core.codegen import function_of
from .entries import Listed, Row, Walk, keeps_order_in_itself, table_of
from .references import dict_item

#: number of tests of dictionaries from which on one native call replaces them. It takes 0.25 µs and
#: 7 ns per entry: 0.29 instead of 0.18 µs for 5 tests, 0.35 instead of 0.75 µs for 20.
MIN_TESTS_FOR_NATIVE_WALK = 16


class Conjunction:
    """Tests that must all hold; their text refers to values by generated names."""

    def __init__(self) -> None:
        self._clauses: dict[str, None] = {}  # each once, in order
        self._values: dict[str, Any] = {}
        self._known: dict[int, str] = {}
        self._rows: dict[int, Row] = {}

    def name(self, value: Any) -> str:
        """The name of a value in the text of the tests."""
        name = self._known.get(id(value))
        if name is None:
            name = self._known[id(value)] = f"v{len(self._known)}"
            self._values[name] = value
        return name

    def add(self, text: str) -> None:
        """Add a test, given as an expression."""
        self._clauses[text] = None

    def add_is(self, text: str, value: Any) -> None:
        """Test that the value of an expression is this object."""
        self.add(self._is(text, value))

    def _is(self, text: str, value: Any) -> str:
        shown = repr(value) if value is None or value is True or value is False else None
        return f"{text} is {shown or self.name(value)}"

    def add_entry(self, owner: Any, key: Any, value: Any) -> None:
        """Test that a dictionary's entry is this object, without calling methods of a subclass."""
        shown = repr(key) if type(key) in (str, int) else self.name(key)
        if type(owner) is dict:
            text = f"{self.name(owner)}[{shown}]"
        else:
            get = dict_item if value is None else dict.get  # dict.get gives None for a missing key
            text = f"{self.name(get)}({self.name(owner)}, {shown})"
        row = self._row(owner)
        row.clauses[self._is(text, value)] = None
        row.values.append((key, value))

    def add_names(self, owner: Any, names: list[Any]) -> None:
        """Test that a dictionary has these keys, in this order."""
        self._add_whole(owner, f"[*{self.name(owner)}] == {self.name(names)}" if names else None)

    def add_size(self, owner: Any, size: int) -> None:
        """Test that a dictionary has this number of entries."""
        self._add_whole(owner, f"len({self.name(owner)}) == {size}" if size else None)

    def _add_whole(self, owner: Any, text: str | None) -> None:
        text = text or f"not {self.name(owner)}"
        if keeps_order_in_itself(owner):
            row = self._row(owner)
            row.clauses[text] = None
            row.whole = True
        else:
            self.add(text)

    def _row(self, owner: Any) -> Row:
        return self._rows.setdefault(id(owner), Row(owner))

    def function(
        self, parameter: str = "", find_walk: Callable[[], Walk | None] | None = None
    ) -> Callable[..., bool]:
        """A function that runs all tests. It may raise what an expression raises.

        `find_walk` returns the native function for tests of dictionaries, or None.
        """
        listed: dict[str, None] = {}
        others = self._clauses.copy()
        rows = []
        for row in self._rows.values():
            entries = row.entries()
            (others if entries is None else listed).update(row.clauses)
            if entries is not None:
                rows.append((row.owner, entries))
        if find_walk is None or len(listed) < MIN_TESTS_FOR_NATIVE_WALK:
            others |= listed
        else:
            others[self._walked(rows, self._written(listed), find_walk())] = None
        return self._written(others, parameter)

    def _walked(self, rows: list[Listed], tests: Callable[[], bool], walk: Walk | None) -> str:
        """The text of a test of dictionaries; native first, if their tests pass now."""
        if walk is None or not _passes(tests):
            return f"{self.name(tests)}()"
        table = table_of(rows)
        self.name((table, rows))  # kept alive, because addresses are compared
        return f"({self.name(walk)}({table.ctypes.data}) or {self.name(tests)}())"

    def _written(self, clauses: dict[str, None], parameter: str = "") -> Callable[..., bool]:
        """A function that runs some tests.

        Values are defaults of parameters: reading a local takes a tenth less time than a global.
        """
        text = " and ".join(clauses) or "True"
        made: dict[str, Any] = dict(self._values)
        names = ", ".join([parameter] * bool(parameter) + [f"{name}={name}" for name in made])
        lines = [f"def test({names}):", f"    return {text}"]
        found: Callable[..., bool] = function_of(lines, "test", made, "conjunction")
        return found


def _passes(tests: Callable[[], bool]) -> bool:
    try:
        return tests()
    except (KeyError, IndexError, AttributeError, ValueError, TypeError, RuntimeError):
        return False
