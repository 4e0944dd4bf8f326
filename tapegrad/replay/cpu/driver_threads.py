"""The part of the driver about threads: locks, workers that wait for programs, processors.

Goes out: the text of functions in LLVM IR, for what this system has: with or without POSIX threads,
with or without a choice of processors. Called by `driver.py`, which adds it to its own text.
`pool.py` asks `has_threads` before it starts workers, which run `@work`.
"""

from __future__ import annotations

import ctypes
import functools
import platform

from . import tuning
from .driver_layout import (
    ASLEEP,
    CONDITION,
    INSIDE,
    LEADER,
    MAX_THREADS,
    MUTEX,
    PROGRAM,
    SLEEP_MUTEX,
    THREAD_BITS,
    WORKERS,
    at,
    of_thread,
)

_PAUSE = {"x86_64": "pause", "AMD64": "pause", "aarch64": "yield", "arm64": "yield"}
_THREADS = (
    *("pthread_mutex_init", "pthread_mutex_lock", "pthread_mutex_unlock"),
    *("pthread_cond_init", "pthread_cond_wait", "pthread_cond_signal", "sched_yield"),
)
_PROCESSORS = ("sched_getcpu", "sched_getaffinity", "sched_setaffinity", "getpid")


@functools.cache
def has(*names: str) -> bool:
    """Whether native code can call these functions of the C library."""
    try:
        library = ctypes.CDLL(None)
    except (OSError, TypeError):  # the latter on Windows, whose loader wants a name
        return False
    return all(hasattr(library, name) for name in names)


def has_threads() -> bool:
    """Whether programs can run on several threads here."""
    return has(*_THREADS)


def pause() -> str:
    """The instruction that tells the processor that a thread is waiting, as text of LLVM IR."""
    name = _PAUSE.get(platform.machine())
    return f'call void asm sideeffect "{name}", ""()' if name else ""


