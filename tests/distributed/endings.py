"""A program whose rank 1 ends in the way that its argument names; the other ranks wait for it.

Run by `test_distributed_launch.py`: `python endings.py kill [timeout]`. With `exits` and more names
it is no rank: children of this process end in these ways, one after the other.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import tapegrad as tg
import tapegrad.distributed as dist
from tapegrad.data import DataLoader, Dataset, DistributedSampler
from tapegrad.distributed import watch
from tapegrad.distributed.ends import end_together
from tapegrad.distributed.job import shared_memory

# Waits that are long enough for these programs.
watch.PATIENCE, watch.INTERVAL, watch.GRACE = 0.3, 0.05, 0.5


def raise_error() -> None:
    raise ValueError("boom")


def raise_in_thread() -> None:
    threading.Thread(target=raise_error).start()
    time.sleep(5)


def interrupt_while_waiting() -> None:
    timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
    timer.daemon = True
    timer.start()
    dist.recv(tg.ones(1), 0)


def catch_exit() -> None:
    try:
        sys.exit(3)
    except SystemExit as ended:
        print(f"caught {type(ended).__name__} {ended.code}", flush=True)


def exit_in_a_fork() -> None:
    """A child that ends is no rank that ends."""
    child = os.fork()
    if child == 0:
        os._exit(3)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3


def unwind() -> None:
    try:
        sys.exit(3)
    finally:
        print("unwound", flush=True)


def exit_deep_inside() -> None:
    """A SystemExit that comes from an operation's hook and passes a `finally`."""
    x = tg.ones(2, requires_grad=True)
    x.register_hook(lambda g: exit(7))
    try:
        (x * 2).sum().backward()
    finally:
        print("unwound", flush=True)


def catch_plain_exit() -> None:
    for status in (3, "words", None):
        try:
            raise SystemExit(status)
        except SystemExit as caught:
            ended = caught
        assert (type(ended), ended.code) == (SystemExit, status)
        ended.code = 4
        assert ended.code == 4
    print("caught all", flush=True)


ENDS: dict[str, Callable[[], Any]] = {
    "error": raise_error,
    "thread": raise_in_thread,
    "exit": lambda: sys.exit(3),
    "unwind": unwind,
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "interrupt": interrupt_while_waiting,
    "return": lambda: sys.exit(0),
    "SystemExit": lambda: (_ for _ in ()).throw(SystemExit(5)),
    "exit()": lambda: exit(6),
    "deep exit": exit_deep_inside,
    "exit with words": lambda: (_ for _ in ()).throw(SystemExit("words")),
    "caught SystemExit": catch_plain_exit,
    "sleep": lambda: (print("ready", flush=True), time.sleep(30)),
    "_exit 0": lambda: os._exit(0),
    "native exit": lambda: ctypes.CDLL(None)._exit(0),
    "_exit 4": lambda: os._exit(4),
    "caught": catch_exit,
    "fork": exit_in_a_fork,
}


class Rows(Dataset[Any]):
    """Sample i is the number i; importing mpi4py in a worker does not make it a rank."""

    def __len__(self) -> int:
        return 24

    def __getitem__(self, index: int) -> Any:
        if multiprocessing.parent_process() is not None:
            assert not any(name.startswith(("PMI", "MPI_", "HYDI")) for name in os.environ)
        return tg.tensor(float(index))


def load(method: str) -> None:
    """Each rank loads its half of the data with two workers; together they have all of it."""
    sampler = DistributedSampler(Rows(), shuffle=False)
    assert (sampler.rank, sampler.num_replicas) == (dist.get_rank(), dist.get_world_size())
    workers = 2 if method == "fork" else 1
    loader = DataLoader(
        Rows(), batch_size=4, sampler=sampler, num_workers=workers, multiprocessing_context=method
    )
    mine = tg.cat(list(loader))
    assert mine.tolist() == [float(i) for i in range(dist.get_rank(), 24, 2)]
    assert "PMI_RANK" in os.environ  # it is removed for the workers alone
    total = mine.sum()
    dist.all_reduce(total)
    assert total.item() == sum(range(24))
    print(f"loaded by {method}", flush=True)


def print_lines(folder: str) -> None:
    """Print lines of several pieces without flushing them; end once somebody has read the first."""
    print("the first", "line")
    until = time.monotonic() + 20
    while not os.path.exists(os.path.join(folder, "read")):
        if time.monotonic() > until:
            raise TimeoutError("nobody has read the line")
        time.sleep(0.01)
    for i in range(300):
        print(dist.get_rank(), "counts", i)


def main(name: str, timeout: float) -> None:
    if name == "does not connect" and os.environ["PMI_RANK"] == "1":
        return
    if name == "restart" and os.environ["TAPEGRAD_RESTART"] == "0":
        name = "kill"
    dist.init_process_group("mpi", timeout=timeout)
    # What has no name cannot be left behind, however this process ends.
    assert shared_memory() == []
    if name == "no end":
        for one in ("caught", "caught SystemExit", "fork"):
            ENDS[one]()
        load("fork")
        load("spawn")
    if name == "lines":
        names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR")
        print(" ".join(os.environ[n] for n in names), sys.argv[2:], flush=True)
        print_lines(sys.argv[2])
    if dist.get_rank() == 1 and name in ENDS:
        ENDS[name]()
    x = tg.ones(1)
    dist.all_reduce(x)
    print(f"{int(x.item())} ranks were here", flush=True)


class NoJob:
    """A job of one rank without MPI, whose end is told by the exit status."""

    has_left = False
    is_own_process = staticmethod(lambda: True)
    report = staticmethod(lambda *args, **more: None)

    def abort(self, why: str, status: int = 1) -> None:
        print(f"tapegrad: rank 1 of 2: {why}", flush=True)
        ctypes.CDLL(None)._exit(100 + status)


if __name__ == "__main__" and sys.argv[1] == "exits":
    for name in sys.argv[2:]:
        print(f"## {name}", flush=True)
        child = os.fork()
        if child == 0:
            os.dup2(1, 2)
            end_together(NoJob())
            break
        print("status", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
    else:
        os._exit(0)
    # The child: what this raises comes to the interpreter, as in a program.
    ENDS[name]()
elif __name__ == "__main__":
    given = [a for a in sys.argv[2:] if a.replace(".", "").isdigit()]
    main(sys.argv[1], float(given[0]) if given else 60)
