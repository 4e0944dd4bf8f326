"""Programs in which one rank leaves the common way; run by `test_distributed_mismatch.py`.

No checks are asked for, and one rank waits inside of MPI, so these jobs end: soon, and with the
lines of both ranks. `python departures.py name folder`. Those whose ranks raise instead are in
`mismatches.py`.
"""

from __future__ import annotations

import sys
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tapegrad as tg
import tapegrad.distributed as dist
from tapegrad.distributed import checkpoint as states
from tapegrad.distributed import watch

# Waits that are long enough for these programs.
watch.PATIENCE, watch.INTERVAL = 0.3, 0.05
warnings.simplefilter("ignore")


def folder() -> Path:
    return Path(sys.argv[2])


def checkpoint() -> tg.Checkpoint:
    return tg.Checkpoint(folder(), weight=tg.nn.Linear(2, 1))


def first_alone(first: Callable[[], Any], then: Callable[[], Any]) -> Callable[[], None]:
    """Rank 0 does something that all ranks should do; all of them go on with something else."""

    def run() -> None:
        if dist.get_rank() == 0:
            first()
        then()

    return run


def reduce() -> None:
    for _ in range(3):
        dist.all_reduce(tg.ones(4))


def broadcast() -> None:
    dist.broadcast(tg.ones(1, dtype=tg.int64), 0)


def in_background() -> None:
    dist.all_reduce(tg.ones(3), async_op=True).wait()


@tg.compile
def compiled_sum(x: Any) -> Any:
    return dist.functional.all_reduce(x * 2).sum()


def replayed_before(then: Callable[[], Any]) -> Callable[[], None]:
    def run() -> None:
        for _ in range(5):
            compiled_sum(tg.ones(3))
        then()

    return run


def save() -> None:
    checkpoint().save(1)


def compiled(function: Callable[[Any, int, int], Any], then: Any = None) -> Callable[[], None]:
    """Eight calls of a compiled function with the rank and the number of the call."""

    def run() -> None:
        step = tg.compile(function)
        for i in range(8):
            step(tg.ones(3), dist.get_rank(), i)
        if then is not None:
            then()

    return run


def silent_from_the_start(x: Any, rank: int, i: int) -> Any:
    return x * 2 if rank == 1 else dist.functional.all_reduce(x)


def wait() -> None:
    time.sleep(20)


def one_call_more() -> None:
    for _ in range(5 + dist.get_rank()):
        compiled_sum(tg.ones(3))


def two_threads() -> None:
    """Two threads of each rank call collectives of one group at the same time."""

    def work() -> None:
        for _ in range(200):
            dist.all_reduce(tg.ones(1000))

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


PROGRAMS: dict[str, Callable[[], Any]] = {
    "save, reduce": first_alone(save, reduce),
    "save, background": first_alone(save, in_background),
    "save, replay": replayed_before(first_alone(save, lambda: compiled_sum(tg.ones(3)))),
    "save, end": first_alone(save, lambda: None),
    "states, broadcast": first_alone(lambda: states.save({"x": 1}, folder()), broadcast),
    "silent, wait": compiled(silent_from_the_start, wait),
    "one call more, reduce": lambda: (one_call_more(), reduce()),
    "two threads": two_threads,
}

if __name__ == "__main__":
    dist.init_process_group("mpi", timeout=60)
    PROGRAMS[sys.argv[1]]()
