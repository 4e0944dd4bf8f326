"""The worker threads that native programs run on, and the driver that walks a program.

A program is data: a list of steps, each a kernel with its table of arguments. Every thread walks
all steps and does its part of each, with barriers where one needs what another has made. The
calling thread is number 0; the others are Python threads inside a native loop that waits for the
next program. They spin for a short time, then return to Python and sleep until they are called.
One program runs at a time.
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

#: rounds of waiting before a worker goes to sleep: about 1 ms, longer than Python takes between
#: the operations of a training step
SPINS = 40000

#: what a launch answers when workers must be woken first
ASLEEP = 2

_PAUSE = {"x86_64": "pause", "AMD64": "pause", "aarch64": "yield", "arm64": "yield"}


@functools.cache
def _c_library() -> Any:
    return ctypes.CDLL(None)


_HAS_CURRENT = hasattr(_c_library(), "sched_getcpu")
_CURRENT = "call i32 @sched_getcpu()" if _HAS_CURRENT else "add i32 0, -1"
_DECLARED = "declare i32 @sched_getcpu()" if _HAS_CURRENT else ""


def pause() -> str:
    """The instruction that tells the processor that a thread is waiting, as text of LLVM IR."""
    name = _PAUSE.get(platform.machine())
    return f'call void asm sideeffect "{name}", ""()' if name else ""


# A program is a list of steps, of eight words each: what to do, a kernel, how many steps threads
# share and how many of them stay together, the kernel's table. Its descriptor holds, in this order:
#   the addresses of the steps and of the barrier's cells;
#   what fills in the tables: a list of (position, buffer, offset), its length, the tables, the
#   buffers;
#   what fills in the buffers: how many array objects there are, which buffer each one's memory is,
#   the objects, and where an object keeps the address of its memory.
SHARED, SERIAL, FINISH, BARRIER, CHECK, END = range(6)
WORDS = 8

# A job is cells that are a cache line apart: generation, program, threads, how many are done, how
# many workers sleep, and the processor of the leading thread. A worker that finds itself there
# returns to be moved: Linux was seen to leave two spinning threads on one processor for seconds
# while the other one idled, and a step then took 1000 instead of 340 µs. The last thread to arrive
# opens a barrier; the others spin, and yield if that takes long.
_DRIVER = f"""
define internal void @rest(i64 %spins) {{
entry:
  %low_bits = and i64 %spins, 1023
  %long = icmp eq i64 %low_bits, 1023
  br i1 %long, label %yield, label %pause
yield:
  call i32 @sched_yield()
  ret void
pause:
  {pause()}
  ret void
}}
define internal void @barrier(ptr %control, i64 %threads) noinline {{
entry:
  %alone = icmp eq i64 %threads, 1
  br i1 %alone, label %out, label %arrive
arrive:
  %generation = getelementptr inbounds i8, ptr %control, i64 64
  %before = load atomic i64, ptr %generation acquire, align 8
  %order = atomicrmw add ptr %control, i64 1 acq_rel
  %last = sub i64 %threads, 1
  %is_last = icmp eq i64 %order, %last
  br i1 %is_last, label %open, label %wait
open:
  store atomic i64 0, ptr %control release, align 8
  %after = add i64 %before, 1
  store atomic i64 %after, ptr %generation release, align 8
  br label %out
wait:
  %spins = phi i64 [ 0, %arrive ], [ %more, %again ]
  %now = load atomic i64, ptr %generation acquire, align 8
  %opened = icmp ne i64 %now, %before
  br i1 %opened, label %out, label %again
again:
  call void @rest(i64 %spins)
  %more = add i64 %spins, 1
  br label %wait
out:
  ret void
}}
define internal i64 @bound(i64 %thread, i64 %threads, i64 %extent, i64 %grain) {{
  %padded = add i64 %extent, %grain
  %short = sub i64 %padded, 1
  %blocks = udiv i64 %short, %grain
  %product = mul i64 %thread, %blocks
  %block = udiv i64 %product, %threads
  %step = mul i64 %block, %grain
  %less = icmp ult i64 %step, %extent
  %bound = select i1 %less, i64 %step, i64 %extent
  ret i64 %bound
}}
define i64 @drive(i64 %thread, i64 %threads, ptr %program) {{
entry:
  %steps = load ptr, ptr %program
  %control.cell = getelementptr inbounds i64, ptr %program, i64 1
  %control = load ptr, ptr %control.cell
  br label %next
next:
  %step = phi ptr [ %steps, %entry ], [ %following, %done ]
  %following = getelementptr inbounds i64, ptr %step, i64 {WORDS}
  %what = load i64, ptr %step
  %kernel.cell = getelementptr inbounds i64, ptr %step, i64 1
  %kernel = load ptr, ptr %kernel.cell
  %extent.cell = getelementptr inbounds i64, ptr %step, i64 2
  %extent = load i64, ptr %extent.cell
  %grain.cell = getelementptr inbounds i64, ptr %step, i64 3
  %grain = load i64, ptr %grain.cell
  %table.cell = getelementptr inbounds i64, ptr %step, i64 4
  %table = load ptr, ptr %table.cell
  switch i64 %what, label %out [
    i64 {SHARED}, label %shared
    i64 {SERIAL}, label %serial
    i64 {FINISH}, label %finish
    i64 {BARRIER}, label %meet
    i64 {CHECK}, label %check
  ]
shared:
  %successor = add i64 %thread, 1
  %low = call i64 @bound(i64 %thread, i64 %threads, i64 %extent, i64 %grain)
  %high = call i64 @bound(i64 %successor, i64 %threads, i64 %extent, i64 %grain)
  call void %kernel(i64 %low, i64 %high, i64 %thread, ptr %table)
  br label %done
serial:
  %mine = icmp eq i64 %thread, 0
  br i1 %mine, label %alone, label %done
alone:
  call void %kernel(i64 0, i64 %extent, i64 0, ptr %table)
  br label %done
finish:
  %first = icmp eq i64 %thread, 0
  br i1 %first, label %combine, label %done
combine:
  call void %kernel(i64 0, i64 %threads, i64 0, ptr %table)
  br label %done
meet:
  call void @barrier(ptr %control, i64 %threads)
  br label %done
check:
  call void @barrier(ptr %control, i64 %threads)
  %status.cell = load ptr, ptr %table
  %status = load i64, ptr %status.cell
  %bad = icmp ne i64 %status, 0
  br i1 %bad, label %stop, label %done
done:
  br label %next
stop:
  ret i64 1
out:
  ret i64 0
}}
define internal void @fill(ptr %program) {{
entry:
  %list.cell = getelementptr inbounds i64, ptr %program, i64 2
  %list = load ptr, ptr %list.cell
  %length.cell = getelementptr inbounds i64, ptr %program, i64 3
  %length = load i64, ptr %length.cell
  %tables.cell = getelementptr inbounds i64, ptr %program, i64 4
  %tables = load ptr, ptr %tables.cell
  %buffers.cell = getelementptr inbounds i64, ptr %program, i64 5
  %buffers = load ptr, ptr %buffers.cell
  %count.cell = getelementptr inbounds i64, ptr %program, i64 6
  %count = load i64, ptr %count.cell
  %where.cell = getelementptr inbounds i64, ptr %program, i64 7
  %where = load ptr, ptr %where.cell
  %objects.cell = getelementptr inbounds i64, ptr %program, i64 8
  %objects = load ptr, ptr %objects.cell
  %inside.cell = getelementptr inbounds i64, ptr %program, i64 9
  %inside = load i64, ptr %inside.cell
  br label %given
given:
  %j = phi i64 [ 0, %entry ], [ %j.next, %take ]
  %another = icmp ult i64 %j, %count
  br i1 %another, label %take, label %head
take:
  %object.cell = getelementptr inbounds i64, ptr %objects, i64 %j
  %object = load ptr, ptr %object.cell
  %memory.cell = getelementptr inbounds i8, ptr %object, i64 %inside
  %memory = load i64, ptr %memory.cell
  %which.cell = getelementptr inbounds i64, ptr %where, i64 %j
  %which = load i64, ptr %which.cell
  %buffer.at = getelementptr inbounds i64, ptr %buffers, i64 %which
  store i64 %memory, ptr %buffer.at
  %j.next = add i64 %j, 1
  br label %given
head:
  %i = phi i64 [ 0, %given ], [ %next, %body ]
  %more = icmp ult i64 %i, %length
  br i1 %more, label %body, label %out
body:
  %first = mul i64 %i, 3
  %position.cell = getelementptr inbounds i64, ptr %list, i64 %first
  %position = load i64, ptr %position.cell
  %buffer.cell = getelementptr inbounds i64, ptr %position.cell, i64 1
  %buffer = load i64, ptr %buffer.cell
  %offset.cell = getelementptr inbounds i64, ptr %position.cell, i64 2
  %offset = load i64, ptr %offset.cell
  %from = getelementptr inbounds i64, ptr %buffers, i64 %buffer
  %base = load i64, ptr %from
  %address = add i64 %base, %offset
  %to = getelementptr inbounds i64, ptr %tables, i64 %position
  store i64 %address, ptr %to
  %next = add i64 %i, 1
  br label %head
out:
  ret void
}}
define i64 @lead(ptr %job, ptr %program, i64 %threads) {{
entry:
  %result = call i64 @drive(i64 0, i64 %threads, ptr %program)
  %done.cell = getelementptr inbounds i8, ptr %job, i64 192
  %others = sub i64 %threads, 1
  br label %wait
wait:
  %spins = phi i64 [ 0, %entry ], [ %more, %again ]
  %done = load atomic i64, ptr %done.cell acquire, align 8
  %all = icmp eq i64 %done, %others
  br i1 %all, label %out, label %again
again:
  call void @rest(i64 %spins)
  %more = add i64 %spins, 1
  br label %wait
out:
  ret i64 %result
}}
define i64 @NAME(ptr %job, ptr %program, i64 %threads) {{
entry:
  call void @fill(ptr %program)
  %alone = icmp eq i64 %threads, 1
  br i1 %alone, label %single, label %post
single:
  %mine = call i64 @drive(i64 0, i64 1, ptr %program)
  ret i64 %mine
post:
  %program.cell = getelementptr inbounds i8, ptr %job, i64 64
  store ptr %program, ptr %program.cell
  %threads.cell = getelementptr inbounds i8, ptr %job, i64 128
  store i64 %threads, ptr %threads.cell
  %done.cell = getelementptr inbounds i8, ptr %job, i64 192
  store i64 0, ptr %done.cell
  %leader.cell = getelementptr inbounds i8, ptr %job, i64 320
  %leader = {_CURRENT}
  store i32 %leader, ptr %leader.cell
  atomicrmw add ptr %job, i64 1 seq_cst
  %asleep.cell = getelementptr inbounds i8, ptr %job, i64 256
  %asleep = load atomic i64, ptr %asleep.cell seq_cst, align 8
  %awake = icmp eq i64 %asleep, 0
  br i1 %awake, label %go, label %wake
go:
  %result = call i64 @lead(ptr %job, ptr %program, i64 %threads)
  ret i64 %result
wake:
  ret i64 {ASLEEP}
}}
define i64 @work(ptr %job, i64 %thread, i64 %began, i64 %spins) {{
entry:
  %asleep.cell = getelementptr inbounds i8, ptr %job, i64 256
  br label %wait
wait:
  %seen = phi i64 [ %began, %entry ], [ %seen, %again ], [ %generation, %ran ]
  %i = phi i64 [ 0, %entry ], [ %next, %again ], [ 0, %ran ]
  %now = load atomic i64, ptr %job acquire, align 8
  %came = icmp ne i64 %now, %seen
  br i1 %came, label %take, label %idle
idle:
  %next = add i64 %i, 1
  %enough = icmp sge i64 %next, %spins
  br i1 %enough, label %sleep, label %again
again:
  {pause()}
  br label %wait
sleep:
  atomicrmw add ptr %asleep.cell, i64 1 seq_cst
  %late = load atomic i64, ptr %job seq_cst, align 8
  %nothing = icmp eq i64 %late, %seen
  br i1 %nothing, label %park, label %stay
park:
  ret i64 %seen
stay:
  atomicrmw sub ptr %asleep.cell, i64 1 seq_cst
  br label %take
take:
  %generation = phi i64 [ %now, %wait ], [ %late, %stay ]
  %program.cell = getelementptr inbounds i8, ptr %job, i64 64
  %program = load ptr, ptr %program.cell
  %threads.cell = getelementptr inbounds i8, ptr %job, i64 128
  %threads = load i64, ptr %threads.cell
  %mine = icmp slt i64 %thread, %threads
  br i1 %mine, label %run, label %ran
run:
  call i64 @drive(i64 %thread, i64 %threads, ptr %program)
  %done.cell = getelementptr inbounds i8, ptr %job, i64 192
  atomicrmw add ptr %done.cell, i64 1 acq_rel
  br label %ran
ran:
  %leader.cell = getelementptr inbounds i8, ptr %job, i64 320
  %leader = load i32, ptr %leader.cell
  %here = {_CURRENT}
  %together = icmp eq i32 %here, %leader
  %known = icmp sge i32 %here, 0
  %crowded = and i1 %together, %known
  br i1 %crowded, label %move, label %wait
move:
  %flipped = xor i64 %generation, -1
  ret i64 %flipped
}}
define i64 @awake(ptr %job) {{
  %asleep.cell = getelementptr inbounds i8, ptr %job, i64 256
  atomicrmw sub ptr %asleep.cell, i64 1 seq_cst
  ret i64 0
}}
declare i32 @sched_yield()
{_DECLARED}
"""

_Launch = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
_Work = ctypes.CFUNCTYPE(
    ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64
)
_Awake = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)


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


def _leave(processor: int) -> None:
    """Keep this thread off a processor, if there are others."""
    if hasattr(os, "sched_setaffinity"):
        others = os.sched_getaffinity(os.getpid()) - {processor}
        if others:
            os.sched_setaffinity(0, others)


class Pool:
    """Workers for programs of several threads."""

    def __init__(self) -> None:
        #: one program runs at a time, and between its parts those that its callbacks start
        self.lock = threading.RLock()
        self.threads = default_threads()
        self._driver: native.Function | None = None
        self._job = np.zeros(48, np.int64)
        self._wake = threading.Condition()
        self._workers: list[threading.Thread] = []

    def run(self, program: int, threads: int) -> int:
        """Run the program whose descriptor is at an address; the caller holds the lock."""
        if len(self._workers) < threads - 1 or self._driver is None:
            self._start(threads)
        result: int = self._launch(self._address, program, threads)
        if result == ASLEEP:
            with self._wake:
                self._wake.notify_all()
            result = self._lead(self._address, program, threads)
        return result

    def _start(self, threads: int) -> None:
        if self._driver is None:
            self._driver = next(iter(native.functions([_DRIVER]).values()))
            self._launch = _Launch(self._driver.address)
            self._lead = _Launch(self._driver.also("lead"))
            self._work = _Work(self._driver.also("work"))
            self._awake = _Awake(self._driver.also("awake"))
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
            seen = self._work(self._address, number, seen, SPINS)
            if seen < 0:
                seen = ~seen
                _leave(int(self._job[40]) & 0xFFFFFFFF)
                continue
            # The worker counts as asleep since before it last looked at the job, and a job is
            # posted before its caller looks who sleeps: one of the two sees the other.
            with self._wake:
                while int(self._job[0]) == seen:
                    self._wake.wait()
            self._awake(self._address)


pool = Pool()


def _before_fork() -> None:
    """Wait for the program of another thread: the child could not finish it."""
    pool.lock.acquire()


def _after_fork() -> None:
    pool.lock.release()


def _in_child() -> None:
    """Threads do not survive a fork: the child begins with a pool of its own."""
    global pool
    threads = pool.threads
    pool = Pool()
    pool.threads = threads


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_in_child)


def set_num_threads(threads: int) -> None:
    """Use this many threads for compiled programs."""
    if not isinstance(threads, int) or threads < 1:
        raise ValueError(f"the number of threads must be a whole number above 0, got {threads!r}")
    pool.threads = threads


def get_num_threads() -> int:
    """How many threads compiled programs use."""
    return pool.threads
