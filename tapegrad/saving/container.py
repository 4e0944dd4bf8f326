"""Files in the safetensors format: a JSON header that names tensors and their bytes, then bytes.

`written` gives the parts of a file in order; `Container` reads one. In the header's metadata,
tapegrad also writes a checksum of each tensor (CRC-32) and one of the header itself (SHA-256,
computed with zeros instead of the checksum), so every changed byte is noticed. Files of other
programs have no checksums and are read as they are. Called by `files.py` and `checkpoint.py`.

Everything in a file is compared with the size of the file before memory is allocated for it.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol

import numpy as np

from .errors import SavingError
from .memory import STORED, STORED_NAMES, dtype_named

#: the largest header that readers of safetensors accept
LARGEST_HEADER = 100_000_000
_MOST_DIMENSIONS = 64  # NumPy's limit

_CHECK = "tapegrad.check"
_CHECKSUMS = "tapegrad.checksums"
_PREFIX = f'{{"__metadata__":{{"{_CHECK}":"'.encode()
_DIGITS = slice(8 + len(_PREFIX), 8 + len(_PREFIX) + 64)
_MARK = b'"tapegrad.'


class FileLayout:
    """The layout of a file with these arrays and this metadata."""

    def __init__(self, arrays: dict[str, Any], metadata: dict[str, str]) -> None:
        # Larger elements first: then all are aligned, without gaps, which safetensors forbids.
        self.arrays = dict(sorted(arrays.items(), key=lambda item: -item[1].itemsize))
        self._metadata = metadata
        self._tensors: dict[str, Any] = {}
        end = 0
        for name, array in self.arrays.items():
            begin, end = end, end + array.nbytes
            self._tensors[name] = {
                "dtype": STORED_NAMES[array.dtype.name],
                "shape": list(array.shape),
                "data_offsets": [begin, end],
            }
        self.header_size = len(self.header(dict.fromkeys(self.arrays, 0)))

    def header(self, checksums: dict[str, int]) -> bytes:
        """The length and the header; its size does not depend on the checksums."""
        metadata = {
            _CHECK: "0" * 64,
            # Some programs read here whose conventions the tensors follow: PyTorch's.
            "format": "pt",
            "tapegrad.format": "1",
            _CHECKSUMS: _dumped({name: f"{crc:08x}" for name, crc in checksums.items()}),
            **self._metadata,
        }
        text = _dumped({"__metadata__": metadata, **self._tensors}).encode()
        text += b" " * (-len(text) % 8)
        if len(text) > LARGEST_HEADER:
            raise SavingError(
                f"all that is not tensors takes {len(text):,} bytes, and readers of safetensors "
                f"accept {LARGEST_HEADER:,}; put long lists of numbers into tensors"
            )
        data = bytearray(len(text).to_bytes(8, "little") + text)
        data[_DIGITS] = hashlib.sha256(data).hexdigest().encode()
        return bytes(data)


def _dumped(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


@contextmanager
def checksummed(arrays: dict[str, Any]) -> Iterator[Any]:
    """Compute checksums in a thread while the arrays are written; a function returns them."""
    with ThreadPoolExecutor(1) as pool:
        found = pool.submit(lambda: {name: zlib.crc32(bytes_of(a)) for name, a in arrays.items()})
        yield found.result


def bytes_of(array: Any) -> memoryview:
    """The bytes of a contiguous array, without copying."""
    flat: Any = array.reshape(-1).view(np.uint8) if array.size else np.empty(0, np.uint8)
    return memoryview(flat)


# -- reading -----------------------------------------------------------------------------------


class ReadSource(Protocol):
    """Where a file is read from."""

    name: str
    size: int

    def read(self, offset: int, count: int) -> bytes: ...
    def read_into(self, offset: int, target: memoryview) -> None: ...
    def mapped(self) -> Any: ...


class FileSource:
    """A file of the operating system."""

    def __init__(self, path: str) -> None:
        self.name = path
        status = os.stat(path)
        if stat.S_ISDIR(status.st_mode):
            raise IsADirectoryError(21, "is a folder, not a saved file", path)
        if not stat.S_ISREG(status.st_mode):
            raise SavingError(f"{path}: is not an ordinary file")
        self.file = open(path, "rb", buffering=0)  # noqa: SIM115  # closed by close()
        self.size = os.fstat(self.file.fileno()).st_size

    def close(self) -> None:
        self.file.close()

    def read(self, offset: int, count: int) -> bytes:
        data = bytearray(count)
        self.read_into(offset, memoryview(data))
        return bytes(data)

    def read_into(self, offset: int, target: memoryview) -> None:
        self.file.seek(offset)
        while target:
            count = self.file.readinto(target[: 1 << 28])
            if not count:
                raise SavingError(f"{self.name}: became shorter while it was read")
            target = target[count:]

    def mapped(self) -> Any:
        """The file mapped into memory, copy on write."""
        return np.memmap(self.file, np.uint8, "c") if self.size else np.empty(0, np.uint8)


class BytesSource:
    """The remaining bytes of an open file or another stream."""

    def __init__(self, data: bytes, name: str) -> None:
        self.name = name
        self.data = memoryview(data)
        self.size = len(data)

    def close(self) -> None:
        self.data.release()

    def read(self, offset: int, count: int) -> bytes:
        return bytes(self.data[offset : offset + count])

    def read_into(self, offset: int, target: memoryview) -> None:
        target[:] = self.data[offset : offset + len(target)]

    def mapped(self) -> Any:
        raise ValueError("mmap=True needs the path of a file")


class StoredTensor(NamedTuple):
    """A tensor in a file."""

    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


class Container:
    """The header of a file, checked; `array(name)` reads a tensor and checks it."""

    def __init__(self, source: ReadSource, mmap: bool = False) -> None:
        self.source = source
        raw = self._raw_header()
        self.is_ours = _MARK in raw
        if self.is_ours:
            self._check_header(raw)
        self.entries: dict[str, StoredTensor] = {}
        self.metadata: dict[str, str] = {}
        self._checksums: dict[str, Any] = {}
        self._parse(raw[8:])
        self._begin = len(raw)
        self._check_ranges()
        if self.is_ours:
            self._check_completeness()
        self._mapped = source.mapped() if mmap else None

    def damaged(self, reason: str) -> SavingError:
        return SavingError(f"{self.source.name}: {reason}")

    # -- the header ----------------------------------------------------------------------------

    def _raw_header(self) -> bytes:
        """The length and the header as they are in the file."""
        size = self.source.size
        if size < 8:
            raise self.damaged(f"is no saved file: it has {size} bytes, the header is missing")
        start = self.source.read(0, 8)
        begins = size > 8 and self.source.read(8, 1) == b"{"
        if not begins and start[0] == 0x80 and start[1] in range(2, 6):
            raise self.damaged(
                "is a pickle, or a file of PyTorch from before 1.6: loading one can run any code, "
                "so tapegrad does not; in PyTorch, load it and save it again"
            )
        length = int.from_bytes(start, "little")
        if length < 2 or not begins:
            raise self.damaged("is no saved file: no header of safetensors at its beginning")
        if length > size - 8 or length > LARGEST_HEADER:
            raise self.damaged(
                f"the header is damaged, or the file was cut off: the header should have "
                f"{length:,} bytes, and the file has {size:,}"
            )
        return self.source.read(0, 8 + length)

    def _check_header(self, raw: bytes) -> None:
        blank = bytearray(raw)
        blank[_DIGITS] = b"0" * 64
        right = hashlib.sha256(blank).hexdigest().encode()
        if not raw.startswith(_PREFIX, 8) or raw[_DIGITS] != right:
            raise self.damaged("the header is damaged: it does not fit its checksum")

    def _parse(self, text: bytes) -> None:
        try:
            header = json.loads(text.decode(), object_pairs_hook=_distinct, parse_constant=_refuse)
        except (ValueError, RecursionError) as error:
            raise self.damaged(f"the header is damaged: {error}") from None
        metadata = header.pop("__metadata__", {})
        if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
            raise self.damaged("the header is damaged: its metadata is not text")
        self.metadata = metadata
        for name, content in header.items():
            self.entries[name] = self._entry(name, content)

    def _entry(self, name: str, content: Any) -> StoredTensor:
        wrong = self.damaged(f"the header is damaged at tensor {name[:80]!r}")
        if not isinstance(content, dict) or set(content) != {"dtype", "shape", "data_offsets"}:
            raise wrong
        dtype, shape, offsets = content["dtype"], content["shape"], content["data_offsets"]
        if not _are_sizes(shape) or not _are_sizes(offsets) or len(offsets) != 2:
            raise wrong
        if not isinstance(dtype, str) or dtype not in STORED:
            raise self.damaged(
                f"tensor {name[:80]!r} has elements of type {str(dtype)[:40]!r}, which tapegrad "
                f"does not have; it reads {', '.join(STORED)}"
            )
        size = dtype_named(STORED[dtype]).itemsize
        for n in shape:
            size *= n or 1  # NumPy refuses large sizes beside a zero too
        begin, end = offsets
        if size >= 1 << 63 or end - begin != (0 if 0 in shape else size):
            raise self.damaged(
                f"the header is damaged: tensor {name[:80]!r} of shape {shape} and type {dtype} "
                f"cannot have {end - begin} bytes"
            )
        return StoredTensor(dtype, tuple(shape), begin, end)

    def _check_ranges(self) -> None:
        """The tensors fill the rest of the file, one after the other."""
        end = 0
        for name, entry in sorted(self.entries.items(), key=lambda e: (e[1].begin, e[1].end)):
            if entry.begin != end:
                what = "overlaps the one before it" if entry.begin < end else "has a gap before it"
                raise self.damaged(f"the header is damaged: tensor {name[:80]!r} {what}")
            end = entry.end
        here = self.source.size - self._begin
        if here != end:
            what = f"was cut off: {end - here:,} bytes are missing"
            if here > end:
                what = f"has {here - end:,} bytes after its last tensor"
            raise self.damaged(what)

    def _check_completeness(self) -> None:
        version = self.metadata.get("tapegrad.format")
        if version != "1":
            raise self.damaged(f"was written in format {version!r:.20} by another tapegrad")
        try:
            self._checksums = dict(json.loads(self.metadata[_CHECKSUMS]))
        except (KeyError, TypeError, ValueError, RecursionError):
            raise self.damaged("the header is damaged: it has no checksums") from None
        if set(self._checksums) != set(self.entries):
            raise self.damaged("the header is damaged: not every tensor has a checksum")

    # -- the tensors ---------------------------------------------------------------------------

    def array(self, name: str) -> Any:
        """A tensor of the file, as an array with its own memory unless it is mapped."""
        entry = self.entries[name]
        dtype = dtype_named(STORED[entry.dtype])
        begin, end = self._begin + entry.begin, self._begin + entry.end
        if self._mapped is not None:
            mapped = np.asarray(self._mapped[begin:end])
            return self._checked_values(name, _aligned(mapped, dtype).reshape(entry.shape))
        array = np.empty(entry.shape, dtype)
        data = bytes_of(array)
        self.source.read_into(begin, data)
        if self.is_ours and f"{zlib.crc32(data):08x}" != self._checksums[name]:
            raise self.damaged(f"tensor {name[:80]!r} is damaged: it does not fit its checksum")
        return self._checked_values(name, array)

    def _checked_values(self, name: str, array: Any) -> Any:
        if array.dtype == bool and array.size and array.view(np.uint8).max() > 1:
            raise self.damaged(f"tensor {name[:80]!r} is damaged: it has booleans that are not")
        return array


def _aligned(data: Any, dtype: np.dtype[Any]) -> Any:
    """Bytes of a mapped file as elements; copied if they are not aligned."""
    misplaced = data.size and data.__array_interface__["data"][0] % dtype.alignment
    return (data.copy() if misplaced else data).view(dtype)


def _are_sizes(values: Any) -> bool:
    return (
        isinstance(values, list)
        and len(values) <= _MOST_DIMENSIONS
        and all(type(n) is int and 0 <= n < 1 << 63 for n in values)
    )


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name stands twice in it")
    return found


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")
