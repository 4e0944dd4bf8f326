"""Kills ranks of a training at random moments: `python tests/soak_ranks.py 200`.

A few times, a random rank of a training of 2 to 4 ranks is killed at a random moment, and the
training is started again. Every job must end within `LIMIT` seconds of the kill, with an error that
names the rank. At the end, the parameters must equal those of an uninterrupted training bit for
bit.
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

from ranks import HERE, alone, environment

#: most seconds from a kill to the end of the job
LIMIT = 10.0
STEPS = 40
KILLS_OF_ONE_TRAINING = 4


def start(folder: Path, size: int, kind: str) -> subprocess.Popen[str]:
    for path in folder.glob("pid-*"):
        path.unlink()
    program = [str(HERE / "distributed" / "resumed_training.py"), str(folder), str(STEPS), kind]
    return subprocess.Popen(
        [sys.executable, "-m", "tapegrad", "launch", "-n", str(size), *program],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    )


def finish(folder: Path, size: int, kind: str) -> bytes:
    """Run a training to its end; returns the bytes of its parameters."""
    process = start(folder, size, kind)
    output, errors = process.communicate(timeout=120)
    assert process.returncode == 0, f"a training ended with {process.returncode}:\n{output}{errors}"
    return (folder / "result").read_bytes()


def kill(folder: Path, size: int, kind: str, choose: random.Random) -> float | None:
    """Start a training and kill a rank; returns seconds until the job ends, None if too late."""
    process = start(folder, size, kind)
    victim = choose.randrange(size)
    file = folder / f"pid-{victim}"
    while not (file.exists() and file.read_text()) and process.poll() is None:
        time.sleep(0.005)
    assert process.poll() is None, process.communicate()
    time.sleep(choose.uniform(0, STEPS * 0.025))
    try:
        os.kill(int(file.read_text()), signal.SIGKILL)
    except ProcessLookupError:
        process.communicate(timeout=60)
        return None
    began = time.monotonic()
    output, errors = process.communicate(timeout=60)
    took = time.monotonic() - began
    if process.returncode == 0:
        assert (folder / "result").exists()
        return None
    assert f"rank {victim} of {size} (process" in errors, f"{output}{errors}"
    assert "was killed by SIGKILL" in errors, f"{output}{errors}"
    assert took < LIMIT, f"the job ended {took:.1f} s after rank {victim} was killed"
    return took


def compare(result: bytes, expected: bytes) -> None:
    assert result == expected, "other parameters than without interruption"


def main(count: int, seed: int) -> None:
    choose = random.Random(seed)
    expected: dict[tuple[int, str], bytes] = {}
    times: list[float] = []
    trainings = 0
    while len(times) < count:
        size, kind = choose.choice([2, 2, 3, 4]), choose.choice(["eager", "compiled"])
        with tempfile.TemporaryDirectory() as name, alone():
            folder = Path(name)
            if (size, kind) not in expected:
                expected[size, kind] = finish(folder, size, kind)
                continue
            for _ in range(KILLS_OF_ONE_TRAINING):
                took = kill(folder, size, kind, choose)
                if took is not None:
                    times.append(took)
            result = finish(folder, size, kind)
            compare(result, expected[size, kind])
            trainings += 1
            print(f"{len(times)} kills, {trainings} trainings resumed", flush=True)
    print(
        f"{len(times)} kills of ranks: jobs ended within {max(times):.1f} s; "
        f"{trainings} resumed trainings ended as those without interruption"
    )


if __name__ == "__main__":
    main(
        int(sys.argv[1]) if len(sys.argv) > 1 else 200,
        int(sys.argv[2]) if len(sys.argv) > 2 else 0,
    )
