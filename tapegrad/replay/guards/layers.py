"""Layers: which module of a model is running while a function is recorded.

Comes in: calls of modules, from `Observer` (`observe.py`), and entries, from the log of a capture
(`trace/log.py`). Goes out: for each entry the path of its module, such as `model.layers.3`. Used
only while recording.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterator
from types import FrameType
from typing import Any

from ...core.source import LIBRARY

#: number of frames, from a module's caller outwards, that are searched for a name of its model
FRAMES = 3
#: the folder of the code that records
RECORDING = os.path.join(LIBRARY, "replay") + os.sep


class Layers:
    """The stack of running modules, innermost last."""

    def __init__(self) -> None:
        from ...autograd.engine import Walk
        from ...nn.module import Module

        self._module = Module
        #: code whose calls and returns are reported to `entered` and `left`
        self.codes = {Module.__call__.__code__, Walk.run.__code__}
        self._paths = [""]
        #: by id of a module: a weak reference to it, and its path
        self._known: dict[int, tuple[weakref.ref[Any], str]] = {}
        #: by number of an entry: the path of the module that ran
        self._entries: dict[int, str] = {}

    @property
    def current(self) -> str:
        """The path of the innermost module; empty outside of modules."""
        return self._paths[-1]

    def entered(self, frame: FrameType) -> None:
        """A module is called, or a backward pass begins."""
        module = frame.f_locals.get("self")
        if not isinstance(module, self._module):
            self._paths.append("")
            return
        found = self._known.get(id(module))
        if found is None or found[0]() is not module:
            self._name(module, frame.f_back)
            found = self._known[id(module)]
        self._paths.append(found[1])

    def left(self) -> None:
        """The call that was entered last has returned."""
        if len(self._paths) > 1:
            self._paths.pop()

    def wrote(self, entry_number: int) -> None:
        """An operation has recorded an entry."""
        if self._paths[-1]:
            self._entries[entry_number] = self._paths[-1]

    def visits(self, entry_number: int) -> None:
        """The backward pass visits an entry: its module becomes the current one."""
        self._paths[-1] = self._entries.get(entry_number, "")

    def of(self, entry_number: int) -> str:
        """The path of the module that recorded an entry."""
        return self._entries.get(entry_number, "")

    # -- names -------------------------------------------------------------------------------

    def _name(self, module: Any, caller: FrameType | None) -> None:
        """Find a name for the model that contains a module, and name all modules of the model."""
        root, name = module, type(module).__name__
        for label, value in _variables(caller):
            if value is module:
                name = label if root is module else name
            elif self._contains(value, module):
                root, name = value, type(value).__name__ if label == "self" else label
                break
            elif root is module:
                for attribute, part in list(getattr(value, "__dict__", {}).items()):
                    if self._contains(part, module):
                        root, name = part, attribute
        for path, part in root.named_modules():
            full = f"{name}.{path}" if path else name
            self._known[id(part)] = (weakref.ref(part), full)

    def _contains(self, model: Any, module: Any) -> bool:
        """Whether a value is an initialised model that contains this module."""
        if not isinstance(model, self._module) or "_modules" not in model.__dict__:
            return False
        return any(part is module for part in model.modules())


def _variables(frame: FrameType | None) -> Iterator[tuple[str, Any]]:
    """Names and values that the code of a frame and of its callers can read.

    The search ends at frames of the recording itself: `f_locals` would keep alive what they delete.
    """
    for _ in range(FRAMES):
        if frame is None or frame.f_code.co_filename.startswith(RECORDING):
            return
        yield from list(frame.f_locals.items())
        names, known = frame.f_code.co_names, frame.f_globals
        yield from [(n, known[n]) for n in names if n in known]
        frame = frame.f_back
