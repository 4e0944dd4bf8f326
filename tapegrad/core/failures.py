"""Failures: the errors that bad data raises, each with a code that native code can store.

Comes in: an exception class and a message (`ops/checks.py`). Goes out: an integer code. Kernels
store the code of what they found, and `replay/cpu/executable.py` turns it into the exception
(`described`). So eager code, replays and other devices raise the same error.
"""

from __future__ import annotations

from typing import NamedTuple


class Failure(NamedTuple):
    """An error to raise; `{}` in the message stands for the bad value, if it is known."""

    error: type[Exception]
    message: str


#: codes of kernels that put the name of the primitive in front of the message
BAD_INDEX, ZERO_DIVISION, BAD_LABEL, BAD_POSITION = 1, 2, 3, 4

FAILURES: dict[int, Failure] = {
    BAD_INDEX: Failure(IndexError, "an index is out of range"),
    ZERO_DIVISION: Failure(
        RuntimeError, "integer division by zero; divide floating tensors to get infinities"
    ),
    BAD_LABEL: Failure(RuntimeError, "a label is out of range"),
    BAD_POSITION: Failure(RuntimeError, "an index is out of range"),
}

_FIRST = 1 << 8  # codes below are those above


def failure_of(error: type[Exception], message: str) -> int:
    """The code of a failure; the same in every process, because kernels are stored on disk."""
    import zlib  # 0.4 ms, and seldom needed

    code = _FIRST + zlib.crc32(f"{error.__name__}: {message}".encode())
    FAILURES.setdefault(code, Failure(error, message))
    return code


def described(code: int, name: str) -> Failure:
    """The failure that native code found in the primitive of this name."""
    error, message = FAILURES[code]
    return Failure(error, message.replace(" {}", "") if code >= _FIRST else f"{name}: {message}")
