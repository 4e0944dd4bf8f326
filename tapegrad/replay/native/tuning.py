"""Tuning constants for the text of elements and the memory of values.

Read by the other files of this folder, and by targets, as `native_tuning.NAME` or `tuning.NAME`. No
constant affects correctness. Each has a comment with its reason, and with its measurement if one is
on record.
"""

from __future__ import annotations

# -- text ------------------------------------------------------------------------------------------

#: instructions that take as long as loading and storing one element: the unit of work
INSTRUCTIONS_PER_MEMORY_TRIP = 16
#: largest integer that is written into a kernel's text, so that windows of 2 or 3 and pairs are
#: unrolled. Larger ones are read from the kernel's table, so that other batch sizes and lengths
#: share the text. With all of them there, steps of ten models took 0.95 to 1.08 times as long.
MAX_NUMBER_IN_TEXT = 3
#: largest stride, in elements, at which neighbours are still read and written in whole vectors;
#: larger strides are read from the kernel's table
MAX_VECTOR_STRIDE_ELEMENTS = 16
#: elements of an innermost loop from which on LLVM may not unroll it: it would then vectorise the
#: loop around it, with a gather for every element
MIN_ROLLED_LOOP_ELEMENTS = 16

# -- memory ----------------------------------------------------------------------------------------

#: alignment of values in the arena: a cache line, and the widest vector
ARENA_ALIGNMENT_BYTES = 64
#: most freed allocations of a value's size that are tried, the last freed first, so that the time
#: of this search does not grow with the program
MAX_FREED_SLOTS_TRIED = 8

# Allocations of different sizes may be kept apart, so that each thread writes cache lines that its
# own cache holds: a CNN's step then takes 3.8 instead of 5.3 ms (see `plan.py`). The arena grows.

#: bytes of a value from which on several threads write it; their writes are counted in such blocks
MIN_SHARED_VALUE_BYTES = 1 << 15
#: largest growth of the arena by keeping allocations apart, as a factor
MAX_ARENA_GROWTH = 1.3
#: for every byte by which the arena grows, threads must in each run write at least this many bytes
#: less to memory that others wrote before: more memory must save more traffic than it may cause
MIN_TRAFFIC_SAVED_PER_EXTRA_BYTE = 1.5
#: most instructions of a program for which both arenas are planned and compared: to keep
#: allocations apart, all of them are sorted for each value, which takes long in longer programs
MAX_INSTRUCTIONS_TO_COMPARE_ARENAS = 1000

# -- caches ----------------------------------------------------------------------------------------

#: most kinds of computations whose costs are cached; a GPT has 1,700 computations, of 60 kinds
MAX_EXAMINED_COMPUTATIONS = 4096
