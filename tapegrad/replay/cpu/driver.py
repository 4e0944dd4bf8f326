"""The driver: native code that runs programs. One call posts a program, runs it and waits.

Comes in: the descriptor of a program (`driver_layout.py`), written by `executable.py`. Its steps
form sections; when all parts of a section are done, the next one opens. Part t belongs to thread
t modulo the number of threads, which has its data in the cache. But a waiting thread takes any part
that has not begun: a program needs only the calling thread, and a thread that the system suspends
delays the others only in the middle of a part. No Python runs from the posting of a program to its
end, so a signal handler's exception comes before or after it, with all workers outside. `pool.py`
loads this code and starts the threads.
"""

from __future__ import annotations

from . import driver_memory, driver_threads, tuning
from .driver_layout import (
    ARRIVED,
    CHECK,
    END,
    FAILURE_BITS,
    FIRST,
    INSIDE,
    NO_MEMORY,
    OPENED,
    PARTS,
    PROGRAM,
    SECTION,
    STATUS,
    TAKEN,
    THREAD_BITS,
    TOO_FEW,
    WORDS,
    WORKERS,
    at,
    of_thread,
    word,
)

_WALK = f"""
define internal i64 @bound(i64 %part, i64 %parts, i64 %extent, i64 %grain) {{
  %padded = add i64 %extent, %grain
  %short = sub i64 %padded, 1
  %blocks = udiv i64 %short, %grain
  %product = mul i64 %part, %blocks
  %block = udiv i64 %product, %parts
  %step = mul i64 %block, %grain
  %less = icmp ult i64 %step, %extent
  %bound = select i1 %less, i64 %step, i64 %extent
  ret i64 %bound
}}
; Do one part of the section whose steps begin at %first; answers where the next section begins.
define internal ptr @perform(ptr %first, i64 %part) noinline {{
entry:
  br label %next
next:
  %step = phi ptr [ %first, %entry ], [ %following, %done ]
  %what = load i64, ptr %step
  %over = icmp uge i64 %what, {SECTION}
  br i1 %over, label %out, label %look
look:
  %following = getelementptr inbounds i64, ptr %step, i64 {WORDS}
  %parts.cell = getelementptr inbounds i64, ptr %step, i64 5
  %parts = load i64, ptr %parts.cell
  %mine = icmp ult i64 %part, %parts
  br i1 %mine, label %run, label %done
run:
  %kernel.cell = getelementptr inbounds i64, ptr %step, i64 1
  %kernel = load ptr, ptr %kernel.cell
  %extent.cell = getelementptr inbounds i64, ptr %step, i64 2
  %extent = load i64, ptr %extent.cell
  %grain.cell = getelementptr inbounds i64, ptr %step, i64 3
  %grain = load i64, ptr %grain.cell
  %table.cell = getelementptr inbounds i64, ptr %step, i64 4
  %table = load ptr, ptr %table.cell
  %whole = icmp eq i64 %parts, 1
  br i1 %whole, label %all, label %some
some:
  %successor = add i64 %part, 1
  %low = call i64 @bound(i64 %part, i64 %parts, i64 %extent, i64 %grain)
  %high = call i64 @bound(i64 %successor, i64 %parts, i64 %extent, i64 %grain)
  call void %kernel(i64 %low, i64 %high, i64 %part, ptr %table)
  br label %done
all:
  call void %kernel(i64 0, i64 %extent, i64 0, ptr %table)
  br label %done
done:
  br label %next
out:
  ret ptr %step
}}
; Where the section ends whose steps begin at %first.
define internal ptr @skip(ptr %first) {{
entry:
  br label %next
next:
  %step = phi ptr [ %first, %entry ], [ %following, %next ]
  %following = getelementptr inbounds i64, ptr %step, i64 {WORDS}
  %what = load i64, ptr %step
  %over = icmp uge i64 %what, {SECTION}
  br i1 %over, label %out, label %next
out:
  ret ptr %step
}}
; Do a part of a section if nobody has taken it, and open the next section after the last part.
define internal void @take(ptr %job, ptr %first, i64 %section, i64 %part, i64 %parts) {{
entry:
  {of_thread("%taken.cell", "%part", TAKEN)}
  {at("%arrived.cell", ARRIVED)}
  {at("%opened.cell", OPENED)}
  %after = add i64 %section, 1
  %taken = load atomic i64, ptr %taken.cell monotonic, align 8
  %late = icmp ugt i64 %taken, %section
  br i1 %late, label %out, label %try
try:
  %pair = cmpxchg ptr %taken.cell, i64 %taken, i64 %after acq_rel monotonic
  %mine = extractvalue {{ i64, i1 }} %pair, 1
  br i1 %mine, label %run, label %out
run:
  call ptr @perform(ptr %first, i64 %part)
  %alone = icmp eq i64 %parts, 1
  br i1 %alone, label %open, label %arrive
arrive:
  %before = atomicrmw add ptr %arrived.cell, i64 1 acq_rel
  %count = add i64 %before, 1
  %last = icmp eq i64 %count, %parts
  br i1 %last, label %clear, label %out
clear:
  store atomic i64 0, ptr %arrived.cell monotonic, align 8
  br label %open
open:
  store atomic i64 %after, ptr %opened.cell release, align 8
  br label %out
out:
  ret void
}}
; Walk a program as one of several threads; answers the status cell of what failed, or 0. %word is
; what was posted: a worker that was outside may find that the program has ended.
define internal i64 @drive(
    i64 %thread, i64 %threads, ptr %program, ptr %job, i64 %word) noinline {{
entry:
  {at("%opened.cell", OPENED)}
  {at("%first.cell", FIRST)}
  %steps = load ptr, ptr %program
  %number = load i64, ptr %first.cell
  %leads = icmp eq i64 %thread, 0
  br label %begin
begin:
  %header = phi ptr [ %steps, %entry ], [ %following, %ended ]
  %section = phi i64 [ %number, %entry ], [ %after, %ended ]
  %what = load i64, ptr %header
  switch i64 %what, label %open [
    i64 {END}, label %out
    i64 {CHECK}, label %check
  ]
check:
  %table.cell = getelementptr inbounds i64, ptr %header, i64 4
  %table = load ptr, ptr %table.cell
  %status.cell = load ptr, ptr %table
  %status = load i64, ptr %status.cell
  %bad = icmp ne i64 %status, 0
  br i1 %bad, label %stop, label %open
open:
  %parts.cell = getelementptr inbounds i64, ptr %header, i64 5
  %parts = load i64, ptr %parts.cell
  %first = getelementptr inbounds i64, ptr %header, i64 {WORDS}
  %mine = icmp ult i64 %thread, %parts
  br i1 %mine, label %own, label %wait
own:
  ; Its own part, and of more parts than threads those that follow at the same distance.
  %turn = phi i64 [ %thread, %open ], [ %turn.next, %own ]
  call void @take(ptr %job, ptr %first, i64 %section, i64 %turn, i64 %parts)
  %turn.next = add i64 %turn, %threads
  %another = icmp ult i64 %turn.next, %parts
  br i1 %another, label %own, label %wait
wait:
  %spins = phi i64 [ 0, %open ], [ 0, %own ], [ %more, %retry ], [ %more, %help ],
    [ %more, %back ], [ %more, %lie ]
  %now = load atomic i64, ptr %opened.cell acquire, align 8
  %waits = icmp ule i64 %now, %section
  br i1 %waits, label %patience, label %ended
patience:
  %more = add i64 %spins, 1
  %bits = and i64 %more, {tuning.SPINS_BETWEEN_YIELDS - 1}
  switch i64 %bits, label %retry [
    i64 {tuning.SPINS_BEFORE_HELP}, label %search
    i64 0, label %long
  ]
retry:
  {driver_threads.pause()}
  br label %wait
search:
  %part = phi i64 [ 0, %patience ], [ %part.next, %search.next ]
  %there = icmp ult i64 %part, %parts
  br i1 %there, label %search.next, label %help
search.next:
  call void @take(ptr %job, ptr %first, i64 %section, i64 %part, i64 %parts)
  %part.next = add i64 %part, 1
  br label %search
help:
  br label %wait
long:
  br i1 %leads, label %lie, label %leave
lie:
  call void @make_room(ptr %job, i64 %thread, i64 %threads, i64 {driver_threads.BUSY})
  br label %wait
leave:
  ; A worker that waits long is outside of the program, so that nobody waits for it.
  call void @outside(ptr %job, i64 %thread)
  call void @make_room(ptr %job, i64 %thread, i64 %threads, i64 {driver_threads.BUSY})
  %still = call i1 @inside(ptr %job, i64 %thread, i64 %word)
  br i1 %still, label %back, label %gone
back:
  br label %wait
ended:
  %after = add i64 %section, 1
  %following = call ptr @skip(ptr %first)
  br label %begin
stop:
  %failed = ptrtoint ptr %status.cell to i64
  ret i64 %failed
out:
  ret i64 0
gone:
  ret i64 0
}}
; The same by the calling thread alone.
define internal i64 @drive_alone(ptr %program) noinline {{
entry:
  %steps = load ptr, ptr %program
  br label %begin
begin:
  %header = phi ptr [ %steps, %entry ], [ %ends, %next ]
  %what = load i64, ptr %header
  switch i64 %what, label %open [
    i64 {END}, label %out
    i64 {CHECK}, label %check
  ]
check:
  %table.cell = getelementptr inbounds i64, ptr %header, i64 4
  %table = load ptr, ptr %table.cell
  %status.cell = load ptr, ptr %table
  %status = load i64, ptr %status.cell
  %bad = icmp ne i64 %status, 0
  br i1 %bad, label %stop, label %open
open:
  %parts.cell = getelementptr inbounds i64, ptr %header, i64 5
  %parts = load i64, ptr %parts.cell
  %first = getelementptr inbounds i64, ptr %header, i64 {WORDS}
  br label %run
run:
  %part = phi i64 [ 0, %open ], [ %part.next, %run ]
  %ends = call ptr @perform(ptr %first, i64 %part)
  %part.next = add i64 %part, 1
  %left = icmp ult i64 %part.next, %parts
  br i1 %left, label %run, label %next
next:
  br label %begin
stop:
  %failed = ptrtoint ptr %status.cell to i64
  ret i64 %failed
out:
  ret i64 0
}}
"""

