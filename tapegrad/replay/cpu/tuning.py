"""The numbers that decide about speed on a CPU, all in this file: sizes, tiles, ratios, limits.

Read by the other files of this folder as `tuning.NAME`, when they need one; the text of the driver
takes its numbers when it is imported. No number decides whether a result is right, but some decide
in which order sums are rounded. Each has a comment with its reason, and with its measurement if one
is on record.

*Work* is what threads share: for each element of a loop, every computation counts once, and once
more for each `INSTRUCTIONS_PER_MEMORY_TRIP` instructions; in products, every multiplication and
every addition counts once.
"""

from __future__ import annotations

# -- which work several threads share --------------------------------------------------------------

#: work of a program that runs on one thread, at most: waking workers and waiting for them would
#: take longer than what they save
MAX_SINGLE_THREAD_PROGRAM_WORK = 200_000
#: work of a loop for which one more thread pays: with less, waiting for it costs what it saves
LOOP_WORK_PER_THREAD = 16_384
#: floating-point operations of a product or a contraction for which it does: an operation on
#: operands in registers is cheaper than an element of a loop, which comes from memory
PRODUCT_OPERATIONS_PER_THREAD = 32 * 16_384

# -- how threads divide a kernel -------------------------------------------------------------------

#: blocks that a kernel's steps are divided into, if their number allows it: sizes that are large
#: powers of two then divide alike, whatever a step is, and a thread finds its own part in its cache
BLOCKS_PER_KERNEL = 64
#: elements that stay together in a loop of one dimension: whole vectors and whole cache lines
FLAT_LOOP_GRAIN_ELEMENTS = 64
#: elements of a loop of one dimension from which on they do; a shorter one would give few parts
MIN_FLAT_LOOP_ELEMENTS_FOR_GRAIN = 1024
#: elements of a reduction's result of which each thread may keep a copy, to be combined at the end
MAX_RESULT_ELEMENTS_PER_THREAD = 2048
#: steps of a batch that are enough for threads to share it in a reduction over batch and space;
#: fewer are enough if there are no more channels to share instead
MIN_BATCH_STEPS_TO_SHARE = 16

# -- loops -----------------------------------------------------------------------------------------

#: elements that are added up in float32 before the sum moves to float64: few conversions, and an
#: error that does not grow with the whole sum
FLOAT32_SUM_CHUNK_ELEMENTS = 4096

# -- matrix products: tiles ------------------------------------------------------------------------

#: vectors of a panel of columns, at most: times eight rows, these are 24 sums, and the registers of
#: AVX-512 hold 27
MAX_PANEL_VECTORS = 3
#: the same with a triangle: there is more text to a tile, and the heads of attention seldom have a
#: multiple of three vectors
MAX_TRIANGLE_PANEL_VECTORS = 2
#: rows of a tile where the registers hold the sums, and elsewhere; powers of two, for the rows that
#: are left go in halves
TALL_TILE_ROWS = 8
SHORT_TILE_ROWS = 4
#: steps of a sum that are done in one pass: a panel of float32 then takes a tenth of the L2 cache
MAX_PANEL_STEPS = 512
#: steps after which what is asked for now is used: as long as memory takes to answer
PREFETCHED_STEPS = 16
#: of which it is a multiple; a power of two that divides the number above
PANEL_STEPS_GRAIN = 16
#: columns from which on the rows of x are packed: each element is then used so often
MIN_COLUMNS_TO_PACK_ROWS = 192
#: the same if elements of a column lie side by side and the columns far apart: a tile that reads
#: them in place takes few elements of many lines, once for each panel
MIN_COLUMNS_TO_PACK_FAR_ROWS = 32
#: bytes between columns that lie far apart, and bytes of such an operand, at least
#: (8 of 512x512x64, x transposed, Intel, one thread: 117 instead of 102 GFLOP/s)
FAR_COLUMN_BYTES = 1024
MIN_BYTES_TO_PACK_FAR_ROWS = 1 << 16
#: rows from which on panels of y are packed that could be read in place
MIN_ROWS_TO_PACK_PANELS = 64
#: the same if the rows of a panel lie far apart: more than a tile has. Such rows share few sets of
#: the cache, and the next tile would have to read them from memory again.
MIN_ROWS_TO_PACK_FAR_PANELS = 9
#: bytes between rows that lie far apart: a page
FAR_BYTES = 4096
#: bytes from the first to the last row of a result, from which on a tile asks for the lines of the
#: next one: they are not in the cache, and the processor does not foresee them
MIN_RESULT_BYTES_TO_PREFETCH = 1 << 21
#: bytes of the three matrices of one of many products, at most, that asks for those of the next:
#: an eighth of an L2 cache. AMD, one thread, float64 from memory: 64 of 32x32x32 have 36 instead of
#: 21 GFLOP/s, 8 of 64x64x64 45 instead of 37
MAX_BYTES_TO_ASK_FOR_NEXT = 1 << 17
#: bytes that the memory fetches at a time
CACHE_LINE_BYTES = 64
#: tiles whose rows are packed together if they lie in columns: a page is read once for all of them
TILES_PACKED_TOGETHER = 8
#: bytes of other operands that are packed, at least: a smaller one stays in the cache wherever it
#: lies
MIN_BYTES_TO_PACK = 1 << 19
#: rows that are packed at a time
MAX_PACKED_ROWS = 1024
#: bytes of all panels of a pass, at most, that are packed at once and kept, so that few rows meet
#: one panel after another: half of an L2 cache
MAX_KEPT_PANEL_BYTES = 1 << 20
#: rows from which on they are
MIN_ROWS_TO_KEEP_PANELS = 64
#: bytes of a group of panels that is kept instead if there are few rows, which are not packed: what
#: is read and written beside it then stays in the cache too
MAX_KEPT_GROUP_BYTES = 1 << 18
MAX_ROWS_FOR_GROUPS = 256
#: rows that are multiplied with one kept panel after another: the processor knows the pages of so
#: many rows of the result, and their parts of x stay in the L1 cache. Intel, one thread:
#: 4,096x32x4,096 has 92 to 134 GFLOP/s instead of 80, 8 of 512x64x512 138 instead of 97
ROWS_BETWEEN_PANELS = 32
#: columns of a product of half precision whose sums are kept in float32 between passes: with the
#: rows that are packed at a time, they take 4 MB
MAX_SUM_COLUMNS = 1024
#: batch dimensions that a product's function has, at least: one function serves products with fewer
#: as well, and a cold start compiles half as many
MIN_PRODUCT_BATCH_DIMENSIONS = 2

