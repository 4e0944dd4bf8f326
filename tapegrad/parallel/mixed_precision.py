"""Mixed precision for `fully_shard`: the dtypes in which a unit computes and averages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..core.dtypes import DType
from ..core.tensor import Tensor
from ..core.tree import map_leaves


@dataclass(frozen=True)
class MixedPrecisionPolicy:
    """The dtypes of a unit; None means no cast.

    Parameters are gathered in `param_dtype`; with `cast_forward_inputs` inputs are cast to it too.
    Gradients are averaged in `reduce_dtype` (None: the dtype of the gathered parameters). Results
    of the module are cast to `output_dtype`. Shards, their gradients and optimizer state keep the
    shards' dtype.
    """

    param_dtype: DType | None = None
    reduce_dtype: DType | None = None
    output_dtype: DType | None = None
    cast_forward_inputs: bool = True

    def inputs(self, args: Any, kwargs: Any) -> Any:
        """Cast the arguments of a call for the module."""
        if self.param_dtype is None or not self.cast_forward_inputs:
            return args, kwargs
        return _cast((args, kwargs), self.param_dtype)

    def outputs(self, result: Any) -> Any:
        """Cast the result of a call for the caller."""
        return result if self.output_dtype is None else _cast(result, self.output_dtype)


class OffloadPolicy:
    """The device of shards: always the CPU."""


class CPUOffloadPolicy(OffloadPolicy):
    """Shards on the CPU, where they are without this policy too."""

    def __init__(self, pin_memory: bool = True) -> None:
        self.pin_memory = pin_memory


def _cast(tree: Any, dtype: DType) -> Any:
    def cast(x: Any) -> Any:
        return x.to(dtype) if isinstance(x, Tensor) and x.dtype.is_floating_point else x

    return map_leaves(cast, tree)
