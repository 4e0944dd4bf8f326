"""The vector registers of this processor: how many bytes one holds, and how many there are.

Called by `contraction.py` and `gemm.py` to choose tiles, and by `stored.py`, because a stored
program fits only such a processor.
"""

from __future__ import annotations

import functools
import platform


@functools.cache
def registers() -> tuple[int, int]:
    """Bytes of a vector register, and how many sums fit into the registers beside operands."""
    import llvmlite.binding as llvm

    features = llvm.get_host_cpu_features()
    if features.get("avx512f"):
        return 64, 27
    if features.get("avx"):
        return 32, 12
    return 16, 24 if platform.machine() in ("aarch64", "arm64") else 12
