"""The worker threads that native programs run on.

Comes in: the descriptor of a program. Goes out: 0, or a failure. Threads go through the sections of
a program, and each does its own part of a section, or parts of missing threads (`driver.py`). The
calling thread is thread 0; the others are Python threads that stay in native code: after a program
they spin for a short time, then sleep until the next. One program runs at a time, in one native
call, and owns the scratch memory meanwhile. Called by `executable.py`.
"""

from __future__ import annotations

import _thread
import ctypes
import functools
import os
import time
import warnings
from typing import Any

import numpy as np

from ...core import locks
from . import driver, driver_layout, driver_threads, jit

_Launch = ctypes.CFUNCTYPE(
    ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p
)
_OnJob = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


def default_threads() -> int:
    """The number of threads in OMP_NUM_THREADS, else the number of usable cores."""
    asked = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    return int(asked) if asked.isdigit() and int(asked) > 0 else usable_cores()


@functools.cache
def usable_cores() -> int:
    """The physical cores that this process may use."""
    try:
        mine = os.sched_getaffinity(0)
    except AttributeError:
        return os.cpu_count() or 1
    cores = set()
    for cpu in mine:
        try:
            with open(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list") as file:
                cores.add(file.read().strip())
        except OSError:
            cores.add(str(cpu))
    return max(1, min(len(mine), len(cores), _quota()))


def _quota() -> int:
    """The processors that this process's control group grants it."""
    try:
        with open("/sys/fs/cgroup/cpu.max") as file:
            quota, period = file.read().split()
        return max(1, int(quota) // int(period))
    except (OSError, ValueError):
        return os.cpu_count() or 1


def _processors() -> int:
    """The processors that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count() or 1


class Pool:
    """Workers for programs of several threads."""

    def __init__(self) -> None:
        self.threads = default_threads() if driver_threads.has_threads() else 1
        self._launch: Any = None
        self._lock = locks.new()
        #: the most threads of a program: waiting threads do the parts of the others
        self._processors = _processors()

    def run(self, program: int, threads: int, objects: int) -> int:
        """Run a program on the arrays of a call; both arguments are addresses.

        Returns 0, or a failure as in `driver_layout.py`.
        """
        if self._launch is None:
            self._load()
        threads = min(threads, self._processors)
        answer: int = self._launch(self._address, program, threads, objects)
        while answer < 0:
            if answer == driver_layout.NO_MEMORY:
                raise MemoryError("there is not enough memory for what a native program computes")
            if not self._start(driver_layout.TOO_FEW - answer):
                threads = 1
            answer = self._launch(self._address, program, threads, objects)
        return answer

    @property
    def scratch(self) -> int:
        """Bytes of the scratch memory that programs share now."""
        return 0 if self._launch is None else int(self._cell(driver_layout.SCRATCH_SIZE))

    def renew(self) -> None:
        """Start over without workers, in a forked child: threads do not survive a fork."""
        if self._launch is not None:
            before = [
                self._cell(c) for c in (driver_layout.SCRATCH_ADDRESS, driver_layout.SCRATCH_SIZE)
            ]
            self._begin(*before)

    def _load(self) -> None:
        with self._lock:
            if self._launch is not None:
                return
            self._driver = next(iter(jit.functions([driver.text()]).values()))
            self._prepare = _OnJob(self._driver.also("begin"))
            if driver_threads.has_threads():
                self._work = _OnJob(self._driver.also("work"))
            self._begin(0, 0)
            launch = _Launch(self._driver.address)
            if driver_threads.has_threads():
                self._launch = launch
                return
            warnings.warn(
                "this system has no POSIX threads: native programs run on one thread",
                RuntimeWarning,
                stacklevel=2,
            )

            def alone(job: int, program: int, threads: int, objects: int) -> int:
                with self._lock:
                    answer: int = launch(job, program, 1, objects)
                    return answer

            self._launch = alone

    def private_job(self) -> tuple[int, Any]:
        """The address of the function that runs programs, and a job of its own for it.

        Only programs of one thread may use the job, one at a time: it has no workers.
        """
        if self._launch is None:
            self._load()
        return self._driver.address, self._new_job(0, 0)

    def _begin(self, scratch: int, size: int) -> None:
        """Begin a job without workers, with some scratch memory."""
        self._job = self._new_job(scratch, size)
        self._address = self._job.ctypes.data

    def _new_job(self, scratch: int, size: int) -> Any:
        job = np.zeros(driver_layout.JOB_BYTES // 8 + 8, np.int64)
        job = job[-job.ctypes.data % 64 // 8 :]
        job[driver_layout.SCRATCH_ADDRESS // 8] = scratch
        job[driver_layout.SCRATCH_SIZE // 8] = size
        # These may be called without the interpreter's lock, and exist on every system.
        for cell, function in (
            (driver_layout.ALLOCATE, ctypes.pythonapi.PyMem_RawMalloc),
            (driver_layout.RELEASE, ctypes.pythonapi.PyMem_RawFree),
        ):
            address = ctypes.cast(function, ctypes.c_void_p).value
            assert address is not None
            job[cell // 8] = address
        self._prepare(job.ctypes.data)
        return job

    def _cell(self, offset: int) -> int:
        return int(self._job[offset // 8])

    def _start(self, workers: int) -> bool:
        """Start workers until there are `workers`; False if the system gives no more threads."""
        # A worker counts itself when it is ready. So an interrupt may come at any point: the thread
        # that was about to start becomes a worker or not.
        while (ready := self._cell(driver_layout.WORKERS)) < workers:
            try:
                _thread.start_new_thread(_live, (self._work, self._job))
            except RuntimeError:
                _warn_of_one_thread()
                return False
            while self._cell(driver_layout.WORKERS) == ready:
                time.sleep(0.0001)
        return True


def _live(work: Any, job: Any) -> None:
    """Work until the process ends; `job` keeps its memory alive."""
    work(job.ctypes.data)


@functools.cache
def _warn_of_one_thread() -> None:
    warnings.warn(
        "the system gives no more threads: native programs run on one thread",
        RuntimeWarning,
        stacklevel=2,
    )


pool = Pool()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=pool.renew)


def set_num_threads(threads: int) -> None:
    """Use this many threads for compiled programs."""
    if not isinstance(threads, int) or threads < 1:
        raise ValueError(f"the number of threads must be a whole number above 0, got {threads!r}")
    pool.threads = threads


def get_num_threads() -> int:
    """How many threads compiled programs use."""
    return pool.threads
