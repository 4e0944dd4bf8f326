"""Counters: numbers that code counts up, and the questions that it asks about them.

A counter has another value in every call, so a recording that compared it would never be replayed.
If code only does `self.n += 1`, it is not compared at all. If code asks a question of a fixed form,
as in `if self.n % 10 == 0`, the answers are compared instead of the value. Called by `scope.py`,
which finds counters in instructions, by `uses.py` and by `world.py`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

_CONSTANT = ("LOAD_CONST", "LOAD_SMALL_INT")
_VARIABLE = {
    *("LOAD_FAST", "LOAD_FAST_BORROW", "LOAD_FAST_CHECK", "LOAD_GLOBAL", "LOAD_DEREF"),
    "LOAD_NAME",
}
#: the operations that a question may contain
_OPERATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "%": operator.mod,
    "//": operator.floordiv,
    "<": operator.lt,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    ">=": operator.ge,
    "truth": lambda n, _: bool(n),
}
#: operations that give the same result for many numbers
_NARROWING = _OPERATIONS.keys() - {"+", "-", "*"}
#: largest increase of a counter in one call; above it, values are compared instead of answers
MOST_STEPS = 64


@dataclass(frozen=True, slots=True)
class Question:
    """Operations on a counter in order, each with a number, as in `(n + 1) % 10 == 0`.

    A name instead of a number means another attribute of the object that holds `n`.
    """

    operations: tuple[tuple[str, int | str], ...]

    def resolved(self, beside: Any) -> Question | None:
        """The question with numbers from the object's dictionary for names; None if unusable."""
        found = []
        for symbol, number in self.operations:
            known = isinstance(number, str) and isinstance(beside, dict)
            number = beside.get(number) if known else number
            if type(number) is not int or (number == 0 and symbol in ("%", "//")):
                return None
            found.append((symbol, number))
        return Question(tuple(found))

    def answer(self, n: Any) -> Any:
        """The answer for the counter value `n`."""
        for symbol, number in self.operations:
            n = _OPERATIONS[symbol](n, number)
        return n


def same_answers(questions: tuple[Question, ...], a: int, b: int, steps: int) -> bool:
    """Whether all answers are equal while counters increase from `a` and `b` by `steps`."""
    if not 0 <= steps <= MOST_STEPS:
        return a == b
    return all(q.answer(a + j) == q.answer(b + j) for q in questions for j in range(steps + 1))


def question_at(steps: list[Any], i: int) -> Question | None:
    """The question about the number that step `i` loads; None if it is used in another way."""
    operations: list[tuple[str, int | str]] = []
    at = i + 1
    while True:
        number, end = _operand(steps, i, at)
        symbol = _symbol(steps, end) if number is not None else None
        if symbol is None:
            break
        assert number is not None
        operations.append((symbol, number))
        at = end + 1
    if at < len(steps) and _asks_for_truth(steps[at].opname):
        operations.append(("truth", 0))
    narrow = any(symbol in _NARROWING for symbol, _ in operations)
    return Question(tuple(operations)) if narrow else None


def _symbol(steps: list[Any], at: int) -> str | None:
    """The symbol of the binary operation at a step, if questions may contain it."""
    if at >= len(steps) or steps[at].opname not in ("BINARY_OP", "COMPARE_OP"):
        return None
    symbol = steps[at].argrepr if steps[at].opname == "BINARY_OP" else steps[at].argval
    return symbol if symbol in _OPERATIONS else None


def _asks_for_truth(name: str) -> bool:
    jumps = name.startswith("POP_JUMP") and name.endswith(("IF_TRUE", "IF_FALSE"))
    return jumps or name in ("TO_BOOL", "UNARY_NOT")


def rises(steps: list[Any], i: int) -> bool:
    """Whether the counter that step `i` loads is increased by a positive constant."""
    number, end = _operand(steps, i, i + 1)
    added = end < len(steps) and steps[end].opname == "BINARY_OP" and steps[end].argrepr == "+="
    return isinstance(number, int) and number > 0 and added


def _operand(steps: list[Any], i: int, at: int) -> tuple[int | str | None, int]:
    """A pushed number, and the next step: a constant, or an attribute beside that of step `i`."""
    here = steps[at : at + 2]
    if here and here[0].opname in _CONSTANT and type(here[0].argval) is int:
        return here[0].argval, at + 1
    before = steps[i - 1] if i else None
    if (
        before is not None
        and len(here) == 2
        and steps[i].opname == here[1].opname == "LOAD_ATTR"
        and before.opname in _VARIABLE
        and (here[0].opname, here[0].argval) == (before.opname, before.argval)
    ):
        return str(here[1].argval), at + 2
    return None, at
