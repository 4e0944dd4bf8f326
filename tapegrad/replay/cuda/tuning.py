"""The tuning constants of the CUDA target.

The other files of this folder read them as `tuning.NAME`. No constant decides whether a result is
right, but some decide the order in which sums are rounded. They suit GPUs with about a hundred
multiprocessors; most are not measured yet.
"""

from __future__ import annotations

#: threads of a warp, which run in lockstep
WARP = 32
#: threads of a block that computes elements
MAP_THREADS = 256
#: elements of a loop from which each thread computes several, and how many
MIN_ELEMENTS_FOR_SEVERAL = 1 << 20
ELEMENTS_PER_THREAD = 4
#: threads of a block that reduces
FOLD_THREADS = 256
#: a warp reduces at most this many elements to a result; a whole block reduces more
MAX_FOLDED_PER_WARP = 512
#: the same if there are at least this many results, so that warps fill the GPU
MAX_FOLDED_PER_LONG_WARP = 4096
MIN_RESULTS_FOR_LONG_WARPS = 2048
#: elements that a thread loads before it folds them, to hide the latency of memory
ELEMENTS_PER_FOLDING = 4
#: blocks that a reduction is cut into, if it is: so many more than a GPU runs at once that the last
#: ones do not leave it idle. Sums of 64 million elements took 386 µs in 1,056 blocks, of which an
#: H200 runs 792 at once.
WANTED_BLOCKS = 6336
#: blocks that keep a GPU busy; a reduction with fewer is cut into parts
MIN_BLOCKS = 264
#: least elements that each thread of a part folds
MIN_STEPS_OF_PART = 16
#: if there are at most this many results, a whole block combines the parts of each
MAX_RESULTS_OF_LONG_FINISH = 4
#: threads of a block that scans lines
SCAN_THREADS = 64
#: bytes to a multiple of which memory for copies and partial results is rounded up
ALIGNMENT = 256
#: alignment of matrix rows that cuBLAS needs to be fast, and least size of a matrix that is copied
#: for it, in bytes: of bfloat16, 8,192x768x50,257 takes 6.6 ms with rows of 50,257 elements
ROW_ALIGNMENT = 16
MIN_BYTES_TO_ALIGN = 1 << 20
#: multiplications of a half-precision product from which odd sums and columns are padded with
#: zeros: 8,192x768x50,257 takes 6.7 ms, and with 50,264 columns a sixth of that
MIN_OPERATIONS_TO_PAD = 1 << 30
#: multiplications from which a library computes a sum of products; fewer are a loop
MIN_OPERATIONS_FOR_LIBRARY = 1 << 15
#: library calls with scratch memory that may run at the same time
WORKSPACES = 4
#: runs without a known outcome of their deferred checks, at most
MOST_UNKNOWN_RUNS = 64
#: times that a step is run to measure it
MEASURING_ROUNDS = 3
#: bytes of the workspace of a cuBLAS product, at most
MAX_WORKSPACE_BYTES = 32 << 20