_LAUNCH = f"""\
; Run a program: 0, a negative answer (see above), or the status of what failed with its position.
define i64 @NAME(ptr %job, ptr %program, i64 %most, ptr %objects) {{
entry:
  call void @lock(ptr %job)
  {at("%workers.cell", WORKERS)}
  {word("%parts", PARTS)}
  %fewer = icmp ult i64 %parts, %most
  %threads = select i1 %fewer, i64 %parts, i64 %most
  %workers = load atomic i64, ptr %workers.cell seq_cst, align 8
  %others = sub i64 %threads, 1
  %enough = icmp uge i64 %workers, %others
  br i1 %enough, label %prepare, label %refuse
refuse:
  %needed = sub i64 {TOO_FEW}, %others
  br label %leave
prepare:
  %fits = call i1 @reserve(ptr %job, ptr %program)
  br i1 %fits, label %ready, label %leave
ready:
  call void @fill(ptr %program, ptr %objects)
  %alone = icmp ule i64 %threads, 1
  br i1 %alone, label %single, label %post
single:
  %failed.single = call i64 @drive_alone(ptr %program)
  br label %ended
post:
  {at("%program.cell", PROGRAM)}
  store ptr %program, ptr %program.cell
  {at("%opened.cell", OPENED)}
  {at("%first.cell", FIRST)}
  {at("%arrived.cell", ARRIVED)}
  ; A program that failed has left a section open, which nobody is in any more.
  %opened = load atomic i64, ptr %opened.cell monotonic, align 8
  %number = add i64 %opened, 1
  store i64 %number, ptr %first.cell
  store atomic i64 0, ptr %arrived.cell monotonic, align 8
  store atomic i64 %number, ptr %opened.cell monotonic, align 8
  call void @make_room(ptr %job, i64 0, i64 %threads, i64 {driver_threads.SLEEPING})
  %before = load atomic i64, ptr %job monotonic, align 8
  %counted = and i64 %before, {-(1 << THREAD_BITS)}
  %next = add i64 %counted, {1 << THREAD_BITS}
  %word = or i64 %next, %threads
  atomicrmw xchg ptr %job, i64 %word seq_cst
  call void @wake(ptr %job, i64 0, i64 %threads)
  %failed.several = call i64 @drive(i64 0, i64 %threads, ptr %program, ptr %job, i64 %word)
  %closed = add i64 %next, {1 << THREAD_BITS}
  atomicrmw xchg ptr %job, i64 %closed seq_cst
  br label %join
join:
  %thread = phi i64 [ 1, %post ], [ %thread.next, %joined ]
  %left = icmp ult i64 %thread, %threads
  br i1 %left, label %look, label %ended
look:
  {of_thread("%inside.cell", "%thread", INSIDE)}
  br label %wait
wait:
  %spins = phi i64 [ 0, %look ], [ %more, %retry ]
  %inside = load atomic i64, ptr %inside.cell seq_cst, align 8
  %out = icmp eq i64 %inside, 0
  br i1 %out, label %joined, label %retry
retry:
  call void @rest(i64 %spins)
  %more = add i64 %spins, 1
  br label %wait
joined:
  %thread.next = add i64 %thread, 1
  br label %join
ended:
  %failed = phi i64 [ %failed.single, %single ], [ %failed.several, %join ]
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
  %answer = phi i64 [ %needed, %refuse ], [ {NO_MEMORY}, %prepare ], [ 0, %ended ],
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
