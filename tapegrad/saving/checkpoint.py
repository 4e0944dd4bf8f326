"""Checkpoint: the whole state of a training in a folder, to resume after an interruption.

Comes in: a folder and the parts of a training (model, optimizer, schedule, scaler, loader, random
generators). `save(step)` writes one file with the state of all of them and removes old files.
`restore()` sets all of them to the latest complete file, or changes nothing. In a job all ranks
take part, and each writes a file with the state that only it has (`sharded.py`). Called by users.
"""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..distributed.objects import broadcast_object_list
from ..distributed.process_group import is_initialized, resolved
from . import atomic
from .container import Container
from .errors import SavingError
from .files import contents, laid_out, opened, write
from .parts import (
    access,
    belongs_to_rank,
    give_all,
    joined,
    put_together,
    random_state,
    split,
    state_of,
    taken_apart,
)
from .sharded import (
    INDEX,
    LoadedState,
    ShardedState,
    agreed,
    manifests_of_parts,
    remove_parts,
    write_sharded,
)

_NAME = re.compile(r"checkpoint-(\d{6,12})-step-(\d{1,18})\.safetensors")


#: the name in a file for everything that is not the state of a part
_ABOUT = "checkpoint"
_DESCRIPTION = "tapegrad.checkpoint"
#: first item of the paths of one rank's own values: ("", rank, name)
_OF_RANK = ""


class Saved(NamedTuple):
    """One saved state: the step and the metrics that `save` was given, and its file.

    `extra` is set only by `restore`: listing a folder does not read that far.
    """

    step: int
    metrics: dict[str, float]
    path: Path
    extra: Any = None


class _File(NamedTuple):
    """A file of a folder: what its name tells, comparable by the order of writing."""

    sequence: int
    step: int
    path: Path


class _Contents(NamedTuple):
    """What a file and its part files hold, for one rank."""

    about: dict[str, Any]
    names: set[str]
    reader: ShardedState | LoadedState
    rank: int


