"""Products, convolutions, larger models and eager steps against PyTorch, NumPy and JAX.

`python -m benchmarks grow [products] [convolutions] [models] [eager] [memory]` measures all parts
or those named.
Each library runs in a process of its own (`grow_child.py`), in turn: threads of one library that
spin would slow another in the same process. `--small` shows in minutes that everything runs, with
tiny sizes; `--all` prints every cell of products and convolutions, `--large` adds a square of 4,096
to the products; `--only=ResNet` measures the models and convolutions with such a name; with
`--threads=2`, products and convolutions have so many threads.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any

from . import grow_convolutions, grow_products, grow_steps
from .measure import Report

PARTS: dict[str, Callable[[Report, Callable[..., Any]], None]] = {
    "products": grow_products.run,
    "convolutions": grow_convolutions.run,
    "models": grow_steps.run_compiled,
    "eager": grow_steps.run_eager,
    "memory": grow_steps.run_memory,
}
#: seconds that a process may take
PATIENCE = 1200


def run(report: Report, parts: Sequence[str] = ()) -> None:
    for part in parts or PARTS:
        print(f"\n{part}", flush=True)
        PARTS[part](report, ask)


def ask(label: str, **job: Any) -> Any:
    """What a job finds in a process of its own; None, with the reason printed, where it fails."""
    environment = {**os.environ, "TAPEGRAD_QUIET": "1"}
    if "threads" in job:
        names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
        environment |= dict.fromkeys(names, str(job["threads"]))
    command = [sys.executable, "-m", "benchmarks.grow_child"]
    try:
        done = subprocess.run(
            command,
            input=json.dumps(job),
            env=environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
    except subprocess.TimeoutExpired:
        return _failed(label, f"took more than {PATIENCE} s")
    if done.returncode:
        said = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
        return _failed(label, said[-1])
    found = json.loads(done.stdout.splitlines()[-1])
    return _failed(label, found["absent"]) if "absent" in found else found


def _failed(label: str, reason: str) -> None:
    print(f"{label}: {reason}", flush=True)
