"""Data parallelism over ranks: how much of a step is communication, beside PyTorch's DDP with gloo.

`python -m benchmarks ranks` starts jobs of 2, 4 and 8 ranks of one thread each, as far as there are
cores. Each rank has its own batch, so that the work of a rank stays the same (weak scaling).
Efficiency is the time of a step of the same ranks without collectives, divided by the time with
them: contention for memory is in both. A line is a median over steps, of the slowest rank.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from .measure import Report

STEPS, TURNS = 12, 3
#: numbers of ranks that are tried
SIZES = (2, 4, 8)


def gpt(lib: ModuleType) -> tuple[Any, tuple[Any, ...], Callable[..., Any]]:
    """A GPT of width 512: 2 layers, 4 sequences of 128 for each rank."""
    from .models import blocks
    from .problems import generator

    model = blocks(lib)[1](256, 512, 8, 2, 128)
    tokens = generator().integers(0, 256, (4, 129))
    inputs = (lib.tensor(tokens[:, :-1].copy()), lib.tensor(tokens[:, 1:].copy()))

    def loss(net: Any, x: Any, y: Any) -> Any:
        return lib.nn.functional.cross_entropy(net(x).reshape(-1, 256), y.reshape(-1))

    return model, inputs, loss


def mlp(lib: ModuleType) -> tuple[Any, tuple[Any, ...], Callable[..., Any]]:
    """8 layers of 1,024, 256 rows for each rank."""
    from .problems import normal

    nn = lib.nn
    layers = [layer for _ in range(8) for layer in (nn.Linear(1024, 1024), nn.ReLU())]
    model = nn.Sequential(*layers)
    inputs = (normal(lib, 256, 1024), normal(lib, 256, 1024, seed=2))
    return model, inputs, lambda net, x, y: ((net(x) - y) ** 2).mean()


def small(lib: ModuleType) -> tuple[Any, tuple[Any, ...], Callable[..., Any]]:
    """784-256-10, 64 rows for each rank: what a call costs."""
    from .problems import normal

    nn = lib.nn
    model = nn.Sequential(nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 10))
    inputs = (normal(lib, 64, 784), normal(lib, 64, 10, seed=2))
    return model, inputs, lambda net, x, y: ((net(x) - y) ** 2).mean()


MODELS = {"GPT of width 512": gpt, "MLP, 8 layers of 1,024": mlp, "small MLP": small}


def run(report: Report) -> None:
    """Print a table for each number of ranks."""
    starter = shutil.which("mpiexec", path=str(Path(sys.executable).parent)) or "mpiexec"
    cores = len(os.sched_getaffinity(0))
    for size in SIZES:
        if size > cores:
            continue
        print(f"\n{size} ranks of one thread, {cores} cores")
        print(f"{'':26}{'alone':>12}{'with':>12}{'efficiency':>12}{'torch, gloo':>14}{'':>12}")
        found = _job([starter, "-n", str(size)], "tapegrad")
        theirs = _torch(size)
        for name, (alone, together) in found.items():
            ours = f"{alone:9.2f} ms{together:9.2f} ms{alone / together:12.1%}"
            t = theirs.get(name)
            line = "" if t is None else f"{t[1]:11.2f} ms{t[0] / t[1]:12.1%}"
            print(f"{name:26}{ours}{line}", flush=True)


def _job(starter: list[str], library: str, **more: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out"
        env = {**os.environ, "OMP_NUM_THREADS": "1", "TAPEGRAD_QUIET": "1", **more}
        command = [*starter, sys.executable, "-m", "benchmarks.ranks", library, str(out)]
        subprocess.run(command, env=env, check=True, timeout=600)
        found: dict[str, Any] = json.loads(out.read_text())
        return found


def _torch(size: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out"
        env = {**os.environ, "OMP_NUM_THREADS": "1", "MASTER_ADDR": "127.0.0.1"}
        env |= {"MASTER_PORT": "29513", "WORLD_SIZE": str(size)}
        command = [sys.executable, "-m", "benchmarks.ranks", "torch", str(out)]
        ranks = [subprocess.Popen(command, env={**env, "RANK": str(r)}) for r in range(size)]
        if sum(rank.wait(timeout=600) for rank in ranks):
            return {}
        found: dict[str, Any] = json.loads(out.read_text())
        return found


# -- one rank ------------------------------------------------------------------------------------


def _timed(step: Callable[[], Any], barrier: Callable[[], Any]) -> float:
    """The median time of a step in milliseconds."""
    for _ in range(4):
        step()
    times = []
    for _ in range(STEPS):
        barrier()
        began = time.perf_counter()
        step()
        times.append(time.perf_counter() - began)
    return statistics.median(times) * 1e3


def rank(library: str, out: str) -> None:
    """Time all models in this rank; the first one writes what the slowest took."""
    if library == "torch":
        import torch as lib
        import torch.distributed as dist
        from torch.nn.parallel import DistributedDataParallel as Parallel

        dist.init_process_group("gloo")
    else:
        import tapegrad as lib  # type: ignore[no-redef]
        import tapegrad.distributed as dist  # type: ignore[no-redef]
        from tapegrad.nn.parallel import (  # type: ignore[assignment]
            DistributedDataParallel as Parallel,
        )

        dist.init_process_group("mpi")
    results = {}
    for name, make in MODELS.items():
        steps = []
        for together in (False, True):
            model, inputs, loss = make(lib)
            net = Parallel(model) if together else model
            optimizer = lib.optim.SGD(net.parameters(), lr=1e-3, momentum=0.9)

            def step(
                net: Any = net, loss: Any = loss, optimizer: Any = optimizer, x: Any = inputs
            ) -> Any:
                optimizer.zero_grad()
                value = loss(net, *x)
                value.backward()
                optimizer.step()
                return value

            compiled = lib.compile(step) if library != "torch" else step
            steps.append(compiled)
        times = [[_timed(s, dist.barrier) for s in steps] for _ in range(TURNS)]
        found = [min(t[i] for t in times) for i in range(2)]
        slowest = lib.tensor(found, dtype=lib.float64)
        dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
        results[name] = slowest.tolist()
    if dist.get_rank() == 0:
        Path(out).write_text(json.dumps(results))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    rank(sys.argv[1], sys.argv[2])
