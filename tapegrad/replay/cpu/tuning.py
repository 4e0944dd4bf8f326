"""The tuning constants of the CPU target: sizes, tiles, ratios, limits.

The other files of this folder read them as `tuning.NAME` when they need them; the text of the
driver takes its own at import. No constant decides whether a result is right, but some decide the
order in which sums are rounded. Each has its reason, and its measurement if one is on record.

*Work* is what threads share. For each element of a loop, a computation counts 1, and 1 more for
every `INSTRUCTIONS_PER_MEMORY_TRIP` instructions. In a product, each multiplication and each
addition counts 1.
"""

from __future__ import annotations

# -- how many threads share the work ---------------------------------------------------------------

#: a program with at most this much work runs on one thread: waking workers and waiting for them
#: would take longer than they save
MAX_SINGLE_THREAD_PROGRAM_WORK = 200_000
#: a loop gets one more thread per this much work: with less, waiting for the thread costs what it
#: saves
LOOP_WORK_PER_THREAD = 16_384
#: the same for products and contractions, in floating-point operations: an operation on registers
#: is cheaper than a loop's element, which comes from memory
PRODUCT_OPERATIONS_PER_THREAD = 32 * 16_384

# -- how threads divide a kernel -------------------------------------------------------------------

#: a kernel's steps are divided into so many blocks if their number allows it: sizes that are large
#: powers of two are then divided alike, whatever a step is, and a thread finds its part in its
#: cache
BLOCKS_PER_KERNEL = 64
#: elements that stay together in a one-dimensional loop: whole vectors and whole cache lines
FLAT_LOOP_GRAIN_ELEMENTS = 64
#: elements from which a one-dimensional loop has this grain; a shorter one would have few parts
MIN_FLAT_LOOP_ELEMENTS_FOR_GRAIN = 1024
#: each thread of a reduction may have its own copy of the result, to be combined at the end, if the
#: result has at most this many elements
MAX_RESULT_ELEMENTS_PER_THREAD = 2048
#: threads share the batch of a reduction over batch and space if it has at least this many steps,
#: or at least as many as there are channels to share instead
MIN_BATCH_STEPS_TO_SHARE = 16

# -- loops -----------------------------------------------------------------------------------------

#: elements that are summed in float32 before the sum moves to float64: few conversions, and an
#: error that does not grow with the whole sum
FLOAT32_SUM_CHUNK_ELEMENTS = 4096

# -- matrix products: tiles ------------------------------------------------------------------------

#: vectors across a panel of columns, at most: times eight rows, they take 24 accumulators, and
#: AVX-512 has registers for 27
MAX_PANEL_VECTORS = 3
#: the same with a triangle: its tiles have more text, and the width of an attention head is seldom
#: a multiple of three vectors
MAX_TRIANGLE_PANEL_VECTORS = 2
#: rows of a tile if registers hold its accumulators, and otherwise; powers of two, because
#: remaining rows are done in halves
TALL_TILE_ROWS = 8
SHORT_TILE_ROWS = 4
#: steps of a sum in one pass, at most: a panel of float32 then takes a tenth of the L2 cache
MAX_PANEL_STEPS = 512
#: steps between the prefetch of a line and its use: the latency of memory
PREFETCHED_STEPS = 16
#: the steps of a pass are a multiple of this; a power of two that divides `MAX_PANEL_STEPS`
PANEL_STEPS_GRAIN = 16
#: columns of the result from which x is packed: each of its elements is then used that often
MIN_COLUMNS_TO_PACK_ROWS = 192
#: the same if the elements of a column of x are adjacent and its columns lie far apart: a tile that
#: reads them in place takes few elements of many cache lines, once for each panel
MIN_COLUMNS_TO_PACK_FAR_ROWS = 32
#: stride in bytes from which such columns lie far apart, and least size of such an x in bytes (8 of
#: 512x512x64, x transposed, Intel, one thread: 117 instead of 102 GFLOP/s)
FAR_COLUMN_BYTES = 1024
MIN_BYTES_TO_PACK_FAR_ROWS = 1 << 16
#: rows of the result from which panels of y are packed even if they can be read in place
MIN_ROWS_TO_PACK_PANELS = 64
#: the same if the rows of a panel lie far apart: more rows than a tile has. Such rows share few
#: cache sets, so the next tile would have to read them from memory again.
MIN_ROWS_TO_PACK_FAR_PANELS = 9
#: stride in bytes from which rows lie far apart: a page
FAR_BYTES = 4096
#: if the result spans at least this many bytes, a tile prefetches the result lines of the next one:
#: they are not in the cache, and the hardware does not prefetch them
MIN_RESULT_BYTES_TO_PREFETCH = 1 << 21
#: a product of a batch prefetches the matrices of the next one if its own three take at most this
#: many bytes: an eighth of an L2 cache. AMD, one thread, float64 from memory: 64 of 32x32x32 have
#: 36 instead of 21 GFLOP/s, 8 of 64x64x64 45 instead of 37
MAX_BYTES_TO_ASK_FOR_NEXT = 1 << 17
#: bytes that the memory fetches at a time
CACHE_LINE_BYTES = 64
#: tiles that are packed together if x lies in columns: each page is then read once for all of them
TILES_PACKED_TOGETHER = 8
#: least bytes of any other packed operand: a smaller one stays in the cache whatever its layout
MIN_BYTES_TO_PACK = 1 << 19
#: rows that are packed at a time
MAX_PACKED_ROWS = 1024
#: all panels of a pass are packed at once and kept if they take at most this many bytes, half of an
#: L2 cache: a few rows are then multiplied with one panel after another
MAX_KEPT_PANEL_BYTES = 1 << 20
#: rows of the result from which panels are kept
MIN_ROWS_TO_KEEP_PANELS = 64
#: if there are few rows and they are not packed, groups of panels are kept instead: bytes of a
#: group, which leave room in the cache for the rest, and rows of such a product, at most
MAX_KEPT_GROUP_BYTES = 1 << 18
MAX_ROWS_FOR_GROUPS = 256
#: rows that are multiplied with one kept panel after another: the TLB holds the pages of so many
#: rows of the result, and their parts of x stay in the L1 cache. Intel, one thread: 4,096x32x4,096
#: has 92 to 134 GFLOP/s instead of 80, 8 of 512x64x512 138 instead of 97
ROWS_BETWEEN_PANELS = 32
#: columns of a half-precision product whose float32 sums are kept between passes: with
#: `MAX_PACKED_ROWS` rows, they take 4 MB
MAX_SUM_COLUMNS = 1024
#: least batch dimensions of a product's function: it also serves products with fewer, so a cold
#: start compiles half as many
MIN_PRODUCT_BATCH_DIMENSIONS = 2

