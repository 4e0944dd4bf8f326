"""Dropout inside attention: the factor of each score of a row, 0 or 1 / (1 - p).

Comes in: the state of the generator, and the number of a row's first score among all scores. Goes
out: code that makes the factors of that row. Score i of a draw uses 24 bits of half a word: block
i / 8 of the generator has four words of two halves. So a factor depends only on the state and i,
and is the same in forward, backward, the whole matrix (`ops/drawing.py`) and on any number of
threads. Called by `attention.py`.
"""

from __future__ import annotations

import math
import struct

import numpy as np

from ...core.primitive import ELEMENTWISE, Primitive
from ..native import scalar
from ..native.code import INT64, UINT64, Code, Register

#: scores whose numbers come from one block of the generator
SCORES_PER_BLOCK = 8

WORD = Primitive(
    "word",
    lambda seed, block: seed,
    ELEMENTWISE,
    ("seed", "block"),
    expression="philox(as_uint64(seed), as_uint64(block), which)",
)


def table_numbers(p: float) -> list[int]:
    """The least 24-bit number that keeps a score, and the factor of kept scores as double bits.

    A score is kept if its uniform float32 is at least p as a float32; both are exact in float64.
    """
    threshold = math.ceil(float(np.float32(p)) * 2.0**24)
    kept = 1.0 / (1.0 - p) if p < 1 else 0.0
    return [threshold, *struct.unpack("<q", struct.pack("<d", kept))]


def write_factors(
    code: Code,
    state: str,
    first: str,
    count: str,
    threshold: str,
    kept: Register,
    row: str,
) -> str:
    """Write the factors of `count` scores from number `first` on; returns a pointer to the first.

    `row` has room for them and for the rest of the blocks at both ends.
    """
    seed = code.load(state, INT64)
    offset = code.load(code.element(state, INT64, "1"), INT64).text
    low = code.value(f"lshr i64 {first}, 3")
    end = code.value(f"add i64 {code.value(f'add i64 {first}, {count}')}, {SCORES_PER_BLOCK - 1}")
    end = code.value(f"lshr i64 {end}, 3")
    with code.loop(low, end) as block:
        counter = Register(code.value(f"add i64 {offset}, {block}"), INT64)
        there = code.value(f"shl i64 {code.value(f'sub i64 {block}, {low}')}, 3")
        for which in range(4):
            word = scalar.emit(code, WORD, {"which": which}, [seed, counter], UINT64).text
            upper = code.value(f"lshr i64 {word}, 40")
            lower = code.value(f"and i64 {code.value(f'lshr i64 {word}, 8')}, 16777215")
            for half, bits in enumerate((lower, upper)):
                at = code.value(f"add i64 {there}, {2 * which + half}")
                code.store(_factor(code, bits, threshold, kept), code.element(row, kept.dtype, at))
    return code.element(row, kept.dtype, code.value(f"and i64 {first}, {SCORES_PER_BLOCK - 1}"))


def _factor(code: Code, bits: str, threshold: str, kept: Register) -> Register:
    keep = code.value(f"icmp uge i64 {bits}, {threshold}")
    kind = "float" if kept.dtype.itemsize == 4 else "double"
    return Register(code.value(f"select i1 {keep}, {kind} {kept.text}, {kind} 0.0"), kept.dtype)


def dropped(code: Code, x: Register, factors: str, column: str) -> Register:
    """`x` times its factor; 0 where it is dropped, whatever it was."""
    kind = "float" if x.dtype.itemsize == 4 else "double"
    factor = code.load(code.element(factors, x.dtype, column), x.dtype).text
    keep = code.value(f"fcmp une {kind} {factor}, 0.0")
    scaled = code.value(f"fmul {kind} {x.text}, {factor}")
    return Register(code.value(f"select i1 {keep}, {kind} {scaled}, {kind} 0.0"), x.dtype)


def row_elements(columns: int) -> int:
    """Elements of a row of factors: whole blocks, and one more because rows begin inside one."""
    return columns + 2 * SCORES_PER_BLOCK
