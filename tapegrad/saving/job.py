"""`save` and `load` of one state in a folder, by all ranks of a job: `distributed.checkpoint`.

Comes in: a dict of tensors, plain values, nested dicts, and objects with `state_dict` (models,
optimizers, schedules), and a folder. The folder holds one state: a save replaces it when all files
of the new one are written. `Checkpoint` keeps several states, with metrics and random states.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path as FilePath
from typing import Any, Protocol, runtime_checkable

from ..core.modes import no_grad
from ..core.tensor import Tensor, wrap
from ..distributed.process_group import is_initialized, resolved
from ..distributed.shards import shard_of
from ..ops.collective.group import SELF
from .container import Container
from .errors import SavingError
from .files import contents, opened
from .parts import Path, Piece, access, give_all, put_together, taken_apart
from .sharded import INDEX, ShardedState, agreed, remove_parts, write_sharded

MANIFEST = "manifest.safetensors"


@runtime_checkable
class Stateful(Protocol):
    """An object whose state is a dict, which may hold tensors, dicts and shards."""

    def state_dict(self) -> dict[str, Any]:
        """The state."""

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take a state of the same form."""


class _Folder:
    """A folder, under PyTorch's names."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = FilePath(path)


class FileSystemWriter(_Folder):
    """Where `save` writes: a folder."""


class FileSystemReader(_Folder):
    """Where `load` reads: a folder."""


def save(
    state_dict: dict[str, Any],
    checkpoint_id: Any = None,
    *,
    storage_writer: FileSystemWriter | None = None,
    planner: Any = None,
    process_group: Any = None,
    no_dist: bool = False,
    use_collectives: bool = True,
) -> FilePath:
    """Save a state to the folder `checkpoint_id`; all ranks of the group call it.

    Each rank writes its own shards, and the first rank what all ranks have. When this returns,
    everything is on disk; if it fails or is killed, the folder still holds the previous state. With
    `no_dist` this process saves alone. Returns the path of the manifest.
    """
    group, folder = _group(process_group, no_dist), _folder(checkpoint_id, storage_writer, planner)
    _begin("save", group)
    folder.mkdir(parents=True, exist_ok=True)
    manifest = folder / MANIFEST
    write_sharded(_flat(state_dict, ()), manifest, {}, {}, group)
    if group.rank == 0:
        parts = {str(name) for name, _ in _index(manifest)["parts"]}
        remove_parts(folder, {manifest.stem}, parts)
    return manifest


def async_save(
    state_dict: dict[str, Any],
    checkpoint_id: Any = None,
    *,
    storage_writer: FileSystemWriter | None = None,
    planner: Any = None,
    process_group: Any = None,
    no_dist: bool = False,
) -> Future[FilePath]:
    """As `save`, which is complete on return; returns a future of the manifest's path."""
    done: Future[FilePath] = Future()
    options: dict[str, Any] = {"planner": planner, "process_group": process_group}
    done.set_result(
        save(state_dict, checkpoint_id, storage_writer=storage_writer, no_dist=no_dist, **options)
    )
    return done


def load(
    state_dict: dict[str, Any],
    checkpoint_id: Any = None,
    *,
    storage_reader: FileSystemReader | None = None,
    planner: Any = None,
    process_group: Any = None,
    no_dist: bool = False,
) -> None:
    """Load the state in a folder into the tensors and objects of a dict of the same form.

    Tensors are changed in place, objects load their state, other values in the dict are replaced.
    It does not matter how many ranks saved the state. Every value of `state_dict` must be in it; if
    one is missing, or a file is damaged, all ranks raise, and nothing is changed.
    """
    group, folder = _group(process_group, no_dist), _folder(checkpoint_id, storage_reader, planner)
    _begin("load", group)
    chosen: list[tuple[Any, Any]] = []
    writes: list[Callable[[], Any]] = []
    error: Exception | None = None
    try:
        reader = ShardedState(folder, _index(folder / MANIFEST))
        try:
            _find(state_dict, (), reader, chosen, writes)
        finally:
            reader.close()
    except (SavingError, OSError, RuntimeError) as caught:
        error = caught
    error = agreed(error, group)
    if error is not None:
        raise error
    give_all(chosen, None)
    with no_grad():
        for put in writes:
            put()


