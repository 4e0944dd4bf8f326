"""The caller: a builtin function of Python that runs small programs, made of native code.

A `Site` is one gradient rule or kernel with fixed parameters. It holds programs, each for all sizes
of a pattern (`family.py`) or for one form. Called with arrays, it finds the program for their
dtypes and ranks, reads the sizes, writes them into the program's tables, makes the results and
runs the program on this thread. That takes 0.3 µs, where Python takes 3 µs. Goes out: what the
rule or kernel returns; None if it knows no program for them; False if there is none; and
NotImplemented if the data is bad. Called by `use/families.py`.

The code uses Python's and NumPy's public C interfaces, by address. It reads type, dtype, sizes and
strides from array objects directly, at offsets that are looked up once (`_offset_in`). It holds
Python's lock throughout: a program at such sizes takes a few microseconds.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...core import locks
from . import caller_text, driver_threads, jit, pool
from .caller_layout import (
    COUNT,
    DESCRIPTOR,
    MAX_PROGRAMS,
    PROGRAM_WORDS,
    ROW_WORDS,
    ROWS,
    Offsets,
)
from .executable import FIRST_IN_TUPLE, MEMORY_IN_ARRAY

#: positions of functions in the table of NumPy's C interface, which never change
_NUMPY_EMPTY = 184


def _words(address: int, count: int) -> Any:
    return (ctypes.c_int64 * count).from_address(address)


def _offsets() -> Offsets | None:
    """The offsets in this interpreter's objects; None if they are others than NumPy documents.

    Behind the address of its memory an array has its rank, the addresses of its sizes and strides,
    its base and its dtype.
    """
    array = np.zeros((3, 5, 7), np.float32)[:, 1:4, ::2]
    start = id(array)
    rank, sizes, strides, base, dtype = (MEMORY_IN_ARRAY + 8 * i for i in range(1, 6))
    header = list(_words(start, MEMORY_IN_ARRAY // 8))
    found = [*_words(start + base, 2), ctypes.c_int32.from_address(start + rank).value]
    if found != [id(array.base), id(array.dtype), array.ndim] or id(np.ndarray) not in header:
        return None
    for offset, expected in ((sizes, array.shape), (strides, array.strides)):
        if tuple(_words(_words(start + offset, 1)[0], array.ndim)) != expected:
            return None
    return Offsets(header.index(id(np.ndarray)) * 8, dtype, rank, sizes, strides)


class _Method(ctypes.Structure):
    """Python's record of a builtin function."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("text", ctypes.c_char_p),
    )


_FASTCALL = 0x80  # METH_FASTCALL: called with an array of arguments


def _address_of(function: Any) -> int:
    address = ctypes.cast(function, ctypes.c_void_p).value
    assert address is not None
    return address


def _numpy_table() -> int:
    """The address of NumPy's C interface."""
    module: Any = importlib.import_module("numpy._core._multiarray_umath")
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    found = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
        _address_of(pointer)
    )(module._ARRAY_API, None)
    return int(found or 0)


class Caller:
    """The native function, and the table of addresses that it uses."""

    def __init__(self, offsets: Offsets) -> None:
        (self._function,) = jit.functions([caller_text.text(offsets)]).values()
        python = ctypes.pythonapi
        numpy_empty = _words(_numpy_table(), _NUMPY_EMPTY + 1)[_NUMPY_EMPTY]
        # Python's lock is held while this job is in use, so no two programs use it at once.
        launch, self._job = pool.pool.private_job()
        objects = (np.ndarray, tuple, int, None, False, NotImplemented)
        functions = (python.Py_IncRef, python.Py_DecRef)
        after = (python.PyTuple_New, python.PyTuple_SetItem, python.PyTuple_Size)
        self.api = np.array(
            [
                *map(id, objects),
                *map(_address_of, functions),
                numpy_empty,
                *map(_address_of, after),
                _address_of(python.PyLong_AsSsize_t),
                launch,
                self._job.ctypes.data,
            ],
            np.int64,
        )
        self._method = _Method(b"call", self._function.address, _FASTCALL, None)
        make = ctypes.PYFUNCTYPE(
            ctypes.py_object, ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p
        )
        self._make = make(_address_of(python.PyCFunction_NewEx))

    def builtin(self, words: Any) -> Any:
        """The builtin function that runs the programs which these words list."""
        return self._make(ctypes.addressof(self._method), words, None)


