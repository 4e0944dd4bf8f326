"""Hooks of optimizers: before and after steps, saving and loading.

`with_hooks` wraps the `step` of every class that defines one, so that hooks also run around the
steps of users' own optimizers. Used by `optimizer.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from ..core.modes import numbers
from ..core.tensor import RemovableHandle

Hook = Callable[..., Any]

#: hooks of all optimizers
GLOBAL_BEFORE: dict[int, Hook] = {}
GLOBAL_AFTER: dict[int, Hook] = {}


def register(hooks: dict[int, Hook], hook: Hook, prepend: bool = False) -> RemovableHandle:
    """Add a hook to the others, or before them."""
    key = next(numbers)
    others = dict(hooks) if prepend else {}
    if prepend:
        hooks.clear()
    hooks[key] = hook
    hooks.update(others)
    return RemovableHandle(lambda: hooks.pop(key, None))


def register_optimizer_step_pre_hook(hook: Hook) -> RemovableHandle:
    """Call `hook(optimizer, args, kwargs)` before each step of any optimizer."""
    return register(GLOBAL_BEFORE, hook)


def register_optimizer_step_post_hook(hook: Hook) -> RemovableHandle:
    """Call `hook(optimizer, args, kwargs)` after each step of any optimizer."""
    return register(GLOBAL_AFTER, hook)


def with_hooks(step: Callable[..., Any]) -> Callable[..., Any]:
    """`step` with the hooks around it; an inner step through `super()` runs without hooks."""

    @wraps(step)
    def run(*args: Any, **kwargs: Any) -> Any:
        optimizer = args[0]
        if optimizer._stepping:
            return step(*args, **kwargs)
        for name in ("_pre_hooks", "_post_hooks"):
            # An optimizer that wraps another one may never call its base class's `__init__`.
            optimizer.__dict__.setdefault(name, {})
        optimizer._opt_called = optimizer._stepping = True
        try:
            if GLOBAL_BEFORE or optimizer._pre_hooks:
                args, kwargs = _run_before(optimizer, args, kwargs)
            result = step(*args, **kwargs)
            if GLOBAL_AFTER or optimizer._post_hooks:
                for hook in (*optimizer._post_hooks.values(), *GLOBAL_AFTER.values()):
                    hook(optimizer, args, kwargs)
        finally:
            optimizer._stepping = False
        return result

    return run


def _run_before(optimizer: Any, args: Any, kwargs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Call the hooks before a step; returns the step's arguments, which hooks may change."""
    for hook in (*GLOBAL_BEFORE.values(), *optimizer._pre_hooks.values()):
        changed = hook(optimizer, args, kwargs)
        if changed is not None:
            args, kwargs = _arguments(changed)
    return args, kwargs


def _arguments(changed: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if not isinstance(changed, tuple) or len(changed) != 2:
        raise RuntimeError(
            "a hook before a step returns None or the new (args, kwargs), args with the optimizer "
            f"as the first; got {changed!r}"
        )
    return changed
