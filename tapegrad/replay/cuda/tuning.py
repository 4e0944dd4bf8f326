"""The numbers that decide about speed on a GPU, all in this file.

No number decides whether a result is right, but some decide in which order sums are rounded. They
are chosen for GPUs with some hundred multiprocessors and wait for measurements.
"""

from __future__ import annotations

#: threads that run in lockstep
WARP = 32
#: threads of a block that computes elements
MAP_THREADS = 256
#: elements of a loop from which on a thread has several of them, and how many
MIN_ELEMENTS_FOR_SEVERAL = 1 << 20
ELEMENTS_PER_THREAD = 4
#: threads of a block that reduces
FOLD_THREADS = 256
#: elements of a result, at most, that one warp folds; more are folded by a whole block
MAX_FOLDED_PER_WARP = 512
#: blocks that keep a GPU busy; a reduction with fewer is cut into parts
WANTED_BLOCKS = 512
#: elements that each thread of a part folds, at least
MIN_STEPS_OF_PART = 4
#: threads of a block that scans lines
SCAN_THREADS = 64
#: bytes to whose multiples memory for copies and partial results is rounded up
ALIGNMENT = 256
#: how often a step is run to find out how long it takes
MEASURING_ROUNDS = 3
#: bytes that a product of cuBLAS may leave between its kernels
MAX_WORKSPACE_BYTES = 32 << 20
