"""LLVM: the text of functions comes in, their addresses go out.

Each kernel is a separate module, compiled once. A process keeps it while it is in use, and the
object code is stored on disk (`cache.py`) for later processes. As many threads as there are
processors compile kernels at the same time. The main thread is not one of them, because signals
interrupt it. llvmlite is loaded here, at the first compilation, and nowhere else. Called by
`executable.py`, `pool.py` and `entries.py`.
"""

from __future__ import annotations

import _thread
import atexit
import ctypes
import functools
import hashlib
import os
import queue
import sys
import threading
import warnings
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, TypeVar

from ...core import locks
from . import cache
from .progress import Progress

T = TypeVar("T")

_lock = locks.new()
#: seconds that the end of the process waits for a compilation
EXIT_PATIENCE = 60
#: seconds between checks of a waiting thread whether it is in a forked child
CHILD_PATIENCE = 0.1

# -- forks ---------------------------------------------------------------------------------------

#: each thread that is inside LLVM without llvmlite's lock holds one of these
_visits = [locks.new() for _ in range(os.cpu_count() or 1)]


@contextmanager
def _visit() -> Iterator[None]:
    """Hold a visit while inside LLVM without llvmlite's lock; a fork waits for it."""
    visit = next((v for v in _visits if v.acquire(blocking=False)), None)
    if visit is None:
        visit = _visits[0]
        visit.acquire()
    try:
        yield
    finally:
        visit.release()


def _llvm_lock() -> Any:
    """The lock that llvmlite holds while LLVM works; None if llvmlite was never loaded."""
    loaded = sys.modules.get("llvmlite.binding.ffi")
    lock = getattr(getattr(loaded, "lib", None), "_lock", None)
    return getattr(lock, "_lock", None)


def _out_of_llvm() -> None:
    """Release llvmlite's lock if an interrupt left it taken; this thread must be outside LLVM."""
    lock = _llvm_lock()
    while lock is not None and lock._is_owned():
        lock.release()


def _before_fork() -> None:
    """Wait until no thread is inside LLVM: the child could not finish its work."""
    for visit in _visits:
        visit.acquire()
    lock = _llvm_lock()
    if lock is not None:
        lock.acquire()


def _after_fork() -> None:
    for lock in (_llvm_lock(), *_visits):
        if lock is not None and lock._is_owned():
            lock.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork
    )

# -- signals -------------------------------------------------------------------------------------


def undisturbed(work: Callable[[], T]) -> T:
    """Do some work in a thread that no signal handler can interrupt.

    Handlers run in the main thread. If one raised an exception, such as that of Ctrl-C, while
    Python enters llvmlite's lock, the lock would stay taken. If the caller is interrupted, the work
    goes on without it.
    """
    if threading.current_thread() is not threading.main_thread() or sys.is_finalizing():
        return work()
    results: list[T] = []
    errors: list[BaseException] = []
    done = _thread.allocate_lock()

    def run() -> None:
        try:
            results.append(work())
        except BaseException as error:
            errors.append(error)
        finally:
            done.release()

    _out_of_llvm()
    process = os.getpid()
    done.acquire()
    try:
        # An exception in the middle of `threading.Thread.start` would leave it inconsistent.
        _thread.start_new_thread(run, ())
    except RuntimeError:  # no thread can start any more, as when the process ends
        return work()
    while not done.acquire(timeout=CHILD_PATIENCE):
        if os.getpid() != process:  # a handler has forked; the child lacks the other thread
            return undisturbed(work)
    if errors:
        raise errors[0]
    return results[0]


@atexit.register
def finish() -> None:
    """Wait for a compilation whose caller was interrupted: no thread may be in LLVM at exit."""
    if _lock.acquire(timeout=EXIT_PATIENCE):
        _lock.release()


# -- functions -----------------------------------------------------------------------------------


