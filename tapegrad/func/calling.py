"""Modules as functions of their parameters.

Comes in: a module, and tensors by the names of its parameters and buffers. Goes out: what the
module returns with those in place of its own.
"""

from __future__ import annotations

from typing import Any


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
