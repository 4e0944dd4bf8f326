"""Memory statistics of GPUs, from CuPy's pool, with PyTorch's names. Without a GPU they are 0.

Measuring a peak takes a hook on every allocation, which costs about as much as the allocation. So
peaks are measured from the first call of `reset_peak_memory_stats` on, in the thread that called
it. Before that, they are the bytes that the pool has taken from the GPU, which is at least as much.
"""

from __future__ import annotations

from typing import Any

from ..core.device import cupy


class _Peaks:
    """The peaks of bytes in use, measured after the first `reset`."""

    def __init__(self) -> None:
        self._hook: Any = None
        self.allocated = self.reserved = 0

    @property
    def is_measured(self) -> bool:
        return self._hook is not None

    def reset(self) -> None:
        """Set the peaks to the bytes in use now."""
        self.allocated, self.reserved = memory_allocated(), memory_reserved()
        if self._hook is None:
            self._hook = self._new_hook()
            self._hook.__enter__()

    def _new_hook(self) -> Any:
        peaks = self
        used = [self.allocated]

        class PeakHook(cupy().cuda.MemoryHook):  # type: ignore[misc]
            """Counts bytes that arrays allocate and free."""

            name = "tapegrad's peaks"

            def malloc_postprocess(self, **about: Any) -> None:
                used[0] += about["mem_size"]
                if used[0] > peaks.allocated:
                    # The hook does not see other threads, so ask the pool.
                    used[0] = memory_allocated()
                    peaks.allocated = max(peaks.allocated, used[0])
                    peaks.reserved = max(peaks.reserved, memory_reserved())

            def free_postprocess(self, **about: Any) -> None:
                used[0] -= about["mem_size"]

        return PeakHook()


_peaks = _Peaks()


def _pool() -> Any:
    return cupy().get_default_memory_pool()


def _has_gpu() -> bool:
    try:
        cupy()
    except RuntimeError:
        return False
    return True


def memory_allocated(device: Any = None) -> int:
    """Bytes of arrays on the GPU; 0 without one."""
    return int(_pool().used_bytes()) if _has_gpu() else 0


def memory_reserved(device: Any = None) -> int:
    """Bytes that the pool has taken from the GPU; 0 without one."""
    return int(_pool().total_bytes()) if _has_gpu() else 0


def max_memory_allocated(device: Any = None) -> int:
    """The peak bytes of arrays since `reset_peak_memory_stats`; before it, those of the pool."""
    if not _has_gpu():
        return 0
    return max(_peaks.allocated, memory_allocated()) if _peaks.is_measured else memory_reserved()


def max_memory_reserved(device: Any = None) -> int:
    """The peak bytes of the pool since `reset_peak_memory_stats`; before it, the current ones."""
    return max(_peaks.reserved, memory_reserved()) if _has_gpu() else 0


def reset_peak_memory_stats(device: Any = None) -> None:
    """Measure peaks from now on."""
    if _has_gpu():
        _peaks.reset()


def mem_get_info(device: Any = None) -> tuple[int, int]:
    """The free and the total bytes of the current GPU."""
    free, total = cupy().cuda.runtime.memGetInfo()
    return int(free), int(total)


def memory_stats(device: Any = None) -> dict[str, int]:
    """These statistics under PyTorch's names; empty without a GPU."""
    if not _has_gpu():
        return {}
    return {
        "allocated_bytes.all.current": memory_allocated(),
        "allocated_bytes.all.peak": max_memory_allocated(),
        "reserved_bytes.all.current": memory_reserved(),
        "reserved_bytes.all.peak": max_memory_reserved(),
    }


def memory_summary(device: Any = None, abbreviated: bool = False) -> str:
    """These statistics as the text of a table."""
    lines = [f"{name:30} {count / 2**20:12,.1f} MiB" for name, count in memory_stats().items()]
    return "\n".join(lines) if lines else "there is no GPU"


reset_max_memory_allocated = reset_max_memory_cached = reset_peak_memory_stats
max_memory_cached = max_memory_reserved
memory_cached = memory_reserved