class NativeFunction:
    """A compiled function; its code lives as long as this object."""

    def __init__(self, engine: Any, name: str, text: str | None) -> None:
        self._engine = engine
        self.name = name
        self.text = text  # None as long as only the name is known
        self.address = int(engine.get_function_address(name))

    def also(self, name: str) -> int:
        """The address of another function of the same text."""
        return undisturbed(lambda: int(self._engine.get_function_address(name)))

    @property
    def llvm(self) -> str:
        """The text with the function's name, as LLVM gets it."""
        assert self.text is not None
        return self.text.replace("@NAME", f"@{self.name}")

    @property
    def assembly(self) -> str:
        """The assembly that LLVM makes of the text."""

        def assembled() -> str:
            machine, module = _optimised(self.llvm)
            return str(machine.emit_assembly(module))

        return undisturbed(assembled)


class Counts:
    """Counters of this process."""

    compiled = 0  # functions compiled, rather than found in memory or on disk


counts = Counts()

#: the functions in use, by name
_functions: weakref.WeakValueDictionary[str, NativeFunction] = weakref.WeakValueDictionary()


@functools.cache
def available() -> bool:
    """Whether llvmlite and its library can be loaded."""
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
    return undisturbed(_prepared)


def _prepared() -> Any:
    """LLVM's target for this processor, and the settings of its machines."""
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
    """All that the code of a function depends on beside its text."""
    import llvmlite
    import llvmlite.binding as llvm

    from ... import __version__

    _, options = _target()
    parts = (__version__, llvmlite.__version__, llvm.llvm_version_info, options)
    return repr(parts)


def _named(text: str) -> str:
    """The name of the function that a text defines: a hash of all that its code depends on."""
    return f"k{hashlib.sha256((text + circumstances()).encode()).hexdigest()}"


@functools.cache
def _unlocked() -> Any:
    """The two slow functions of LLVM, without the lock that llvmlite puts around each.

    LLVM can compile in several threads if each has its own context, and ctypes releases Python's
    lock meanwhile.
    """
    from llvmlite.binding import ffi

    library = ctypes.CDLL(ffi.lib._name, handle=ffi.lib._handle)
    found = []
    for name in ("LLVMPY_RunNewModulePassManager", "LLVMPY_TargetMachineEmitToMemory"):
        locked, function = getattr(ffi.lib, name), getattr(library, name)
        function.argtypes, function.restype = locked.argtypes, locked.restype
        found.append(function)
    return found


def _optimised(text: str) -> tuple[Any, Any]:
    """A machine for this processor, and the module of a text, optimised by LLVM's passes."""
    target, settings = _target()
    return optimised(text, target.create_target_machine(**settings))


def optimised(
    text: str, machine: Any, link: Callable[[Any, Any], None] | None = None
) -> tuple[Any, Any]:
    """The machine, and the module of a text, optimised by LLVM's passes for it.

    Before that, `link` may link other modules of the same context into it.
    """
    import llvmlite.binding as llvm

    context = llvm.create_context()
    module = llvm.parse_assembly(text, context)
    module.triple = machine.triple
    module.data_layout = str(machine.target_data)
    if link is not None:
        link(module, context)
    options = llvm.create_pipeline_tuning_options(speed_level=3)
    options.loop_vectorization = True
    options.slp_vectorization = True
    builder = llvm.create_pass_builder(machine, options)
    optimise, _ = _unlocked()
    passes = builder.getModulePassManager()
    with _visit():
        optimise(passes, module, builder)
    return machine, module


def _object_of(text: str) -> bytes:
    return code_of(*_optimised(text), binary=True)


def code_of(machine: Any, module: Any, binary: bool) -> bytes:
    """The code of a module for a machine: as object code, or as assembly."""
    from llvmlite.binding import ffi

    _, emit = _unlocked()
    with ffi.OutputString() as error:
        with _visit():
            buffer = emit(machine, module, int(binary), error)
        if not buffer:
            raise RuntimeError(str(error))
    try:
        start, size = ffi.lib.LLVMPY_GetBufferStart(buffer), ffi.lib.LLVMPY_GetBufferSize(buffer)
        return ctypes.string_at(start, size)
    finally:
        ffi.lib.LLVMPY_DisposeMemoryBuffer(buffer)


