"""`torch.compiler`: decorators for functions, and queries about the compiler."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def is_compiling() -> bool:
    """False: a function that `torch.compile` records runs as Python while it is recorded."""
    return False


def is_dynamo_compiling() -> bool:
    """False: there is no Dynamo."""
    return False


def is_exporting() -> bool:
    """False: programs are not exported."""
    return False


def disable(fn: Any = None, recursive: bool = True, *, reason: str | None = None) -> Any:
    """The function itself: it is recorded like any other."""
    return (lambda function: function) if fn is None else fn


def allow_in_graph(fn: Any) -> Any:
    """The function itself."""
    return fn


def assume_constant_result(fn: Any) -> Any:
    """The function itself."""
    return fn


def substitute_in_graph(original_fn: Any, **options: Any) -> Callable[[Any], Any]:
    """A decorator that leaves both functions as they are."""
    return lambda traceable: traceable


def cudagraph_mark_step_begin() -> None:
    """Does nothing: there are no CUDA graphs."""


def reset() -> None:
    """Does nothing: each compiled function keeps its own programs."""


def list_backends(exclude_tags: Any = ("debug", "experimental")) -> list[str]:
    """The names that `torch.compile(backend=...)` accepts."""
    return ["eager", "inductor"]


class set_stance:
    """Accepts, as a call or a context, the stances that have no effect here; others raise."""

    def __init__(self, stance: str = "default", **options: Any) -> None:
        if stance not in ("default", "eager_on_recompile", "fail_on_recompile"):
            raise NotImplementedError(
                f"torch.compiler.set_stance({stance!r}) does not exist in tapegrad; "
                "set TAPEGRAD_COMPILE=0 to run everything eagerly"
            )

    def __enter__(self) -> set_stance:
        return self

    def __exit__(self, *error: object) -> None:
        pass
