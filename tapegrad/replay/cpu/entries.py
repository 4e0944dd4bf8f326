"""Entries of dictionaries, compared by native code: the `Walk` of `guards/entries.py`.

Comes in: the address of a table of dictionaries, keys and values. Goes out: whether each dictionary
has exactly these entries. The function reads dictionaries with `PyDict_Next`, which belongs to
Python's public interface and runs no user code, and compares addresses. It holds Python's lock
meanwhile. `use/variant.py` gives it to the worlds that it tests.
"""

from __future__ import annotations

import ctypes
import functools
import sys

from ..guards.entries import Walk
from . import jit

_TEXT = """
define i64 @NAME(ptr %table, ptr %next) {
entry:
  %position = alloca i64
  %key = alloca ptr
  %value = alloca ptr
  br label %dictionary

dictionary:
  %row = phi ptr [ %table, %entry ], [ %end, %ended ]
  %owner = load ptr, ptr %row
  %is.last = icmp eq ptr %owner, null
  br i1 %is.last, label %yes, label %begin

begin:
  store i64 0, ptr %position
  %count.cell = getelementptr i64, ptr %row, i64 1
  %count = load i64, ptr %count.cell
  %first = getelementptr i64, ptr %row, i64 2
  %words = mul i64 %count, 2
  %end = getelementptr ptr, ptr %first, i64 %words
  br label %following

following:
  %at = phi ptr [ %first, %begin ], [ %after, %same ]
  %found = call i32 %next(ptr %owner, ptr %position, ptr %key, ptr %value)
  %is.found = icmp ne i32 %found, 0
  %is.listed = icmp ne ptr %at, %end
  %agree = icmp eq i1 %is.found, %is.listed
  br i1 %agree, label %agreeing, label %no

agreeing:
  br i1 %is.found, label %compare, label %ended

compare:
  %key.now = load ptr, ptr %key
  %key.then = load ptr, ptr %at
  %value.now = load ptr, ptr %value
  %value.cell = getelementptr ptr, ptr %at, i64 1
  %value.then = load ptr, ptr %value.cell
  %same.key = icmp eq ptr %key.now, %key.then
  %same.value = icmp eq ptr %value.now, %value.then
  %any.value = icmp eq ptr %value.then, null
  %good.value = or i1 %same.value, %any.value
  %good = and i1 %same.key, %good.value
  br i1 %good, label %same, label %no

same:
  %after = getelementptr ptr, ptr %at, i64 2
  br label %following

ended:
  br label %dictionary

yes:
  ret i64 1

no:
  ret i64 0
}
"""

_Native = ctypes.PYFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)


@functools.cache
def find_walk() -> Walk | None:
    """The function that compares the entries of a table; None if native code cannot do so here."""
    locked = getattr(sys, "_is_gil_enabled", lambda: True)()
    if not jit.available() or not locked or sys.implementation.name != "cpython":
        return None
    (function,) = jit.functions([_TEXT]).values()
    native = _Native(function.address)
    step = ctypes.cast(ctypes.pythonapi.PyDict_Next, ctypes.c_void_p).value

    def walk(table: int, function: object = function) -> int:  # `function` keeps the code alive
        answer: int = native(table, step)
        return answer

    return walk
