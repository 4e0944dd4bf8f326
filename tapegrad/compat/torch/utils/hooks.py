"""`torch.utils.hooks`: handles of hooks."""

from __future__ import annotations

from typing import Any

from ....core.tensor import RemovableHandle

__all__ = ["RemovableHandle", "unserializable_hook", "warn_if_has_hooks"]


def unserializable_hook(f: Any) -> Any:
    """Mark a hook as one that is not pickled; hooks are never saved here."""
    f.__torch_unserializable__ = True
    return f


def warn_if_has_hooks(tensor: Any) -> None:
    """Does nothing: hooks are never saved."""