# -- matrix products: what threads divide ----------------------------------------------------------
#
# Each thread reads the operand that is not divided whole, so the larger one should be divided. But
# what follows a product often goes by rows, and needs no new section after one that does too.

#: matrices of a batch from which on threads divide the batch, which leaves each product whole
MIN_PRODUCT_BATCHES_TO_SHARE = 4
#: rows from which on threads divide the rows, although there are more columns: each has enough
MIN_ROWS_TO_SHARE_ROWS = 128
#: columns for each row from which on they do not: y is then much larger than x
MIN_COLUMNS_PER_ROW_TO_SHARE_COLUMNS = 3
#: rows for each thread from which on they divide them if a sum has no more steps than there are
#: rows: y, which all threads read, is then no larger than the result
MIN_ROWS_PER_THREAD_WITH_SHORT_SUMS = 8
#: rows from which on threads divide them if y is small
MIN_ROWS_WITH_SMALL_RIGHT_SIDE = 32
#: bytes of a small y: every thread may read all of it
MAX_RIGHT_SIDE_BYTES_READ_BY_ALL = 1 << 16
#: rows that stay together: those of a tall tile
ROW_GRAIN = 8
#: rows of a product from which on they do; fewer would give few parts
MIN_ROWS_FOR_GRAIN = 128
#: columns that stay together: the float32 of a vector of AVX-512
COLUMN_GRAIN = 16
#: columns of a product from which on they do; fewer would give few parts
MIN_COLUMNS_FOR_GRAIN = 64

# With many threads a part of the rows is thin, and the other operand is packed by all of them. Then
# they divide rows and columns; what follows needs a new section.

#: threads from which on a product may be divided along rows and columns
MIN_THREADS_FOR_BLOCKS = 4
#: floating-point operations of such a product, at least
MIN_OPERATIONS_FOR_BLOCKS = 1 << 24
#: operations of one thread that take as long as the section that follows
OPERATIONS_PER_SECTION = 1 << 19
#: operations that take as long as packing one element
OPERATIONS_PER_PACKED_ELEMENT = 48
#: how many times less a thread must have to do than with whole matrices of a batch
MIN_GAIN_OF_BLOCKS = 1.1

# Cores are seldom equally fast: some are small, and a virtual machine shares its own with others. A
# large product is therefore cut into more blocks than there are threads, and fast ones do more of
# them. On 16 threads of a shared machine (Intel), 4,096x32x4,096 was 1.0 to 1.7 times as fast so,
# 512x128x2,048 and 2,048 cubed 1.0 to 1.3 times. Threads that packed both operands together, each a
# part, were slower (0.85 in the mean): they wait once more for the slowest.

