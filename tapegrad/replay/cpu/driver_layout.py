"""The layout of what Python and the driver share: steps, descriptors of programs, the job.

All of them are words at fixed positions, named here. `emit.py` writes the kinds of steps,
`executable.py` the descriptors of programs, and `pool.py` makes the job, which all threads share.
`driver.py`, `driver_threads.py` and `driver_memory.py` read them in native code; `at` and `word`
give the text that does so.
"""

from __future__ import annotations

#: what a launch answers when it did not run: there is not enough memory, or there are not enough
#: workers; the latter less how many it needs
NO_MEMORY, TOO_FEW = -1, -2
#: bits of any other answer that hold the code of a failure; those above say which cell it is in
FAILURE_BITS = 40

# A program is a list of steps, of eight words each: what to do, a kernel, how many steps of the
# kernel there are and how many of them stay together, its table, and how many parts it has.
# SECTION begins a section, and so does CHECK, which first looks whether a kernel found bad data;
# both say how many parts the section has. FINISH is a kernel that ends a reduction.
RUN, FINISH, SECTION, CHECK, END = range(5)
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
PARTS = 14  # of the section that has the most
DESCRIPTOR_WORDS = 15

# A job is what threads share, in bytes from its beginning; what different threads write is cache
# lines apart. The posted word counts programs and says how many threads the latest one has: a
# worker learns both at once. It changes again when the program has ended, with no threads.
POSTED, PROGRAM, WORKERS = 0, 64, 192
# The number of the section that is open, counted over all programs; that of a program's first
# section; how many parts of the open one are done.
OPENED, FIRST, ARRIVED = 256, 320, 384
SCRATCH_ADDRESS, SCRATCH_SIZE, LARGEST, RUNS, ALLOCATE, RELEASE = 448, 456, 464, 472, 480, 488
MUTEX = 512
#: what each thread has, from here on: words in lines of their own, a mutex and a condition
THREADS = 640
# The number of the section after the last one whose part of this number somebody took; whether
# the thread is inside of a program; whether it sleeps, and on which processor it was last seen.
TAKEN, INSIDE, ASLEEP, PROCESSOR, SLEEP_MUTEX, CONDITION = 0, 64, 128, 136, 192, 320
THREAD_BYTES = 448
#: threads of a program, at most
MAX_THREADS = 64
JOB_BYTES = THREADS + MAX_THREADS * THREAD_BYTES
#: bits of the posted word that hold the number of threads
THREAD_BITS = 7


def at(name: str, offset: int) -> str:
    """The address of a cell of the job."""
    return f"{name} = getelementptr inbounds i8, ptr %job, i64 {offset}"


def of_thread(name: str, thread: str, offset: int) -> str:
    """The address of a cell that a thread has in the job."""
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
