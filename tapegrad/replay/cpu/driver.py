"""The native code that walks programs: one call posts a program, wakes workers, runs and waits.

No Python runs between the posting of a program and its end, so an exception of a signal's handler
comes before a program or after it, and finds all workers waiting for the next one. `pool.py` loads
this code and starts the threads; `executable.py` writes the descriptors of programs.
"""

from __future__ import annotations

import ctypes
import functools
import platform
import sys

from . import tuning

#: what a launch answers when it did not run: there are not enough workers, or not enough memory
TOO_FEW, NO_MEMORY = -1, -2
#: bits of any other answer that hold the number of a failure; those above say which cell it is in
FAILURE_BITS = 40

# A program is a list of steps, of eight words each: what to do, a kernel, how many steps threads
# share and how many of them stay together, the kernel's table.
SHARED, SERIAL, FINISH, BARRIER, CHECK, END = range(6)
WORDS = 8

# The words of a program's descriptor, by position:
STEPS = 0  # their address
PATCHES, PATCH_COUNT = 1, 2  # what fills in the tables: triples (position, buffer, offset)
TABLES, BUFFERS = 3, 4
# The arrays of a call: how many there are, which buffer each one's memory is, and where an array
# object keeps the address of its memory.
OBJECT_COUNT, OBJECT_BUFFERS, MEMORY_IN_OBJECT = 5, 6, 7
STATUS, STATUS_COUNT = 8, 9  # the cells where kernels say that they found bad data
# The bytes of shared scratch memory (0 if the program has its own), the two buffers that are parts
# of it, and where the second of them begins.
SCRATCH, ARENA, PARTIALS, PARTIALS_OFFSET = 10, 11, 12, 13
DESCRIPTOR_WORDS = 14

# A job is what threads share, in bytes from its beginning; what different threads write is cache
# lines apart. The posted word counts programs and says how many threads the latest one has: a
# worker learns both at once, for a program that it has no part in may be gone when it looks again.
# A worker that finds itself on the processor of the leading thread moves: Linux was seen to leave
# two spinning threads on one processor for seconds while the other one idled, and a step then took
# 1000 instead of 340 µs.
POSTED, PROGRAM, DONE, ASLEEP, LEADER, WORKERS = 0, 64, 128, 192, 256, 320
ARRIVED, OPENED = 384, 448
SCRATCH_ADDRESS, SCRATCH_SIZE, LARGEST, RUNS, ALLOCATE, RELEASE = 512, 520, 528, 536, 544, 552
MUTEX, SLEEP_MUTEX, CONDITION = 576, 704, 832
JOB_BYTES = 960
#: bits of the posted word that hold the number of threads
THREAD_BITS = 7

_PAUSE = {"x86_64": "pause", "AMD64": "pause", "aarch64": "yield", "arm64": "yield"}
_THREADS = (
    *("pthread_mutex_init", "pthread_mutex_lock", "pthread_mutex_unlock"),
    *("pthread_cond_init", "pthread_cond_wait", "pthread_cond_broadcast", "sched_yield"),
)
_PROCESSORS = ("sched_getcpu", "sched_getaffinity", "sched_setaffinity", "getpid")


@functools.cache
def _has(*names: str) -> bool:
    """Whether native code can call these functions of the C library."""
    try:
        library = ctypes.CDLL(None)
    except (OSError, TypeError):  # the latter on Windows, whose loader wants a name
        return False
    return all(hasattr(library, name) for name in names)


def has_threads() -> bool:
    """Whether programs can run on several threads here."""
    return _has(*_THREADS)


def pause() -> str:
    """The instruction that tells the processor that a thread is waiting, as text of LLVM IR."""
    name = _PAUSE.get(platform.machine())
    return f'call void asm sideeffect "{name}", ""()' if name else ""


def _at(name: str, offset: int) -> str:
    return f"{name} = getelementptr inbounds i8, ptr %job, i64 {offset}"


def _word(name: str, position: int, kind: str = "i64") -> str:
    """Load a word of a program's descriptor."""
    return (
        f"{name}.word = getelementptr inbounds i64, ptr %program, i64 {position}\n"
        f"  {name} = load {kind}, ptr {name}.word"
    )


