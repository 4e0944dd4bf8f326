"""The driver: native code that walks programs. One call posts a program, runs it and waits.

Comes in: the descriptor of a program (`driver_layout.py`), written by `executable.py`. Every thread
walks all steps and does its part of each, with barriers where the list of steps has them. No Python
runs between the posting of a program and its end, so an exception from a signal handler comes
before a program or after it, and finds all workers waiting. `pool.py` loads this code and starts
the threads.
"""

from __future__ import annotations

from . import driver_memory, driver_threads
from .driver_layout import (
    ARRIVED,
    ASLEEP,
    BARRIER,
    CHECK,
    DONE,
    FAILURE_BITS,
    FINISH,
    LEADER,
    NO_MEMORY,
    OPENED,
    PROGRAM,
    SERIAL,
    SHARED,
    STATUS,
    THREAD_BITS,
    TOO_FEW,
    WORDS,
    WORKERS,
    at,
    word,
)

# The last thread to arrive opens a barrier; the others spin, and yield if that takes long.
_WALK = f"""
define internal void @barrier(ptr %job, i64 %threads) noinline {{
entry:
  %alone = icmp eq i64 %threads, 1
  br i1 %alone, label %out, label %arrive
arrive:
  {at("%arrived", ARRIVED)}
  {at("%opened.cell", OPENED)}
  %before = load atomic i64, ptr %opened.cell acquire, align 8
  %order = atomicrmw add ptr %arrived, i64 1 acq_rel
  %last = sub i64 %threads, 1
  %is_last = icmp eq i64 %order, %last
  br i1 %is_last, label %open, label %wait
open:
  store atomic i64 0, ptr %arrived release, align 8
  %after = add i64 %before, 1
  store atomic i64 %after, ptr %opened.cell release, align 8
  br label %out
wait:
  %spins = phi i64 [ 0, %arrive ], [ %more, %retry ]
  %now = load atomic i64, ptr %opened.cell acquire, align 8
  %opened = icmp ne i64 %now, %before
  br i1 %opened, label %out, label %retry
retry:
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
; Walk a program as one of its threads; answers the status cell of what failed, or 0.
define internal i64 @drive(i64 %thread, i64 %threads, ptr %program, ptr %job) noinline {{
entry:
  %steps = load ptr, ptr %program
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
    i64 {BARRIER}, label %synchronize
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
synchronize:
  call void @barrier(ptr %job, i64 %threads)
  br label %done
check:
  call void @barrier(ptr %job, i64 %threads)
  %status.cell = load ptr, ptr %table
  %status = load i64, ptr %status.cell
  %bad = icmp ne i64 %status, 0
  br i1 %bad, label %stop, label %done
done:
  br label %next
stop:
  %failed = ptrtoint ptr %status.cell to i64
  ret i64 %failed
out:
  ret i64 0
}}
"""

_LAUNCH = f"""\
; Run a program: 0, a negative answer (see above), or the status of what failed with its position.
define i64 @NAME(ptr %job, ptr %program, i64 %threads, ptr %objects) {{
entry:
  call void @lock(ptr %job)
  {at("%workers.cell", WORKERS)}
  %workers = load atomic i64, ptr %workers.cell seq_cst, align 8
  %others = sub i64 %threads, 1
  %enough = icmp uge i64 %workers, %others
  br i1 %enough, label %prepare, label %leave
prepare:
  %fits = call i1 @reserve(ptr %job, ptr %program)
  br i1 %fits, label %ready, label %leave
ready:
  call void @fill(ptr %program, ptr %objects)
  %alone = icmp eq i64 %threads, 1
  br i1 %alone, label %lead, label %post
post:
  {at("%program.cell", PROGRAM)}
  store ptr %program, ptr %program.cell
  {at("%done.cell", DONE)}
  store atomic i64 0, ptr %done.cell monotonic, align 8
  {at("%leader.cell", LEADER)}
  %leader = call i32 @processor()
  store atomic i32 %leader, ptr %leader.cell monotonic, align 4
  %before = load atomic i64, ptr %job monotonic, align 8
  %counted = and i64 %before, {-(1 << THREAD_BITS)}
  %next = add i64 %counted, {1 << THREAD_BITS}
  %word = or i64 %next, %threads
  atomicrmw xchg ptr %job, i64 %word seq_cst
  {at("%asleep.cell", ASLEEP)}
  %asleep = load atomic i64, ptr %asleep.cell seq_cst, align 8
  %awake = icmp eq i64 %asleep, 0
  br i1 %awake, label %lead, label %rouse
rouse:
  call void @wake(ptr %job)
  br label %lead
lead:
  %failed = call i64 @drive(i64 0, i64 %threads, ptr %program, ptr %job)
  br i1 %alone, label %ended, label %join
join:
  {at("%joined.cell", DONE)}
  br label %wait
wait:
  %spins = phi i64 [ 0, %join ], [ %more, %retry ]
  %done = load atomic i64, ptr %joined.cell acquire, align 8
  %all = icmp eq i64 %done, %others
  br i1 %all, label %ended, label %retry
retry:
  call void @rest(i64 %spins)
  %more = add i64 %spins, 1
  br label %wait
ended:
  %good = icmp eq i64 %failed, 0
  br i1 %good, label %leave, label %report
report:
  {word("%status", STATUS)}
  %distance = sub i64 %failed, %status
  %shifted = shl i64 %distance, {FAILURE_BITS - 3}
  %failed.cell = inttoptr i64 %failed to ptr
  %code = load i64, ptr %failed.cell
  %both = or i64 %shifted, %code
  br label %leave
leave:
  %answer = phi i64 [ {TOO_FEW}, %entry ], [ {NO_MEMORY}, %prepare ], [ 0, %ended ],
    [ %both, %report ]
  call void @unlock(ptr %job)
  ret i64 %answer
}}
"""


def text() -> str:
    """The text of the driver for this system."""
    parts = [
        driver_threads.text(),
        driver_memory.pages_text(),
        _WALK,
        driver_memory.tables_text(),
        _LAUNCH,
    ]
    return "".join(parts)
