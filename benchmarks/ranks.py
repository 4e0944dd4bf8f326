"""Data parallelism over ranks: the cost of communication in a step, with PyTorch's DDP over gloo.

`python -m benchmarks ranks` starts jobs of 1 to 16 ranks of one thread each, up to the number of
cores. Each rank has its own batch, so that the work of a rank stays the same (weak scaling).
Efficiency is the time of a step of the same ranks without collectives, divided by the time with
them: both include contention for memory. The two kinds of steps alternate, all ranks begin a step
together, and it ends when the slowest has ended; a line is a median over steps. "hidden" is the
share of the communication that ran while the slowest rank computed. This is the rank with the
shortest collectives, because the others arrive before it. Its waiting makes the step longer; a
faster rank waits whether messages take time or not. "predicted" is the time that `scale` predicts
for the step with collectives, from the latency and bandwidth of messages between two ranks. Numbers
after the name (`python -m benchmarks ranks 2 8`) set the numbers of ranks.
`mpiexec -n 4 python -m benchmarks.ranks picture step.svg` draws a step of four ranks.
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
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from .measure import Report

#: the number of timed steps of each kind, and of untimed ones before them
STEPS, WARM_UP = 20, 4
#: numbers of ranks; the first job also measures latency and bandwidth
SIZES = (2, 1, 4, 8, 16)


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
    """784-256-10, 64 rows for each rank: the overhead of calls."""
    from .problems import normal

    nn = lib.nn
    model = nn.Sequential(nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 10))
    inputs = (normal(lib, 64, 784), normal(lib, 64, 10, seed=2))
    return model, inputs, lambda net, x, y: ((net(x) - y) ** 2).mean()


MODELS = {"GPT of width 512": gpt, "MLP, 8 layers of 1,024": mlp, "small MLP": small}


def run(report: Report, parts: Sequence[str] = ()) -> None:
    """Print a table for each number of ranks."""
    cores = len(os.sched_getaffinity(0))
    network: dict[str, str] = {}
    for size in map(int, parts or SIZES):
        if size > cores:
            continue
        found = _job(_mpiexec(size), "tapegrad", **network)
        if not network:
            latency, bandwidth = found["network"]
            network = {"NETWORK": f"{latency} {bandwidth}"}
            print(f"between two ranks: {latency * 1e6:.1f} µs, {bandwidth / 1e9:.2f} GB/s")
        theirs = _torch(size) if size > 1 else {}
        print(f"\n{size} ranks of one thread, {cores} cores")
        heads = ("alone", "with", "efficiency", "hidden", "predicted", "error")
        print(f"{'':26}{''.join(f'{h:>12}' for h in heads)}{'torch, gloo':>14}")
        for name in MODELS:
            print(_line(name, found[name], theirs.get(name)), flush=True)


def _line(name: str, ours: dict[str, float], theirs: dict[str, float] | None) -> str:
    alone, together, guess = ours["alone"], ours["together"], ours["predicted"]
    line = (
        f"{name:26}{alone:9.2f} ms{together:9.2f} ms{alone / together:12.1%}"
        f"{ours['hidden']:12.0%}{guess:9.2f} ms{guess / together - 1:+12.1%}"
    )
    if theirs is None:
        return line
    return f"{line}{theirs['together']:11.2f} ms{theirs['alone'] / theirs['together']:8.1%}"


def _mpiexec(size: int) -> list[str]:
    starter = shutil.which("mpiexec", path=str(Path(sys.executable).parent)) or "mpiexec"
    return [starter, "-n", str(size)]


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


def _steps(
    lib: ModuleType, make: Callable[..., Any], parallel: Callable[[Any], Any]
) -> list[Callable[[], Any]]:
    """A training step without collectives, and one with them."""
    steps: list[Callable[[], Any]] = []
    for together in (False, True):
        model, inputs, loss = make(lib)
        net = parallel(model) if together else model
        optimizer = lib.optim.SGD(net.parameters(), lr=1e-3, momentum=0.9)

        def step(
            net: Any = net, loss: Any = loss, optimizer: Any = optimizer, x: Any = inputs
        ) -> Any:
            optimizer.zero_grad()
            value = loss(net, *x)
            value.backward()
            optimizer.step()
            return value

        steps.append(step)
    return steps


def _pair(
    steps: Sequence[Callable[[], Any]], lib: ModuleType, dist: ModuleType
) -> dict[str, float]:
    """Median milliseconds of steps without and with collectives, until the slowest rank ends."""
    times: list[list[float]] = []
    for _ in range(WARM_UP + STEPS):
        times.append([])
        for step in steps:
            dist.barrier()
            began = time.perf_counter()
            step()
            times[-1].append((time.perf_counter() - began) * 1e3)
    slowest = lib.tensor(times[WARM_UP:], dtype=lib.float64)
    dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
    medians = map(statistics.median, zip(*slowest.tolist(), strict=True))
    return dict(zip(("alone", "together"), medians, strict=True))


def torch_rank(out: str) -> None:
    """Time all models in this rank of a PyTorch job; rank 0 writes the times of the slowest."""
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    dist.init_process_group("gloo")
    found = {
        name: _pair(_steps(torch, make, DistributedDataParallel), torch, dist)
        for name, make in MODELS.items()
    }
    if dist.get_rank() == 0:
        Path(out).write_text(json.dumps(found))
    dist.barrier()
    dist.destroy_process_group()


def rank(out: str) -> None:
    """Time all models in this rank; rank 0 writes the times of the slowest."""
    import tapegrad as tg
    import tapegrad.distributed as dist
    from tapegrad.distributed.process_group import background
    from tapegrad.nn.parallel import DistributedDataParallel

    dist.init_process_group("mpi")
    given = os.environ.get("NETWORK")
    latency, bandwidth = map(float, given.split()) if given else _network()
    found: dict[str, Any] = {"network": (latency, bandwidth)}
    for name, make in MODELS.items():
        steps = [tg.compile(step) for step in _steps(tg, make, DistributedDataParallel)]
        result = found[name] = _pair(steps, tg, dist)
        dist.barrier()  # all ranks time their kernels at the same time, as in a step
        (guess,) = steps[1].scale(
            [dist.get_world_size()], latency, bandwidth, overlap=background().threaded
        )
        result["predicted"] = guess.step * 1e3
        result["hidden"] = statistics.median(_hidden(steps[1]) for _ in range(9))
    if dist.get_rank() == 0:
        Path(out).write_text(json.dumps(found))
    dist.destroy_process_group()


def _timeline(step: Callable[[], Any]) -> Any:
    import tapegrad.distributed as dist

    dist.barrier()
    with dist.timeline() as taken:
        step()
    return taken


def _everybody(mine: Any) -> list[Any]:
    import tapegrad.distributed as dist

    found: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(found, mine)
    return found


def _hidden(step: Callable[[], Any]) -> float:
    """The share of a step's communication that ran while the slowest rank computed."""
    ranks = _everybody(_timeline(step))
    slowest = min(ranks, key=lambda one: one.communication)
    hidden: float = slowest.since_arrival(*ranks).hidden
    return hidden


