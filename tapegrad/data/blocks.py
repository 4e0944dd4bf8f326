"""Arrays of batches in shared memory: no copy between the processes, and no names.

A block is memory without a name in the file system, so nothing can be left behind. In a worker, a
`BlockWriter` makes blocks, sends the file of each one once, and puts the arrays of a batch into it.
In the loader, a `BlockReader` makes tensors in the block's memory, without a copy. When these
tensors are freed, the loader returns the block's id to the worker with its next request, and the
worker reuses the block. Batches are pickled without their arrays, so any type can hold them. Called
by `worker.py` and `crew.py`.
"""

from __future__ import annotations

import io
import mmap
import os
import pickle
import tempfile
import threading
import weakref
from collections import deque
from typing import Any, NamedTuple

import numpy as np

from ..core.xp import address

#: smaller arrays travel inside the pickle
_SMALL = 2048
_ALIGNMENT = 64
#: most blocks of a worker that the consumer may hold; batches beyond that are copied
_LENT = 16


def _new_file(size: int) -> int:
    """The descriptor of a new unnamed file in memory."""
    if hasattr(os, "memfd_create"):
        file = os.memfd_create("tapegrad-batch", os.MFD_CLOEXEC)
    else:
        with tempfile.TemporaryFile() as temporary:
            file = os.dup(temporary.fileno())
    os.ftruncate(file, size)
    return file


def _view(memory: mmap.mmap) -> Any:
    """The bytes of a block as an array: views of it hold on to this very array."""
    return np.ndarray((len(memory),), np.uint8, memory)