# -- matrix products: what threads divide ----------------------------------------------------------
#
# Every thread reads all of the operand that is not divided, so the larger one should be divided.
# But the instruction after a product often goes by rows, and then needs no new section if the
# product did too.

#: matrices of a batch from which threads divide the batch, which leaves each product whole
MIN_PRODUCT_BATCHES_TO_SHARE = 4
#: rows from which threads divide the rows even if there are more columns: each has enough
MIN_ROWS_TO_SHARE_ROWS = 128
#: columns per row from which they do not: y is then much larger than x
MIN_COLUMNS_PER_ROW_TO_SHARE_COLUMNS = 3
#: rows per thread from which they divide the rows if a sum has no more steps than there are rows:
#: y, which all threads read, is then no larger than the result
MIN_ROWS_PER_THREAD_WITH_SHORT_SUMS = 8
#: rows from which they divide the rows if y is small
MIN_ROWS_WITH_SMALL_RIGHT_SIDE = 32
#: bytes of a small y, at most: every thread may read all of it
MAX_RIGHT_SIDE_BYTES_READ_BY_ALL = 1 << 16
#: rows that stay together: those of a tall tile
ROW_GRAIN = 8
#: rows from which a product has this grain; fewer would give few parts
MIN_ROWS_FOR_GRAIN = 128
#: columns that stay together: the float32 of a vector of AVX-512
COLUMN_GRAIN = 16
#: columns from which a product has this grain; fewer would give few parts
MIN_COLUMNS_FOR_GRAIN = 64

# With many threads, each gets few rows, and all of them pack the whole other operand. They then
# divide rows and columns, and the next instruction needs a new section.

#: threads from which a product may be divided along rows and columns
MIN_THREADS_FOR_BLOCKS = 4
#: least floating-point operations of such a product
MIN_OPERATIONS_FOR_BLOCKS = 1 << 24
#: cost of the section that follows, in operations of one thread
OPERATIONS_PER_SECTION = 1 << 19
#: cost of packing one element, in operations
OPERATIONS_PER_PACKED_ELEMENT = 48
#: blocks must give a thread this many times less to do than whole matrices of a batch
MIN_GAIN_OF_BLOCKS = 1.1

# Cores are seldom equally fast: some are small, and a virtual machine shares its own with others. A
# large product is therefore cut into more blocks than there are threads, and fast threads do more
# of them. On 16 threads of a shared Intel machine, this made 4,096x32x4,096 1.0 to 1.7 times as
# fast, 512x128x2,048 and 2,048 cubed 1.0 to 1.3 times. Letting each thread pack a share of both
# operands for all was slower (0.85 on average): threads wait once more for the slowest.

