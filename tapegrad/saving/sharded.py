"""Files of a job: each rank writes a part file with its own values, the first rank a manifest.

Comes in: on each rank a flat dict from paths to values and `Piece`s (`parts.py`). If several ranks
have a value, the first of them writes it. The manifest is written last, lists the values and pieces
in each part file, and names the part files with the checksums of their headers, which hold those of
their tensors. So a state is complete or absent. `ShardedState` reads it, in any number of
processes. Called by `checkpoint.py` and `job.py`.
"""

from __future__ import annotations

import json
import math
import os
import re
import secrets
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path as FilePath
from typing import Any

import numpy as np

from ..core.tensor import Tensor, wrap
from ..distributed.objects import all_gather_object, broadcast_object_list
from .container import Container, FileSource
from .errors import SavingError
from .files import SavedItems, laid_out, write
from .parts import Path, Piece

#: the name in a manifest for the list of what the part files hold
INDEX = "tapegrad.index"
_CHECK = "tapegrad.check"
_PART = re.compile(r"(.+)\.[0-9a-f]{12}\.part-\d+-of-\d+\.safetensors")


# -- writing -------------------------------------------------------------------------------------


def write_sharded(
    state: Mapping[Path, Any],
    manifest: FilePath,
    more: Mapping[str, Any],
    described: dict[str, str],
    group: Any,
) -> None:
    """Write the files of one state; all ranks of a group call it, each with its own values.

    `more` goes into the manifest, `described` into its header. If anything fails, all ranks raise,
    and the old manifest is unchanged.
    """
    names = {json.dumps(path): path for path in state}
    mine = {name: _shard_of(state[path]) for name, path in names.items()}
    everything: list[dict[str, Any]] = [{}] * group.size
    all_gather_object(everything, mine, group)
    index = _indexed(everything)
    token = [secrets.token_hex(6)]
    broadcast_object_list(token, group=group, group_src=0)
    files = [
        f"{manifest.stem}.{token[0]}.part-{rank}-of-{group.size}.safetensors"
        for rank in range(group.size)
    ]
    own = manifest.parent / files[group.rank]

    def write_part() -> str:
        items = {}
        for name, path in names.items():
            value = state[path]
            if isinstance(value, Piece):
                if value.shard.stop > value.shard.start:
                    items[name] = value.tensor
            elif index[name]["part"] == group.rank:
                items[name] = value
        write(laid_out(items), str(own))
        return _check_of(own)

    def write_manifest() -> str:
        if group.rank == 0:
            parts = [list(pair) for pair in zip(files, checks, strict=True)]
            content = {**more, INDEX: {"parts": parts, "values": index}}
            write(laid_out(content, described), str(manifest))
        return ""

    try:
        checks = _together(write_part, group)
        _together(write_manifest, group)
    except BaseException:
        with suppress(OSError):
            own.unlink(missing_ok=True)
        raise


def _shard_of(value: Any) -> Any:
    if not isinstance(value, Piece):
        return None
    return value.shard.shape, value.shard.start, value.shard.stop


def _indexed(everything: list[dict[str, Any]]) -> dict[str, Any]:
    """Map each value to the part file that holds it, and each whole tensor to its pieces."""
    index: dict[str, Any] = {}
    for rank, has in enumerate(everything):
        for name, shard in has.items():
            if shard is None:
                index.setdefault(name, {"part": rank})
                continue
            shape, start, stop = shard
            entry = index.setdefault(name, {"shape": list(shape), "pieces": []})
            if stop > start:
                entry["pieces"].append([rank, start, stop])
    return index


def _check_of(path: FilePath) -> str:
    """The checksum in the header of a file that was just written."""
    source = FileSource(str(path))
    try:
        return Container(source).metadata[_CHECK]
    finally:
        source.close()


def _together(function: Callable[[], str], group: Any) -> list[str]:
    """The results of a function on all ranks; if it fails on one, all of them raise."""
    error: BaseException | None = None
    said: tuple[bool, str]
    try:
        said = (True, function())
    except Exception as caught:
        error, said = caught, (False, f"{type(caught).__name__}: {caught}")
    answers: list[Any] = [None] * group.size
    all_gather_object(answers, said, group)
    for rank, (is_well, text) in enumerate(answers):
        if not is_well:
            reason = f"rank {rank} could not save its part, so nothing was saved: {text}"
            raise SavingError(reason) from error
    return [text for _, text in answers]


def agreed(error: Exception | None, group: Any) -> Exception | None:
    """The error of the first rank that has one, on all ranks; None if no rank has one."""
    if group is None:
        return error
    answers: list[Any] = [None] * group.size
    all_gather_object(answers, None if error is None else str(error), group)
    found = next((f"rank {r}: {text}" for r, text in enumerate(answers) if text is not None), None)
    if found is None:
        return None
    return error if error is not None else SavingError(found)


