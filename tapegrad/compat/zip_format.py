"""PyTorch's file format, written and read with pickle for `torch.save` and `torch.load`.

Comes in: a value and a file. A file is a zip archive of uncompressed members: `data.pkl`, a pickle
of the value in which storages are persistent ids, and `data/N`, the bytes of storage N. The pickle
has PyTorch's names, so PyTorch can read the file. Tensors that share memory share a storage. Called
by `compat/torch/serialization.py`; `saving/pytorch.py` reads such files without pickle.
"""

from __future__ import annotations

import io
import pickle
import struct
import sys
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ..core.device import device, to_device
from ..core.layouts import layout
from ..core.tensor import Size, Tensor, not_recorded, own
from ..nn.parameter import Parameter
from ..nn.state import SavedState
from ..saving.container import bytes_of
from ..saving.pytorch import Archive

#: by dtype: the name of PyTorch's storage class
STORAGE_NAMES = {
    "float64": "DoubleStorage",
    "float32": "FloatStorage",
    "float16": "HalfStorage",
    "bfloat16": "BFloat16Storage",
    "int64": "LongStorage",
    "int32": "IntStorage",
    "int16": "ShortStorage",
    "int8": "CharStorage",
    "uint8": "ByteStorage",
    "bool": "BoolStorage",
    "complex64": "ComplexFloatStorage",
    "complex128": "ComplexDoubleStorage",
}
_DTYPES = {name: dtype for dtype, name in STORAGE_NAMES.items()}
_ALIGNMENT = 64


class StoredMemory(NamedTuple):
    """A storage in a pickle: all its elements, the name of their dtype, and their device."""

    array: Any
    dtype: str
    location: str


class ZipPickler(pickle.Pickler):
    """Writes tensors as PyTorch does, and collects their storages."""

    def __init__(self, file: Any, protocol: int) -> None:
        super().__init__(file, protocol)
        self.storages: list[Any] = []
        self._keys: dict[tuple[Any, ...], str] = {}
        self._kept: list[Any] = []  # keeps arrays alive, so that no address is reused

    def persistent_id(self, obj: Any) -> Any:
        if not isinstance(obj, StoredMemory):
            return None
        array = obj.array
        known = (array.__array_interface__["data"][0], array.nbytes, obj.dtype)
        key = self._keys.get(known) if array.size else None
        if key is None:
            key = self._keys[known] = str(len(self.storages))
            self.storages.append(array)
        kind = getattr(sys.modules["torch"], STORAGE_NAMES[obj.dtype])
        return ("storage", kind, key, obj.location, array.size)

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, Tensor):
            return self._reduced_tensor(obj)
        if isinstance(obj, Size):
            return Size, (tuple(obj),)
        if isinstance(obj, SavedState):  # PyTorch has a plain OrderedDict
            return OrderedDict, (), vars(obj) or None, None, iter(obj.items())
        if isinstance(obj, device):
            return device, ((obj.type,) if obj.index is None else (obj.type, obj.index))
        if isinstance(obj, layout):
            return _torch("serialization", "_get_layout"), (str(obj),)
        return NotImplemented

    def _reduced_tensor(self, tensor: Tensor) -> Any:
        if tensor.is_sparse:
            parts = tensor._array
            about = (parts.coordinates, parts.elements, tensor.shape, tensor.is_coalesced())
            return _torch("_utils", "_rebuild_sparse_tensor"), (tensor.layout, about)
        rebuild = _torch("_utils", "_rebuild_tensor_v2")
        memory, offset, strides = _memory_of(tensor)
        self._kept.append(memory)
        shape = tuple(tensor.shape)
        hooks: OrderedDict[Any, Any] = OrderedDict()
        if not isinstance(tensor, Parameter):
            requires = bool(tensor.requires_grad)
            return rebuild, (memory, offset, shape, strides, requires, hooks)
        data = _Reduced((rebuild, (memory, offset, shape, strides, False, hooks)))
        arguments = (data, bool(tensor.requires_grad), hooks)
        return _torch("_utils", "_rebuild_parameter"), arguments