def made_in_parallel(
    texts: dict[str, str], make: Callable[[str], bytes], progress: Progress
) -> Iterator[tuple[str, bytes]]:
    """The code of some texts by name; long texts begin first, so that none ends alone."""
    from .pool import default_threads

    waiting = deque(sorted(texts, key=lambda name: -len(texts[name])))
    done: queue.SimpleQueue[tuple[str, bytes] | BaseException | None] = queue.SimpleQueue()

    def compile_waiting() -> None:
        try:
            while waiting:
                try:
                    name = waiting.popleft()
                except IndexError:  # another thread was faster
                    break
                done.put((name, make(texts[name])))
        except BaseException as error:
            waiting.clear()
            done.put(error)
        finally:
            done.put(None)

    busy = 0
    if len(texts) > 1:
        try:
            for _ in range(min(len(texts), default_threads())):
                _thread.start_new_thread(compile_waiting, ())
                busy += 1
        except RuntimeError:  # the system gives no more threads
            pass
    if not busy:
        busy = 1
        compile_waiting()
    failed: BaseException | None = None
    while busy:
        made = done.get()
        progress.check()
        if made is None:
            busy -= 1
        elif isinstance(made, BaseException):
            failed = made
        else:
            yield made
    if failed is not None:
        raise failed


def _engine(objects: Iterable[bytes]) -> Any:
    """Load object code."""
    import llvmlite.binding as llvm

    target, settings = _target()
    # An engine owns its target machine and frees it.
    machine = target.create_target_machine(**settings)
    module = llvm.parse_assembly("")
    module.triple = machine.triple
    module.data_layout = str(machine.target_data)
    engine = llvm.create_mcjit_compiler(module, machine)
    for code in objects:
        engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    return engine


def functions(texts: Iterable[str], progress: Progress | None = None) -> dict[str, NativeFunction]:
    """The functions of some texts, each of which defines `@NAME`; new ones are compiled."""
    names = {text: _named(text) for text in dict.fromkeys(texts)}
    found = {text: _functions.get(name) for text, name in names.items()}
    if None in found.values():
        with nullcontext(progress) if progress else Progress("compiling") as said:
            found.update(undisturbed(functools.partial(_compiled, names, said)))
    for text, function in found.items():
        assert function is not None
        function.text = text
    return {text: function for text, function in found.items() if function is not None}


def _compiled(names: dict[str, str], progress: Progress) -> dict[str, NativeFunction]:
    """The functions of some texts with their names."""
    with _lock:
        found = _present(names.values())
        missing = {name: text for text, name in names.items() if name not in found}
        codes = {name: cache.load(name) for name in missing}
        new = {
            name: missing[name].replace("@NAME", f"@{name}")
            for name, code in codes.items()
            if code is None
        }
        if new:
            progress.stage(f"{len(names)} kernels, {len(names) - len(new)} cached")
            for name, code in made_in_parallel(new, _object_of, progress):
                codes[name] = code
                cache.store(name, code)
        counts.compiled += len(new)
        found |= _loaded({name: code for name, code in codes.items() if code is not None})
        return {text: found[name] for text, name in names.items()}


def stored(names: Iterable[str]) -> list[NativeFunction] | None:
    """The functions of some names, from memory or disk; None if one of them is in neither."""
    wanted = list(names)
    found = _present(wanted)
    if len(found) < len(wanted):
        kept = undisturbed(functools.partial(_kept, wanted))
        if kept is None:
            return None
        found = kept
    return [found[name] for name in wanted]


def _kept(names: list[str]) -> dict[str, NativeFunction] | None:
    """The functions of some names; None if one of them is neither in memory nor on disk."""
    with _lock:
        found = _present(names)
        codes = {}
        for name in names:
            if name not in found:
                code = cache.load(name)
                if code is None:
                    return None
                codes[name] = code
        return found | _loaded(codes)


def _present(names: Iterable[str]) -> dict[str, NativeFunction]:
    """Those of the named functions that are in memory."""
    found = {name: _functions.get(name) for name in names}
    return {name: function for name, function in found.items() if function is not None}


def _loaded(codes: dict[str, bytes]) -> dict[str, NativeFunction]:
    """Load the functions of some object code, by name."""
    if not codes:
        return {}
    engine = _engine(codes.values())
    found = {name: NativeFunction(engine, name, None) for name in codes}
    _functions.update(found)
    return found