class Checkpoint:
    """Saves a training to a folder, keeps the last few states, and restores the latest.

    >>> import tempfile, tapegrad
    >>> model = tapegrad.nn.Linear(2, 1)
    >>> optimizer = tapegrad.optim.AdamW(model.parameters())
    >>> folder = tempfile.mkdtemp()
    >>> checkpoint = tapegrad.Checkpoint(folder, keep=2, model=model, optimizer=optimizer)
    >>> saved = checkpoint.restore()  # None: nothing was saved yet
    >>> for step in range(saved.step + 1 if saved else 0, 4):
    ...     file = checkpoint.save(step, loss=0.5 / (step + 1))
    >>> [saved.step for saved in checkpoint], checkpoint.restore().step
    ([2, 3], 3)
    """

    def __init__(
        self,
        directory: Any,
        keep: int | None = 3,
        *,
        best: str | None = None,
        mode: str = "min",
        random_state: bool = True,
        distributed: bool = True,
        **parts: Any,
    ) -> None:
        """`parts` are the objects to save, by names of your choice.

        A part has `state_dict` and `load_state_dict`, or is a random generator of tapegrad, NumPy
        or Python. The last `keep` states are kept (None: all). With `best="loss"` the state with
        the smallest (`mode="max"`: the largest) metric of that name is kept too. Unless
        `random_state=False`, the global random states of tapegrad, NumPy and Python are saved too.

        After `distributed.init_process_group()` all ranks call `save` and `restore`. A sharded
        model or optimizer is saved by all of them, and can be restored by another number of ranks;
        the first rank saves what all ranks have. With `distributed=False` this process saves alone.
        """
        if keep is not None and (not isinstance(keep, int) or keep < 1):
            raise ValueError(f"keep is the number of states to keep, 1 or more, got {keep!r}")
        if mode not in ("min", "max"):
            raise ValueError(f"mode must be 'min' or 'max', got {mode!r}")
        for name, part in parts.items():
            if name == _ABOUT:
                raise ValueError(
                    f"{name!r} is the name of what a file says of itself; take another"
                )
            if access(part) is None:
                raise TypeError(
                    f"{name} has no state_dict() and load_state_dict(), and is no random "
                    f"generator: {type(part).__name__}"
                )
        self.directory = Path(directory)
        self.keep = keep
        self.metric = best
        self.mode = mode
        self.parts = dict(parts)
        self._saves_random_state = random_state
        self._distributed = distributed
        self.directory.mkdir(parents=True, exist_ok=True)
        atomic.remove_leftovers(self.directory)

    # -- saving --------------------------------------------------------------------------------

    def save(self, step: int, *, extra: Any = None, **metrics: Any) -> Path:
        """Save the state of all parts as that of `step`, with metrics; returns the file.

        `extra` is anything that `tapegrad.save` takes. When this returns, the file is on disk; if
        it fails, the previous states are still there.
        """
        if isinstance(step, bool) or not isinstance(step, (int, np.integer)) or step < 0:
            raise ValueError(f"step is a number of steps, 0 or more, got {step!r}")
        step = int(step)
        values = {name: float(value) for name, value in metrics.items()}
        if self.metric is not None and self.metric not in values:
            raise ValueError(
                f"the best states are kept by {self.metric!r}: save(step, {self.metric}=...)"
            )
        about: dict[str, Any] = {"step": step, "metrics": values, "extra": extra}
        described = {_DESCRIPTION: _described(step, values)}
        group = self._group()
        if group is not None:
            group.meet(f"Checkpoint.save(step {step})")
        files = self._files()
        if files and (group is None or group.rank == 0):
            # left by a process that was killed between saving and removing
            self._remove_old(files[-1], files[:-1])
        sequence = files[-1].sequence + 1 if files else 1
        path = self.directory / f"checkpoint-{sequence:06d}-step-{step}.safetensors"
        if group is not None:
            return self._save_together(path, about, described, group)
        if self._saves_random_state:
            about["random"] = random_state()
        state = {name: state_of(part) for name, part in self.parts.items()}
        write(laid_out({**state, _ABOUT: about}, described), str(path))
        self._remove_old(_File(sequence, step, path), self._files()[:-1])
        return path

    def _save_together(
        self, path: Path, about: dict[str, Any], described: dict[str, str], group: Any
    ) -> Path:
        """Save together: the first rank chooses the name and removes old files."""
        chosen = [path.name]
        broadcast_object_list(chosen, group=group, group_src=0)
        path = self.directory / chosen[0]
        state: dict[tuple[Any, ...], Any] = {}
        for name, part in self.parts.items():
            if belongs_to_rank(part):
                state[_OF_RANK, group.rank, name] = state_of(part)
            else:
                state.update({(name, *inner): v for inner, v in taken_apart(part).items()})
        if self._saves_random_state:
            state[_OF_RANK, group.rank, _ABOUT] = random_state()
        write_sharded(state, path, {_ABOUT: about}, described, group)
        if group.rank == 0:
            files = self._files()
            (newest,) = [file for file in files if file.path == path]
            self._remove_old(newest, [file for file in files if file.path != path])
            kept = {file.path.stem for file in self._files()}
            # left by interrupted saves
            remove_parts(self.directory, manifests_of_parts(self.directory) - kept)
        return path

    def _group(self) -> Any:
        """The ranks that save together; None for this process alone."""
        return resolved(None) if self._distributed and is_initialized() else None

    def _remove_old(self, newest: _File, others: list[_File]) -> None:
        """Delete the files that are no longer kept, and older files of the same step."""
        same = [file for file in others if file.step == newest.step and file.path != newest.path]
        files = [file for file in others if file.step != newest.step] + [newest]
        old = [] if self.keep is None else files[: -self.keep]
        if old and self.metric is not None:
            best = self._best_of(files)
            old = [file for file in old if best is None or file.path != best.path]
        for file in [*same, *old]:
            file.path.unlink(missing_ok=True)
        remove_parts(self.directory, {file.path.stem for file in (*same, *old)})

    # -- what is there -------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Saved]:
        """The saved states, oldest first; damaged files are skipped with a warning."""
        for file in self._files():
            saved = self._saved(file)
            if saved is not None:
                yield saved

    def __len__(self) -> int:
        return len(self._files())

    def latest(self) -> Saved | None:
        """The state that was saved last, or None."""
        for file in reversed(self._files()):
            saved = self._saved(file)
            if saved is not None:
                return saved
        return None

    def best(self) -> Saved | None:
        """The state with the best metric among the saved ones, or None."""
        if self.metric is None:
            raise ValueError("say by which metric: Checkpoint(..., best='loss')")
        return self._best_of(self._files())

    def _best_of(self, files: list[_File]) -> Saved | None:
        sign = 1 if self.mode == "min" else -1
        found, least = None, float("inf")
        for file in files:
            saved = self._saved(file)
            value = None if saved is None else saved.metrics.get(str(self.metric))
            if value is not None and sign * value <= least:  # never a NaN
                found, least = saved, sign * value
        return found

    def _files(self) -> list[_File]:
        """The files of the folder, in the order in which they were written."""
        paths = (path for path in self.directory.iterdir() if _NAME.fullmatch(path.name))
        return sorted(map(_file, paths))

    def _saved(self, file: _File) -> Saved | None:
        """The saved state that a file's header describes; its tensors are not read."""
        try:
            with opened(file.path) as source:
                return _saved(Container(source), file.path)
        except FileNotFoundError:  # another process removed it
            return None
        except (SavingError, OSError) as error:
            warnings.warn(f"left out a checkpoint that cannot be read: {error}", stacklevel=3)
            return None

    # -- restoring -----------------------------------------------------------------------------

    def load(self, step: int | None = None, *, skip_damaged: bool = True) -> dict[str, Any] | None:
        """The saved state itself, of the latest or of the given step; nothing is changed.

        A dict with the state of each part by its name, on the CPU, and under "checkpoint" a dict
        with "step", "metrics", "extra", "random" and "path". None if nothing was saved yet.
        """

        def whole(contents: _Contents) -> dict[str, Any]:
            states = {name: self._whole(name, contents) for name in contents.names}
            return {**states, _ABOUT: {**contents.about, "random": self._random_of(contents)}}

        found: dict[str, Any] | None = self._from_newest("load", whole, step, skip_damaged)
        return found

    def restore(
        self, step: int | None = None, *, strict: bool = True, skip_damaged: bool = True
    ) -> Saved | None:
        """Set all parts to the latest saved state, or to that of `step`.

        Returns None if nothing was saved yet. A damaged file is skipped with a warning that names
        it, unless `skip_damaged=False`. The file must hold the same parts as this object; with
        `strict=False`, the parts in both are restored. If anything fails, all parts are unchanged.
        """

        def needed(contents: _Contents) -> tuple[Any, ...]:
            chosen = [
                (part, self._needed(name, part, contents))
                for name, part in self.parts.items()
                if name in contents.names
            ]
            return contents.about, contents.names, chosen, self._random_of(contents)

        found = self._from_newest("restore", needed, step, skip_damaged)
        if found is None:
            return None
        about, names, chosen, randomness = found
        if strict and names != set(self.parts):
            raise SavingError(
                f"{about['path']}: holds {sorted(names)}, and this Checkpoint has "
                f"{sorted(self.parts)}; restore(strict=False) restores what is in both"
            )
        give_all(chosen, randomness if self._saves_random_state else None)
        return Saved(about["step"], about["metrics"], about["path"], about["extra"])

    def _from_newest(
        self, what: str, use: Callable[[_Contents], Any], step: int | None, skip_damaged: bool
    ) -> Any:
        """Apply a function to the newest file (of a step) that all ranks can read."""
        group = self._group()
        if group is not None:
            group.meet(f"Checkpoint.{what}({'' if step is None else f'step {step}'})")
        files = self._files()
        if group is not None:
            names = [[file.path.name for file in files]]
            broadcast_object_list(names, group=group, group_src=0)
            files = [_file(self.directory / name) for name in names[0]]
        if step is not None:
            steps = [file.step for file in files]
            files = [file for file in files if file.step == step]
            if not files:
                raise FileNotFoundError(
                    f"{self.directory} has no checkpoint of step {step}; it has {steps}"
                )
        damaged: list[str] = []
        for file in reversed(files):
            error: Exception | None = None
            result = None
            try:
                result = self._used(use, file, 0 if group is None else group.rank)
            except (SavingError, OSError) as caught:
                error = caught
            error = agreed(error, group)
            if error is None:
                for text in damaged:
                    warnings.warn(
                        f"a checkpoint is damaged, going back to step {file.step}: {text}",
                        stacklevel=4,
                    )
                return result
            if step is not None or not skip_damaged:
                raise error
            damaged.append(str(error))
        if damaged:
            raise SavingError("no checkpoint can be read:\n  " + "\n  ".join(damaged))
        return None

    def _used(self, use: Callable[[_Contents], Any], file: _File, rank: int) -> Any:
        value = _read(file)
        about = value.pop(_ABOUT)
        reader: ShardedState | LoadedState
        if INDEX in value:
            reader = ShardedState(self.directory, value[INDEX])
        else:
            reader = LoadedState(
                {
                    (name, *path): inner
                    for name, state in value.items()
                    for path, inner in split(state, self.parts.get(name)).items()
                }
            )
        paths = reader.paths(())
        names = {path[2] if path[0] == _OF_RANK else path[0] for path in paths} - {_ABOUT}
        try:
            return use(_Contents(about, names, reader, rank))
        finally:
            reader.close()

    def _whole(self, name: str, contents: _Contents) -> Any:
        """The whole state of a part; if each rank has its own, this rank's."""
        reader = contents.reader
        own = (_OF_RANK, contents.rank % reader.world_size, name)
        if reader.paths(own):
            return reader.value(own)
        return joined({path: reader.value((name, *path)) for path in reader.paths((name,))})

    def _needed(self, name: str, part: Any, contents: _Contents) -> Any:
        """The state that this rank's part takes."""
        if belongs_to_rank(part):
            return self._whole(name, contents)
        return put_together(part, contents.reader, (name,))

    def _random_of(self, contents: _Contents) -> Any:
        """This rank's random state, if a rank with its number saved one."""
        own = (_OF_RANK, contents.rank, _ABOUT)
        if contents.reader.paths(own):
            return contents.reader.value(own)
        return contents.about.get("random")

    def __repr__(self) -> str:
        return f"Checkpoint({str(self.directory)!r}, keep={self.keep}, {', '.join(self.parts)})"


