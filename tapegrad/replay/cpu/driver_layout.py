"""The layout of the data that Python and the driver share: steps, program descriptors, the job.

All of it is words at fixed positions, named here. `emit.py` writes the kinds of steps,
`executable.py` the descriptors of programs, and `pool.py` makes the job, which all threads share.
`driver.py`, `driver_threads.py` and `driver_memory.py` read them in native code; `at` and `word`
give the text that does so.
"""

from __future__ import annotations

#: answers of a launch that did not run: there is not enough memory, or there are too few workers;
#: the number of workers that it needs is subtracted from the latter
NO_MEMORY, TOO_FEW = -1, -2
#: low bits of any other answer, which hold the code of a failure; the rest is its status cell
FAILURE_BITS = 40

# A program is a list of steps, of eight words each: the kind, a kernel, the kernel's extent and
# grain, its table, and its number of parts. SECTION begins a section, and so does CHECK, which
# first looks whether a kernel found bad data; both have the number of parts of the section. FINISH
# is a kernel that ends a reduction.
RUN, FINISH, SECTION, CHECK, END = range(5)
WORDS = 8

# The words of a program's descriptor, by position:
STEPS = 0  # their address
PATCHES, PATCH_COUNT = 1, 2  # the pointers in the tables: triples (position, buffer, offset)
TABLES, BUFFERS = 3, 4
# The arrays of a call: their number, the buffer of each one, and the offset in an array object of
# the address of its memory.
OBJECT_COUNT, OBJECT_BUFFERS, MEMORY_IN_OBJECT = 5, 6, 7
STATUS, STATUS_COUNT = 8, 9  # the cells in which kernels report bad data
# The bytes of shared scratch memory (0 if the program has its own), the two buffers that are parts
# of it, and where the second of them begins.
SCRATCH, ARENA, PARTIALS, PARTIALS_OFFSET = 10, 11, 12, 13
PARTS = 14  # the largest number of parts of a section
DESCRIPTOR_WORDS = 15

# The job is the memory that threads share; offsets are in bytes. Words that different threads write
# are cache lines apart. The posted word holds a count of programs and the threads of the latest
# one, so that a worker reads both at once. It changes again, to no threads, when the program ends.
POSTED, PROGRAM, WORKERS = 0, 64, 192
# The number of the open section, counted over all programs; that of a program's first section; the
# number of parts of the open one that are done.
OPENED, FIRST, ARRIVED = 256, 320, 384
SCRATCH_ADDRESS, SCRATCH_SIZE, LARGEST, RUNS, ALLOCATE, RELEASE = 448, 456, 464, 472, 480, 488
MUTEX = 512
#: offset of the data of threads: words in cache lines of their own, a mutex and a condition
THREADS = 640
# One more than the number of the last section whose part of this number was taken; whether the
# thread is inside a program; whether it sleeps; and the processor on which it was last seen.
TAKEN, INSIDE, ASLEEP, PROCESSOR, SLEEP_MUTEX, CONDITION = 0, 64, 128, 136, 192, 320
THREAD_BYTES = 448
#: the most threads of a program
MAX_THREADS = 64
JOB_BYTES = THREADS + MAX_THREADS * THREAD_BYTES
#: bits of the posted word that hold the number of threads
THREAD_BITS = 7


def at(name: str, offset: int) -> str:
    """The address of a cell of the job."""
    return f"{name} = getelementptr inbounds i8, ptr %job, i64 {offset}"


def of_thread(name: str, thread: str, offset: int) -> str:
    """The address of a thread's cell in the job."""
    return (
        f"{name}.way = mul i64 {thread}, {THREAD_BYTES}\n"
        f"  {name}.from = add i64 {name}.way, {THREADS + offset}\n"
        f"  {name} = getelementptr inbounds i8, ptr %job, i64 {name}.from"
    )


def word(name: str, position: int, kind: str = "i64") -> str:
    """Load a word of a program's descriptor."""
    return (
        f"{name}.word = getelementptr inbounds i64, ptr %program, i64 {position}\n"
        f"  {name} = load {kind}, ptr {name}.word"
    )