def _aligned(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT


class PackedBatch(NamedTuple):
    """A batch in transit: a pickle, the block, and the positions of its arrays in it."""

    data: bytes
    block: int | None = None
    ranges: tuple[tuple[int, int], ...] = ()
    #: the size of the block in bytes, if its file is sent along
    new_size: int | None = None
    #: blocks that will not be used again
    dropped: tuple[int, ...] = ()


class _Pickler(pickle.Pickler):
    """Pickles without the memory of arrays, including strided ones."""

    def reducer_override(self, value: Any) -> Any:
        if type(value) is np.ndarray:
            flags = value.flags
            if not (flags.c_contiguous or flags.f_contiguous) and not value.dtype.hasobject:
                return np.ascontiguousarray(value).__reduce_ex__(5)
        return NotImplemented


class _Block:
    """A block of a worker, and a check for references to it in the worker."""

    def __init__(self, block_id: int, size: int) -> None:
        self.block_id = block_id
        self.size = size
        self.file: int | None = _new_file(size)
        self.memory = mmap.mmap(self.file, size)
        self.reader: weakref.ref[Any] | None = None

    def is_in_use(self) -> bool:
        """Whether a dataset or a collate_fn has kept an array of an earlier batch."""
        return self.reader is not None and self.reader() is not None

    def close_file(self) -> None:
        if self.file is not None:
            os.close(self.file)
            self.file = None


class BlockWriter:
    """A worker's blocks: gives memory for arrays, and packs batches."""

    def __init__(self) -> None:
        self._thread = threading.get_ident()
        self._away: dict[int, _Block] = {}
        self._free: list[_Block] = []
        self._dropped: list[int] = []
        self._made = 0
        self._wanted = 0
        self._block: _Block | None = None
        self._bytes: Any = None
        self._used = 0

    def returned(self, block_ids: list[int]) -> None:
        """Mark blocks as free that the loader returned."""
        self._free += [self._away.pop(block_id) for block_id in block_ids]

    def begin(self) -> None:
        """Begin a batch: choose its block, the free one that was used last."""
        for i in reversed(range(len(self._free))):
            block = self._free[i]
            if block.size < self._wanted:
                self._dropped.append(self._free.pop(i).block_id)
            elif not block.is_in_use():
                del self._free[i]
                self._open(block)
                return

    def _open(self, block: _Block) -> None:
        self._block, self._bytes, self._used = block, _view(block.memory), 0
        block.reader = weakref.ref(self._bytes)

    def end(self) -> None:
        """End the batch; its block, if it still has one, is free for the next batch."""
        if self._block is not None:
            self._free.append(self._block)
        self._block = self._bytes = None

    def empty(self, shape: tuple[int, ...], dtype: Any) -> Any:
        """An uninitialized array, in the block of this batch if it fits."""
        dtype = np.dtype(dtype)
        size = dtype.itemsize
        for n in shape:
            size *= n
        own = self._block is not None and threading.get_ident() == self._thread
        if not own or size < _SMALL or dtype.hasobject or self._used + size > self._bytes.size:
            return np.empty(shape, dtype)
        begin = self._used
        self._used = _aligned(begin + size)
        return self._bytes[begin : begin + size].view(dtype).reshape(shape)

    def pack(self, batch: Any) -> tuple[PackedBatch, tuple[int, ...]]:
        """A batch for the loader, and the files to send along."""
        arrays: list[Any] = []

        def leave_out(buffer: pickle.PickleBuffer) -> bool:
            memory = buffer.raw()
            if memory.nbytes < _SMALL:
                return True
            arrays.append(np.frombuffer(memory, np.uint8))
            return False

        out = io.BytesIO()
        _Pickler(out, 5, buffer_callback=leave_out).dump(batch)
        if not arrays:
            dropped = self._take_dropped()
            return PackedBatch(out.getvalue(), dropped=dropped), ()
        ranges = self._copied_in(arrays)
        block = self._block
        assert block is not None
        files = () if block.file is None else (block.file,)
        packed = PackedBatch(
            out.getvalue(),
            block.block_id,
            tuple(ranges),
            block.size if files else None,
            self._take_dropped(),
        )
        self._away[block.block_id] = block
        self._block = self._bytes = None
        return packed, files

    def sent(self, packed: PackedBatch) -> None:
        """Note that the loader has the block's file now."""
        if packed.block is not None:
            self._away[packed.block].close_file()

    def _take_dropped(self) -> tuple[int, ...]:
        dropped, self._dropped = tuple(self._dropped), []
        return dropped

    def _copied_in(self, arrays: list[Any]) -> list[tuple[int, int]]:
        """Copy arrays into the block of this batch if needed; returns their positions."""
        inside = [self._offset(x) for x in arrays]
        missing = sum(_aligned(x.size) for x, o in zip(arrays, inside, strict=True) if o is None)
        if self._block is None or self._used + missing > self._bytes.size:
            self._enlarge(sum(_aligned(x.size) for x in arrays))
            inside = [None] * len(arrays)
        ranges = []
        for array, offset in zip(arrays, inside, strict=True):
            if offset is None:
                offset = self._used
                self._used = _aligned(offset + array.size)
                self._bytes[offset : offset + array.size] = array
            ranges.append((offset, offset + array.size))
        return ranges

    def _offset(self, array: Any) -> int | None:
        """The offset of an array in the block; None if it is in other memory."""
        if self._block is None:
            return None
        offset = address(array) - address(self._bytes)
        return offset if 0 <= offset <= self._bytes.size - array.size else None

    def _enlarge(self, size: int) -> None:
        """Replace the block by one that has room for batches of this size."""
        if self._block is not None:
            self._dropped.append(self._block.block_id)
            self._block.close_file()
        # Leave room for somewhat larger batches. Memory that is not written to costs nothing.
        self._wanted = max(self._wanted, size)
        page = mmap.PAGESIZE
        self._made += 1
        self._open(_Block(self._made, -(-self._wanted * 5 // 4 // page) * page))


class BlockReader:
    """The loader's view of the blocks of one worker."""

    def __init__(self) -> None:
        self._memory: dict[int, mmap.mmap] = {}
        self._lent: dict[int, weakref.ref[Any]] = {}
        self._returned: deque[int] = deque()

    def arrived(self, packed: PackedBatch, files: list[int]) -> None:
        """Register the new blocks of a message, and forget the dropped ones."""
        for block_id in packed.dropped:
            self._memory.pop(block_id, None)
        if packed.new_size is not None and packed.block is not None:
            self._memory[packed.block] = mmap.mmap(files[0], packed.new_size)

    def unpack(self, packed: PackedBatch) -> Any:
        """The batch; its arrays use the block's memory, which they hold while they live."""
        block_id = packed.block
        if block_id is None:
            return pickle.loads(packed.data)
        view = _view(self._memory[block_id])
        if len(self._lent) < _LENT:
            self._lend(block_id, view)
            return pickle.loads(packed.data, buffers=[view[a:b] for a, b in packed.ranges])
        self._returned.append(block_id)
        return pickle.loads(packed.data, buffers=[view[a:b].copy() for a, b in packed.ranges])

    def _lend(self, block_id: int, view: Any) -> None:
        lent, returned = self._lent, self._returned

        def unused(_: Any) -> None:
            lent.pop(block_id, None)
            returned.append(block_id)

        lent[block_id] = weakref.ref(view, unused)

    def discard(self, packed: PackedBatch) -> None:
        """Drop a batch that is not wanted: its block is free at once."""
        if packed.block is not None:
            self._returned.append(packed.block)

    def take_returned(self) -> list[int]:
        """The ids of blocks that the worker may use again."""
        block_ids = []
        while self._returned:
            block_ids.append(self._returned.popleft())
        return block_ids
