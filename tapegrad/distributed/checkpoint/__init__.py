"""PyTorch's import path of `save` and `load` for states that are divided among ranks."""

from ...saving.job import (
    FileSystemReader,
    FileSystemWriter,
    async_save,
    load,
    load_state_dict,
    save,
    save_state_dict,
)

__all__ = [
    "FileSystemReader",
    "FileSystemWriter",
    "async_save",
    "load",
    "load_state_dict",
    "save",
    "save_state_dict",
]
