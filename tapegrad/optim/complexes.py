"""The state of complex parameters, which optimizers update as pairs of real numbers.

Comes in: the state of a parameter. Goes out: the same state with the other kind of tensors, in the
same memory. It is stored as complex numbers, as in PyTorch. Called by `optimizer.py`.
"""

from __future__ import annotations

from typing import Any

from ..core.tensor import Tensor
from ..ops.elementwise.complexes import view_as_complex, view_as_real


def as_pairs(state: dict[str, Any]) -> dict[str, Any]:
    """A state whose complex tensors are pairs of real numbers."""
    return {
        key: view_as_real(value) if isinstance(value, Tensor) and value.is_complex() else value
        for key, value in state.items()
    }


def as_complex(state: dict[str, Any], pairs: Tensor) -> dict[str, Any]:
    """A state in which tensors of the shape and dtype of `pairs` are complex again."""

    def changed(value: Any) -> Any:
        alike = isinstance(value, Tensor) and value.shape == pairs.shape
        return view_as_complex(value) if alike and value.dtype is pairs.dtype else value

    return {key: changed(value) for key, value in state.items()}