def _network() -> tuple[float, float]:
    """Seconds of an all-reduce of one element, and bytes per second of one of 16 MiB."""
    import tapegrad as tg
    import tapegrad.distributed as dist

    times = []
    for count, repeats in ((1, 2000), (1 << 22, 90)):
        x = tg.zeros(count)

        dist.all_reduce(x)
        dist.barrier()
        began = time.perf_counter()
        for _ in range(repeats):
            dist.all_reduce(x)
        times.append((time.perf_counter() - began) / repeats)
    latency, large = times
    return latency, 4 * (1 << 22) / large


def picture(out: str) -> None:
    """Draw one step of the GPT on all ranks."""
    import tapegrad as tg
    import tapegrad.distributed as dist
    from tapegrad.nn.parallel import DistributedDataParallel

    dist.init_process_group("mpi")
    step = tg.compile(_steps(tg, gpt, DistributedDataParallel)[1])
    for _ in range(8):
        step()
    everybody = _everybody(_timeline(step))
    if dist.get_rank() == 0:
        Path(out).write_text(everybody[0].picture(*everybody[1:]))
    dist.destroy_process_group()


if __name__ == "__main__":
    {"tapegrad": rank, "torch": torch_rank, "picture": picture}[sys.argv[1]](sys.argv[2])
