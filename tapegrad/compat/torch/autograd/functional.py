"""`torch.autograd.functional`: its private helpers that packages use."""

from __future__ import annotations

from typing import Any

from ....core.tensor import Tensor


def _as_tuple(
    inp: Any, arg_name: str | None = None, fn_name: str | None = None
) -> tuple[bool, tuple[Tensor, ...]]:
    """Whether the input is a tuple, and its tensors as a tuple."""
    several = isinstance(inp, tuple)
    tensors = inp if several else (inp,)
    for x in tensors:
        if not isinstance(x, Tensor):
            raise TypeError(
                f"{fn_name}: {arg_name} must be a tensor or a tuple of them, got {type(x).__name__}"
            )
    return several, tensors


def _tuple_postprocess(res: Any, to_unpack: Any) -> Any:
    """A result in the structure of the inputs: a tensor, a tuple, or a tuple of tuples."""
    if not isinstance(to_unpack, tuple):
        return res if to_unpack else res[0]
    inside, outside = to_unpack[1], to_unpack[0]
    if not inside:
        res = tuple(row[0] for row in res)
    return res if outside else res[0]


def _grad_postprocess(inputs: Any, create_graph: bool) -> Any:
    """Gradients, detached unless `create_graph`."""
    if create_graph:
        return inputs
    return tuple(
        x.detach() if isinstance(x, Tensor) else _grad_postprocess(x, create_graph) for x in inputs
    )
