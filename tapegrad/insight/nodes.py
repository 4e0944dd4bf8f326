"""PyTorch's names of nodes, for the texts of tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..core.tensor import Tensor


#: PyTorch's names of operations, where they differ from those of the primitives
_NAMES = {
    "absolute_error_total": "MeanBackward0",
    "cast": "ToCopyBackward0",
    "clamp": "ClampBackward1",
    "cross_entropy": "NllLossBackward0",
    "det": "LinalgDetBackward0",
    "dropout": "MulBackward0",
    "inverse": "LinalgInvExBackward0",
    "linear": "AddmmBackward0",
    "log1p": "Log1PBackward0",
    "max": "MaxBackward1",
    "max_along": "MaxBackward0",
    "min": "MinBackward1",
    "min_along": "MinBackward0",
    "norm2": "LinalgVectorNormBackward0",
    "outer": "MulBackward0",
    "piece": "SplitBackward0",
    "reshape": "ViewBackward0",
    "square": "PowBackward0",
    "squared_error_total": "MseLossBackward0",
    "standardize": "NativeLayerNormBackward0",
    "undiagonal": "DiagEmbedBackward0",
}


def shown_name(tensor: Tensor) -> str:
    """PyTorch's name of the node that made a tensor, as printed: `AddBackward0`.

    If one operation here is several in PyTorch, the name is that of the most common one.
    """
    node: Any = tensor.grad_fn
    primitive, dims = node.primitive, tensor.dim()
    if primitive.context is not None or not primitive.registered:
        return str(node.name())  # a user's Function
    name = primitive.name
    if name in ("sum", "mean"):
        return f"{node.name()}{int(dims > 0)}"
    if name == "matmul":
        return {2: "MmBackward0", 3: "BmmBackward0"}.get(dims, "MvBackward0")
    if name == "slice" and any(isinstance(i, int) for i in node.params["index"]):
        return "SelectBackward0"
    if name == "pow" and node.edges[1] is not None:
        return f"PowBackward{1 if node.edges[0] is not None else 2}"
    return _NAMES.get(name, f"{node.name()}0")
