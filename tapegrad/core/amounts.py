"""Amounts of memory, converted between bytes and text.

Comes in: a number of bytes, or a text such as "2GB" or "512 MiB". Goes out: the other of the two.
Called by `compile(memory=...)` and by reports on memory.
"""

from __future__ import annotations

import re
from typing import Any

_UNITS = {
    "B": 1,
    **{f"{letter}B": 1000**i for i, letter in enumerate("KMGT", 1)},
    **{f"{letter}IB": 1024**i for i, letter in enumerate("KMGT", 1)},
}
_AMOUNT = re.compile(r"\s*(\d+(?:\.\d+)?|\.\d+)\s*([KMGT]?I?B)\s*", re.IGNORECASE)


def parsed(amount: Any, name: str) -> int:
    """An amount in bytes; errors call the argument `name`.

    >>> parsed("1.5GB", "memory"), parsed("4 KiB", "memory"), parsed(10, "memory")
    (1500000000, 4096, 10)
    """
    if isinstance(amount, str):
        found = _AMOUNT.fullmatch(amount)
        if found is None:
            raise ValueError(f'{name} must be an amount such as "2GB" or "512MiB", got {amount!r}')
        amount = int(float(found[1]) * _UNITS[found[2].upper()])
    elif not isinstance(amount, int) or isinstance(amount, bool):
        given = type(amount).__name__
        raise TypeError(f'{name} must be a number of bytes or a text such as "2GB", got {given}')
    if amount <= 0:
        raise ValueError(f"{name} must be more than 0 bytes, got {amount}")
    return int(amount)


def shown(size: float) -> str:
    """An amount in three digits.

    >>> shown(999), shown(1234567), shown(2.5e9)
    ('999 B', '1.23 MB', '2.5 GB')
    """
    units = ["B", "KB", "MB", "GB", "TB"]
    while size >= 999.5 and len(units) > 1:
        size /= 1000
        del units[0]
    return f"{size:.3g} {units[0]}"