#: how much longer the slowest of equal parts takes, as a fraction; twice as many blocks halve it
UNEVEN_SPEED = 0.2
#: blocks per thread, at most
MAX_BLOCKS_PER_THREAD = 4
#: least floating-point operations of a block if a thread has more than one
MIN_OPERATIONS_OF_BLOCK = 1 << 22

# A product with few results and long sums has too few rows and columns to divide. Its sums are then
# cut where the whole product would begin a new pass; the parts are a batch of products, which is
# summed afterwards.

#: threads from which sums are cut
MIN_THREADS_FOR_PARTS = 4
#: least floating-point operations of such a product
MIN_OPERATIONS_FOR_PARTS = 1 << 23
#: elements of the result per row and column, at most: the parts then take an eighth of the memory
#: of the operands
MAX_RESULT_PER_OPERAND_LENGTH = 64
#: rows or columns per thread from which these are divided instead, if their elements are contiguous
MIN_LENGTH_TO_DIVIDE = 16
#: parts that exist at a time, at most
MAX_SUM_PARTS = 16

# A product of few columns whose x lies in columns is computed as its transpose. On an Intel core
# with AVX-512, 4,096x512x16 then has 54 instead of 28 GFLOP/s in float32, with 8 columns 60 instead
# of 14, with 32 columns 66 instead of 50; in float64 with 16 columns 19 instead of 10. More columns
# gain nothing in float64, and fewer rows do not pay for copying the result.

#: vectors that the columns of such a product fill, at most
MAX_VECTORS_OF_SIDEWAYS_ROWS = 2
#: least rows per column, and least steps of a sum
MIN_ROWS_PER_COLUMN_OF_SIDEWAYS = 8
MIN_STEPS_OF_SIDEWAYS = 64

# -- attention in tiles ----------------------------------------------------------------------------

#: queries and keys of the tile of scores that a thread has at a time
ATTENTION_QUERIES = 128
ATTENTION_KEYS = 256
#: the same for gradients, which need two such tiles
ATTENTION_GRADIENT_QUERIES = 128
ATTENTION_GRADIENT_KEYS = 256
#: elements between the rows of a tile: rows a power of two apart would share few cache sets
ATTENTION_LEAD_PADDING = 16
#: a loop over a tile's row goes on to a multiple of this many elements: four vectors of float32,
#: the unrolling of LLVM
ATTENTION_ROW_GRAIN = 64

# -- contractions ----------------------------------------------------------------------------------

#: bytes of both operands that a pass over a summed dimension may touch: they stay in the L2 cache
MAX_CONTRACTION_PASS_BYTES = 1 << 20
#: a summed dimension is preferred to a kept one if it fills this many times more lanes: along a
#: kept one, lanes need not be summed at the end
KEPT_DIMENSION_PREFERENCE = 1.25
#: stride of the elements of a vector, at most: a load reads the gaps as well
MAX_VECTOR_STEP = 4
#: accumulators of a tile without vectors: independent additions, so that none waits for another
SCALAR_TILE_SUMS = 4
#: vectors in a row of a tile along a kept dimension, at most, as in a panel of a matrix product
MAX_TILE_VECTORS = 3
#: rows of such a tile, at most: each needs a pointer, and few registers are left for those
MAX_TILE_ROWS = 8
#: scalars that such a tile has registers for before it gets several rows: every loaded vector
#: serves as many multiplications
RESERVED_TILE_NUMBERS = 8
#: scalars of such a tile, at most: more of them make more text and save few loads
MAX_TILE_NUMBERS = 16
#: a tile along a summed dimension covers a whole dimension of y, which is then loaded once, if
#: registers remain for at least this many vectors of x
MIN_LEFT_VECTORS_WITH_ALL_OF_RIGHT_SIDE = 3
#: the same if the tile covers a part of that dimension: tiles that are nearly square load the least
MIN_LEFT_VECTORS_WITH_PART_OF_RIGHT_SIDE = 5

# -- contractions over patches ---------------------------------------------------------------------

