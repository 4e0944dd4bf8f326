"""The precision in which a unit of `fully_shard` computes, while its shards keep their own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..core.dtypes import DType
from ..core.tensor import Tensor
from ..core.tree import map_leaves


@dataclass(frozen=True)
class MixedPrecisionPolicy:
    """Dtypes of a unit; None leaves things as they are.

    Parameters are gathered in `param_dtype`, and with `cast_forward_inputs` inputs become that too.
    Gradients are averaged in `reduce_dtype` (that of the parameters for None); results of the
    module become `output_dtype`. Shards, their gradients and optimizers keep the shards' dtype.
    """

    param_dtype: DType | None = None
    reduce_dtype: DType | None = None
    output_dtype: DType | None = None
    cast_forward_inputs: bool = True

    def inputs(self, args: Any, kwargs: Any) -> Any:
        """The arguments of a call, as the module gets them."""
        if self.param_dtype is None or not self.cast_forward_inputs:
            return args, kwargs
        return _cast((args, kwargs), self.param_dtype)

    def outputs(self, result: Any) -> Any:
        """The result of a call, as the caller gets it."""
        return result if self.output_dtype is None else _cast(result, self.output_dtype)


class OffloadPolicy:
    """Where shards lie: in the computer's memory."""


class CPUOffloadPolicy(OffloadPolicy):
    """Where shards lie: in the computer's memory, as without it."""

    def __init__(self, pin_memory: bool = True) -> None:
        self.pin_memory = pin_memory


def _cast(tree: Any, dtype: DType) -> Any:
    def cast(x: Any) -> Any:
        return x.to(dtype) if isinstance(x, Tensor) and x.dtype.is_floating_point else x

    return map_leaves(cast, tree)