# Mutexes and conditions are those of POSIX. A worker that goes to sleep counts itself before it
# looks at the job for the last time, and a launch posts before it looks who sleeps: one of the two
# sees the other.
_SEVERAL = f"""
declare i32 @pthread_mutex_init(ptr, ptr)
declare i32 @pthread_mutex_lock(ptr)
declare i32 @pthread_mutex_unlock(ptr)
declare i32 @pthread_cond_init(ptr, ptr)
declare i32 @pthread_cond_wait(ptr, ptr)
declare i32 @pthread_cond_broadcast(ptr)
declare i32 @sched_yield()
define void @begin(ptr %job) {{
  {_at("%mutex", MUTEX)}
  call i32 @pthread_mutex_init(ptr %mutex, ptr null)
  {_at("%sleep.mutex", SLEEP_MUTEX)}
  call i32 @pthread_mutex_init(ptr %sleep.mutex, ptr null)
  {_at("%condition", CONDITION)}
  call i32 @pthread_cond_init(ptr %condition, ptr null)
  ret void
}}
define internal void @lock(ptr %job) {{
  {_at("%mutex", MUTEX)}
  call i32 @pthread_mutex_lock(ptr %mutex)
  ret void
}}
define internal void @unlock(ptr %job) {{
  {_at("%mutex", MUTEX)}
  call i32 @pthread_mutex_unlock(ptr %mutex)
  ret void
}}
define internal void @wake(ptr %job) {{
  {_at("%mutex", SLEEP_MUTEX)}
  {_at("%condition", CONDITION)}
  call i32 @pthread_mutex_lock(ptr %mutex)
  call i32 @pthread_mutex_unlock(ptr %mutex)
  call i32 @pthread_cond_broadcast(ptr %condition)
  ret void
}}
define internal void @sleep(ptr %job, i64 %seen) {{
entry:
  {_at("%mutex", SLEEP_MUTEX)}
  {_at("%condition", CONDITION)}
  {_at("%asleep", ASLEEP)}
  call i32 @pthread_mutex_lock(ptr %mutex)
  atomicrmw add ptr %asleep, i64 1 seq_cst
  br label %look
look:
  %now = load atomic i64, ptr %job seq_cst, align 8
  %nothing = icmp eq i64 %now, %seen
  br i1 %nothing, label %wait, label %out
wait:
  call i32 @pthread_cond_wait(ptr %condition, ptr %mutex)
  br label %look
out:
  atomicrmw sub ptr %asleep, i64 1 seq_cst
  call i32 @pthread_mutex_unlock(ptr %mutex)
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
define void @work(ptr %job) {{
entry:
  {_at("%workers", WORKERS)}
  {_at("%program.cell", PROGRAM)}
  {_at("%done.cell", DONE)}
  {_at("%leader.cell", LEADER)}
  ; What is posted before the worker is counted has no part for it.
  %began = load atomic i64, ptr %job acquire, align 8
  %others = atomicrmw add ptr %workers, i64 1 seq_cst
  %thread = add i64 %others, 1
  br label %wait
wait:
  %seen = phi i64 [ %began, %entry ], [ %seen, %retry ], [ %seen, %doze ], [ %now, %ran ],
    [ %now, %move ]
  %i = phi i64 [ 0, %entry ], [ %next, %retry ], [ 0, %doze ], [ 0, %ran ], [ 0, %move ]
  %now = load atomic i64, ptr %job acquire, align 8
  %came = icmp ne i64 %now, %seen
  br i1 %came, label %take, label %idle
idle:
  %next = add i64 %i, 1
  %enough = icmp sge i64 %next, {tuning.SPINS_BEFORE_SLEEP}
  br i1 %enough, label %doze, label %retry
retry:
  {pause()}
  br label %wait
doze:
  call void @sleep(ptr %job, i64 %seen)
  br label %wait
take:
  %threads = and i64 %now, {(1 << THREAD_BITS) - 1}
  %mine = icmp slt i64 %thread, %threads
  br i1 %mine, label %run, label %ran
run:
  %program = load ptr, ptr %program.cell
  call i64 @drive(i64 %thread, i64 %threads, ptr %program, ptr %job)
  atomicrmw add ptr %done.cell, i64 1 acq_rel
  br label %ran
ran:
  %leader = load atomic i32, ptr %leader.cell monotonic, align 4
  %here = call i32 @processor()
  %together = icmp eq i32 %here, %leader
  %known = icmp sge i32 %here, 0
  %crowded = and i1 %together, %known
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
define internal void @wake(ptr %job) {{
  ret void
}}
define internal void @rest(i64 %spins) {{
  {pause()}
  ret void
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

# Large pages for large memory, as NumPy asks for them: 14 is MADV_HUGEPAGE of Linux.
_LARGE_PAGES = f"""
declare i32 @madvise(ptr, i64, i32)
define internal void @enlarge(ptr %memory, i64 %size) {{
entry:
  %large = icmp uge i64 %size, {tuning.MIN_LARGE_PAGES_BYTES}
  br i1 %large, label %advise, label %out
advise:
  %address = ptrtoint ptr %memory to i64
  %inside = and i64 %address, 4095
  %skipped = sub i64 4096, %inside
  %start = getelementptr inbounds i8, ptr %memory, i64 %skipped
  %length = sub i64 %size, %skipped
  call i32 @madvise(ptr %start, i64 %length, i32 14)
  br label %out
out:
  ret void
}}
"""

_SMALL_PAGES = """
define internal void @enlarge(ptr %memory, i64 %size) {
  ret void
}
"""

# The last thread to arrive opens a barrier; the others spin, and yield if that takes long.
_COMMON = f"""
define internal void @barrier(ptr %job, i64 %threads) noinline {{
entry:
  %alone = icmp eq i64 %threads, 1
  br i1 %alone, label %out, label %arrive
arrive:
  {_at("%arrived", ARRIVED)}
  {_at("%opened.cell", OPENED)}
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
; Fill in a program's tables for the arrays of this call, and clear its status.
define internal void @fill(ptr %program, ptr %objects) {{
entry:
  {_word("%list", PATCHES, "ptr")}
  {_word("%length", PATCH_COUNT)}
  {_word("%tables", TABLES, "ptr")}
  {_word("%buffers", BUFFERS, "ptr")}
  {_word("%count", OBJECT_COUNT)}
  {_word("%where", OBJECT_BUFFERS, "ptr")}
  {_word("%inside", MEMORY_IN_OBJECT)}
  {_word("%status", STATUS, "ptr")}
  {_word("%cells", STATUS_COUNT)}
  br label %clean
clean:
  %k = phi i64 [ 0, %entry ], [ %k.next, %wipe ]
  %dirty = icmp ult i64 %k, %cells
  br i1 %dirty, label %wipe, label %given
wipe:
  %cell = getelementptr inbounds i64, ptr %status, i64 %k
  store i64 0, ptr %cell
  %k.next = add i64 %k, 1
  br label %clean
given:
  %j = phi i64 [ 0, %clean ], [ %j.next, %take ]
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
; Take other scratch memory. A fork may happen between any two of these stores: the child finds
; memory that it may use and free, or none.
define internal i1 @allocate(ptr %job, i64 %size) noinline {{
entry:
  {_at("%address.cell", SCRATCH_ADDRESS)}
  {_at("%size.cell", SCRATCH_SIZE)}
  {_at("%allocate.cell", ALLOCATE)}
  {_at("%release.cell", RELEASE)}
  %allocate = load ptr, ptr %allocate.cell
  %release = load ptr, ptr %release.cell
  %old = load ptr, ptr %address.cell
  store atomic i64 0, ptr %size.cell release, align 8
  store atomic ptr null, ptr %address.cell release, align 8
  call void %release(ptr %old)
  %padded = add i64 %size, 64
  %new = call ptr %allocate(i64 %padded)
  %none = icmp eq ptr %new, null
  br i1 %none, label %fail, label %keep
keep:
  call void @enlarge(ptr %new, i64 %padded)
  store atomic ptr %new, ptr %address.cell release, align 8
  store atomic i64 %size, ptr %size.cell release, align 8
  ret i1 true
fail:
  ret i1 false
}}
; Give a program its part of the scratch memory; false if there is no more memory.
define internal i1 @reserve(ptr %job, ptr %program) {{
entry:
  {_word("%need", SCRATCH)}
  %own = icmp eq i64 %need, 0
  br i1 %own, label %out, label %count
count:
  {_at("%size.cell", SCRATCH_SIZE)}
  {_at("%largest.cell", LARGEST)}
  {_at("%runs.cell", RUNS)}
  %size = load i64, ptr %size.cell
  %before = load i64, ptr %largest.cell
  %more = icmp ugt i64 %need, %before
  %largest = select i1 %more, i64 %need, i64 %before
  store i64 %largest, ptr %largest.cell
  %ran = load i64, ptr %runs.cell
  %runs = add i64 %ran, 1
  store i64 %runs, ptr %runs.cell
  %short = icmp ugt i64 %need, %size
  br i1 %short, label %grow, label %enough
enough:
  %long = icmp uge i64 %runs, {tuning.RUNS_BEFORE_SHRINKING_SCRATCH}
  br i1 %long, label %look, label %assign
look:
  store i64 0, ptr %runs.cell
  store i64 0, ptr %largest.cell
  %twice = shl i64 %largest, 1
  %wasted = icmp ult i64 %twice, %size
  br i1 %wasted, label %grow, label %assign
grow:
  %wanted = phi i64 [ %need, %count ], [ %largest, %look ]
  %got = call i1 @allocate(ptr %job, i64 %wanted)
  br i1 %got, label %assign, label %fail
assign:
  {_at("%address.cell", SCRATCH_ADDRESS)}
  %address = load i64, ptr %address.cell
  %padded = add i64 %address, 63
  %arena = and i64 %padded, -64
  {_word("%arena.buffer", ARENA)}
  {_word("%partials.buffer", PARTIALS)}
  {_word("%offset", PARTIALS_OFFSET)}
  {_word("%buffers", BUFFERS, "ptr")}
  %arena.cell = getelementptr inbounds i64, ptr %buffers, i64 %arena.buffer
  store i64 %arena, ptr %arena.cell
  %partials = add i64 %arena, %offset
  %partials.cell = getelementptr inbounds i64, ptr %buffers, i64 %partials.buffer
  store i64 %partials, ptr %partials.cell
  br label %out
out:
  ret i1 true
fail:
  ret i1 false
}}
; Run a program: 0, a negative answer (see above), or the status of what failed with its position.
define i64 @NAME(ptr %job, ptr %program, i64 %threads, ptr %objects) {{
entry:
  call void @lock(ptr %job)
  {_at("%workers.cell", WORKERS)}
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
  {_at("%program.cell", PROGRAM)}
  store ptr %program, ptr %program.cell
  {_at("%done.cell", DONE)}
  store atomic i64 0, ptr %done.cell monotonic, align 8
  {_at("%leader.cell", LEADER)}
  %leader = call i32 @processor()
  store atomic i32 %leader, ptr %leader.cell monotonic, align 4
  %before = load atomic i64, ptr %job monotonic, align 8
  %counted = and i64 %before, {-(1 << THREAD_BITS)}
  %next = add i64 %counted, {1 << THREAD_BITS}
  %word = or i64 %next, %threads
  atomicrmw xchg ptr %job, i64 %word seq_cst
  {_at("%asleep.cell", ASLEEP)}
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
  {_at("%joined.cell", DONE)}
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
  {_word("%status", STATUS)}
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
        _SEVERAL if has_threads() else _ALONE,
        _KNOWN_PROCESSORS if _has(*_PROCESSORS) else _UNKNOWN_PROCESSORS,
        _LARGE_PAGES if sys.platform == "linux" and _has("madvise") else _SMALL_PAGES,
        _COMMON,
    ]
    return "".join(parts)
