"""Bad data: what is raised about it, under numbers that native code can leave behind.

Primitives that check their data and the code that checks indices and divisors name a failure by
its number. The same error then comes from eager code, from replays and from any other device.
"""

from __future__ import annotations

from typing import NamedTuple


class Failure(NamedTuple):
    """What is raised; `{}` in the message stands for the value, where that is known."""

    error: type[Exception]
    message: str


#: of code that names itself in front of the message
BAD_INDEX, ZERO_DIVISION, BAD_LABEL, BAD_PLACE = 1, 2, 3, 4

FAILURES: dict[int, Failure] = {
    BAD_INDEX: Failure(IndexError, "an index is out of range"),
    ZERO_DIVISION: Failure(
        RuntimeError, "integer division by zero; divide floating tensors to get infinities"
    ),
    BAD_LABEL: Failure(RuntimeError, "a label is out of range"),
    BAD_PLACE: Failure(RuntimeError, "an index is out of range"),
}

_FIRST = 1 << 8  # numbers below are those above


def failure_of(error: type[Exception], message: str) -> int:
    """The number of a failure, which is the same in every process: kernels are kept on disk."""
    import zlib  # 0.4 ms, and seldom needed

    number = _FIRST + zlib.crc32(f"{error.__name__}: {message}".encode())
    FAILURES.setdefault(number, Failure(error, message))
    return number


def described(number: int, name: str) -> Failure:
    """The failure that native code has found in a primitive of this name."""
    error, message = FAILURES[number]
    return Failure(error, message.replace(" {}", "") if number >= _FIRST else f"{name}: {message}")
