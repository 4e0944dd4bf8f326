"""Which arrays share memory, and how each is found among the stored ones.

Comes in: a dict of named arrays in memory. Goes out: **entries**, contiguous arrays to be stored,
and **views**, which describe every other array as a view of an entry. Memory that several arrays
share is stored once; a view of a large array is stored without the rest of it. Called by `files.py`
and `structure.py`.

There are four cases. An array alone is an entry. An array with the same elements as another one is
a view of its entry. If arrays overlap, the one that covers all others is the entry. If none does,
all bytes from the first to the last that any of them uses become an entry.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from ..core import dtypes, storage
from ..core.device import CPU, device_of, to_device
from .errors import SavingError

#: element types as safetensors names them
STORED = {
    "BOOL": "bool",
    "U8": "uint8",
    "I8": "int8",
    "U16": "uint16",
    "I16": "int16",
    "U32": "uint32",
    "I32": "int32",
    "U64": "uint64",
    "I64": "int64",
    "F16": "float16",
    "BF16": "bfloat16",
    "F32": "float32",
    "F64": "float64",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2",
    "F8_E8M0": "float8_e8m0fnu",
}
STORED_NAMES = {name: code for code, name in STORED.items()}

#: other NumPy types, stored as bytes: text, dates, complex and long numbers, other byte orders
_PLAIN_TYPE = re.compile(r"[<>|=][biufcSUMm]\d{1,9}(\[\d*[a-zA-Z]+(/\d+)?\])?")

#: comparing more arrays than this pairwise takes too long: they are assumed to share memory
_MOST_COMPARED = 200


class StoredView(NamedTuple):
    """An array as a view of an entry: its first byte, dtype, shape and strides."""

    entry: str
    offset: int
    dtype: str
    shape: list[int]
    strides: list[int]


class _NamedArray:
    """A named array and its range of addresses."""

    __slots__ = ("array", "high", "low", "name", "pointer")

    def __init__(self, name: str, array: Any) -> None:
        self.name = name
        self.array = array
        cpu = isinstance(array, np.ndarray)
        self.pointer = int(array.__array_interface__["data"][0] if cpu else array.data.ptr)
        self.low = self.high = self.pointer
        for n, stride in zip(array.shape, array.strides, strict=True):
            if stride < 0:
                self.low += stride * (n - 1)
            else:
                self.high += stride * (n - 1)
        self.high += array.itemsize

    def key(self) -> tuple[Any, ...]:
        """Equal for arrays with the same elements in memory."""
        a = self.array
        return str(device_of(a)), self.pointer, a.shape, a.strides, a.dtype


def name_of_dtype(dtype: np.dtype[Any]) -> str | None:
    """A name from which `dtype_named` finds this type, or None if it cannot be stored."""
    if dtype.isnative and dtype.name in STORED_NAMES:
        return dtype.name
    plain = dtype.itemsize and not dtype.hasobject and _PLAIN_TYPE.fullmatch(dtype.str)
    return dtype.str if plain and np.dtype(dtype.str) == dtype else None


def dtype_named(name: Any) -> np.dtype[Any]:
    """The NumPy type of a name in a file; SavingError for anything but plain values."""
    if name == "bfloat16" or (isinstance(name, str) and name.startswith("float8_")):
        return dtypes.dtype_named(name).numpy
    if isinstance(name, str) and (name in STORED_NAMES or _PLAIN_TYPE.fullmatch(name)):
        try:
            return np.dtype(name)
        except (TypeError, ValueError):
            pass
    raise SavingError(f"{str(name)[:40]!r} is no element type")


def stored_form(arrays: dict[str, Any]) -> tuple[dict[str, Any], dict[str, StoredView]]:
    """Entries, contiguous and on the CPU, and views, for all arrays."""
    entries: dict[str, Any] = {}
    views: dict[str, StoredView] = {}
    named_arrays, repeats = _different(arrays)
    for group in _groups(named_arrays):
        if len(group) == 1 and not _overlaps_itself(group[0].array):
            _store(group[0], entries, views)
        else:
            _store_group(group, set(arrays), entries, views)
    for name, first in repeats.items():
        views[name] = views.get(first) or _whole(first, arrays[first])
    return entries, views


def _different(arrays: dict[str, Any]) -> tuple[list[_NamedArray], dict[str, str]]:
    """The arrays that differ from all earlier ones, and the names of the others."""
    named_arrays: list[_NamedArray] = []
    repeats: dict[str, str] = {}
    known: dict[Any, str] = {}
    for name, array in arrays.items():
        named = _NamedArray(name, array)
        first = known.setdefault(named.key(), name) if array.size else name
        if first == name:
            named_arrays.append(named)
        else:
            repeats[name] = first
    return named_arrays, repeats


def _store(named: _NamedArray, entries: dict[str, Any], views: dict[str, StoredView]) -> None:
    """An array as an entry: contiguous, with bytes for a type that safetensors does not have."""
    array = to_device(named.array, CPU)
    if not array.flags.c_contiguous:
        array = array.copy(order="C")
    if array.dtype.isnative and array.dtype.name in STORED_NAMES:
        entries[named.name] = array
        return
    entries[named.name] = array.reshape(-1).view(np.uint8) if array.size else _NO_BYTES
    views[named.name] = _whole(named.name, array)


def _whole(entry: str, array: Any) -> StoredView:
    """All of an entry, in the form of `array`."""
    name = name_of_dtype(array.dtype)
    assert name is not None
    strides: list[int] = []
    step = array.itemsize
    for n in reversed(array.shape):
        strides.insert(0, step)
        step *= max(n, 1)
    return StoredView(entry, 0, name, list(array.shape), strides)


_NO_BYTES = np.empty(0, np.uint8)


def _groups(named_arrays: list[_NamedArray]) -> Iterator[list[_NamedArray]]:
    """Arrays that share memory with each other."""
    by_device: dict[str, list[_NamedArray]] = {}
    for named in named_arrays:
        if named.array.size:
            by_device.setdefault(str(device_of(named.array)), []).append(named)
        else:
            yield [named]
    for found in by_device.values():
        for cluster in _clusters(sorted(found, key=lambda s: s.low)):
            yield from _connected(cluster)


def _clusters(named_arrays: list[_NamedArray]) -> Iterator[list[_NamedArray]]:
    """Runs of arrays, sorted by address, whose ranges of addresses overlap."""
    cluster: list[_NamedArray] = []
    high = 0
    for named in named_arrays:
        if cluster and named.low >= high:
            yield cluster
            cluster = []
        cluster.append(named)
        high = max(high, named.high) if len(cluster) > 1 else named.high
    if cluster:
        yield cluster


def _connected(cluster: list[_NamedArray]) -> list[list[_NamedArray]]:
    """Split a cluster into arrays that really share elements: columns of a matrix do not."""
    if len(cluster) == 1 or len(cluster) > _MOST_COMPARED:
        return [cluster]
    groups: list[list[_NamedArray]] = []
    for named in cluster:
        joined = [named]
        apart = []
        for group in groups:
            if any(_share(named, other) for other in group):
                joined += group
            else:
                apart.append(group)
        groups = [*apart, joined]
    return groups


def _share(a: _NamedArray, b: _NamedArray) -> bool:
    if a.high <= b.low or b.high <= a.low:
        return False
    if not isinstance(a.array, np.ndarray):
        return True
    most: Any = 10_000  # steps of NumPy's search, which may take forever
    try:
        return bool(np.shares_memory(a.array, b.array, most))
    except np.exceptions.TooHardError:
        return True


def _overlaps_itself(array: Any) -> bool:
    """Whether two elements may lie at the same address, as in an expanded tensor."""
    reach = array.itemsize
    for stride, n in sorted((abs(s), n) for s, n in zip(array.strides, array.shape, strict=True)):
        if n > 1:
            if stride < reach:
                return True
            reach += stride * (n - 1)
    return False


def _store_group(
    group: list[_NamedArray], taken: set[str], entries: dict[str, Any], views: dict[str, StoredView]
) -> None:
    low, high = min(s.low for s in group), max(s.high for s in group)
    for named in group:
        if (named.low, named.high) == (low, high) and named.array.flags.c_contiguous:
            _store(named, entries, views)
            entry = named.name
            break
    else:
        entry, low = _store_span(group, low, high, taken, entries)
    for named in group:
        if named.name not in entries:
            array, dtype = named.array, name_of_dtype(named.array.dtype)
            assert dtype is not None
            views[named.name] = StoredView(
                entry, named.pointer - low, dtype, list(array.shape), list(array.strides)
            )


def _store_span(
    group: list[_NamedArray], low: int, high: int, taken: set[str], entries: dict[str, Any]
) -> tuple[str, int]:
    """The memory between two addresses as an entry: its name and where it begins."""
    first = group[0]
    if not isinstance(first.array, np.ndarray):
        names = ", ".join(repr(s.name) for s in group)
        raise SavingError(
            f"cannot save {names}: they overlap in the memory of the GPU, and none holds all of "
            "it; save clones, or the tensor that they are views of"
        )
    kinds = {named.array.dtype for named in group}
    if len(kinds) > 1:
        # Begin at a multiple of 8 bytes if possible, so that elements are aligned after loading.
        owner = storage.owner_of(first.array).__array_interface__["data"][0]
        low = max(low - low % 8, owner)
    # The arrays overlap, so all bytes in between belong to them and live as long as they do.
    memory: Any = (ctypes.c_uint8 * (high - low)).from_address(low)
    span: Any = np.frombuffer(memory, np.uint8)
    kind = kinds.pop()
    if not kinds and kind.isnative and kind.name in STORED_NAMES and not span.size % kind.itemsize:
        span = span.view(kind)
    name = f"{first.name}~memory"
    while name in taken or name in entries:
        name += "~"
    entries[name] = span
    return name, low


def seen(entry: Any, view: StoredView) -> Any:
    """A view of a loaded entry as an array that shares its memory."""
    dtype = dtype_named(view.dtype)
    if not isinstance(entry, np.ndarray):
        return _seen_on_gpu(entry, view, dtype)
    data = entry.reshape(-1).view(np.uint8) if entry.size else _NO_BYTES.copy()
    shape, strides = tuple(view.shape), tuple(view.strides)
    try:
        if 0 in shape:
            return np.empty(shape, dtype)
        # NumPy checks that no element lies outside the buffer.
        array: Any = np.ndarray(shape, dtype, data, view.offset, strides)
    except (TypeError, ValueError, OverflowError) as error:
        raise SavingError(f"a view of {view.entry!r} does not fit into it: {error}") from None
    if _overlaps_itself(array):
        array.flags.writeable = False  # as `expand` leaves it
    return array


def _seen_on_gpu(entry: Any, view: StoredView, dtype: Any) -> Any:
    from ..core.device import cupy

    module = cupy()
    memory = module.cuda.MemoryPointer(entry.data.mem, entry.data.ptr - entry.data.mem.ptr)
    return module.ndarray(tuple(view.shape), dtype, memory + view.offset, tuple(view.strides))