# Mutexes and conditions are those of POSIX. A worker that goes to sleep says so before it looks at
# the job for the last time, and a launch posts before it looks who sleeps: one of the two sees the
# other. In the same way a worker says that it is inside of a program before it looks whether that
# goes on, and a launch ends it before it looks who is inside. Each thread wakes two others, so that
# many do not wait for one. Linux was seen to leave two spinning threads on one processor for
# seconds while another one idled; a worker that finds itself on the processor of the leading thread
# moves.
_SEVERAL = f"""
declare i32 @pthread_mutex_init(ptr, ptr)
declare i32 @pthread_mutex_lock(ptr)
declare i32 @pthread_mutex_unlock(ptr)
declare i32 @pthread_cond_init(ptr, ptr)
declare i32 @pthread_cond_wait(ptr, ptr)
declare i32 @pthread_cond_signal(ptr)
declare i32 @sched_yield()
define void @begin(ptr %job) {{
entry:
  {at("%mutex", MUTEX)}
  call i32 @pthread_mutex_init(ptr %mutex, ptr null)
  br label %next
next:
  %thread = phi i64 [ 0, %entry ], [ %following, %next ]
  {of_thread("%sleep.mutex", "%thread", SLEEP_MUTEX)}
  {of_thread("%condition", "%thread", CONDITION)}
  call i32 @pthread_mutex_init(ptr %sleep.mutex, ptr null)
  call i32 @pthread_cond_init(ptr %condition, ptr null)
  %following = add i64 %thread, 1
  %more = icmp ult i64 %following, {MAX_THREADS}
  br i1 %more, label %next, label %out
out:
  ret void
}}
define internal void @lock(ptr %job) {{
  {at("%mutex", MUTEX)}
  call i32 @pthread_mutex_lock(ptr %mutex)
  ret void
}}
define internal void @unlock(ptr %job) {{
  {at("%mutex", MUTEX)}
  call i32 @pthread_mutex_unlock(ptr %mutex)
  ret void
}}
; Wake the two threads that a thread is to wake, if they have a part and sleep.
define internal void @wake(ptr %job, i64 %thread, i64 %threads) {{
entry:
  %twice = shl i64 %thread, 1
  %first = add i64 %twice, 1
  %last = add i64 %twice, 2
  br label %next
next:
  %other = phi i64 [ %first, %entry ], [ %following, %done ]
  %there = icmp ult i64 %other, %threads
  %near = icmp ule i64 %other, %last
  %wanted = and i1 %there, %near
  br i1 %wanted, label %look, label %out
look:
  {of_thread("%asleep.cell", "%other", ASLEEP)}
  %asleep = load atomic i64, ptr %asleep.cell seq_cst, align 8
  %awake = icmp eq i64 %asleep, 0
  br i1 %awake, label %done, label %rouse
rouse:
  {of_thread("%mutex", "%other", SLEEP_MUTEX)}
  {of_thread("%condition", "%other", CONDITION)}
  call i32 @pthread_mutex_lock(ptr %mutex)
  call i32 @pthread_mutex_unlock(ptr %mutex)
  call i32 @pthread_cond_signal(ptr %condition)
  br label %done
done:
  %following = add i64 %other, 1
  br label %next
out:
  ret void
}}
define internal void @sleep(ptr %job, i64 %thread, i64 %seen) {{
entry:
  {of_thread("%mutex", "%thread", SLEEP_MUTEX)}
  {of_thread("%condition", "%thread", CONDITION)}
  {of_thread("%asleep", "%thread", ASLEEP)}
  call i32 @pthread_mutex_lock(ptr %mutex)
  store atomic i64 1, ptr %asleep seq_cst, align 8
  br label %look
look:
  %now = load atomic i64, ptr %job seq_cst, align 8
  %nothing = icmp eq i64 %now, %seen
  br i1 %nothing, label %wait, label %out
wait:
  call i32 @pthread_cond_wait(ptr %condition, ptr %mutex)
  br label %look
out:
  store atomic i64 0, ptr %asleep seq_cst, align 8
  call i32 @pthread_mutex_unlock(ptr %mutex)
  ret void
}}
define internal void @yield() {{
  call i32 @sched_yield()
  ret void
}}
define internal void @rest(i64 %spins) {{
entry:
  %low_bits = and i64 %spins, {tuning.SPINS_BETWEEN_YIELDS - 1}
  %long = icmp eq i64 %low_bits, {tuning.SPINS_BETWEEN_YIELDS - 1}
  br i1 %long, label %yield, label %pause
yield:
  call void @yield()
  ret void
pause:
  {pause()}
  ret void
}}
define internal void @outside(ptr %job, i64 %thread) {{
  {of_thread("%inside", "%thread", INSIDE)}
  store atomic i64 0, ptr %inside release, align 8
  ret void
}}
; Go into the program that %word was posted for; false if it has ended.
define internal i1 @inside(ptr %job, i64 %thread, i64 %word) {{
entry:
  {of_thread("%inside", "%thread", INSIDE)}
  store atomic i64 1, ptr %inside seq_cst, align 8
  %now = load atomic i64, ptr %job seq_cst, align 8
  %same = icmp eq i64 %now, %word
  br i1 %same, label %in, label %over
in:
  ret i1 true
over:
  call void @outside(ptr %job, i64 %thread)
  ret i1 false
}}
define void @work(ptr %job) {{
entry:
  {at("%workers", WORKERS)}
  {at("%program.cell", PROGRAM)}
  {at("%leader.cell", LEADER)}
  ; What is posted before the worker is counted has no part for it.
  %began = load atomic i64, ptr %job acquire, align 8
  %others = atomicrmw add ptr %workers, i64 1 seq_cst
  %thread = add i64 %others, 1
  %known = icmp ult i64 %thread, {MAX_THREADS}
  br i1 %known, label %wait, label %superfluous
superfluous:
  ret void
wait:
  %seen = phi i64 [ %began, %entry ], [ %seen, %retry ], [ %seen, %doze ], [ %now, %take ],
    [ %now, %ran ], [ %now, %move ]
  %i = phi i64 [ 0, %entry ], [ %next, %retry ], [ 0, %doze ], [ %i, %take ], [ 0, %ran ],
    [ 0, %move ]
  %now = load atomic i64, ptr %job acquire, align 8
  %came = icmp ne i64 %now, %seen
  br i1 %came, label %take, label %idle
idle:
  %next = add i64 %i, 1
  %enough = icmp sge i64 %next, {tuning.SPINS_BEFORE_SLEEP}
  br i1 %enough, label %doze, label %retry
retry:
  call void @rest(i64 %i)
  br label %wait
doze:
  call void @sleep(ptr %job, i64 %thread, i64 %seen)
  br label %wait
take:
  %threads = and i64 %now, {(1 << THREAD_BITS) - 1}
  %mine = icmp slt i64 %thread, %threads
  br i1 %mine, label %enter, label %wait
enter:
  call void @wake(ptr %job, i64 %thread, i64 %threads)
  %goes_on = call i1 @inside(ptr %job, i64 %thread, i64 %now)
  br i1 %goes_on, label %run, label %ran
run:
  %program = load ptr, ptr %program.cell
  call i64 @drive(i64 %thread, ptr %program, ptr %job, i64 %now)
  call void @outside(ptr %job, i64 %thread)
  br label %ran
ran:
  %leader = load atomic i32, ptr %leader.cell monotonic, align 4
  %here = call i32 @processor()
  %together = icmp eq i32 %here, %leader
  %found = icmp sge i32 %here, 0
  %crowded = and i1 %together, %found
  br i1 %crowded, label %move, label %wait
move:
  call void @leave(i32 %here)
  br label %wait
}}
"""