#: cost of copying a vector of patches, and of transposing a vector of the matrix, in
#: multiplications of vectors: each is done once for many multiplications
MULTIPLICATIONS_PER_GATHERED_VECTOR = 4
MULTIPLICATIONS_PER_TRANSPOSED_VECTOR = 8
#: rows of the matrix from which patches are copied: each element is then used that often. With 32
#: channels, reading them in place is faster (3x3, 14x14: 100 instead of 95 GFLOP/s).
MIN_ROWS_FOR_PATCHES = 48
#: the same if rows of positions fill less than this fraction of the lanes of their vectors
MIN_ROWS_FOR_SHORT_PATCHES = 16
MIN_FILLED_VECTORS = 0.6
#: patches are read in place if rows of positions are whole vectors and the taps of a window span at
#: most this many bytes: a tile finds in the L2 cache what the one before it read (3x3 of 64
#: channels, 16x16: 112 instead of 104 GFLOP/s)
MAX_PATCH_BYTES_IN_PLACE = 1 << 18
#: taps that are gathered at a time if positions are kept, at most: with the positions of a panel
#: they take a twentieth of the L2 cache, and sums are seldom added to the result
MAX_PATCH_TAPS = 256
#: positions and taps that are gathered at a time if positions are summed, at most: together they
#: take a quarter of the cache
MAX_PATCH_POSITIONS = 256
MAX_PATCH_ROWS = 256

# -- contractions by Winograd's algorithm ----------------------------------------------------------

#: cost of transforming a tile of one channel, of the input or the result, and a filter, in
#: multiplications
MULTIPLICATIONS_PER_TRANSFORMED_TILE = 48
MULTIPLICATIONS_PER_TRANSFORMED_FILTER = 350
#: Winograd's algorithm must need this many times fewer multiplications than patches
MIN_GAIN_OF_WINOGRAD = 1.1
#: the gradient of filters has separate sums for chunks of tiles, which threads share: at most this
#: many chunks and bytes of sums, and at least this many tiles in a chunk. None of these may depend
#: on the number of threads, because they decide the order in which sums are rounded.
MAX_TILE_CHUNKS = 16
MAX_CHUNK_SUM_BYTES = 1 << 23
MIN_CHUNK_TILES = 256
#: tiles that are transformed at a time: with 64 channels and filters they take 1.2 MB. With 64, 512
#: channels of 7x7 had 110 instead of 125 GFLOP/s, and others the same.
MAX_TILES_OF_A_PASS = 128

# -- the memory of intermediate values -------------------------------------------------------------

#: bytes between the data of different threads, which avoids false sharing
CACHE_LINE_BYTES = 64

#: bytes of an arena from which a program recomputes values that cost next to nothing; the fraction
#: of the arena that it aims for, and the extra work that it may take, as a fraction of all work
MIN_ARENA_BYTES_TO_SAVE = 1 << 24
WANTED_SHARE_OF_ARENA = 0.85
MAX_SHARE_OF_WORK_TO_SAVE_MEMORY = 0.02

# -- scratch memory that programs share ------------------------------------------------------------

#: scratch memory shrinks after this many runs of programs that needed less than half of it: memory
#: that is soon needed again should not be given back
RUNS_BEFORE_SHRINKING_SCRATCH = 1 << 14
#: bytes of scratch memory from which the system is asked for huge pages, as NumPy does
MIN_LARGE_PAGES_BYTES = 4 << 20
#: unused blocks of scratch memory that are kept for programs with callbacks
MAX_IDLE_SCRATCH_BLOCKS = 4
#: such a block may be this many times as large as needed: small programs should keep no large ones
MAX_SCRATCH_BLOCK_SIZE_RATIO = 4

# -- waiting ---------------------------------------------------------------------------------------

#: spins before a worker goes to sleep: about 1 ms, longer than Python takes between the operations
#: of a training step
SPINS_BEFORE_SLEEP = 40_000
#: spins of a waiting thread before it yields its processor; a power of two. A spin takes 50 ns on
#: Intel and 20 ns on AMD, a yield that nobody needs 0.5 µs.
SPINS_BETWEEN_YIELDS = 256
#: spins before a thread takes a part of another one that has not come; fewer than those
SPINS_BEFORE_HELP = 32

# -- what is kept, and what `explain()` may take ---------------------------------------------------

#: files of the cache on disk, at most; beyond that, the oldest are removed
MAX_CACHE_FILES = 20_000
#: files that are removed at a time: removing half of the cache takes 11 s on a slow disk
CACHE_FILES_PRUNED_AT_ONCE = 256
#: stores, on average, before the files are counted again; at most 256, and fewer than are removed
#: at a time
STORES_FOR_EACH_PRUNING = 64
#: seconds after which a measurement begins no further round, so that users do not wait long
MAX_MEASURING_SECONDS = 0.4
#: rounds of a measurement, at most: the fastest of so many is hardly held up by other processes
MAX_MEASURING_ROUNDS = 15
#: bytes of memory that a measurement may take beside the program that it measures
MAX_MEASURING_BYTES = 4 << 30
