"""Renaming: the same instruction on other values.

Comes in: an instruction, and new values by the numbers of those that they replace. Goes out: the
instruction that reads and writes the new values. Called by `passes/recompute.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from ...core.tape import Value
from .program import Access, Instruction, LoopFold, Pick, Read, Scan, Store, View

#: parts of instructions that contain values, or parts that do
_PARTS = (Access, Pick, View, Read, Store, LoopFold, Scan)
#: fields that contain no value
_WITHOUT = {"origins", "params", "primitive", "shape", "strides", "dims", "batch"}


def renamed(instruction: Instruction, names: Mapping[int, Value]) -> Instruction:
    """An instruction that reads and writes other values."""
    changed: Instruction = _renamed_fields(instruction, names)
    return changed


def _renamed_fields(part: Any, names: Mapping[int, Value]) -> Any:
    changes = {}
    for field in fields(part):
        if field.name not in _WITHOUT:
            old = getattr(part, field.name)
            new = _renamed(old, names)
            if new is not old:
                changes[field.name] = new
    return replace(part, **changes) if changes else part


def _renamed(part: Any, names: Mapping[int, Value]) -> Any:
    if isinstance(part, Value):
        return names.get(part.number, part)
    if isinstance(part, tuple):
        new = tuple(_renamed(one, names) for one in part)
        return new if any(a is not b for a, b in zip(new, part, strict=True)) else part
    return _renamed_fields(part, names) if isinstance(part, _PARTS) else part
