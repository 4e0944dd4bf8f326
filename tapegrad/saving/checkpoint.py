"""Checkpoint: the whole state of a training in a folder, to resume after an interruption.

Comes in: a folder and the parts of a training (model, optimizer, schedule, scaler, loader, random
generators). `save(step)` writes one file with the state of all of them and removes old files.
`restore()` sets all of them to the latest complete file, or changes nothing. Called by users.
"""

from __future__ import annotations

import copy
import json
import random
import re
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..random import default_generator
from . import atomic
from .container import Container
from .errors import SavingError
from .files import contents, laid_out, opened, write

_NAME = re.compile(r"checkpoint-(\d{6,12})-step-(\d{1,18})\.safetensors")


#: the name in a file for what is not the state of a part
_ABOUT = "checkpoint"
_DESCRIPTION = "tapegrad.checkpoint"


class Saved(NamedTuple):
    """One saved state: the step and the metrics that `save` was given, and its file.

    `restore` also gives the `extra`; whoever only looks through the folder does not read that far.
    """

    step: int
    metrics: dict[str, float]
    path: Path
    extra: Any = None


class _File(NamedTuple):
    """A file of a folder by what its name says, in the order in which they were written."""

    sequence: int
    step: int
    path: Path


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
        **parts: Any,
    ) -> None:
        """`parts` are the objects to save, by names of your choice.

        A part has `state_dict` and `load_state_dict`, or is a random generator of tapegrad, NumPy
        or Python. The last `keep` states are kept (None: all). With `best="loss"` the one with
        the smallest (`mode="max"`: the largest) metric of that name is kept besides. Unless
        `random_state=False`, the global random states of tapegrad, NumPy and Python are saved too.
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
            if _access(part) is None:
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
        self.directory.mkdir(parents=True, exist_ok=True)
        atomic.remove_leftovers(self.directory)

    # -- saving --------------------------------------------------------------------------------

    def save(self, step: int, *, extra: Any = None, **metrics: Any) -> Path:
        """Save the state of all parts as that of `step`, with metrics; returns the file.

        `extra` is anything that `tapegrad.save` takes. When this returns, the file is on the disk;
        if it fails, all that was saved before is still there.
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
        if self._saves_random_state:
            about["random"] = _random_state()
        state = {name: _state_of(part) for name, part in self.parts.items()}
        layout = laid_out({**state, _ABOUT: about}, {_DESCRIPTION: _described(step, values)})
        files = self._files()
        sequence = files[-1].sequence + 1 if files else 1
        path = self.directory / f"checkpoint-{sequence:06d}-step-{step}.safetensors"
        write(layout, str(path))
        self._remove_old(_File(sequence, step, path), files)
        return path

    def _remove_old(self, newest: _File, others: list[_File]) -> None:
        """Delete what is not among the last ones, and older files of the same step."""
        same = [file for file in others if file.step == newest.step and file.path != newest.path]
        files = [file for file in others if file.step != newest.step] + [newest]
        old = [] if self.keep is None else files[: -self.keep]
        if old and self.metric is not None:
            best = self._best_of(files)
            old = [file for file in old if best is None or file.path != best.path]
        for file in [*same, *old]:
            file.path.unlink(missing_ok=True)

    # -- what is there -------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Saved]:
        """The saved states, oldest first; damaged files are left out with a warning."""
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
        """The state with the best metric among those that are there, or None."""
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
        found = []
        for path in self.directory.iterdir():
            match = _NAME.fullmatch(path.name)
            if match:
                found.append(_File(int(match[1]), int(match[2]), path))
        return sorted(found)

    def _saved(self, file: _File) -> Saved | None:
        """What the header of a file says, without reading its tensors."""
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
        files = self._files()
        if step is not None:
            files = [file for file in files if file.step == step]
            if not files:
                raise FileNotFoundError(
                    f"{self.directory} has no checkpoint of step {step}; "
                    f"it has {[file.step for file in self._files()]}"
                )
        damaged: list[str] = []
        for file in reversed(files):
            try:
                value = _read(file)
            except (SavingError, OSError) as error:
                if step is not None or not skip_damaged:
                    raise
                damaged.append(str(error))
                continue
            for text in damaged:
                warnings.warn(
                    f"a checkpoint is damaged, going back to step {file.step}: {text}", stacklevel=3
                )
            return value
        if damaged:
            raise SavingError("no checkpoint can be read:\n  " + "\n  ".join(damaged))
        return None

    def restore(
        self, step: int | None = None, *, strict: bool = True, skip_damaged: bool = True
    ) -> Saved | None:
        """Bring all parts back to the latest saved state, or to that of `step`.

        Returns None if nothing was saved yet. A damaged file is left out with a warning that names
        it, unless `skip_damaged=False`. The file must hold the same parts as this object; with
        `strict=False`, those in both are restored. If anything fails, all parts are as they were.
        """
        value = self.load(step, skip_damaged=skip_damaged)
        if value is None:
            return None
        about = value.pop(_ABOUT)
        if strict and set(value) != set(self.parts):
            raise SavingError(
                f"{about['path']}: holds {sorted(value)}, and this Checkpoint has "
                f"{sorted(self.parts)}; restore(strict=False) restores what is in both"
            )
        chosen = [(part, value[name]) for name, part in self.parts.items() if name in value]
        _apply(chosen, about.get("random") if self._saves_random_state else None)
        return Saved(about["step"], about["metrics"], about["path"], about["extra"])

    def __repr__(self) -> str:
        return f"Checkpoint({str(self.directory)!r}, keep={self.keep}, {', '.join(self.parts)})"


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
    """What a header says that `_described` has written."""
    try:
        about = json.loads(container.metadata[_DESCRIPTION])
        metrics = {str(k): float.fromhex(v) for k, v in about["metrics"].items()}
        return Saved(int(about["step"]), metrics, path)
    except (KeyError, TypeError, ValueError, AttributeError):
        raise SavingError(f"{path}: was not saved by a Checkpoint") from None