def remove_parts(folder: FilePath, manifests: set[str], but: set[str] | None = None) -> None:
    """Delete the part files of `manifests`, named without their suffix, except those in `but`."""
    if not manifests:
        return
    for path in folder.iterdir():
        match = _PART.fullmatch(path.name)
        if match and match[1] in manifests and path.name not in (but or ()):
            path.unlink(missing_ok=True)


def manifests_of_parts(folder: FilePath) -> set[str]:
    """The names, without suffix, of the manifests that a folder's part files belong to."""
    found = (_PART.fullmatch(path.name) for path in folder.iterdir())
    return {match[1] for match in found if match}


# -- reading -------------------------------------------------------------------------------------


class ShardedState:
    """The state in a manifest and its part files; values are read on request."""

    def __init__(self, folder: FilePath, index: Any) -> None:
        try:
            self._files = [(folder / str(name), str(check)) for name, check in index["parts"]]
            self._entries = {
                tuple(json.loads(name)): (name, entry) for name, entry in index["values"].items()
            }
        except (KeyError, TypeError, ValueError) as error:
            raise SavingError(f"{folder}: the manifest of a saved state is damaged") from error
        self._open: dict[int, tuple[FileSource, SavedItems]] = {}

    @property
    def world_size(self) -> int:
        """How many ranks have saved it."""
        return len(self._files)

    def close(self) -> None:
        """Close the part files that were read."""
        for source, _ in self._open.values():
            source.close()
        self._open.clear()

    def paths(self, prefix: Path) -> list[Path]:
        size = len(prefix)
        return [path[size:] for path in self._entries if path[:size] == prefix]

    def _items(self, part: int) -> SavedItems:
        if part not in self._open:
            if not 0 <= part < len(self._files):
                raise SavingError(f"a manifest names part {part} of {len(self._files)}")
            path, check = self._files[part]
            if not path.exists():
                raise SavingError(f"{path}: is missing, and the manifest needs it")
            source = FileSource(os.fspath(path))
            try:
                container = Container(source)
                if container.metadata.get(_CHECK) != check:
                    raise SavingError(f"{path}: belongs to another manifest")
                self._open[part] = (source, SavedItems(container))
            except BaseException:
                source.close()
                raise
        return self._open[part][1]

    def _entry(self, path: Path) -> tuple[str, Any]:
        if path not in self._entries:
            raise SavingError(f"the saved state has no {path}")
        return self._entries[path]

    def value(self, path: Path) -> Any:
        name, entry = self._entry(path)
        if "pieces" not in entry:
            return self._items(entry["part"])[name]
        shape = tuple(entry["shape"])
        return wrap(self.elements(path, 0, math.prod(shape)).reshape(shape))

    def shape(self, path: Path) -> tuple[int, ...] | None:
        _, entry = self._entry(path)
        if "pieces" in entry:
            return tuple(entry["shape"])
        value = self.value(path)
        return tuple(value.shape) if isinstance(value, Tensor) else None

    def elements(self, path: Path, start: int, stop: int) -> Any:
        name, entry = self._entry(path)
        if "pieces" not in entry:
            return self.value(path)._array.reshape(-1)[start:stop].copy()
        found = []
        at = start
        pieces = sorted(entry["pieces"], key=lambda piece: piece[1])
        for part, first, last in pieces:
            if last <= at or first >= stop:
                continue
            array = self._items(part)[name]._array
            if first > at or array.shape != (last - first,):
                break
            found.append(array[at - first : min(stop, last) - first])
            at = min(stop, last)
        if at < stop:
            raise SavingError(f"elements {at} to {stop} of {path} are in no part file")
        if not found:  # no elements are wanted, only the dtype
            part = pieces[0][0] if pieces else None
            dtype = np.float32 if part is None else self._items(part)[name]._array.dtype
            return np.empty(0, dtype)
        return np.concatenate(found)


class LoadedState:
    """A state that one process saved in one file, already in memory."""

    world_size = 1

    def __init__(self, values: Mapping[Path, Any]) -> None:
        self._values = values

    def close(self) -> None:
        """Nothing is open."""

    def paths(self, prefix: Path) -> list[Path]:
        size = len(prefix)
        return [path[size:] for path in self._values if path[:size] == prefix]

    def value(self, path: Path) -> Any:
        if path not in self._values:
            raise SavingError(f"the saved state has no {path}")
        return self._values[path]

    def shape(self, path: Path) -> tuple[int, ...] | None:
        value = self.value(path)
        return tuple(value.shape) if isinstance(value, Tensor) else None

    def elements(self, path: Path, start: int, stop: int) -> Any:
        return self.value(path)._array.reshape(-1)[start:stop].copy()
