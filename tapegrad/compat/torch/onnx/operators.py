"""`torch.onnx.operators`: functions that work with and without an export."""

from __future__ import annotations

from typing import Any

from .... import tensor
from ....core.tensor import Tensor


def shape_as_tensor(x: Tensor) -> Tensor:
    """The sizes of a tensor, as a tensor."""
    return tensor(list(x.shape))


def reshape_from_tensor_shape(x: Tensor, shape: Tensor) -> Any:
    """The tensor reshaped to the shape that the elements of another tensor give."""
    return x.reshape(shape.tolist())
