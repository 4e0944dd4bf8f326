"""In-place updates of tensors as programs, outside of compiled functions.

Comes in: a function without results that changes existing tensors, such as an optimizer's step.
Goes out: the changed tensors. The function is recorded once and the recorded run is undone; then
that call and all later ones are replayed, so a run repeats bit for bit. Called by
`optim/optimizer.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...core import numeric
from ...core.arrays import is_gpu_class
from ...core.device import CPU, device_of
from ...core.modes import GRAD, STATE, left_as_found
from ...core.tensor import Tensor
from ..trace.capture import Capture
from .replay import Replay
from .snapshot import Snapshot
from .targets import DEFAULT, target_for

#: an update of fewer elements and fewer tensors than this runs in Python. Python takes 20 µs (SGD)
#: to 100 µs (Adam) for each tensor, native code 20 to 30 µs for all; its first call takes 20 ms, or
#: 300 ms if kernels are not cached. A network of 6 tensors with Adam takes 0.37 instead of 0.89 ms
#: per step, which pays for the first call after some hundred steps
SMALL_UPDATE = 4096
FEW_TENSORS = 4
#: most recordings that are kept, which differ in the tensors that have a gradient; past that, the
#: least recently used one is dropped
MOST_RECORDINGS = 8


class Update:
    """The recordings of one update."""

    def __init__(self) -> None:
        self.replays: dict[Any, Replay] = {}

    def run(
        self, function: Callable[[], None], key: Any, tensors: Callable[[], Sequence[Tensor]]
    ) -> None:
        """Do what `function` does to the tensors that `tensors` returns.

        `key` must contain everything that decides what that is, except numbers read with
        `runtime_number` and `decided`. A function that makes new tensors that stay runs eagerly.
        """
        if STATE.mode & ~GRAD:
            function()
            return
        replay = self.replays.get(key)
        if replay is not None:
            del self.replays[key]
            if _repeated(replay):
                self.replays[key] = replay  # as the one used last
                return
        self._record(function, key, tensors)

    def _record(
        self, function: Callable[[], None], key: Any, tensors: Callable[[], Sequence[Tensor]]
    ) -> None:
        before = list(tensors())
        devices = {device_of(t._array) for t in before if t._array.ndim}
        target = target_for(DEFAULT, devices.pop() if devices else CPU)
        if devices or target.missing() is not None:
            function()
            return
        snapshot = Snapshot(t._array for t in before)
        capture = Capture([])
        with left_as_found(), capture:
            function()
            recording = capture.finish((None, []))
        after = tensors()
        stays = len(after) != len(before) or any(
            a is not b for a, b in zip(after, before, strict=True)
        )
        if stays or recording.obstacle is not None or recording.grads:
            return
        replay = Replay(recording, target=target)
        if replay.refusal([]) is not None:
            return
        replay.build()
        assert replay.executable is not None
        if replay.executable.callbacks:
            return
        snapshot.restore()
        if len(self.replays) >= MOST_RECORDINGS:
            del self.replays[next(iter(self.replays))]
        self.replays[key] = replay
        repeated = _repeated(replay)
        assert repeated


def _repeated(replay: Replay) -> bool:
    """Replay, if the recording's assumptions still hold; whether they do."""
    if replay.refusal([]) is not None:
        return False
    replay.run([])
    return True


def pays(changed: Sequence[Tensor], gradients: Sequence[Tensor]) -> bool:
    """Whether native code can update tensors from their gradients, and is faster than Python."""
    arrays = [t._array for t in changed]
    return (
        (len(arrays) >= FEW_TENSORS or sum([a.size for a in arrays]) >= SMALL_UPDATE)
        and all((type(a) is np.ndarray or is_gpu_class(type(a))) for a in arrays)
        and not any(numeric.is_complex(a.dtype) for a in arrays)
        and all(g._array.flags.c_contiguous for g in gradients)
    )