#: how much longer the slowest of equal parts takes, as a share; with twice as many blocks, half
UNEVEN_SPEED = 0.2
#: blocks for each thread, at most
MAX_BLOCKS_PER_THREAD = 4
#: floating-point operations of a block, at least, if there is more than one for each thread
MIN_OPERATIONS_OF_BLOCK = 1 << 22

# A product with few results and long sums has too little to divide. Its sums are then cut where the
# whole product would begin a new pass; the parts are a batch of products, which are added after it.

#: threads from which on sums are cut
MIN_THREADS_FOR_PARTS = 4
#: floating-point operations of such a product, at least
MIN_OPERATIONS_FOR_PARTS = 1 << 23
#: elements of the result for each row and column, at most: parts then take an eighth of the memory
#: of the operands
MAX_RESULT_PER_OPERAND_LENGTH = 64
#: rows or columns for each thread from which on these are divided instead, if their elements lie
#: one after another
MIN_LENGTH_TO_DIVIDE = 16
#: parts that are there at a time
MAX_SUM_PARTS = 16

# A product of few columns whose left side lies in columns is computed sideways. On an Intel core
# with AVX-512, 4,096x512x16 then has 54 instead of 28 GFLOP/s in float32, with 8 columns 60 instead
# of 14, with 32 columns 66 instead of 50; in float64 with 16 columns 19 instead of 10. More columns
# gain nothing in float64, and fewer rows do not pay for copying the result.

#: vectors that the columns of such a product fill, at most
MAX_VECTORS_OF_SIDEWAYS_ROWS = 2
#: rows for each column, and steps of a sum, at least
MIN_ROWS_PER_COLUMN_OF_SIDEWAYS = 8
MIN_STEPS_OF_SIDEWAYS = 64

# -- attention in tiles ----------------------------------------------------------------------------

#: queries and keys whose scores a thread has at a time
ATTENTION_QUERIES = 128
ATTENTION_KEYS = 256
#: the same for gradients, where there are two such tiles
ATTENTION_GRADIENT_QUERIES = 128
ATTENTION_GRADIENT_KEYS = 256
#: elements between the rows of a tile: rows a power of two apart would share few sets of the cache
ATTENTION_LEAD_PADDING = 16
#: elements that a loop over a row goes on to a multiple of: four vectors of float32, which LLVM
#: does at a time
ATTENTION_ROW_GRAIN = 64

# -- contractions ----------------------------------------------------------------------------------

#: bytes of both operands that a pass over a summed dimension may touch: they stay in the L2 cache
MAX_CONTRACTION_PASS_BYTES = 1 << 20
#: how many times more lanes a summed dimension must fill to be preferred to a kept one, along which
#: lanes need not be added up at the end
KEPT_DIMENSION_PREFERENCE = 1.25
#: elements between neighbours of a vector, at most: what lies between is read as well
MAX_VECTOR_STEP = 4
#: sums of a tile where there are no vectors: independent additions, so that none waits for another
SCALAR_TILE_SUMS = 4
#: vectors in a row of a tile along a kept dimension, at most, as in a panel of a matrix product
MAX_TILE_VECTORS = 3
#: rows of such a tile, at most: each has a pointer, and there are few registers for those
MAX_TILE_ROWS = 8
#: numbers that such a tile has registers for before it gets several rows: every vector that is read
#: serves as many multiplications
RESERVED_TILE_NUMBERS = 8
#: numbers of such a tile, at most: more of them make more text and save little reading
MAX_TILE_NUMBERS = 16
#: vectors of x that a tile along a summed dimension has registers for, at least, if it has all of a
#: dimension of y, which is then read once
MIN_LEFT_VECTORS_WITH_ALL_OF_RIGHT_SIDE = 3
#: the same if it has a part of that dimension: tiles that are nearly square read the least
MIN_LEFT_VECTORS_WITH_PART_OF_RIGHT_SIDE = 5

# -- contractions over patches ---------------------------------------------------------------------

