"""Checkpointing: run a part of the model without saving, and rerun it in backward.

`checkpoint(fn, *args)` records entries as usual but drops the arrays that they save. When backward
first needs one of them, `fn` is rerun on the same inputs with the same random numbers, and the
arrays saved in the rerun replace the dropped ones. So gradients also reach parameters that are not
arguments of `fn`, nested checkpoints are rerun in turn, and `create_graph` works. Called by users,
also as `utils.checkpoint.checkpoint`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

from ..core import storage
from ..core.casting import restored_settings
from ..core.histories import is_excused
from ..core.modes import HOOKS, STATE, enable_grad, is_grad_enabled, numbers
from ..core.source import Location, describe, here
from ..core.tensor import Tensor
from ..core.tree import leaves
from ..random import get_rng_state, set_rng_state


class saved_tensors_hooks:
    """Inside, every tensor saved for backward goes through `pack`, and through `unpack` when used.

    >>> import tapegrad
    >>> seen = []
    >>> x = tapegrad.ones(2, requires_grad=True)
    >>> with tapegrad.autograd.graph.saved_tensors_hooks(
    ...     lambda t: seen.append(t) or t, lambda t: t
    ... ):
    ...     y = x.exp()
    >>> len(seen)
    1
    """

    def __init__(
        self, pack_hook: Callable[[Tensor], Any], unpack_hook: Callable[[Any], Tensor]
    ) -> None:
        self.pair = (pack_hook, unpack_hook)

    def __enter__(self) -> None:
        if STATE.without_saved_hooks is not None:
            raise RuntimeError(STATE.without_saved_hooks)
        STATE.saved_hooks = (*STATE.saved_hooks, self.pair)
        STATE.mode |= HOOKS

    def __exit__(self, *exc: object) -> None:
        STATE.saved_hooks = STATE.saved_hooks[:-1]
        if not STATE.saved_hooks:
            STATE.mode &= ~HOOKS


class _Complete(Exception):  # not an error: it ends a rerun that has saved everything
    pass


class _Region:
    """One checkpointed call: how to rerun it, and the values that the rerun saved."""

    def __init__(
        self,
        function: Callable[..., Any],
        args: Any,
        kwargs: Any,
        keep_rng: bool,
        context: Any,
        early_stop: bool,
    ) -> None:
        self.function, self.args, self.kwargs = function, args, kwargs
        self.context, self.early_stop = context, early_stop
        self.rng = get_rng_state() if keep_rng else None
        self.autocast = STATE.autocast
        self.number = next(numbers)
        self.location: Location | None = here()
        self.count = 0
        self.values: dict[int, Tensor] = {}
        self.shapes: list[Any] = []

    def pack(self, tensor: Tensor) -> int:
        self.shapes.append((tensor._array.shape, tensor._array.dtype))
        self.count += 1
        return self.count - 1

    def unpack(self, index: int) -> Tensor:
        if index not in self.values:
            self.recompute()
        # Each value is used once: a second backward over a retained graph reruns the call.
        return self.values.pop(index)

    def recompute(self) -> None:
        for x in leaves((self.args, self.kwargs)):
            if isinstance(x, Tensor):
                change = storage.changed_since(x._array, self.number)
                if change is not None and not is_excused(x._array, self.number):
                    raise RuntimeError(
                        "an input of a checkpointed function was changed in place before backward "
                        f"could run the function again.\n"
                        f"  checkpoint at {describe(self.location)}\n"
                        f"  changed at {describe(change.location)}"
                    )
        found: list[Tensor] = []

        taken: list[int] = []

        def collect(tensor: Tensor) -> int:
            found.append(tensor)
            taken.append(next(numbers))
            if self.early_stop and len(found) == len(self.shapes) and not STATE.tapes:
                raise _Complete
            return len(found) - 1

        now, tapes = get_rng_state(), STATE.tapes
        for tape in tapes:
            tape.repeat(True)
        try:
            if self.rng is not None:
                set_rng_state(self.rng)
            hooks = saved_tensors_hooks(collect, lambda i: found[i])
            with enable_grad(), restored_settings(self.autocast), self.context, hooks:
                self.function(*self.args, **self.kwargs)
        except _Complete:
            pass
        finally:
            set_rng_state(now)
            for tape in tapes:
                tape.repeat(False)
        if [(t._array.shape, t._array.dtype) for t in found] != self.shapes:
            kind = (
                "tensors have other shapes or dtypes the second time"
                if len(found) == len(self.shapes)
                else "more tensors were saved the second time"
                if len(found) > len(self.shapes)
                else "fewer tensors were saved the second time"
            )
            raise RuntimeError(
                f"{kind}: a checkpointed function did something else when it ran again: it saved "
                f"{len(self.shapes)} tensors in forward and {len(found)} in the recomputation (or "
                f"of other shapes). It must depend on its inputs only. Checkpoint at "
                f"{describe(self.location)}"
            )
        for tensor, number in zip(found, taken, strict=True):
            change = storage.changed_since(tensor._array, number)
            if change is not None:
                raise RuntimeError(
                    "a value that backward needs is changed in place inside a checkpointed "
                    f"function, at {describe(change.location)}; use the operation that returns a "
                    "new tensor there"
                )
        self.values = dict(enumerate(found))


def checkpoint(
    function: Callable[..., Any],
    *args: Any,
    use_reentrant: bool | None = None,
    preserve_rng_state: bool = True,
    context_fn: Callable[[], Any] | None = None,
    determinism_check: str = "default",
    debug: bool = False,
    early_stop: bool = True,
    **kwargs: Any,
) -> Any:
    """Run `function(*args, **kwargs)`; save only its inputs for backward.

    `context_fn()` returns two contexts, one for the call and one for its rerun. With `early_stop`,
    a rerun ends when it has saved everything that backward needs. `use_reentrant`,
    `determinism_check` and `debug` are accepted for compatibility with PyTorch and have no effect:
    there is one implementation, and errors always name both lines.

    >>> import tapegrad
    >>> x = tapegrad.tensor([1.0, 2.0], requires_grad=True)
    >>> y = tapegrad.checkpoint(lambda v: v.exp().sin(), x)
    >>> y.sum().backward()[x].allclose((x.exp().cos() * x.exp()).detach())
    True
    """
    if not is_grad_enabled():
        return function(*args, **kwargs)
    first, again = (nullcontext(), nullcontext()) if context_fn is None else context_fn()
    stops = early_stop if _STOPS[0] is None else _STOPS[0]
    region = _Region(function, args, kwargs, preserve_rng_state, again, stops)
    with saved_tensors_hooks(region.pack, region.unpack), first:
        return function(*args, **kwargs)


#: the setting of `set_checkpoint_early_stop`
_STOPS: list[bool | None] = [None]


@contextmanager
def set_checkpoint_early_stop(enable: bool) -> Iterator[None]:
    """Inside, the reruns of all checkpointed calls stop early, or none does."""
    before, _STOPS[0] = _STOPS[0], bool(enable)
    try:
        yield
    finally:
        _STOPS[0] = before


@contextmanager
def set_checkpoint_debug_enabled(enabled: bool | None) -> Iterator[None]:
    """Accepted for compatibility with PyTorch; errors have the details without it."""
    yield


def checkpoint_sequential(
    functions: Any, segments: int, input: Any, use_reentrant: bool | None = None, **kwargs: Any
) -> Any:
    """Run a sequence of functions in `segments` checkpointed pieces."""
    steps = list(functions.children()) if hasattr(functions, "children") else list(functions)
    if not 1 <= segments <= max(len(steps), 1):
        raise ValueError(f"segments must lie between 1 and {len(steps)}, got {segments}")
    size = -(-len(steps) // segments)

    def piece(part: list[Callable[..., Any]]) -> Callable[[Any], Any]:
        def run(x: Any) -> Any:
            for step in part:
                x = step(x)
            return x

        return run

    for start in range(0, len(steps), size):
        input = checkpoint(piece(steps[start : start + size]), input, **kwargs)
    return input
