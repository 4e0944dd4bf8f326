"""`save` and `load`: values to files and back.

Comes in: a value and a file. The file is in the safetensors format (`container.py`). Its metadata
holds the structure of the value as JSON (`structure.py`) and says which arrays are views of others
(`memory.py`). `load` also reads safetensors files of other programs, as a dict of tensors, and the
tensors and plain values in PyTorch's files (`pytorch.py`). Called by users and by `checkpoint.py`.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import numpy as np

from ..core.device import CPU, as_device, device, to_device
from ..core.tensor import wrap
from .atomic import replacing, write_all
from .container import BytesSource, Container, FileLayout, FileSource, bytes_of, checksummed
from .errors import SavingError
from .memory import StoredView, seen, stored_form
from .structure import Decoder, Encoder

_STRUCTURE = "tapegrad.structure"
_VIEWS = "tapegrad.views"


def save(
    obj: Any,
    f: Any,
    pickle_module: Any = None,
    pickle_protocol: int | None = None,
    _use_new_zipfile_serialization: bool = True,
) -> None:
    """Save tensors, NumPy arrays, numbers and text, in any nesting of containers.

    A whole module is saved as data: its class by name, its parameters, buffers and modules, and
    attributes that are themselves such values; no code.

    `f` is a path or an open binary file. A file at a path is replaced atomically when all has been
    written: whatever happens, the path leads to the old file or to the new one. Tensors that share
    memory are stored once and share it again after loading. If a value cannot be saved, an error
    says where it is, and nothing is written. The other arguments are there for code written for
    PyTorch and have no effect: no pickle is written.

    >>> import io, tapegrad
    >>> file = io.BytesIO()
    >>> tapegrad.save({"weight": tapegrad.ones(2), "epochs": 3}, file)
    >>> tapegrad.load(io.BytesIO(file.getvalue()))
    {'weight': tensor([1., 1.]), 'epochs': 3}
    """
    layout = laid_out(obj)
    path = _path_of(f, "write")
    if path is None:
        _stream(layout, f.write)
    elif _is_special(path):
        with open(path, "wb") as file:
            _stream(layout, file.write)
    else:
        write(layout, path)


def laid_out(obj: Any, described: dict[str, str] | None = None) -> FileLayout:
    """The file that holds a value, ready to be written, with more text for its header."""
    encoder = Encoder()
    metadata = {
        **(described or {}),
        _STRUCTURE: json.dumps(encoder.encode(obj), separators=(",", ":")),
    }
    arrays, views = stored_form(encoder.arrays)
    if views:
        metadata[_VIEWS] = json.dumps(views, separators=(",", ":"))
    return FileLayout(arrays, metadata)


def write(layout: FileLayout, path: str) -> None:
    """Write a file completely or not at all."""
    with checksummed(layout.arrays) as checksums, replacing(path) as descriptor:
        # The header holds the checksums, so it is written last; a thread computes them meanwhile.
        os.lseek(descriptor, layout.header_size, os.SEEK_SET)
        for array in layout.arrays.values():
            write_all(descriptor, bytes_of(array))
        os.lseek(descriptor, 0, os.SEEK_SET)
        write_all(descriptor, layout.header(checksums()))


def write_file(path: str, put: Callable[[Any], Any]) -> None:
    """Let `put(file)` write a file, completely or not at all."""
    if _is_special(path):
        with open(path, "wb") as file:
            put(file)
        return
    with replacing(path) as descriptor, open(descriptor, "w+b", closefd=False) as file:
        put(file)


def _stream(layout: FileLayout, put: Callable[[Any], Any]) -> None:
    with checksummed(layout.arrays) as checksums:
        put(layout.header(checksums()))
    for array in layout.arrays.values():
        put(bytes_of(array))


def _path_of(f: Any, method: str) -> str | None:
    """The path that `f` is, or None for an open file."""
    if isinstance(f, (str, bytes, os.PathLike)):
        return os.fsdecode(f)
    if not hasattr(f, method):
        raise TypeError(f"expected a path or an open binary file, got {type(f).__name__}")
    return None


def _is_special(path: str) -> bool:
    """Whether a path leads to a device or a pipe, which cannot be replaced."""
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return False
    return not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)


# -- loading -----------------------------------------------------------------------------------


def load(
    f: Any,
    map_location: Any = None,
    pickle_module: Any = None,
    *,
    weights_only: bool | None = None,
    mmap: bool | None = None,
) -> Any:
    """Load a file of `save`, a safetensors file of another program, or a file of PyTorch.

    `map_location` is the device that tensors go to: a device, a dict from saved to new devices, or
    a function of a tensor on the CPU and the name of its saved device, which returns a tensor or
    None for the saved device. Without it, tensors go to the device that they were saved from.
    `mmap=True` reads tensors from the file when they are used, and does not compare their
    checksums.

    Modules are rebuilt if they are layers of the library, or of a class registered with
    `tapegrad.serialization.add_safe_globals`; with `weights_only=False`, of any class derived from
    `Module` that the program has defined. `__init__` is not called. No code in a file is ever run,
    and nothing that it names is imported: of PyTorch's files, tensors and plain values are read,
    and anything else is an error. `pickle_module` is there for code written for PyTorch.
    """
    with opened(f) as source:
        start = source.read(0, min(source.size, 9))
        if start.startswith(b"PK\x03\x04") and not start.endswith(b"{"):
            from .pytorch import load_pytorch

            return load_pytorch(source, DeviceMap(map_location))
        container = Container(source, bool(mmap))
        return contents(container, map_location, weights_only is False)


@contextmanager
def opened(f: Any) -> Iterator[Any]:
    """The source to read `f` from, a path or an open file."""
    path = _path_of(f, "read")
    if path is not None:
        with closing(FileSource(path)) as source:
            yield source
        return
    data = f.read()
    if not isinstance(data, (bytes, bytearray, memoryview)):
        raise TypeError(f"expected a file opened in binary mode, it gave {type(data).__name__}")
    with closing(BytesSource(bytes(data), str(getattr(f, "name", "the stream")))) as stream:
        yield stream


def contents(container: Container, map_location: Any = None, trusted: bool = False) -> Any:
    """The value in a file, whose header has been read."""
    devices = DeviceMap(map_location)
    if not container.is_ours:
        arrays = ((name, container.array(name)) for name in container.entries)
        return {name: wrap(devices.put(_tensor_array(container, name, a))) for name, a in arrays}
    return _read_structure(container, devices, trusted)


def _tensor_array(container: Container, name: str, array: Any) -> Any:
    from ..core.dtypes import from_numpy_dtype

    try:
        from_numpy_dtype(array.dtype)
    except TypeError as error:
        raise container.damaged(f"tensor {name[:80]!r}: {error}") from None
    return array


def _read_structure(container: Container, devices: DeviceMap, trusted: bool) -> Any:
    with _as_damage(container):
        arrays = {name: container.array(name) for name in container.entries}
        loaded = _Loaded(arrays, _views_of(container), devices)
        structure = json.loads(container.metadata[_STRUCTURE])
        return Decoder(loaded.array, loaded.on_device, trusted).decode(structure)


class SavedItems:
    """The items of a dict in a file, on the CPU; each is read when it is used."""

    def __init__(self, container: Container) -> None:
        self._container = container
        with _as_damage(container):
            arrays = _ReadWhenUsed(container)
            loaded = _Loaded(arrays, _views_of(container), DeviceMap("cpu"))
            self._decoder = Decoder(loaded.array, loaded.on_device)
            self._structure: dict[str, Any] = json.loads(container.metadata[_STRUCTURE])["dict"]

    def __getitem__(self, key: str) -> Any:
        with _as_damage(self._container):
            return self._decoder.decode(self._structure[key])


class _ReadWhenUsed(dict[str, Any]):
    """The arrays of a file by name, read once."""

    def __init__(self, container: Container) -> None:
        super().__init__()
        self._container = container

    def __missing__(self, name: str) -> Any:
        self[name] = array = self._container.array(name)
        return array


def _views_of(container: Container) -> dict[str, StoredView]:
    views = json.loads(container.metadata.get(_VIEWS, "{}"))
    return {name: StoredView(*view) for name, view in views.items()}


@contextmanager
def _as_damage(container: Container) -> Iterator[None]:
    """Report every error in decoding a file as damage of that file, with its name."""
    try:
        yield
    except SavingError as error:
        if str(error).startswith(container.source.name):
            raise
        raise container.damaged(f"cannot be read: {error}") from error
    except KeyError as error:
        raise container.damaged(f"cannot be read: {str(error)[:80]} is missing") from None
    except (TypeError, ValueError, AttributeError, OverflowError, RuntimeError) as error:
        raise container.damaged(f"cannot be read: {str(error)[:200]}") from error


class _Loaded:
    """The arrays of a file, and the views of them."""

    def __init__(
        self, entries: dict[str, Any], views: dict[str, StoredView], devices: DeviceMap
    ) -> None:
        self._entries = entries
        self._views = views
        self._devices = devices
        self._moved: dict[tuple[str, str], Any] = {}

    def array(self, name: str) -> Any:
        """An array on the CPU."""
        view = self._views.get(name)
        return self._entries[name] if view is None else seen(self._entries[view.entry], view)

    def on_device(self, name: str, saved: str) -> Any:
        """The array of a tensor, on the device where it should be."""
        view = self._views.get(name)
        entry = name if view is None else view.entry
        key = (entry, saved)
        if key not in self._moved:
            self._moved[key] = self._devices.put(self._entries[entry], saved)
        moved = self._moved[key]
        return moved if view is None else seen(moved, view)


class DeviceMap:
    """Which device each loaded tensor goes to, by `map_location`."""

    def __init__(self, map_location: Any) -> None:
        self._map = map_location
        if map_location is not None and not isinstance(map_location, dict):
            if isinstance(map_location, device) or not callable(map_location):
                self._map = as_device(map_location)
        elif isinstance(map_location, dict):
            self._map = {str(k): as_device(v) for k, v in map_location.items()}

    def put(self, array: Any, saved: str = "cpu") -> Any:
        """An array from the file, on the device where a tensor saved there should be."""
        target: Any = self._map
        if isinstance(target, dict):
            target = target.get(saved)
        elif callable(target) and not isinstance(target, device):
            result = target(wrap(array), saved)
            if result is not None:
                return result._array
            target = None
        if target is None:
            target = as_device(saved)
        if target == CPU:
            return array
        try:
            return to_device(np.asarray(array), target)
        except RuntimeError as error:
            raise SavingError(
                f"a tensor was saved on {saved!r}; load(..., map_location='cpu') loads it here "
                f"({error})"
            ) from error
