"""`torch.export`: programs are not exported."""

from __future__ import annotations

from typing import Any

from ..absent import absent, absent_class

_INSTEAD = "save a state_dict() with torch.save, and compile with torch.compile"

ExportedProgram = absent_class("torch.export.ExportedProgram", _INSTEAD)
Dim = absent_class("torch.export.Dim", _INSTEAD)
export = absent("torch.export.export", _INSTEAD)
export_for_training = absent("torch.export.export_for_training", _INSTEAD)
save = absent("torch.export.save", _INSTEAD)
load = absent("torch.export.load", _INSTEAD)


def register_dataclass(cls: Any, **options: Any) -> None:
    """Register a dataclass as a pytree node, as in `torch.utils._pytree`."""
    from .utils._pytree import register_dataclass as register

    register(cls)
