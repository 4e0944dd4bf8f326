"""The layout of what Python and the driver share: steps, descriptors of programs, the job.

All of them are words at fixed positions, named here. `emit.py` writes the kinds of steps,
`executable.py` the descriptors of programs, and `pool.py` makes the job, which all threads share.
`driver.py`, `driver_threads.py` and `driver_memory.py` read them in native code; `at` and `word`
give the text that does so.
"""

from __future__ import annotations

#: what a launch answers when it did not run: there are not enough workers, or not enough memory
TOO_FEW, NO_MEMORY = -1, -2
#: bits of any other answer that hold the code of a failure; those above say which cell it is in
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


def at(name: str, offset: int) -> str:
    """The address of a cell of the job."""
    return f"{name} = getelementptr inbounds i8, ptr %job, i64 {offset}"


def word(name: str, position: int, kind: str = "i64") -> str:
    """Load a word of a program's descriptor."""
    return (
        f"{name}.word = getelementptr inbounds i64, ptr %program, i64 {position}\n"
        f"  {name} = load {kind}, ptr {name}.word"
    )
