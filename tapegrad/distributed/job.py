"""The job: the processes that were started together; each of them is a rank.

`start` loads mpi4py, which connects the ranks, and makes sure that no rank waits for one that is
gone: an error that ends a rank ends the whole job (`ends.py`), and a `Watch` ends it when an
operation takes longer than the timeout, or waits for a rank that has left. The end of a rank is
reported to the launcher (`launch.py`). Called by `process_group.py`.
"""

from __future__ import annotations

import atexit
import faulthandler
import io
import json
import multiprocessing
import os
import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from .ends import end_together
from .watch import LEAVING, Watch

#: environment variables in which launchers of MPI programs pass the rank of a process
RANK_VARIABLES = ("PMI_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "SLURM_PROCID", "MPI_RANK")
#: environment variable with the folder for reports to the launcher
FOLDER = "TAPEGRAD_LAUNCH_FOLDER"
#: seconds for mpiexec to pass on the output of a rank before an abort, which drops the rest
OUTPUT = 0.3
_SHARED = re.compile(r"(/dev/shm/mpich_shm_\w+)$", re.MULTILINE)

HOW_TO_START = (
    "start it with `tapegrad launch -n 4 train.py`, or with `mpiexec -n 4 python train.py` "
    "(`pip install 'tapegrad[mpi]'` brings both)"
)


class Job:
    """This rank's connection to the others."""

    def __init__(self, mpi: Any, timeout: float) -> None:
        self.mpi = mpi
        self.world = mpi.COMM_WORLD
        self.rank: int = self.world.rank
        self.size: int = self.world.size
        self.timeout = timeout
        #: the communicator for messages about the job itself
        self.control = self.world.Dup()
        self.watch = Watch(self)
        self.has_left = False
        self._pid = os.getpid()
        #: called before this rank leaves
        self.before_leaving: Any = lambda: None
        with self.watch.during("init_process_group", None, range(self.size)):
            self.watch.start()
            node = self.world.Split_type(mpi.COMM_TYPE_SHARED)
        #: the number of this rank among those on the same machine, and how many there are
        self.local_rank: int = node.rank
        self.local_size: int = node.size
        self.node = node
        if node.rank == 0:
            # All ranks of this machine have mapped the files by now. Once unlinked, their memory
            # is freed when the last rank ends, however it ends.
            for path in shared_memory():
                os.unlink(path)

    def is_own_process(self) -> bool:
        """Whether this is the rank itself, and not a process forked from it."""
        return os.getpid() == self._pid

    def leave(self) -> None:
        """Tell the other ranks that this one leaves the job."""
        if self.has_left or not self.is_own_process() or self.mpi.Is_finalized():
            return
        self.before_leaving()
        self.has_left = True
        self.watch.stop()
        others = [r for r in range(self.size) if r != self.rank]
        sent = [self.control.Isend(b"", r, LEAVING) for r in others]
        until = time.monotonic() + 1.0
        while not self.mpi.Request.Testall(sent) and time.monotonic() < until:
            time.sleep(0.001)
        self.report("done")

    def abort(self, why: str, status: int = 1) -> None:
        """End the whole job. `why` is printed, and reported to the launcher."""
        print(f"tapegrad: rank {self.rank} of {self.size}: {why}", file=sys.stderr, flush=True)
        self.report("failed", why, status=status)
        sys.stdout.flush()
        self.has_left = True
        time.sleep(OUTPUT)
        self.world.Abort(status)
        os._exit(status)

    def report(self, state: str, why: str = "", **more: Any) -> None:
        """Report to the launcher."""
        report(state, why, **more)


_job: Job | None = None


def job() -> Job:
    """The job, which must have been started."""
    if _job is None:
        raise RuntimeError(
            "there is no process group yet; call tapegrad.distributed.init_process_group() first"
        )
    return _job


def is_started() -> bool:
    return _job is not None


def is_launched() -> bool:
    """Whether a launcher of MPI programs has started this process."""
    return any(name in os.environ for name in RANK_VARIABLES)


def start(timeout: float) -> Job:
    """Connect to the other ranks, once."""
    global _job
    if _job is not None:
        _job.timeout = timeout
        return _job
    if multiprocessing.parent_process() is not None and is_launched():
        raise RuntimeError(
            "a process that a rank has started is no rank itself: without `spawn` or `Process`, "
            f"call the function in the program itself, which runs once in each rank; {HOW_TO_START}"
        )
    if not is_launched():
        raise RuntimeError(f"this process was not started as a rank of a job; {HOW_TO_START}")
    try:
        import mpi4py
    except ImportError as error:
        raise ModuleNotFoundError(
            "distributed training needs mpi4py and an MPI library; install them with "
            "`pip install 'tapegrad[mpi]'`, or mpi4py against the MPI of your cluster"
        ) from error
    mpi4py.rc.thread_level = "multiple"
    report("connecting")
    with _limited(timeout):
        from mpi4py import MPI

    if MPI.Query_thread() < MPI.THREAD_MULTIPLE:
        raise RuntimeError(
            "MPI was initialized without support for several threads; import tapegrad.distributed "
            "and call init_process_group() before anything else imports mpi4py.MPI"
        )
    report("started", shared=shared_memory())
    _print_whole_lines()
    _job = Job(MPI, timeout)
    end_together(_job)
    atexit.register(_job.leave)
    return _job


def _print_whole_lines() -> None:
    """Write output line by line: at once, and never mixed with a line of another rank.

    mpiexec reads the output of ranks through pipes. Python would buffer output to a pipe in large
    blocks, or with PYTHONUNBUFFERED write each piece of a line by itself.
    """
    for output in (sys.stdout, sys.stderr):
        if isinstance(output, io.TextIOWrapper):
            output.reconfigure(line_buffering=True, write_through=False)


@contextmanager
def _limited(timeout: float) -> Iterator[None]:
    """End this process if other ranks do not call init_process_group within `timeout` seconds.

    MPI waits for them without letting Python run, so a thread of faulthandler ends the process and
    prints the line.
    """
    try:
        faulthandler.dump_traceback_later(timeout, exit=True)
    except (AttributeError, OSError, ValueError, RuntimeError):
        yield  # stderr is not a file
        return
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()


def shared_memory(process: int | str = "self") -> list[str]:
    """The shared-memory files that MPICH made for a rank and that are not unlinked yet."""
    try:
        with open(f"/proc/{process}/maps") as file:
            return sorted(set(_SHARED.findall(file.read())))
    except OSError:
        return []


def report(state: str, why: str = "", **more: Any) -> None:
    """Report to the launcher, if there is one: a file for each rank and state."""
    folder = os.environ.get(FOLDER)
    if folder is None:
        return
    rank = next(os.environ[name] for name in RANK_VARIABLES if name in os.environ)
    said = {"rank": int(rank), "pid": os.getpid(), "state": state, "why": why, **more}
    try:
        path = os.path.join(folder, f"{state}-{rank}")
        with open(path + ".new", "w") as file:
            json.dump(said, file)
        os.replace(path + ".new", path)
    except OSError:
        pass  # the launcher is gone, so nothing will read the report
