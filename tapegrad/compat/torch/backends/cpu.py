"""`torch.backends.cpu`: the processor."""

from __future__ import annotations

import functools


@functools.cache
def get_cpu_capability() -> str:
    """The processor's vector instructions: AVX512, AVX2, or DEFAULT for others."""
    from llvmlite import binding

    features = binding.get_host_cpu_features()
    if all(features.get(f"avx512{part}") for part in ("f", "bw", "dq", "vl")):
        return "AVX512"
    return "AVX2" if features.get("avx2") and features.get("fma") else "DEFAULT"
