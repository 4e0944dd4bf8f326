"""`torch.jit`: functions stay Python, so scripting returns them unchanged."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

from ...futures import Future
from ...nn.module import Module
from ..absent import absent, absent_class

__all__ = ["Final", "annotate", "export", "ignore", "is_scripting", "is_tracing", "script"]

_NO_SCRIPT = "functions stay Python: use torch.compile, and save a state_dict()"

ScriptModule = absent_class("torch.jit.ScriptModule", _NO_SCRIPT, Module)
RecursiveScriptModule = absent_class("torch.jit.RecursiveScriptModule", _NO_SCRIPT, ScriptModule)
TopLevelTracedModule = absent_class("torch.jit.TopLevelTracedModule", _NO_SCRIPT, ScriptModule)
TracedModule = absent_class("torch.jit.TracedModule", _NO_SCRIPT, ScriptModule)
ScriptFunction = absent_class("torch.jit.ScriptFunction", _NO_SCRIPT)
CompilationUnit = absent_class("torch.jit.CompilationUnit", _NO_SCRIPT)

trace = absent("torch.jit.trace", _NO_SCRIPT)
_get_trace_graph = absent("torch.jit._get_trace_graph", "a tapegrad.Tape records operations")
trace_module = absent("torch.jit.trace_module", _NO_SCRIPT)
save = absent("torch.jit.save", _NO_SCRIPT)
load = absent("torch.jit.load", _NO_SCRIPT)
freeze = absent("torch.jit.freeze", _NO_SCRIPT)
optimize_for_inference = absent("torch.jit.optimize_for_inference", _NO_SCRIPT)


def fork(func: Callable[..., Any], *args: Any, **kwargs: Any) -> Future[Any]:
    """Run a function at once, in this thread; returns a Future with its result."""
    future: Future[Any] = Future()
    future.set_result(func(*args, **kwargs))
    return future


def wait(future: Future[Any]) -> Any:
    """The result of a Future from `fork`."""
    return future.wait()


class Error(RuntimeError):
    """PyTorch's error in scripted functions."""


class TracerWarning(Warning):
    """A warning category that scripts filter out; it is never used here."""


class Attribute(NamedTuple):
    """A value and the type that a scripted module would give it."""

    value: Any
    type: Any


def script(
    obj: Any,
    optimize: Any = None,
    _frames_up: int = 0,
    _rcb: Any = None,
    example_inputs: Any = None,
) -> Any:
    """The function, class or module itself."""
    return obj


def script_if_tracing(fn: Any) -> Any:
    """The function itself."""
    return fn


def script_method(fn: Any) -> Any:
    """The method itself."""
    return fn


def export(fn: Any) -> Any:
    """The function itself."""
    return fn


def interface(obj: Any) -> Any:
    """The class itself."""
    return obj


def ignore(drop: Any = False, **kwargs: Any) -> Any:
    """The function itself: `@ignore` and `@ignore(drop=True)`."""
    return drop if callable(drop) else lambda fn: fn


def unused(fn: Any) -> Any:
    """The function itself."""
    return fn


def is_scripting() -> bool:
    """False: this runs as Python."""
    return False


def is_tracing() -> bool:
    """False: this runs as Python."""
    return False


def annotate(the_type: Any, the_value: Any) -> Any:
    """The value itself."""
    return the_value


def isinstance(obj: Any, target_type: Any) -> bool:
    """Whether an object is of a type, or of one of several."""
    import builtins

    return builtins.isinstance(obj, target_type)


@contextmanager
def optimized_execution(should_optimize: bool) -> Iterator[None]:
    """A context without effect: there is no TorchScript interpreter."""
    yield


def _overload(fn: Any) -> Any:
    return fn


_overload_method = _overload
_script_if_tracing = script_if_tracing
