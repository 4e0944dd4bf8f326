"""Modules: texts of kernels become functions of a GPU, kept in memory and on disk.

Comes in: texts, each of which defines `@NAME`. Goes out: functions that can be launched. Each text
is a module of its own. LLVM compiles it to PTX, the driver turns that into machine code, and the
code is stored (`cpu/cache.py`) for later processes. Several texts are compiled at the same time.
Called by `gpu.py`.
"""

from __future__ import annotations

import functools
import hashlib
import sys
import weakref
from collections.abc import Iterable

from ..cpu import cache, jit
from ..cpu.progress import Progress
from . import driver, ptx


class GPUFunction:
    """A loaded kernel; its code lives as long as this object."""

    def __init__(self, code: bytes, name: str) -> None:
        self._module = driver.load(code)
        self.handle = driver.function_of(self._module, name)

    def __del__(self) -> None:
        if not sys.is_finalizing() and hasattr(self, "_module"):
            driver.unload(self._module)


#: the kernels in use, by context and name
_functions: weakref.WeakValueDictionary[tuple[int, str], GPUFunction] = (
    weakref.WeakValueDictionary()
)


def functions(
    texts: Iterable[str], capability: tuple[int, int], version: int
) -> dict[str, GPUFunction]:
    """The kernels of some texts in the current context; new ones are compiled.

    Their code depends on the GPU's capability and on the version of its driver.
    """
    context = driver.current_context()
    about = repr((jit.circumstances(), capability, version, ptx.VERSION))
    names = {text: _named(text, about) for text in dict.fromkeys(texts)}
    found = {text: _functions.get((context, name)) for text, name in names.items()}
    missing = {names[text]: text for text, function in found.items() if function is None}
    if missing:
        with Progress("compiling for the GPU") as progress:
            work = functools.partial(_loaded, missing, context, capability, progress)
            made = jit.undisturbed(work)
        found.update((missing[name], function) for name, function in made.items())
    return {text: function for text, function in found.items() if function is not None}


def _named(text: str, about: str) -> str:
    return f"k{hashlib.sha256((text + about).encode()).hexdigest()}"


def _loaded(
    texts: dict[str, str], context: int, capability: tuple[int, int], progress: Progress
) -> dict[str, GPUFunction]:
    """The kernels of texts by name, in a context."""
    driver.use_context(context)
    codes = {name: cache.load(name) for name in texts}
    new = {name: texts[name].replace("@NAME", f"@{name}") for name in texts if codes[name] is None}

    def make(text: str) -> bytes:
        driver.use_context(context)
        return driver.assembled(ptx.ptx_of(text, capability))

    if new:
        progress.stage(f"{len(texts)} kernels, {len(texts) - len(new)} cached")
        for name, code in jit.made_in_parallel(new, make, progress):
            codes[name] = code
            cache.store(name, code)
    found = {name: GPUFunction(code, name) for name, code in codes.items() if code is not None}
    _functions.update(((context, name), function) for name, function in found.items())
    return found