_ALONE = f"""
define void @begin(ptr %job) {{
  ret void
}}
define internal void @lock(ptr %job) {{
  ret void
}}
define internal void @unlock(ptr %job) {{
  ret void
}}
define internal void @wake(ptr %job, i64 %thread, i64 %threads) {{
  ret void
}}
define internal void @yield() {{
  ret void
}}
define internal void @rest(i64 %spins) {{
  {pause()}
  ret void
}}
define internal void @outside(ptr %job, i64 %thread) {{
  ret void
}}
define internal i1 @inside(ptr %job, i64 %thread, i64 %word) {{
  ret i1 true
}}
"""

# A thread keeps off a processor by leaving it out of those that the process may use, if there are
# others; the masks are for 1024 processors.
_KNOWN_PROCESSORS = """
declare i32 @sched_getcpu()
declare i32 @sched_getaffinity(i32, i64, ptr)
declare i32 @sched_setaffinity(i32, i64, ptr)
declare i32 @getpid()
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
define internal i32 @processor() {
  %here = call i32 @sched_getcpu()
  ret i32 %here
}
define internal void @leave(i32 %processor) noinline {
entry:
  %mask = alloca [16 x i64], align 8
  call void @llvm.memset.p0.i64(ptr %mask, i8 0, i64 128, i1 false)
  %fits = icmp ult i32 %processor, 1024
  br i1 %fits, label %ask, label %out
ask:
  %process = call i32 @getpid()
  %answer = call i32 @sched_getaffinity(i32 %process, i64 128, ptr %mask)
  %bad = icmp slt i32 %answer, 0
  br i1 %bad, label %out, label %clear
clear:
  %wide = zext i32 %processor to i64
  %position = lshr i64 %wide, 6
  %shift = and i64 %wide, 63
  %bit = shl i64 1, %shift
  %kept = xor i64 %bit, -1
  %cell = getelementptr inbounds i64, ptr %mask, i64 %position
  %before = load i64, ptr %cell
  %after = and i64 %before, %kept
  store i64 %after, ptr %cell
  br label %look
look:
  %i = phi i64 [ 0, %clear ], [ %next, %look ]
  %found = phi i64 [ 0, %clear ], [ %more, %look ]
  %each = getelementptr inbounds i64, ptr %mask, i64 %i
  %word = load i64, ptr %each
  %more = or i64 %found, %word
  %next = add i64 %i, 1
  %all = icmp eq i64 %next, 16
  br i1 %all, label %decide, label %look
decide:
  %others = icmp ne i64 %more, 0
  br i1 %others, label %set, label %out
set:
  call i32 @sched_setaffinity(i32 0, i64 128, ptr %mask)
  br label %out
out:
  ret void
}
"""

_UNKNOWN_PROCESSORS = """
define internal i32 @processor() {
  ret i32 -1
}
define internal void @leave(i32 %processor) {
  ret void
}
"""


def text() -> str:
    """The text of these functions for this system."""
    several = _SEVERAL if has_threads() else _ALONE
    return several + (_KNOWN_PROCESSORS if has(*_PROCESSORS) else _UNKNOWN_PROCESSORS)