@functools.cache
def find_caller() -> Caller | None:
    """The caller; None if native code cannot be called this way here."""
    locked = getattr(sys, "_is_gil_enabled", lambda: True)()
    if not jit.available() or not locked or sys.implementation.name != "cpython":
        return None
    if not (MEMORY_IN_ARRAY and FIRST_IN_TUPLE) or not driver_threads.has_threads():
        return None
    try:
        offsets = _offsets()
        return None if offsets is None else Caller(offsets)
    except (AttributeError, ImportError):  # another version of Python or NumPy lacks something
        return None


class SiteProgram:
    """The words of a program at a site, and all that they point to."""

    def __init__(self, rows: Sequence[Sequence[int]], owned: Sequence[Any]) -> None:
        self.words = np.zeros(PROGRAM_WORDS, np.int64)
        self.rows = np.zeros((len(rows), ROW_WORDS), np.int64)
        for row, given in zip(self.rows, rows, strict=True):
            row[: len(given)] = given
        self.words[COUNT], self.words[ROWS] = len(rows), self.rows.ctypes.data
        self._owned = [*owned]  # objects that the rows compare with, and the program

    @property
    def is_empty(self) -> bool:
        """Whether it stands for a pattern that no program serves."""
        return not self.words[DESCRIPTOR]

    def table(self, at: int, rows: Any) -> None:
        """Store rows of words that the program points to, and their number behind it."""
        array = np.ascontiguousarray(rows, np.int64)
        self.adopt(at, array)

    def adopt(self, at: int, array: Any, owned: Sequence[Any] = ()) -> None:
        """Point to an array of words that other words refer to by address."""
        self._owned += [array, *owned]
        self.words[at], self.words[at + 1] = array.ctypes.data, len(array)


class _Words(np.ndarray[Any, Any]):
    """The words of a site, which a builtin function owns; they keep alive what they point to."""

    owned: Any


class Site:
    """One kernel or rule with fixed parameters; `call` is the builtin function.

    It has families by pattern, programs of single forms, and patterns that have no family. Of each
    kind it keeps the latest.
    """

    def __init__(self, caller: Caller) -> None:
        self._words = np.zeros(2 + 3 * MAX_PROGRAMS, np.int64).view(_Words)
        self._words[0] = caller.api.ctypes.data
        self._adding = locks.new()
        #: by pattern; empty programs stand for patterns without a family
        self.families: dict[Any, SiteProgram] = {}
        self._empty: dict[Any, SiteProgram] = {}
        self._forms: list[SiteProgram] = []
        #: what was forgotten last: a thread may have been interrupted while it ran one of these
        self._gone: list[SiteProgram] = []
        self._words.owned = self.families, self._empty, self._forms, self._gone, caller
        self.call = caller.builtin(self._words)

    def knows(self, pattern: Any) -> bool:
        """Whether a pattern has a family, or is known to have none."""
        return pattern in self.families or pattern in self._empty

    def add_family(self, pattern: Any, program: SiteProgram) -> None:
        """Add the program of a pattern; past `MAX_PROGRAMS` the older half is forgotten."""
        with self._adding:
            kept = self._empty if program.is_empty else self.families
            old = [pattern] if pattern in kept else []  # another thread was faster
            if len(kept) == MAX_PROGRAMS:
                old = list(kept)[: MAX_PROGRAMS // 2]
            gone = [kept.pop(key) for key in old]
            kept[pattern] = program
            self._write(gone)

    def add_form(self, program: SiteProgram) -> None:
        """Add a program for arguments of one form; past `MAX_PROGRAMS` the older half goes."""
        with self._adding:
            gone = self._forms[: MAX_PROGRAMS // 2] if len(self._forms) == MAX_PROGRAMS else []
            del self._forms[: len(gone)]
            self._forms.append(program)
            self._write(gone)

    def _write(self, gone: list[SiteProgram]) -> None:
        """List the programs for native code, which holds Python's lock while it reads them."""
        programs = [*self.families.values(), *self._forms, *self._empty.values()]
        addresses = [program.words.ctypes.data for program in programs]
        self._words[1] = 0
        self._words[2 : 2 + len(addresses)] = addresses
        self._words[1] = len(addresses)
        self._gone[:] = gone
