"""LLVM: text of functions goes in, their addresses come out.

Each kernel is a module of its own, compiled once: a process keeps it for as long as somebody uses
it, and the object code is kept on disk (`cache.py`) for later processes. llvmlite is loaded here,
at the first compilation, and nowhere else.
"""

from __future__ import annotations

import _thread
import atexit
import functools
import hashlib
import os
import sys
import threading
import warnings
import weakref
from collections.abc import Callable, Iterable
from typing import Any

from .. import locks
from . import cache

_lock = locks.new()
#: seconds that the end of the process waits for a compilation
EXIT_PATIENCE = 60


def _llvm_lock() -> Any:
    """The lock that llvmlite holds while LLVM works; None if llvmlite was never loaded."""
    loaded = sys.modules.get("llvmlite.binding.ffi")
    lock = getattr(getattr(loaded, "lib", None), "_lock", None)
    return getattr(lock, "_lock", None)


def _before_fork() -> None:
    """Wait until LLVM is at rest: the child could not finish what another thread does there."""
    lock = _llvm_lock()
    if lock is not None:
        lock.acquire()


def _after_fork() -> None:
    lock = _llvm_lock()
    if lock is not None and lock._is_owned():
        lock.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork
    )


class Function:
    """A compiled function; its code lives as long as this object."""

    def __init__(self, engine: Any, name: str, text: str) -> None:
        self._engine = engine
        self.name = name
        self.text = text
        self.address = int(engine.get_function_address(name))

    def also(self, name: str) -> int:
        """The address of another function of the same text."""
        return int(self._engine.get_function_address(name))

    @property
    def llvm(self) -> str:
        """The text under the name of the function, as it is given to LLVM."""
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
    """Whether llvmlite can be imported, and its library be loaded."""
    try:
        import llvmlite.binding  # noqa: F401
    except ImportError:
        return False
    except OSError as error:
        warnings.warn(
            f"llvmlite is installed but does not load ({error}): operations run in NumPy; "
            "install llvmlite again",
            RuntimeWarning,
            stacklevel=2,
        )
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
def _circumstances() -> str:
    """What the code of a function depends on beside its text."""
    import llvmlite
    import llvmlite.binding as llvm

    from .. import __version__

    _, options = _target()
    parts = (__version__, llvmlite.__version__, llvm.llvm_version_info, options)
    return repr(parts)


def _named(text: str) -> str:
    """The name of the function that a text defines: it says all that its code depends on."""
    return f"k{hashlib.sha256((text + _circumstances()).encode()).hexdigest()}"


def _optimised(text: str) -> tuple[Any, tuple[Any, Any]]:
    import llvmlite.binding as llvm

    target, settings = _target()
    machine = target.create_target_machine(**settings)
    module = llvm.parse_assembly(text)
    module.triple = machine.triple
    module.data_layout = str(machine.target_data)
    options = llvm.create_pipeline_tuning_options(speed_level=3)
    options.loop_vectorization = True
    options.slp_vectorization = True
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)
    return module, (machine, module)


def _object_of(text: str) -> bytes:
    module, (machine, _) = _optimised(text)
    code: bytes = machine.emit_object(module)
    return code


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


def functions(texts: Iterable[str]) -> dict[str, Function]:
    """The functions of some texts, each of which defines `@NAME`; compiled where they are new."""
    names = {text: _named(text) for text in dict.fromkeys(texts)}
    found = {text: _functions.get(name) for text, name in names.items()}
    missing = {text: names[text] for text, function in found.items() if function is None}
    if missing:
        _out_of_llvm()
        found.update(_undisturbed(functools.partial(_compiled, missing)))
    return {text: function for text, function in found.items() if function is not None}


def _compiled(names: dict[str, str]) -> dict[str, Function]:
    """The functions of some texts with their names."""
    with _lock:
        found: dict[str, Function] = {}
        codes = {}
        for text, name in names.items():
            function = _functions.get(name)  # of another thread that was faster
            if function is not None:
                found[text] = function
                continue
            code = cache.load(name)
            if code is None:
                code = _object_of(text.replace("@NAME", f"@{name}"))
                cache.store(name, code)
            codes[text] = code
        if codes:
            engine = _engine(codes.values())
            for text in codes:
                function = Function(engine, names[text], text)
                found[text] = _functions[function.name] = function
        return found


def _undisturbed(work: Callable[[], dict[str, Function]]) -> dict[str, Function]:
    """Do some work where no signal's handler can interrupt it.

    Handlers run in the main thread. An exception of one, such as that of Ctrl-C, would leave
    llvmlite's lock taken if it came while that is entered in Python.
    """
    if threading.current_thread() is not threading.main_thread():
        return work()
    results: list[dict[str, Function]] = []
    errors: list[BaseException] = []

    done = _thread.allocate_lock()

    def run() -> None:
        try:
            results.append(work())
        except BaseException as error:
            errors.append(error)
        finally:
            done.release()

    done.acquire()
    try:
        # An exception in the midst of `threading.Thread.start` would confuse that.
        _thread.start_new_thread(run, ())
    except RuntimeError:  # there are no threads any more, as when the process ends
        return work()
    done.acquire()
    if errors:
        raise errors[0]
    return results[0]


@atexit.register
def _finish() -> None:
    """Wait at exit for a compilation whose caller was interrupted: LLVM must not be left inside."""
    if _lock.acquire(timeout=EXIT_PATIENCE):
        _lock.release()


def _out_of_llvm() -> None:
    """Free llvmlite's lock of what an interrupt has left, when this thread is not inside of it."""
    lock = _llvm_lock()
    while lock is not None and lock._is_owned():
        lock.release()
