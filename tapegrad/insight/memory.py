"""How much memory the tape keeps for backward.

Comes in: entries. Goes out: `MemoryStats`: how many entries and arrays, how many bytes, and the
bytes by primitive. Memory that several entries share is counted once. Called by `Tape`
(`core/tape.py`) and `dialects.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..core.storage import owner_of
from ..core.tape import Entry, saved_arrays


class MemoryStats:
    """Entries, saved arrays and their bytes. Memory that several arrays share counts once."""

    def __init__(
        self, entries: int, arrays: int, saved_bytes: int, by_primitive: dict[str, int]
    ) -> None:
        self.entries = entries
        self.saved_arrays = arrays
        self.saved_bytes = saved_bytes
        self.saved_memory_mb = saved_bytes / 2**20
        self.by_primitive = by_primitive

    def __repr__(self) -> str:
        return (
            f"MemoryStats(entries={self.entries}, saved_arrays={self.saved_arrays}, "
            f"saved_bytes={self.saved_bytes})"
        )

    def __str__(self) -> str:
        lines = [
            f"{self.entries} entries keep {self.saved_arrays} arrays, "
            f"{self.saved_memory_mb:.3f} MB, for backward"
        ]
        for name, size in sorted(self.by_primitive.items(), key=lambda item: -item[1]):
            lines.append(f"  {name:<20} {size / 2**20:10.3f} MB")
        return "\n".join(lines)


def memory_stats(entries: Iterable[Entry]) -> MemoryStats:
    """Count the memory that these entries keep."""
    seen: dict[int, int] = {}
    by_primitive: dict[str, int] = {}
    arrays = count = 0
    for entry in entries:
        count += 1
        for array in saved_arrays(entry):
            owner: Any = owner_of(array)
            size = int(min(owner.nbytes, array.nbytes) if owner is not array else array.nbytes)
            if id(owner) not in seen:
                arrays += 1
            extra = size - seen.get(id(owner), 0)
            if extra > 0:
                seen[id(owner)] = size
                name = entry.primitive.name
                by_primitive[name] = by_primitive.get(name, 0) + extra
    return MemoryStats(count, arrays, sum(seen.values()), by_primitive)
