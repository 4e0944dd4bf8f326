"""Compiled modules: what `tapegrad.compile(module)` returns.

A compiled module is an object of a new subclass of the module's class, and shares the module's
`__dict__`: parameters, state, modes and names are the same objects. Only `forward` differs. Called
by `Module._compiled_copy`.
"""

from __future__ import annotations

from typing import Any

from ..replay import Compiled
from ..replay.use.compiled import Options
from .module import Module


class CompiledModule(Module):
    """A module whose `forward` is compiled; `_orig_mod` is the module itself."""

    _orig_mod: Module
    _compiled: Compiled

    @property
    def replays(self) -> Any:
        return self._compiled.replays

    def explain(
        self, programs: bool = False, code: str | None = None, *, full: bool = False
    ) -> str:
        """Report what calls did, why they were recorded, and which kernels take longest."""
        compiled: Compiled = self._compiled
        return compiled.explain(programs, code, full=full)

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Copies and pickles hold the module and are compiled again."""
        return compiled_module, (self._orig_mod, self._compiled.options)


def compiled_module(module: Module, options: Options) -> Module:
    """A module that shares everything with `module` and replays its `forward`."""
    kind = type(module)
    compiled = Compiled(module._compiled_function(), options)
    body = {
        "__doc__": kind.__doc__,
        "__module__": kind.__module__,
        "_orig_mod": module,
        "_compiled": compiled,
        # A property, so that an attribute in the shared dictionary does not override it.
        "forward": property(lambda self: compiled),
    }
    copy: Module = object.__new__(type(kind.__name__, (CompiledModule, kind), body))
    object.__setattr__(copy, "__dict__", module.__dict__)
    return copy
