"""The vector registers of this processor: their size in bytes, their number, and whether an
instruction multiplies pairs of bfloat16.

Called by `contraction.py`, `gemm.py` and `packing.py` to choose tiles, and by `stored.py`, because
a stored program fits only such a processor.
"""

from __future__ import annotations

import functools
import platform


@functools.cache
def registers() -> tuple[int, int]:
    """Bytes of a vector register, and how many accumulators fit beside the operands."""
    import llvmlite.binding as llvm

    features = llvm.get_host_cpu_features()
    if features.get("avx512f"):
        return 64, 27
    if features.get("avx"):
        return 32, 12
    return 16, 24 if platform.machine() in ("aarch64", "arm64") else 12


@functools.cache
def _has_avx512_bf16() -> bool:
    import llvmlite.binding as llvm

    return bool(llvm.get_host_cpu_features().get("avx512bf16"))


def multiplies_bfloat16() -> bool:
    """Whether vectors of pairs of bfloat16 can be multiplied and added to vectors of float32.

    LLVM asks both the processor and the operating system, which must save AVX-512 registers.
    """
    return registers()[0] == 64 and _has_avx512_bf16()