# -- the state of a part -------------------------------------------------------------------------


def _access(part: Any) -> tuple[str, str] | None:
    """The names of the methods that give and take the state of a part."""
    pairs = (
        ("state_dict", "load_state_dict"),
        ("get_state", "set_state"),
        ("getstate", "setstate"),
    )
    for pair in pairs:
        if all(callable(getattr(part, name, None)) for name in pair):
            return pair
    return ("state", "state") if isinstance(part, np.random.Generator) else None


def _state_of(part: Any) -> Any:
    if isinstance(part, np.random.Generator):
        return part.bit_generator.state
    access = _access(part)
    assert access is not None
    return getattr(part, access[0])()


def _give(part: Any, state: Any) -> None:
    if isinstance(part, np.random.Generator):
        part.bit_generator.state = state
        return
    access = _access(part)
    assert access is not None
    getattr(part, access[1])(state)


def _random_state() -> dict[str, Any]:
    return {
        "tapegrad": default_generator.get_state(),
        "numpy": np.random.get_state(legacy=False),
        "python": random.getstate(),
    }


def _give_random_state(state: Mapping[str, Any]) -> None:
    default_generator.set_state(state["tapegrad"])
    np.random.set_state(state["numpy"])
    random.setstate(state["python"])


def _apply(chosen: list[tuple[Any, Any]], random_state: Any) -> None:
    """Give every part its state; if one refuses, give all of them back what they had."""
    before = [(part, copy.deepcopy(_state_of(part))) for part, _ in chosen]
    randomness = _random_state()
    try:
        for part, state in chosen:
            _give(part, state)
        if random_state is not None:
            _give_random_state(random_state)
    except BaseException:
        for part, state in before:
            _give(part, state)
        _give_random_state(randomness)
        raise
