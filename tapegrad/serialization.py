"""`tapegrad.serialization`: saving and loading under PyTorch's path.

`add_safe_globals` names classes whose objects files may hold.
"""

from __future__ import annotations

from .saving import SavingError, load, save
from .saving.allowed import (
    add_safe_globals,
    clear_safe_globals,
    get_safe_globals,
    safe_globals,
)

__all__ = [
    "SavingError",
    "add_safe_globals",
    "clear_safe_globals",
    "get_safe_globals",
    "load",
    "safe_globals",
    "save",
]
