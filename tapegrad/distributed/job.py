"""The job: the processes that were started together, of which this one is a rank.

`start` loads mpi4py, which connects the ranks, and makes sure that no rank waits for one that is
gone: an exception on any thread, `sys.exit` with an error and Ctrl-C end the whole job, and a
`Watch` ends it when an operation takes longer than its timeout, or waits for a rank that has left.
Whatever ends a rank is written down for the launcher (`launch/`). Called by `process_group.py`.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import sys
import threading
import time
import traceback
from types import TracebackType
from typing import Any

from ..core import source

#: environment variables by which starters of MPI programs say which rank a process is
RANK_VARIABLES = ("PMI_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "SLURM_PROCID", "MPI_RANK")
#: environment variable with the folder in which ranks leave word for the launcher
FOLDER = "TAPEGRAD_LAUNCH_FOLDER"
#: seconds an operation takes before the watch looks for ranks that have left
PATIENCE = 1.0
#: seconds between two looks at what runs
INTERVAL = 0.25
#: seconds after Ctrl-C until a rank that waits for others ends the job
GRACE = 2.0
#: the tag of the message that a rank sends when it leaves
LEAVING = 1

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
        #: for messages about the job itself
        self.control = self.world.Dup()
        node = self.world.Split_type(mpi.COMM_TYPE_SHARED)
        #: this rank among those on the same machine, and how many they are
        self.local_rank: int = node.rank
        self.local_size: int = node.size
        self.node = node
        self.watch = Watch(self)
        self.has_left = False

    def leave(self) -> None:
        """Tell the others that this rank takes part in nothing any more."""
        if self.has_left or self.mpi.Is_finalized():
            return
        self.has_left = True
        self.watch.stop()
        others = [r for r in range(self.size) if r != self.rank]
        sent = [self.control.Isend(b"", r, LEAVING) for r in others]
        until = time.monotonic() + 1.0
        while not self.mpi.Request.Testall(sent) and time.monotonic() < until:
            time.sleep(0.001)
        report("done")

    def abort(self, why: str, status: int = 1) -> None:
        """End the whole job. `why` is printed and left for the launcher."""
        print(f"tapegrad: rank {self.rank} of {self.size}: {why}", file=sys.stderr, flush=True)
        report("failed", why)
        sys.stdout.flush()
        self.world.Abort(status)
        os._exit(status)


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
    """Whether something that starts MPI programs has started this process."""
    return any(name in os.environ for name in RANK_VARIABLES)


def start(timeout: float) -> Job:
    """Connect to the other ranks, once."""
    global _job
    if _job is not None:
        _job.timeout = timeout
        return _job
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
    from mpi4py import MPI

    if MPI.Query_thread() < MPI.THREAD_MULTIPLE:
        raise RuntimeError(
            "MPI was initialized without support for several threads; import tapegrad.distributed "
            "and call init_process_group() before anything else imports mpi4py.MPI"
        )
    report("started")
    _job = Job(MPI, timeout)
    _end_together(_job)
    _job.watch.start()
    atexit.register(_job.leave)
    return _job


def report(state: str, why: str = "") -> None:
    """Leave word for the launcher, if there is one: a file for each rank and state."""
    folder = os.environ.get(FOLDER)
    if folder is None:
        return
    rank = next(os.environ[name] for name in RANK_VARIABLES if name in os.environ)
    text = json.dumps({"rank": int(rank), "pid": os.getpid(), "state": state, "why": why})
    try:
        path = os.path.join(folder, f"{state}-{rank}")
        with open(path + ".new", "w") as file:
            file.write(text)
        os.replace(path + ".new", path)
    except OSError:
        pass  # the launcher is gone, and with it whoever would read this


# -- ends of a rank ----------------------------------------------------------------------------


def _end_together(job: Job) -> None:
    """What ends this rank with an error ends all."""
    previous, previous_thread = sys.excepthook, threading.excepthook
    exit_plainly = sys.exit

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        previous(kind, error, trace)
        status = 130 if issubclass(kind, KeyboardInterrupt) else 1
        job.abort(_described(kind, error, trace), status)

    def thread_hook(args: Any) -> None:
        previous_thread(args)
        if args.exc_type is not SystemExit:
            job.abort(_described(args.exc_type, args.exc_value, args.exc_traceback))

    def exit_all(status: Any = None) -> None:
        main = threading.current_thread() is threading.main_thread()
        if main and status not in (None, 0, False) and not job.has_left:
            shown = status if isinstance(status, int) else 1
            if not isinstance(status, int):
                print(status, file=sys.stderr)
            at = source.describe(source.outside(sys._getframe(1)))
            job.abort(f"sys.exit({status!r}) at {at}", shown)
        exit_plainly(status)

    sys.excepthook, threading.excepthook = hook, thread_hook
    sys.exit = exit_all  # type: ignore[assignment]


def _described(
    kind: type[BaseException], error: BaseException | None, trace: TracebackType | None
) -> str:
    frames = traceback.extract_tb(trace) if trace is not None else []
    own = [f for f in frames if not f.filename.startswith(source.LIBRARY)] or list(frames)
    at = f" at {own[-1].filename}:{own[-1].lineno}" if own else ""
    return f"{kind.__name__}: {error}{at}"


# -- the watch ---------------------------------------------------------------------------------


class Watch:
    """A thread that notices operations which will not end."""

    def __init__(self, job: Job) -> None:
        self.job = job
        #: by thread: what runs there, where it was called, when it began, and for whom it waits
        self.running: dict[int, tuple[str, Any, float, Any]] = {}
        self._ended = threading.Event()
        self._interrupted = 0.0
        self._left: set[int] = set()
        self._wakeup = -1

    def start(self) -> None:
        self._listen()
        threading.Thread(target=self._run, name="tapegrad-watch", daemon=True).start()

    def stop(self) -> None:
        self._ended.set()

    def _listen(self) -> None:
        """Hear of Ctrl-C while the main thread is inside of MPI, where Python does not run."""
        if threading.current_thread() is not threading.main_thread():
            return
        reading, writing = os.pipe()
        os.set_blocking(reading, False)
        os.set_blocking(writing, False)
        before = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
        if before != -1:  # somebody else listens there
            signal.set_wakeup_fd(before)
            os.close(reading)
            os.close(writing)
            return
        self._wakeup = reading

    def _run(self) -> None:
        while not self._ended.wait(INTERVAL):
            now = time.monotonic()
            self._hear(now)
            for what, location, began, ranks in list(self.running.values()):
                self._look(now, what, location, began, ranks)

    def _hear(self, now: float) -> None:
        if self._wakeup < 0:
            return
        try:
            if signal.SIGINT in os.read(self._wakeup, 64):
                self._interrupted = now
        except BlockingIOError:
            pass

    def _look(self, now: float, what: str, location: Any, began: float, ranks: Any) -> None:
        waited = now - began
        if waited < PATIENCE:
            return
        at = f"{what} at {source.describe(location)}"
        if self._interrupted > began and now - self._interrupted > GRACE:
            self.job.abort(f"interrupted while it waited in {at}", 130)
        control, status = self.job.control, self.job.mpi.Status()
        while control.Iprobe(tag=LEAVING, status=status):
            control.Recv(bytearray(0), status.source, LEAVING)
            self._left.add(status.source)
        gone = sorted(self._left.intersection(ranks))
        if gone:
            self.job.abort(f"{at} waits for rank {gone[0]}, which has ended its program")
        if waited > self.job.timeout:
            self.job.abort(
                f"{at} did not end within {self.job.timeout:g} s; some rank did not come to the "
                "same operation"
            )
