"""`torch.save` and `torch.load` in PyTorch's own format.

`save` writes the file that PyTorch would write: a zip archive with a pickle. Without
`weights_only=False`, `load` runs no code of a file except what `add_safe_globals` allows.
"""

from __future__ import annotations

import importlib
import io
import os
import pickle
from collections.abc import Callable
from typing import IO, Any

from ...core.layouts import LAYOUTS, layout
from ...saving.allowed import get_safe_globals, safe_global
from ...saving.errors import SavingError
from ...saving.files import DeviceMap, opened, write_file
from ...saving.files import load as load_plain
from ...saving.pytorch import Archive
from ..zip_format import STORAGE_NAMES, PickleReader, write_zip

FILE_LIKE = str | os.PathLike[str] | IO[bytes]
MAP_LOCATION = Any
DEFAULT_PROTOCOL = 2


class SourceChangeWarning(Warning):
    """A warning category that scripts filter out; it is never used here."""


def save(
    obj: Any,
    f: FILE_LIKE,
    pickle_module: Any = pickle,
    pickle_protocol: int = DEFAULT_PROTOCOL,
    _use_new_zipfile_serialization: bool = True,
    _disable_byteorder_record: bool = False,
) -> None:
    """Save a value as `torch.save` does; PyTorch can read tensors and plain containers in it."""
    if not _use_new_zipfile_serialization:
        raise NotImplementedError(
            "torch.save writes zip archives alone; leave out _use_new_zipfile_serialization=False"
        )
    if isinstance(f, (str, os.PathLike)):
        write_file(os.fspath(f), lambda file: write_zip(obj, file, pickle_protocol))
        return
    if not hasattr(f, "write"):
        raise AttributeError(f"expected a path or an open file, got {type(f).__name__}")
    memory = io.BytesIO()  # such a file may not support tell()
    write_zip(obj, memory, pickle_protocol)
    f.write(memory.getbuffer())


def load(
    f: FILE_LIKE,
    map_location: MAP_LOCATION = None,
    pickle_module: Any = None,
    *,
    weights_only: bool | None = None,
    mmap: bool | None = None,
    **pickle_load_args: Any,
) -> Any:
    """Load a file in the format of PyTorch or tapegrad.

    `weights_only=False` runs the pickle in a file of PyTorch, including any code in it: use it only
    for files that you trust. Otherwise a file may hold only tensors, plain values, and what
    `add_safe_globals` allows.
    """
    if weights_only is None:
        forced = os.environ.get("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "0") in (
            "1",
            "y",
            "yes",
            "true",
        )
        weights_only = not forced
    if weights_only and not get_safe_globals():
        return load_plain(f, map_location, mmap=mmap)
    with opened(f) as source:
        if not source.read(0, min(source.size, 4)).startswith(b"PK\x03\x04"):
            raw = io.BytesIO(source.read(0, source.size))
            return load_plain(raw, map_location, weights_only=weights_only)
        find = _find_safe if weights_only else None
        devices = DeviceMap(map_location)
        return PickleReader(Archive(source), devices, find, pickle_load_args).load()


#: names that files may always use: those that tensors and plain containers need
_ALWAYS = {
    *(("torch._utils", name) for name in ("_rebuild_tensor_v2", "_rebuild_tensor")),
    *(("torch._utils", f"_rebuild_parameter{end}") for end in ("", "_with_state")),
    *(("torch", name) for name in ("Size", "device", *STORAGE_NAMES, *STORAGE_NAMES.values())),
    *(("torch.storage", "UntypedStorage"), ("torch.serialization", "_get_layout")),
    *(("collections", "OrderedDict"), ("collections", "Counter"), ("_codecs", "encode")),
    *(("builtins", name) for name in ("set", "frozenset", "complex", "bytearray")),
}


def _find_safe(module: str, name: str) -> Any:
    module = module.replace("__builtin__", "builtins")
    found = safe_global(f"{module}.{name}")
    if found is not None:
        return found
    if (module, name) not in _ALWAYS:
        raise SavingError(
            f"the file names {module}.{name}, which is not allowed; if you trust it, say "
            f"torch.serialization.add_safe_globals([{name}]) or load(..., weights_only=False)"
        )
    return getattr(importlib.import_module(module), name)


def _get_layout(name: str) -> layout:
    return LAYOUTS[name.rpartition(".")[2]]


_get_layout.__module__ = "torch.serialization"  # the name in pickles


def default_restore_location(storage: Any, location: str) -> Any:
    """Move a storage to a device given by name, in a `map_location` function."""
    return storage.to(location)


def register_package(priority: int, tagger: Callable[..., Any], deserializer: Any) -> None:
    """Raises: storages exist only on the CPU and on CUDA devices."""
    raise NotImplementedError(
        "torch.serialization.register_package does not exist in tapegrad; use map_location"
    )
