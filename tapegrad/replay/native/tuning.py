"""The numbers that decide what the text of an element looks like, and where values lie.

Read by the other files of this folder, and by targets, as `native_tuning.NAME` or `tuning.NAME`. No
number decides whether a result is right. Each has a comment with its reason, and with its
measurement if one is on record.
"""

from __future__ import annotations

# -- text ------------------------------------------------------------------------------------------

#: instructions on one element that take as long as its way from memory and back: the unit of work
INSTRUCTIONS_PER_MEMORY_TRIP = 16
#: whole number, at most, that is part of a kernel's text wherever it stands: windows of 2 or 3 and
#: pairs are then written out. Larger ones are in the kernel's table, where other batch sizes and
#: lengths have theirs. With all of them there, steps of ten models took 0.95 to 1.08 times as long.
MAX_NUMBER_IN_TEXT = 3
#: elements between neighbours, at most, that are still read and written in whole vectors; longer
#: steps are numbers of a kernel's table
MAX_VECTOR_STRIDE_ELEMENTS = 16
#: elements of an innermost loop from which on LLVM may not write it out: it would then vectorise
#: the loop outside, with a gather for every element
MIN_ROLLED_LOOP_ELEMENTS = 16

# -- memory ----------------------------------------------------------------------------------------

#: where values begin in the arena: at a cache line, and at the widest vector
ARENA_ALIGNMENT_BYTES = 64
#: freed slots of a value's size that are looked at, from the one that was freed last: the time that
#: this takes does not grow with the program
MAX_FREED_SLOTS_TRIED = 8

# Slots of different sizes may be kept apart, so that each thread writes what its own cache holds: a
# CNN's step then takes 3.8 instead of 5.3 ms (see `plan.py`). That takes a larger arena.

#: bytes of a value from which on several threads write it; their writes are counted in such blocks
MIN_SHARED_VALUE_BYTES = 1 << 15
#: how many times as large the arena may become by keeping slots apart
MAX_ARENA_GROWTH = 1.3
#: bytes that threads must write less into what others wrote before, in each run, for every byte by
#: which the arena grows: more memory must save more traffic than it may cause
MIN_TRAFFIC_SAVED_PER_EXTRA_BYTE = 1.5
#: instructions of a program, at most, for which both arenas are planned and compared: keeping slots
#: apart sorts all of them for each value, which takes long in longer programs
MAX_INSTRUCTIONS_TO_COMPARE_ARENAS = 1000

# -- what is kept ----------------------------------------------------------------------------------

#: kinds of computations whose costs are remembered; a GPT has 1,700 computations, of 60 kinds
MAX_EXAMINED_COMPUTATIONS = 4096
