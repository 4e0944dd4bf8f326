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
#: the same where there are so many results that warps fill the GPU
MAX_FOLDED_PER_LONG_WARP = 4096
MIN_RESULTS_FOR_LONG_WARPS = 2048
#: elements that a thread reads before it folds them
ELEMENTS_PER_FOLDING = 4
#: blocks of a reduction that is cut into parts, at most: so many times more than a GPU has at once
#: that the last ones do not leave it idle. Sums of 64 million elements took 386 µs in 1,056 blocks,
#: of which an H200 has 792 at once.
WANTED_BLOCKS = 6336
#: blocks that keep a GPU busy; a reduction with fewer is cut into parts
MIN_BLOCKS = 264
#: elements that each thread of a part folds, at least
MIN_STEPS_OF_PART = 16
#: results, at most, whose parts are added up by a whole block each
MAX_RESULTS_OF_LONG_FINISH = 4
#: threads of a block that scans lines
SCAN_THREADS = 64
#: bytes to whose multiples memory for copies and partial results is rounded up
ALIGNMENT = 256
#: bytes to whose multiples rows of matrices should begin for cuBLAS, and of a matrix, at least, for
#: which a copy pays: of bfloat16, 8,192x768x50,257 takes 6.6 ms with rows of 50,257 elements
ROW_ALIGNMENT = 16
MIN_BYTES_TO_ALIGN = 1 << 20
#: multiplications of a product of half precision, at least, for which odd sums and columns are
#: filled up with zeros: 8,192x768x50,257 takes 6.7 ms, and with 50,264 columns a sixth of that
MIN_OPERATIONS_TO_PAD = 1 << 30
#: multiplications of sums of products, at least, that a library computes; fewer are a loop
MIN_OPERATIONS_FOR_LIBRARY = 1 << 15
#: how many calls of libraries that need scratch memory may run at the same time
WORKSPACES = 4
#: runs, at most, of which nobody knows whether they have found bad data
MOST_UNKNOWN_RUNS = 64
#: how often a step is run to find out how long it takes
MEASURING_ROUNDS = 3
#: bytes that a product of cuBLAS may leave between its kernels
MAX_WORKSPACE_BYTES = 32 << 20