def _file(path: Path) -> _File:
    match = _NAME.fullmatch(path.name)
    assert match is not None
    return _File(int(match[1]), int(match[2]), path)


def _read(file: _File) -> dict[str, Any]:
    with opened(file.path) as source:
        value = contents(Container(source), "cpu")
    kinds = {"step": int, "metrics": dict, "extra": object}
    about = value.get(_ABOUT) if isinstance(value, dict) else None
    if not isinstance(about, dict) or not all(
        key in about and isinstance(about[key], kind) for key, kind in kinds.items()
    ):
        raise SavingError(f"{file.path}: was not saved by a Checkpoint")
    return {**value, _ABOUT: {**about, "path": file.path}}


def _described(step: int, metrics: dict[str, float]) -> str:
    """Step and metrics as text for the header."""
    return json.dumps({"step": step, "metrics": {k: v.hex() for k, v in metrics.items()}})


def _saved(container: Container, path: Path) -> Saved:
    """The saved state in a header that `_described` wrote."""
    try:
        about = json.loads(container.metadata[_DESCRIPTION])
        metrics = {str(k): float.fromhex(v) for k, v in about["metrics"].items()}
        return Saved(int(about["step"]), metrics, path)
    except (KeyError, TypeError, ValueError, AttributeError):
        raise SavingError(f"{path}: was not saved by a Checkpoint") from None
