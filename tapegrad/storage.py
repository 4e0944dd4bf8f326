"""Storages: the memory of tensors, as bytes (`UntypedStorage`) or as elements (`TypedStorage`).

Comes in: a tensor, or a number of bytes. Goes out: an object over the memory that all views of one
tensor share. Memory does not move while it is in use: a storage can shrink in place, and grow only
while no tensor uses it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from mmap import mmap
from typing import Any

import numpy as np

from .core import dtypes
from .core import storage as changes
from .core.device import CPU, device
from .core.dtypes import DType
from .core.pinning import is_pinned
from .core.tensor import Tensor, not_recorded, own

__all__ = ["TypedStorage", "UntypedStorage"]


class UntypedStorage:
    """The bytes that the views of a tensor share.

    >>> import tapegrad
    >>> x = tapegrad.arange(4, dtype=tapegrad.int16)
    >>> x[2:].untyped_storage().nbytes(), x.untyped_storage().tolist()
    (8, [0, 0, 1, 0, 2, 0, 3, 0])
    """

    def __init__(self, size: Any = 0, *, device: Any = None) -> None:
        if isinstance(size, np.ndarray):
            self._bytes = size
        elif isinstance(size, int):
            self._bytes = np.zeros(size, np.uint8)
        else:
            self._bytes = np.array(list(size), np.uint8)
        self._owner: Any = changes.owner_of(self._bytes)

    @staticmethod
    def from_file(filename: Any, shared: bool = False, nbytes: int = 0) -> UntypedStorage:
        """The bytes of a file, mapped into memory; writes reach the file if `shared`."""
        name = os.fspath(filename)
        if shared and (not os.path.exists(name) or os.path.getsize(name) < nbytes):
            with open(name, "ab") as file:
                file.truncate(nbytes)
        if nbytes == 0:
            return UntypedStorage(0)
        mapped = np.memmap(name, np.uint8, "r+" if shared else "c", shape=(nbytes,))
        return UntypedStorage(mapped.view(np.ndarray))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return np.array(self._bytes, dtype=dtype, copy=copy)

    @property
    def device(self) -> device:
        """Where the memory is."""
        return CPU

    @property
    def _cdata(self) -> int:
        return self.data_ptr()

    @property
    def is_cuda(self) -> bool:
        """False: the memory is on the CPU."""
        return False

    def data_ptr(self) -> int:
        """The address of the first byte."""
        return int(self._bytes.__array_interface__["data"][0])

    def nbytes(self) -> int:
        """How many bytes there are."""
        return int(self._bytes.size)

    size = __len__ = nbytes

    @property
    def filename(self) -> str | None:
        """The path of the file that writes reach, if the memory is a shared mapping."""
        file = self._owner.base
        return str(file.filename) if isinstance(file, np.memmap) and file.mode == "r+" else None

    def element_size(self) -> int:
        """1: an element is a byte."""
        return 1

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return UntypedStorage(self._bytes[index])
        return int(self._bytes[index])

    def __setitem__(self, index: Any, value: Any) -> None:
        changes.note(self._owner)
        self._bytes[index] = value

    def __iter__(self) -> Iterator[int]:
        return iter(self.tolist())

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, UntypedStorage):
            return NotImplemented
        return (self.data_ptr(), self.nbytes()) == (other.data_ptr(), other.nbytes())

    def __hash__(self) -> int:
        return hash((self.data_ptr(), self.nbytes()))

    def tolist(self) -> list[int]:
        """The bytes as numbers."""
        values: list[int] = self._bytes.tolist()
        return values

    def clone(self) -> UntypedStorage:
        """A copy of the memory."""
        return UntypedStorage(self._bytes.copy())

    def copy_(self, source: Any, non_blocking: bool = False) -> UntypedStorage:
        """Copy the bytes of another storage of the same size."""
        given = source.untyped() if isinstance(source, TypedStorage) else source
        if given.nbytes() != self.nbytes():
            raise RuntimeError(
                f"copy_ needs a storage of {self.nbytes()} bytes, got {given.nbytes()}"
            )
        self._bytes[...] = given._bytes.copy()
        changes.note(self._owner)
        return self

    def fill_(self, value: int) -> UntypedStorage:
        """Set all bytes."""
        self._bytes[...] = value
        changes.note(self._owner)
        return self

    def resize_(self, size: int) -> UntypedStorage:
        """Make the storage smaller, or larger if no tensor shows it."""
        if size > self._owner.nbytes:
            raise RuntimeError(
                f"this storage has {self._owner.nbytes} bytes and cannot grow to {size} while "
                "tensors show it; make a new tensor of that size"
            )
        whole = self._owner.reshape(-1).view(np.uint8)
        self._bytes = whole[:size]
        return self

    def untyped(self) -> UntypedStorage:
        """The storage itself."""
        return self

    def cpu(self) -> UntypedStorage:
        """The storage itself: its memory is on the CPU."""
        return self

    def is_shared(self) -> bool:
        """Whether processes forked from this one share the memory with it."""
        owner: Any = self._owner
        while isinstance(owner, np.ndarray):
            owner = owner.base
        owner = owner.obj if isinstance(owner, memoryview) else owner
        return isinstance(owner, mmap)

    def is_pinned(self, device: Any = None) -> bool:
        """Whether the memory is pinned: a GPU copies from it while Python goes on."""
        return is_pinned(self._owner)

    def type(self) -> str:
        """The name of the class."""
        return "torch.storage.UntypedStorage"

    def __repr__(self) -> str:
        return f"UntypedStorage of {self.nbytes()} bytes on {self.device}"


class TypedStorage:
    """The elements that the views of a tensor share, in the order of memory.

    >>> import tapegrad
    >>> tapegrad.arange(4)[2:].storage().tolist()
    [0, 1, 2, 3]
    """

    _dtype: DType | None = None

    def __init__(self, *args: Any, wrap_storage: Any = None, dtype: Any = None) -> None:
        given = self._dtype if dtype is None else dtypes.as_dtype(dtype)
        self.dtype: DType = dtypes.get_default_dtype() if given is None else given
        numpy_type = self.dtype.numpy
        if wrap_storage is not None:
            self._untyped_storage: UntypedStorage = wrap_storage
        elif args and not isinstance(args[0], int):
            elements = np.array(list(args[0])).astype(numpy_type)
            self._untyped_storage = UntypedStorage(elements.view(np.uint8))
        else:
            size = args[0] if args else 0
            self._untyped_storage = UntypedStorage(size * self.dtype.itemsize)

    @property
    def _elements(self) -> Any:
        raw = self._untyped_storage._bytes
        return raw[: raw.size // self.dtype.itemsize * self.dtype.itemsize].view(self.dtype.numpy)

    @property
    def device(self) -> device:
        """Where the memory is."""
        return self._untyped_storage.device

    @property
    def _cdata(self) -> int:
        return self._untyped_storage._cdata

    @property
    def is_cuda(self) -> bool:
        """False: the memory is on the CPU."""
        return False

    def untyped(self) -> UntypedStorage:
        """The same memory as bytes."""
        return self._untyped_storage

    def data_ptr(self) -> int:
        """The address of the first element."""
        return self._untyped_storage.data_ptr()

    def nbytes(self) -> int:
        """How many bytes there are."""
        return self._untyped_storage.nbytes()

    def size(self) -> int:
        """How many elements there are."""
        return len(self._elements)

    __len__ = _size = size

    def element_size(self) -> int:
        """The bytes of one element."""
        return self.dtype.itemsize

    def __getitem__(self, index: Any) -> Any:
        found = self._elements[index]
        return found.tolist() if isinstance(index, slice) else found.item()

    def __setitem__(self, index: Any, value: Any) -> None:
        changes.note(self._untyped_storage._owner)
        self._elements[index] = value

    def __iter__(self) -> Iterator[Any]:
        return iter(self.tolist())

    def tolist(self) -> list[Any]:
        """The elements as Python numbers."""
        values: list[Any] = self._elements.tolist()
        return values

    def copy_(self, source: Any, non_blocking: bool = False) -> TypedStorage:
        """Copy the elements of another storage with as many elements."""
        if len(source) != len(self):
            raise RuntimeError(f"copy_ needs a storage of {len(self)} elements, got {len(source)}")
        other = (
            source
            if isinstance(source, TypedStorage)
            else TypedStorage(wrap_storage=source, dtype=self.dtype)
        )
        self._elements[...] = other._elements.astype(self.dtype.numpy)
        changes.note(self._untyped_storage._owner)
        return self

    def fill_(self, value: Any) -> TypedStorage:
        """Set all elements."""
        self._elements[...] = value
        changes.note(self._untyped_storage._owner)
        return self

    def clone(self) -> TypedStorage:
        """A copy of the memory."""
        return TypedStorage(wrap_storage=self._untyped_storage.clone(), dtype=self.dtype)

    def resize_(self, size: int) -> TypedStorage:
        """Make the storage smaller, or larger if no tensor shows it."""
        self._untyped_storage.resize_(size * self.dtype.itemsize)
        return self

    def cpu(self) -> TypedStorage:
        """The storage itself: its memory is on the CPU."""
        return self

    def is_shared(self) -> bool:
        """Whether processes forked from this one share the memory with it."""
        return self._untyped_storage.is_shared()

    def __repr__(self) -> str:
        return f"TypedStorage of {len(self)} elements of {self.dtype} on {self.device}"


def _typed(name: str, dtype: DType) -> type[TypedStorage]:
    members = {"_dtype": dtype, "__module__": __name__, "__doc__": f"A storage of {dtype.name}."}
    return type(name, (TypedStorage,), members)


FloatStorage = _typed("FloatStorage", dtypes.float32)
DoubleStorage = _typed("DoubleStorage", dtypes.float64)
HalfStorage = _typed("HalfStorage", dtypes.float16)
BFloat16Storage = _typed("BFloat16Storage", dtypes.bfloat16)
LongStorage = _typed("LongStorage", dtypes.int64)
IntStorage = _typed("IntStorage", dtypes.int32)
ShortStorage = _typed("ShortStorage", dtypes.int16)
CharStorage = _typed("CharStorage", dtypes.int8)
ByteStorage = _typed("ByteStorage", dtypes.uint8)
BoolStorage = _typed("BoolStorage", dtypes.bool_)
ComplexFloatStorage = _typed("ComplexFloatStorage", dtypes.complex64)
ComplexDoubleStorage = _typed("ComplexDoubleStorage", dtypes.complex128)


def storage_of(tensor: Tensor) -> UntypedStorage:
    """The memory that a tensor is a view of."""
    not_recorded(tensor, "untyped_storage()")
    own(tensor)
    array = tensor._array
    if not isinstance(array, np.ndarray):
        raise RuntimeError("storages are of tensors on the CPU; use tensor.cpu() first")
    owner = changes.owner_of(array)
    if not owner.flags.forc:  # memory of another library, with gaps
        raise RuntimeError("the memory of this tensor has gaps; use contiguous() first")
    flat = owner.reshape(-1, order="A").view(np.uint8)
    return UntypedStorage(flat)


def view_of(
    storage: UntypedStorage, dtype: DType, offset: int, size: Any, stride: Any
) -> np.ndarray[Any, Any]:
    """An array in the memory of a storage; offset and strides count elements."""
    item = dtype.itemsize
    shape = tuple(size)
    if stride is None:
        count = 1
        steps: list[int] = []
        for n in reversed(shape):
            steps.insert(0, count)
            count *= max(n, 1)
    else:
        steps = list(stride)
    last = offset + sum((n - 1) * s for n, s in zip(shape, steps, strict=True))
    if 0 not in shape and (last + 1) * item > storage.nbytes():
        raise RuntimeError(
            f"a view of shape {shape}, strides {tuple(steps)} and offset {offset} needs "
            f"{(last + 1) * item} bytes, the storage has {storage.nbytes()}"
        )
    raw = storage._bytes
    return np.ndarray(shape, dtype.numpy, raw, offset * item, [s * item for s in steps])


def is_storage(obj: Any) -> bool:
    """Whether an object is a storage."""
    return isinstance(obj, (TypedStorage, UntypedStorage))
