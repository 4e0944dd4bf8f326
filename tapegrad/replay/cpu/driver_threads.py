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
    MAX_THREADS,
    MUTEX,
    PROCESSOR,
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
    """Whether the C library has these functions."""
    try:
        library = ctypes.CDLL(None)
    except (OSError, TypeError):  # the latter on Windows, whose loader wants a name
        return False
    return all(hasattr(library, name) for name in names)


def has_threads() -> bool:
    """Whether programs can run on several threads here."""
    return has(*_THREADS)


def pause() -> str:
    """The text of the instruction that tells the processor that a thread spins."""
    name = _PAUSE.get(platform.machine())
    return f'call void asm sideeffect "{name}", ""()' if name else ""


#: which threads a thread avoids when it looks for a processor: working, all, or sleeping ones
BUSY, ANY, SLEEPING = range(3)

# Mutexes and conditions are those of POSIX. A worker that goes to sleep sets its flag before it
# reads the job for the last time, and a launch posts before it reads the flags: one of the two sees
# the other. In the same way a worker sets that it is inside a program before it checks that the
# program goes on, and a launch ends the program before it checks who is inside. Each thread wakes
# two others, so that many do not wait for one.
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
  call void @settle(ptr %job, i64 %thread)
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
  call void @unsettle()
  ret void
}}
define internal void @rest(i64 %spins) {{
entry:
  %low_bits = and i64 %spins, {tuning.SPINS_BETWEEN_YIELDS - 1}
  %long = icmp eq i64 %low_bits, {tuning.SPINS_BETWEEN_YIELDS - 1}
  br i1 %long, label %yield, label %pause
yield:
  call i32 @sched_yield()
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
  ; What is posted before the worker is counted has no part for it.
  %began = load atomic i64, ptr %job acquire, align 8
  %others = atomicrmw add ptr %workers, i64 1 seq_cst
  %thread = add i64 %others, 1
  %known = icmp ult i64 %thread, {MAX_THREADS}
  br i1 %known, label %wait, label %superfluous
superfluous:
  ret void
wait:
  %seen = phi i64 [ %began, %entry ], [ %seen, %spin ], [ %seen, %look ], [ %seen, %doze ],
    [ %now, %take ], [ %now, %ran ]
  %i = phi i64 [ 0, %entry ], [ %next, %spin ], [ %next, %look ], [ 0, %doze ], [ %i, %take ],
    [ 0, %ran ]
  %now = load atomic i64, ptr %job acquire, align 8
  %came = icmp ne i64 %now, %seen
  br i1 %came, label %take, label %idle
idle:
  %next = add i64 %i, 1
  %enough = icmp sge i64 %next, {tuning.SPINS_BEFORE_SLEEP}
  br i1 %enough, label %doze, label %retry
retry:
  %low_bits = and i64 %next, {tuning.SPINS_BETWEEN_YIELDS - 1}
  %long = icmp eq i64 %low_bits, 0
  br i1 %long, label %look, label %spin
spin:
  {pause()}
  br label %wait
look:
  %all = load atomic i64, ptr %workers monotonic, align 8
  %everybody = add i64 %all, 1
  call void @make_room(ptr %job, i64 %thread, i64 %everybody, i64 {BUSY})
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
  call i64 @locate(ptr %job, i64 %thread)
  %program = load ptr, ptr %program.cell
  call i64 @drive(i64 %thread, i64 %threads, ptr %program, ptr %job, i64 %now)
  call void @outside(ptr %job, i64 %thread)
  br label %ran
ran:
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
define internal i64 @locate(ptr %job, i64 %thread) {{
  ret i64 -1
}}
define internal void @make_room(ptr %job, i64 %thread, i64 %threads, i64 %counting) {{
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

# Linux leaves two spinning threads on one processor for milliseconds while another processor idles,
# and a thread that yields gets the processor back until the other's turn comes. If all processors
# were busy shortly before, it also wakes a thread on the processor of the waking one. So threads
# record their processors, and move. A thread that waits long moves away from one that works. A
# thread that goes to sleep stays bound to a processor that no other thread has, and wakes there. A
# thread that posts a program moves away from sleeping ones. At other times no thread is bound.
# Masks are for 1024 processors.
_KNOWN_PROCESSORS = f"""
declare i32 @sched_getcpu()
declare i32 @sched_getaffinity(i32, i64, ptr)
declare i32 @sched_setaffinity(i32, i64, ptr)
declare i32 @getpid()
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
; Note on which processor a thread is, which calls this; answers it.
define internal i64 @locate(ptr %job, i64 %thread) {{
  {of_thread("%cell", "%thread", PROCESSOR)}
  %here = call i32 @sched_getcpu()
  %wide = sext i32 %here to i64
  store atomic i64 %wide, ptr %cell monotonic, align 8
  ret i64 %wide
}}
; A processor that no other thread has, if one of those that count is where the calling one is;
; else -1.
define internal i64 @room(ptr %job, i64 %thread, i64 %threads, i64 %counting) noinline {{
entry:
  %used = alloca [16 x i64], align 8
  %mask = alloca [16 x i64], align 8
  call void @llvm.memset.p0.i64(ptr %used, i8 0, i64 128, i1 false)
  call void @llvm.memset.p0.i64(ptr %mask, i8 0, i64 128, i1 false)
  %here = call i64 @locate(ptr %job, i64 %thread)
  br label %look
look:
  %other = phi i64 [ 0, %entry ], [ %following, %seen ]
  %crowded = phi i1 [ false, %entry ], [ %more, %seen ]
  {of_thread("%cell", "%other", PROCESSOR)}
  %where = load atomic i64, ptr %cell monotonic, align 8
  %number = and i64 %where, 1023
  %position = lshr i64 %number, 6
  %shift = and i64 %number, 63
  %bit = shl i64 1, %shift
  %word.cell = getelementptr inbounds i64, ptr %used, i64 %position
  %word = load i64, ptr %word.cell
  %both = or i64 %word, %bit
  store i64 %both, ptr %word.cell
  {of_thread("%inside.cell", "%other", INSIDE)}
  %inside = load atomic i64, ptr %inside.cell monotonic, align 8
  %works = icmp ne i64 %inside, 0
  %leads = icmp eq i64 %other, 0
  %busy = or i1 %works, %leads
  {of_thread("%asleep.cell", "%other", ASLEEP)}
  %asleep = load atomic i64, ptr %asleep.cell monotonic, align 8
  %sleeps = icmp ne i64 %asleep, 0
  %all = icmp eq i64 %counting, {ANY}
  %sleeping = icmp eq i64 %counting, {SLEEPING}
  %chosen = select i1 %sleeping, i1 %sleeps, i1 %busy
  %counts = or i1 %all, %chosen
  %same = icmp eq i64 %where, %here
  %another = icmp ne i64 %other, %thread
  %near = and i1 %same, %another
  %crowds = and i1 %near, %counts
  %more = or i1 %crowded, %crowds
  br label %seen
seen:
  %following = add i64 %other, 1
  %left = icmp ult i64 %following, %threads
  br i1 %left, label %look, label %decide
decide:
  br i1 %more, label %ask, label %none
ask:
  %answer = call i32 @sched_getaffinity(i32 0, i64 128, ptr %mask)
  %bad = icmp slt i32 %answer, 0
  br i1 %bad, label %none, label %search
search:
  ; Each thread begins to search somewhere else, so that two do not move to one place.
  %i = phi i64 [ 1, %ask ], [ %i.next, %next ]
  %way = mul i64 %thread, 7
  %from = add i64 %here, %way
  %candidate.far = add i64 %from, %i
  %candidate = and i64 %candidate.far, 1023
  %c.position = lshr i64 %candidate, 6
  %c.shift = and i64 %candidate, 63
  %c.bit = shl i64 1, %c.shift
  %may.cell = getelementptr inbounds i64, ptr %mask, i64 %c.position
  %may.word = load i64, ptr %may.cell
  %taken.cell = getelementptr inbounds i64, ptr %used, i64 %c.position
  %taken.word = load i64, ptr %taken.cell
  %free.word = xor i64 %taken.word, -1
  %allowed = and i64 %may.word, %free.word
  %is_free.bit = and i64 %allowed, %c.bit
  %is_free = icmp ne i64 %is_free.bit, 0
  br i1 %is_free, label %found, label %next
next:
  %i.next = add i64 %i, 1
  %goes_on = icmp ult i64 %i.next, 1024
  br i1 %goes_on, label %search, label %none
found:
  ret i64 %candidate
none:
  ret i64 -1
}}
; Bind the calling thread to a processor, and note that.
define internal void @bind(ptr %job, i64 %thread, i64 %processor) {{
entry:
  %mask = alloca [16 x i64], align 8
  call void @llvm.memset.p0.i64(ptr %mask, i8 0, i64 128, i1 false)
  %fits = icmp ult i64 %processor, 1024
  br i1 %fits, label %set, label %out
set:
  %position = lshr i64 %processor, 6
  %shift = and i64 %processor, 63
  %bit = shl i64 1, %shift
  %cell = getelementptr inbounds i64, ptr %mask, i64 %position
  store i64 %bit, ptr %cell
  call i32 @sched_setaffinity(i32 0, i64 128, ptr %mask)
  call i64 @locate(ptr %job, i64 %thread)
  br label %out
out:
  ret void
}}
define internal void @make_room(ptr %job, i64 %thread, i64 %threads, i64 %counting) noinline {{
entry:
  %mask = alloca [16 x i64], align 8
  call void @llvm.memset.p0.i64(ptr %mask, i8 0, i64 128, i1 false)
  %processor = call i64 @room(ptr %job, i64 %thread, i64 %threads, i64 %counting)
  %none = icmp slt i64 %processor, 0
  br i1 %none, label %yield, label %move
move:
  %answer = call i32 @sched_getaffinity(i32 0, i64 128, ptr %mask)
  call void @bind(ptr %job, i64 %thread, i64 %processor)
  call i32 @sched_setaffinity(i32 0, i64 128, ptr %mask)
  ret void
yield:
  %waits = icmp eq i64 %counting, {BUSY}
  br i1 %waits, label %give, label %out
give:
  call i32 @sched_yield()
  br label %out
out:
  ret void
}}
; Before the calling thread sleeps: let it stay on a processor that no other one has.
define internal void @settle(ptr %job, i64 %thread) {{
entry:
  {at("%workers", WORKERS)}
  %all = load atomic i64, ptr %workers monotonic, align 8
  %everybody = add i64 %all, 1
  %processor = call i64 @room(ptr %job, i64 %thread, i64 %everybody, i64 {ANY})
  %none = icmp slt i64 %processor, 0
  %here = call i64 @locate(ptr %job, i64 %thread)
  %chosen = select i1 %none, i64 %here, i64 %processor
  call void @bind(ptr %job, i64 %thread, i64 %chosen)
  ret void
}}
; After it: let it go where the process may.
define internal void @unsettle() {{
entry:
  %mask = alloca [16 x i64], align 8
  call void @llvm.memset.p0.i64(ptr %mask, i8 0, i64 128, i1 false)
  %process = call i32 @getpid()
  %answer = call i32 @sched_getaffinity(i32 %process, i64 128, ptr %mask)
  %good = icmp sge i32 %answer, 0
  br i1 %good, label %set, label %out
set:
  call i32 @sched_setaffinity(i32 0, i64 128, ptr %mask)
  br label %out
out:
  ret void
}}
"""

_UNKNOWN_PROCESSORS = """
define internal i64 @locate(ptr %job, i64 %thread) {
  ret i64 -1
}
define internal void @make_room(ptr %job, i64 %thread, i64 %threads, i64 %counting) {
  call i32 @sched_yield()
  ret void
}
define internal void @settle(ptr %job, i64 %thread) {
  ret void
}
define internal void @unsettle() {
  ret void
}
"""


def text() -> str:
    """The text of these functions for this system."""
    if not has_threads():
        return _ALONE
    return _SEVERAL + (_KNOWN_PROCESSORS if has(*_PROCESSORS) else _UNKNOWN_PROCESSORS)