#: multiplications of vectors that take as long as copying a vector of patches, and as transposing a
#: vector of the matrix: both are done once for many multiplications
MULTIPLICATIONS_PER_GATHERED_VECTOR = 4
MULTIPLICATIONS_PER_TRANSPOSED_VECTOR = 8
#: rows of the matrix from which on patches are copied: each element is then used so often. With 32
#: channels, reading them in place is faster (3x3, 14x14: 100 instead of 95 GFLOP/s).
MIN_ROWS_FOR_PATCHES = 48
#: the same where rows of positions fill less than this part of their vectors
MIN_ROWS_FOR_SHORT_PATCHES = 16
MIN_FILLED_VECTORS = 0.6
#: bytes from the first to the last tap of a window, at most, of patches that are read in place if
#: rows of positions are whole vectors: a tile finds in the L2 cache what the one before it read
#: (3x3 of 64 channels, 16x16: 112 instead of 104 GFLOP/s)
MAX_PATCH_BYTES_IN_PLACE = 1 << 18
#: taps of a part of the patches whose positions are kept, at most: with the positions of a panel
#: they take a twentieth of the L2 cache, and sums are added to the result so seldom
MAX_PATCH_TAPS = 256
#: positions that are summed in one pass, and taps of such a part: together a quarter of the cache
MAX_PATCH_POSITIONS = 256
MAX_PATCH_ROWS = 256

# -- contractions by Winograd's algorithm ----------------------------------------------------------

#: multiplications that take as long as the transform of a tile of one channel, of the input or of
#: the result, and as that of a filter
MULTIPLICATIONS_PER_TRANSFORMED_TILE = 48
MULTIPLICATIONS_PER_TRANSFORMED_FILTER = 350
#: how many times less there must be to do than by multiplying patches
MIN_GAIN_OF_WINOGRAD = 1.1
#: chunks of tiles, at most, whose sums a gradient of filters keeps apart, so that threads can share
#: them; bytes of these sums, and tiles of a chunk, at least. All of that must not depend on the
#: number of threads, for it decides in which order sums are rounded.
MAX_TILE_CHUNKS = 16
MAX_CHUNK_SUM_BYTES = 1 << 23
MIN_CHUNK_TILES = 256
#: tiles that are transformed at a time: with 64 channels and filters they take 1.2 MB. With 64, 512
#: channels of 7x7 had 110 instead of 125 GFLOP/s, and others the same.
MAX_TILES_OF_A_PASS = 128

# -- the memory of values in between ---------------------------------------------------------------

#: bytes between things that different threads write, so that none takes a line from another
CACHE_LINE_BYTES = 64

#: bytes of an arena from which on values are computed again that cost next to nothing: how much of
#: it is then wanted, and how much more work, as a part of all, it may take
MIN_ARENA_BYTES_TO_SAVE = 1 << 24
WANTED_SHARE_OF_ARENA = 0.85
MAX_SHARE_OF_WORK_TO_SAVE_MEMORY = 0.02

# -- scratch memory that programs share ------------------------------------------------------------

#: runs of programs that needed less than half of the scratch memory before it shrinks: memory that
#: is soon needed again should not be given back
RUNS_BEFORE_SHRINKING_SCRATCH = 1 << 14
#: bytes of scratch memory from which on the system is asked for large pages, as NumPy does it
MIN_LARGE_PAGES_BYTES = 4 << 20
#: blocks of scratch memory that programs with callbacks leave for the next one
MAX_IDLE_SCRATCH_BLOCKS = 4
#: how many times as large as needed such a block may be: small programs should keep no large ones
MAX_SCRATCH_BLOCK_SIZE_RATIO = 4

# -- waiting ---------------------------------------------------------------------------------------

#: rounds of waiting before a worker goes to sleep: about 1 ms, longer than Python takes between the
#: operations of a training step
SPINS_BEFORE_SLEEP = 40_000
#: rounds of waiting for other threads before one yields its processor to whoever needs it; a power
#: of two. A round takes 50 ns on Intel and 20 ns on AMD, a yield that nobody needs 0.5 µs.
SPINS_BETWEEN_YIELDS = 256
#: rounds before a thread takes a part of another one that has not come; fewer than those
SPINS_BEFORE_HELP = 32

# -- what is kept, and what `explain()` may take ---------------------------------------------------

#: files of the cache on disk; when there are more, the oldest go
MAX_CACHE_FILES = 20_000
#: files that are then removed at once: half of the cache takes 11 s on a slow disk
CACHE_FILES_PRUNED_AT_ONCE = 256
#: files that are stored, on average, between two looks at how many there are; at most 256, and
#: fewer than are removed at once
STORES_FOR_EACH_PRUNING = 64
#: seconds after which no further round of a measurement begins, so that nobody waits long
MAX_MEASURING_SECONDS = 0.4
#: rounds of a measurement, at most: the fastest of so many is hardly held up by other processes
MAX_MEASURING_ROUNDS = 15
#: bytes of memory that a measurement may take, beside those of the program that it measures
MAX_MEASURING_BYTES = 4 << 30