def save_state_dict(
    state_dict: dict[str, Any],
    storage_writer: FileSystemWriter,
    process_group: Any = None,
    coordinator_rank: int = 0,
    no_dist: bool = False,
    planner: Any = None,
) -> FilePath:
    """The older name of `save`."""
    warnings.warn("save_state_dict is deprecated; use save", FutureWarning, stacklevel=2)
    options: dict[str, Any] = {"process_group": process_group, "planner": planner}
    return save(state_dict, storage_writer=storage_writer, no_dist=no_dist, **options)


def load_state_dict(
    state_dict: dict[str, Any],
    storage_reader: FileSystemReader,
    process_group: Any = None,
    coordinator_rank: int = 0,
    no_dist: bool = False,
    planner: Any = None,
) -> None:
    """The older name of `load`."""
    warnings.warn("load_state_dict is deprecated; use load", FutureWarning, stacklevel=2)
    options: dict[str, Any] = {"process_group": process_group, "planner": planner}
    load(state_dict, storage_reader=storage_reader, no_dist=no_dist, **options)


def _group(given: Any, alone: bool) -> Any:
    if alone:
        return SELF
    return resolved(given) if given is not None or is_initialized() else SELF


def _begin(what: str, group: Any) -> None:
    """Check that all ranks of the group make the same call."""
    if group is not SELF:
        group.meet(f"distributed.checkpoint.{what}()")


def _folder(checkpoint_id: Any, storage: Any, planner: Any) -> FilePath:
    if planner is not None:
        raise ValueError("shards are saved and loaded by their own plan; leave planner out")
    if storage is not None:
        if not isinstance(storage, _Folder):
            raise TypeError(f"expected FileSystemWriter or FileSystemReader, got {storage!r}")
        if checkpoint_id is None:
            return storage.path
    if not isinstance(checkpoint_id, (str, os.PathLike)):
        raise TypeError(f"checkpoint_id is the path of a folder, got {checkpoint_id!r}")
    return FilePath(checkpoint_id)


def _index(manifest: FilePath) -> Any:
    if not manifest.exists():
        raise SavingError(f"{manifest.parent}: holds no saved state, {manifest.name} is missing")
    with opened(manifest) as source:
        value = contents(Container(source), "cpu")
    if not isinstance(value, dict) or INDEX not in value:
        raise SavingError(f"{manifest}: is no manifest of a saved state")
    return value[INDEX]


def _is_stateful(value: Any) -> bool:
    """Whether an object's class inherits from `Stateful`: its state is a dict like this one."""
    return Stateful in type(value).__mro__


def _is_part(value: Any) -> bool:
    return not isinstance(value, (dict, Tensor)) and access(value) is not None


def _flat(value: Any, path: Path) -> dict[Path, Any]:
    """The values that this rank has, by path."""
    if _is_stateful(value):
        return _flat(value.state_dict(), path)
    if _is_part(value):
        return {(*path, *inner): v for inner, v in taken_apart(value).items()}
    if isinstance(value, dict):
        found: dict[Path, Any] = {}
        for key, inner in value.items():
            found.update(_flat(inner, (*path, key)))
        return found
    if isinstance(value, Tensor):
        shard = shard_of(value)
        return {path: value.detach() if shard is None else Piece(value.detach(), shard)}
    return {path: value}


def _find(value: dict[str, Any], path: Path, reader: Any, chosen: Any, writes: Any) -> None:
    """Read the values that a dict needs, and list how each is to be loaded."""
    for key, inner in value.items():
        place = (*path, key)
        if _is_stateful(inner):
            state = inner.state_dict()
            _find(state, place, reader, chosen, writes)
            writes.append(lambda inner=inner, state=state: inner.load_state_dict(state))
        elif _is_part(inner):
            chosen.append((inner, put_together(inner, reader, place)))
        elif isinstance(inner, dict):
            _find(inner, place, reader, chosen, writes)
        elif isinstance(inner, Tensor):
            writes.append(_copying(inner, place, reader))
        else:
            found = reader.value(place)
            writes.append(lambda key=key, found=found: value.__setitem__(key, found))


def _copying(tensor: Tensor, place: Path, reader: Any) -> Callable[[], Any]:
    shard = shard_of(tensor)
    whole = tuple(tensor.shape) if shard is None else shard.shape
    if reader.shape(place) != whole:
        raise RuntimeError(
            f"{'.'.join(map(str, place))} was saved with shape {reader.shape(place)}, and is "
            f"needed with {whole}; nothing was changed"
        )
    found = (
        reader.value(place)
        if shard is None
        else wrap(reader.elements(place, shard.start, shard.stop))
    )
    return lambda: tensor.detach().copy_(found)
