"""The layout of the data that Python and the native caller share: sites, programs, operations.

All of it is words at fixed positions, named here. `caller.py` and `family.py` write them, and
`caller_text.py` has the native code that reads them.
"""

from __future__ import annotations

from typing import NamedTuple

#: the most dimensions of an array, different sizes, arguments with results, and programs of a site
MAX_RANK, MAX_SYMBOLS, MAX_OBJECTS, MAX_PROGRAMS = 8, 8, 48, 64

# The words of a site: the number of its programs, then their addresses.
# The words of a program at a site, by position:
COUNT, ROWS = 0, 1  # arguments: their number and the address of their rows
OPS, OP_COUNT = 2, 3  # what is written for new sizes
DESCRIPTOR = 4  # what the driver runs; 0 for a pattern that no program can serve
READS, READ_COUNT = 5, 6  # the arguments that the program reads, by position
RESULTS, RESULT_COUNT = 7, 8  # the arrays that it makes: dtype, rank and sizes
PICKS, PICK_COUNT = 9, 10  # the parts of the returned tuple: a result's position, or -1 for None
SIZES = 11  # the sizes of the latest call
PROGRAM_WORDS = SIZES + MAX_SYMBOLS

# The words of an argument's row: its kind; an object or dtype; the rank; the size of an element;
# the most bytes; then the label of each dimension (0: its size is 1; above: a symbol; below: the
# size itself, negated), and the dimensions by their order in memory, innermost first.
KIND, WHAT, RANK, ITEM, MOST, LABELS = 0, 1, 2, 3, 4, 5
ORDER = LABELS + MAX_RANK
ROW_WORDS = ORDER + MAX_RANK
#: kinds of arguments: this very object, a contiguous array, a shape, an array of these sizes and
#: strides (in place of labels and order)
SAME, ARRAY, SHAPE, FIXED = range(4)

# An operation: its code, an address, and a number as factor, mask and addend: factor * product of
# sizes + addend. The mask has `POWER_BITS` bits for each size, as many of them set as its power.
OP_WORDS = 5
POWER_BITS = 4
#: Give up if the number is above 0. Write the number; as a multiple of a cache line; as a float;
#: as a float, factor / (product of sizes + addend). Make the current block of the arena that large;
#: write where it begins; end it; write the end of all.
(
    CHECK, WRITE_INTEGER, WRITE_ALIGNED, WRITE_REAL, WRITE_QUOTIENT,
    RESERVE, WRITE_OFFSET, CLOSE, WRITE_END,
) = range(9)  # fmt: skip

RESULT_WORDS = 2 + MAX_RANK  # dtype, rank, sizes

# The words of the table of addresses:
(
    ARRAY_TYPE, TUPLE_TYPE, INT_TYPE, NONE, FALSE, NOT_IMPLEMENTED,
    HOLD, DROP, EMPTY, NEW_TUPLE, SET_PART, PARTS, INTEGER, LAUNCH, JOB
) = range(15)  # fmt: skip


class Offsets(NamedTuple):
    """Where objects hold what native code reads, in bytes."""

    type: int
    dtype: int
    rank: int
    sizes: int
    strides: int
