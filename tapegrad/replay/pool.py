"""The worker threads that native programs run on.

A program is a native function `program(thread, threads, buffers)`. The calling thread is number 0;
the others are Python threads inside a native loop that waits for the next program. They spin for a
short time, then return to Python and sleep until they are called. One program runs at a time.
"""

from __future__ import annotations

import ctypes
import functools
import os
import platform
import threading
from typing import Any

import numpy as np

from . import native

#: rounds of waiting before a worker goes to sleep: about 0.2 ms
SPINS = 4000

_PAUSE = {"x86_64": "pause", "AMD64": "pause", "aarch64": "yield", "arm64": "yield"}


def pause() -> str:
    """The instruction that tells the processor that a thread is waiting, as text of LLVM IR."""
    name = _PAUSE.get(platform.machine())
    return f'call void asm sideeffect "{name}", ""()' if name else ""


# A job is five cells, a cache line apart: generation, function, buffers, threads, and how many are
# done. Workers say that they are done from here and not from the program, whose code may be freed
# as soon as its caller returns.
_WORK = f"""
define i64 @work(ptr %job, i64 %thread, i64 %seen, i64 %spins) {{
entry:
  br label %wait
wait:
  %i = phi i64 [ 0, %entry ], [ %next, %again ]
  %now = load atomic i64, ptr %job acquire, align 8
  %came = icmp ne i64 %now, %seen
  br i1 %came, label %take, label %pause
pause:
  %next = add i64 %i, 1
  %enough = icmp sge i64 %next, %spins
  br i1 %enough, label %out, label %again
again:
  {pause()}
  br label %wait
take:
  %function.cell = getelementptr inbounds i8, ptr %job, i64 64
  %function = load ptr, ptr %function.cell
  %buffers.cell = getelementptr inbounds i8, ptr %job, i64 128
  %buffers = load ptr, ptr %buffers.cell
  %threads.cell = getelementptr inbounds i8, ptr %job, i64 192
  %threads = load i64, ptr %threads.cell
  %mine = icmp slt i64 %thread, %threads
  br i1 %mine, label %run, label %out
run:
  call i64 %function(i64 %thread, i64 %threads, ptr %buffers)
  %done.cell = getelementptr inbounds i8, ptr %job, i64 256
  atomicrmw add ptr %done.cell, i64 1 acq_rel
  br label %out
out:
  ret i64 %now
}}
define i64 @lead(ptr %job, ptr %function, ptr %buffers, i64 %threads) {{
entry:
  %result = call i64 %function(i64 0, i64 %threads, ptr %buffers)
  %done.cell = getelementptr inbounds i8, ptr %job, i64 256
  %others = sub i64 %threads, 1
  br label %wait
wait:
  %i = phi i64 [ 0, %entry ], [ %next, %again ]
  %done = load atomic i64, ptr %done.cell acquire, align 8
  %all = icmp eq i64 %done, %others
  br i1 %all, label %out, label %pause
pause:
  %next = add i64 %i, 1
  %low_bits = and i64 %next, 1023
  %long = icmp eq i64 %low_bits, 0
  br i1 %long, label %yield, label %again
yield:
  call i32 @sched_yield()
  br label %again
again:
  {pause()}
  br label %wait
out:
  ret i64 %result
}}
declare i32 @sched_yield()
define i64 @post(ptr %job, ptr %function, ptr %buffers, i64 %threads) {{
entry:
  %function.cell = getelementptr inbounds i8, ptr %job, i64 64
  store ptr %function, ptr %function.cell
  %buffers.cell = getelementptr inbounds i8, ptr %job, i64 128
  store ptr %buffers, ptr %buffers.cell
  %threads.cell = getelementptr inbounds i8, ptr %job, i64 192
  store i64 %threads, ptr %threads.cell
  %done.cell = getelementptr inbounds i8, ptr %job, i64 256
  store i64 0, ptr %done.cell
  atomicrmw add ptr %job, i64 1 acq_rel
  ret i64 0
}}
"""

Program = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)
_Work = ctypes.CFUNCTYPE(
    ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64
)
_Post = ctypes.CFUNCTYPE(
    ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64
)


@functools.cache
def default_threads() -> int:
    """As many threads as there are physical cores that this process may use."""
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


@functools.cache
def _c_library() -> Any:
    return ctypes.CDLL(None)


def _processor() -> int:
    """The processor that this thread runs on, or -1 where that cannot be told."""
    get = getattr(_c_library(), "sched_getcpu", None)
    return -1 if get is None else int(get())


def _leave(processor: int) -> None:
    """Keep this thread off a processor, if there are others.

    Linux wakes a thread where its waker runs, and was seen to leave two spinning threads on one
    processor for seconds while the other one idled: a step then took 1000 instead of 340 µs.
    """
    if processor >= 0 and hasattr(os, "sched_setaffinity"):
        others = os.sched_getaffinity(os.getpid()) - {processor}
        if others:
            os.sched_setaffinity(0, others)


class Pool:
    """Workers for programs of several threads."""

    def __init__(self) -> None:
        #: one program runs at a time; a program may not start another
        self.lock = threading.Lock()
        self.threads: int | None = None
        self._library: native.Library | None = None
        self._job = np.zeros(40, np.int64)
        self._wake = threading.Condition()
        self._parked = 0
        self._leader = -1
        self._workers: list[threading.Thread] = []

    def run(self, program: Any, address: int, buffers: int, threads: int) -> int:
        """Run a program; the caller holds the lock."""
        if threads == 1:
            return int(program(0, 1, buffers))
        if len(self._workers) < threads - 1:
            self._start(threads)
        self._post(self._address, address, buffers, threads)
        if self._parked:
            with self._wake:
                self._leader = _processor()
                self._wake.notify_all()
        return int(self._lead(self._address, address, buffers, threads))

    def _start(self, threads: int) -> None:
        if self._library is None:
            self._library = native.compile_module(_WORK)
            self._work = _Work(self._library.address("work"))
            self._post = _Post(self._library.address("post"))
            self._lead = _Post(self._library.address("lead"))
            self._address = self._job.ctypes.data
        while len(self._workers) < threads - 1:
            number = len(self._workers) + 1
            worker = threading.Thread(
                target=self._live,
                args=(number, int(self._job[0])),
                daemon=True,
                name=f"tapegrad-worker-{number}",
            )
            self._workers.append(worker)
            worker.start()

    def _live(self, number: int, seen: int) -> None:
        while True:
            now = self._work(self._address, number, seen, SPINS)
            if now != seen:
                seen = now
                continue
            with self._wake:
                # Parked is set before the look at the job, and read after a job is posted: either
                # the worker sees the job, or the caller sees that it must wake the worker.
                self._parked += 1
                while int(self._job[0]) == seen:
                    self._wake.wait()
                self._parked -= 1
                leader = self._leader
            _leave(leader)


pool = Pool()


def _after_fork() -> None:
    """Threads do not survive a fork: the child begins with a pool of its own."""
    global pool
    threads = pool.threads
    pool = Pool()
    pool.threads = threads


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def set_num_threads(threads: int) -> None:
    """Use this many threads for compiled programs."""
    if not isinstance(threads, int) or threads < 1:
        raise ValueError(f"the number of threads must be a whole number above 0, got {threads!r}")
    pool.threads = threads


def get_num_threads() -> int:
    """How many threads compiled programs use."""
    return pool.threads or default_threads()
