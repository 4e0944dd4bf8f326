"""Modules as functions of their parameters.

Comes in: a module, and tensors by the names of its parameters and buffers. Goes out: the module's
result with those in place of its own. `stack_module_state` makes such tensors for an ensemble, for
`vmap`; `functionalize` has nothing to do.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from ..ops.shape.joining import stack


def functional_call(
    module: Any,
    parameter_and_buffer_dicts: Any,
    args: Any = None,
    kwargs: Any = None,
    *,
    tie_weights: bool = True,
    strict: bool = False,
) -> Any:
    """Call a module with tensors in place of the parameters and buffers of the same names."""
    from ..nn.utils import stateless

    return stateless.functional_call(
        module, parameter_and_buffer_dicts, args, kwargs, tie_weights=tie_weights, strict=strict
    )


def functionalize(func: Callable[..., Any], *, remove: str = "mutations") -> Callable[..., Any]:
    """A function that behaves like `func`.

    In PyTorch a tracer then sees operations that return new tensors, and writes to arguments at the
    end. Recordings here never have primitives that mutate, so nothing needs to be removed. Results
    and changes of arguments are the same.

    >>> import tapegrad
    >>> x = tapegrad.ones(2)
    >>> tapegrad.func.functionalize(lambda x: x.add_(1) * 3)(x), x
    (tensor([6., 6.]), tensor([2., 2.]))
    """
    if remove not in ("mutations", "mutations_and_views"):
        raise RuntimeError(
            f"functionalize: remove is 'mutations' or 'mutations_and_views', got {remove!r}"
        )

    @functools.wraps(func)
    def functionalized(*args: Any, **kwargs: Any) -> Any:
        return func(*args, **kwargs)

    return functionalized


def stack_module_state(models: Sequence[Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The parameters and the buffers of modules of one class, stacked by name.

    >>> import tapegrad
    >>> from tapegrad import func, nn
    >>> models = [nn.Linear(3, 2) for _ in range(4)]
    >>> params, buffers = func.stack_module_state(models)
    >>> params["weight"].shape
    Size([4, 2, 3])
    """
    if not models:
        raise RuntimeError("stack_module_state needs at least one model")
    if len({m.training for m in models}) > 1:
        raise RuntimeError(
            "stack_module_state: some of the models are in training mode and some are not"
        )
    if len({type(m) for m in models}) > 1:
        raise RuntimeError("stack_module_state: the models are of different classes")
    params = _stacked([dict(m.named_parameters()) for m in models], "parameters")
    buffers = _stacked([dict(m.named_buffers()) for m in models], "buffers")
    return params, buffers


def _stacked(states: list[dict[str, Any]], what: str) -> dict[str, Any]:
    found = {}
    for name in states[0]:
        parts = [state[name] for state in states]
        wanted = {p.requires_grad for p in parts}
        if len(wanted) > 1:
            raise RuntimeError(
                f"stack_module_state: expected {what} named {name} to have the same requires_grad "
                "in all models"
            )
        whole = stack([p.detach() for p in parts])
        found[name] = whole.requires_grad_() if wanted.pop() else whole
    return found
