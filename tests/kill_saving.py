"""Kills a training with SIGKILL while it saves, again and again: `python tests/kill_saving.py 300`.

A child process saves in a loop and reports every save that has returned. The parent kills it at a
random moment; then the latest checkpoint must be intact and no older than the last reported save.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import tapegrad as tg

ROOT = Path(__file__).parent.parent

CHILD = """
import sys, tapegrad as tg
class Part:
    def __init__(self): self.x = tg.zeros(100_000)
    def state_dict(self): return {"x": self.x, "step": int(self.x[0])}
    def load_state_dict(self, state): self.x.copy_(state["x"])
part = Part()
checkpoint = tg.Checkpoint(sys.argv[1], keep=2, part=part)
saved = checkpoint.restore()
step = saved.step if saved else 0
print("ready", flush=True)
while True:
    step += 1
    part.x.fill_(step)
    checkpoint.save(step)
    print(step, flush=True)
"""


def kill_once(folder: str, rng: random.Random) -> int:
    """Start the child and kill it; returns the last step that it reported."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", CHILD, folder]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        time.sleep(rng.random() * 0.1)
        os.kill(child.pid, signal.SIGKILL)
        reported = [int(line) for line in child.stdout.read().split()]
    return reported[-1] if reported else 0


class Part:
    """Receives the state that the child saved."""

    def state_dict(self) -> dict[str, object]:
        return {}

    def load_state_dict(self, state: dict[str, object]) -> None:
        self.state = state


def kill(times: int, seed: int = 0) -> dict[str, int]:
    """Kill the child `times` times; raises if a checkpoint is wrong."""
    rng = random.Random(seed)
    counts = {"kills": 0, "saves": 0, "leftovers": 0}
    with tempfile.TemporaryDirectory() as folder:
        before = 0
        for _ in range(times):
            reported = max(kill_once(folder, rng), before)
            counts["kills"] += 1
            counts["leftovers"] += len(list(Path(folder).glob(".*")))
            part = Part()
            checkpoint = tg.Checkpoint(folder, keep=2, part=part)
            assert not list(Path(folder).glob(".*")), "what the dead have left is removed"
            saved = checkpoint.restore(skip_damaged=False)
            assert saved is not None or reported == 0
            if saved is None:
                continue
            assert saved.step in (reported, reported + 1), "no save that has returned is lost"
            assert isinstance(part.state["x"], tg.Tensor)
            np.testing.assert_array_equal(part.state["x"].numpy(), saved.step)
            assert len(checkpoint) <= 3
            for other in checkpoint:
                assert checkpoint.load(other.step) is not None
            counts["saves"] += saved.step - before
            before = saved.step
    return counts


if __name__ == "__main__":
    print(kill(int(sys.argv[1]) if len(sys.argv) > 1 else 300))
