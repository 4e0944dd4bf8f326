"""LLVM: text of functions goes in, their addresses come out.

Each kernel is a module of its own, compiled once: a process keeps it for as long as somebody uses
it, and the object code is kept on disk (`cache.py`) for later processes. Several kernels are
compiled at once, by as many threads as there are processors. llvmlite is loaded here, at the first
compilation, and nowhere else.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import threading
import weakref
from collections.abc import Iterable, Iterator
from typing import Any

from . import cache
from .progress import Progress

_lock = threading.Lock()
if hasattr(os, "register_at_fork"):
    # A child has only the thread that forked, and would wait for ever for a lock of another.
    os.register_at_fork(
        before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release
    )

#: held while threads compile without the lock of llvmlite: a fork waits for them, unless it is in
#: the thread that waits itself, in a signal handler for example
_compiling = threading.RLock()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_compiling.acquire,
        after_in_parent=_compiling.release,
        after_in_child=_compiling.release,
    )


class Function:
    """A compiled function; its code lives as long as this object."""

    def __init__(self, engine: Any, name: str, text: str | None) -> None:
        self._engine = engine
        self.name = name
        self.text = text  # None where its name alone was known so far
        self.address = int(engine.get_function_address(name))

    def also(self, name: str) -> int:
        """The address of another function of the same text."""
        return int(self._engine.get_function_address(name))

    @property
    def llvm(self) -> str:
        """The text under the name of the function, as it is given to LLVM."""
        assert self.text is not None
        return self.text.replace("@NAME", f"@{self.name}")

    @property
    def assembly(self) -> str:
        """The instructions of this processor that the text becomes."""
        _, machine = _optimised(self.llvm)
        return str(machine[0].emit_assembly(machine[1]))


#: by name: the functions that are in use
_functions: weakref.WeakValueDictionary[str, Function] = weakref.WeakValueDictionary()


@functools.cache
def available() -> bool:
    """Whether llvmlite can be imported."""
    try:
        import llvmlite.binding  # noqa: F401
    except ImportError:
        return False
    return True


@functools.cache
def _target() -> Any:
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    llvm.initialize_native_asmparser()
    options = {
        "cpu": llvm.get_host_cpu_name(),
        "features": llvm.get_host_cpu_features().flatten(),
        "opt": 3,
        "jit": True,
    }
    return llvm.Target.from_default_triple(), options


@functools.cache
def circumstances() -> str:
    """What the code of a function depends on beside its text."""
    import llvmlite
    import llvmlite.binding as llvm

    from .. import __version__

    _, options = _target()
    parts = (__version__, llvmlite.__version__, llvm.llvm_version_info, options)
    return repr(parts)


def _named(text: str) -> str:
    """The name of the function that a text defines: it says all that its code depends on."""
    return f"k{hashlib.sha256((text + circumstances()).encode()).hexdigest()}"


@functools.cache
def _unlocked() -> Any:
    """The two functions of LLVM that take long, without the lock that llvmlite puts around each.

    LLVM compiles in several threads if each has a context of its own, and ctypes lets go of
    Python's lock meanwhile.
    """
    from llvmlite.binding import ffi

    library = ctypes.CDLL(ffi.lib._name, handle=ffi.lib._handle)
    found = []
    for name in ("LLVMPY_RunNewModulePassManager", "LLVMPY_TargetMachineEmitToMemory"):
        locked, function = getattr(ffi.lib, name), getattr(library, name)
        function.argtypes, function.restype = locked.argtypes, locked.restype
        found.append(function)
    return found


def _optimised(text: str) -> tuple[Any, tuple[Any, Any]]:
    import llvmlite.binding as llvm

    target, settings = _target()
    machine = target.create_target_machine(**settings)
    module = llvm.parse_assembly(text, llvm.create_context())
    module.triple = machine.triple
    module.data_layout = str(machine.target_data)
    options = llvm.create_pipeline_tuning_options(speed_level=3)
    options.loop_vectorization = True
    options.slp_vectorization = True
    builder = llvm.create_pass_builder(machine, options)
    optimise, _ = _unlocked()
    optimise(builder.getModulePassManager(), module, builder)
    return module, (machine, module)


def _object_of(text: str) -> bytes:
    from llvmlite.binding import ffi

    module, (machine, _) = _optimised(text)
    _, emit = _unlocked()
    with ffi.OutputString() as error:
        buffer = emit(machine, module, 1, error)
        if not buffer:
            raise RuntimeError(str(error))
    try:
        start, size = ffi.lib.LLVMPY_GetBufferStart(buffer), ffi.lib.LLVMPY_GetBufferSize(buffer)
        return ctypes.string_at(start, size)
    finally:
        ffi.lib.LLVMPY_DisposeMemoryBuffer(buffer)


def _objects_of(texts: dict[str, str], progress: Progress) -> Iterator[tuple[str, bytes]]:
    """The object code of some texts by name; long ones begin first, so that none is left alone."""
    names = sorted(texts, key=lambda name: -len(texts[name]))
    if len(names) < 2:
        yield from ((name, _object_of(texts[name])) for name in names)
        return
    from concurrent.futures import ThreadPoolExecutor, as_completed

    from .pool import default_threads

    _unlocked()
    with ThreadPoolExecutor(min(len(names), default_threads())) as threads:
        compiling = {threads.submit(_object_of, texts[name]): name for name in names}
        try:
            for done in as_completed(compiling):
                progress.check()
                yield compiling[done], done.result()
        finally:
            threads.shutdown(wait=False, cancel_futures=True)


def _engine(objects: Iterable[bytes]) -> Any:
    """Load object code."""
    import llvmlite.binding as llvm

    target, settings = _target()
    # An engine takes its target machine with it when it goes.
    machine = target.create_target_machine(**settings)
    module = llvm.parse_assembly("")
    module.triple = machine.triple
    module.data_layout = str(machine.target_data)
    engine = llvm.create_mcjit_compiler(module, machine)
    for code in objects:
        engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    return engine


def functions(texts: Iterable[str], progress: Progress | None = None) -> dict[str, Function]:
    """The functions of some texts, each of which defines `@NAME`; compiled where they are new."""
    progress = progress or Progress("compiling")
    with _lock:
        names = {text: _named(text) for text in dict.fromkeys(texts)}
        found = {text: _functions.get(name) for text, name in names.items()}
        missing = {text: names[text] for text, function in found.items() if function is None}
        if missing:
            codes = {name: cache.load(name) for name in missing.values()}
            new = {
                name: text.replace("@NAME", f"@{name}")
                for text, name in missing.items()
                if codes[name] is None
            }
            if new:
                progress.stage(f"{len(names)} kernels, {len(names) - len(new)} cached")
            with _compiling:
                for name, code in _objects_of(new, progress):
                    codes[name] = code
                    cache.store(name, code)
            engine = _engine(code for code in codes.values() if code is not None)
            for text, name in missing.items():
                found[text] = _functions[name] = Function(engine, name, text)
        for text, function in found.items():
            assert function is not None
            function.text = text
    return {text: function for text, function in found.items() if function is not None}


def stored(names: Iterable[str]) -> list[Function] | None:
    """The functions of some names, from memory or disk; None if one of them is in neither."""
    with _lock:
        found = {name: _functions.get(name) for name in names}
        missing = [name for name, function in found.items() if function is None]
        codes = []
        for name in missing:
            code = cache.load(name)
            if code is None:
                return None
            codes.append(code)
        if codes:
            engine = _engine(codes)
            for name in missing:
                found[name] = _functions[name] = Function(engine, name, None)
    return [function for function in found.values() if function is not None]