class _Reduced:
    """An object that pickles as a given call."""

    def __init__(self, call: tuple[Any, ...]) -> None:
        self._call = call

    def __reduce__(self) -> tuple[Any, ...]:
        return self._call


def _torch(module: str, name: str) -> Any:
    """A function of a facade module that pickles refer to."""
    from importlib import import_module

    return getattr(import_module(f"torch.{module}"), name)


def _memory_of(tensor: Tensor) -> tuple[StoredMemory, int, tuple[int, ...]]:
    """A tensor's storage, and its offset and strides in that storage, in elements."""
    not_recorded(tensor, "saving")
    own(tensor)
    location = str(tensor.device)
    array = to_device(tensor._array, device("cpu"))
    whole = array
    while isinstance(whole.base, np.ndarray):
        whole = whole.base
    steps = [step / array.itemsize for step in array.strides]
    start = array.__array_interface__["data"][0] - whole.__array_interface__["data"][0]
    fits = whole.flags.c_contiguous and whole.dtype == array.dtype and array.size
    if not fits or start % array.itemsize or not all(s >= 0 and s.is_integer() for s in steps):
        whole = array = np.ascontiguousarray(array).reshape(array.shape)
        steps, start = [step / array.itemsize for step in array.strides], 0
    memory = StoredMemory(whole.reshape(-1), tensor.dtype.name, location)
    if not array.size:  # NumPy's strides of empty arrays differ
        steps = [
            float(np.prod([max(n, 1) for n in array.shape[i + 1 :]])) for i in range(array.ndim)
        ]
    return memory, start // array.itemsize, tuple(int(step) for step in steps)


def write_zip(obj: Any, file: Any, protocol: int = 2) -> None:
    """Write a value to an open file that supports `tell()`."""
    text = io.BytesIO()
    pickler = ZipPickler(text, protocol)
    pickler.dump(obj)
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        _put(archive, "data.pkl", text.getbuffer())
        _put(archive, ".format_version", b"1")
        _put(archive, "byteorder", sys.byteorder.encode())
        for key, array in enumerate(pickler.storages):
            _put(archive, f"data/{key}", bytes_of(array))
        _put(archive, "version", b"3\n")


def _put(archive: zipfile.ZipFile, name: str, data: Any) -> None:
    """Add a member whose data start at a multiple of 64 bytes, as PyTorch does for mmap."""
    info = zipfile.ZipInfo(f"archive/{name}")
    assert archive.fp is not None
    begin = archive.fp.tell() + 30 + len(info.filename) + 4
    padding = -begin % _ALIGNMENT
    info.extra = struct.pack("<2sH", b"FB", padding) + b"Z" * padding
    archive.writestr(info, data)


class PickleReader(pickle.Unpickler):
    """Reads the pickle of an archive; `find`, if given, resolves the names in it."""

    def __init__(
        self, archive: Archive, devices: Any, find: Callable[[str, str], Any] | None, options: Any
    ) -> None:
        super().__init__(io.BytesIO(archive.member("data.pkl")), **options)
        self._archive = archive
        self._devices = devices
        self._find = find
        self._storages: dict[tuple[str, str], StoredMemory] = {}

    def find_class(self, module: str, name: str) -> Any:
        if self._find is not None:
            return self._find(module, name)
        return super().find_class(module, name)

    def persistent_load(self, pid: Any) -> Any:
        kind, storage, key, location, *_ = pid
        name = getattr(storage, "__name__", str(storage))
        if kind != "storage" or name not in _DTYPES:
            raise pickle.UnpicklingError(f"the file holds {name}, which tapegrad does not have")
        if (key, name) not in self._storages:
            from ..core.dtypes import dtype_named

            dtype = _DTYPES[name]
            array = self._archive.storage(f"data/{key}", dtype_named(dtype).numpy)
            array = self._devices.put(array, location)
            self._storages[key, name] = StoredMemory(array, dtype, location)
        return self._storages[key, name]
