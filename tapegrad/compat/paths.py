"""A table of PyTorch's module paths that map to tapegrad modules with other paths.

Read by `finder.py`. A path that also exists in tapegrad, or has a file in `compat/torch`, needs no
entry.
"""

from __future__ import annotations

from typing import NamedTuple


class PathSource(NamedTuple):
    """What a path exposes: a module of tapegrad, and the names taken from it (() means all)."""

    module: str
    names: tuple[str, ...] = ()


#: parts of tapegrad that PyTorch lacks and `torch` does not expose: `torch.core` does not exist
HIDDEN = (
    *("array_api", "backward_functions", "cli", "compat", "core", "data", "debug", "demos"),
    *("dialects", "insight", "parallel", "replay", "saving", "transforms", "typed"),
)

_GRAD_MODES = ("enable_grad", "inference_mode", "no_grad", "set_grad_enabled")

PATHS = {
    "torch._custom_ops": PathSource(".compat.torch.library", ("custom_op",)),
    "torch._tensor": PathSource(".core.tensor", ("Tensor",)),
    "torch.autograd.anomaly_mode": PathSource(
        ".autograd", ("detect_anomaly", "set_detect_anomaly")
    ),
    "torch.autograd.grad_mode": PathSource(".autograd", _GRAD_MODES),
    "torch.autograd.gradcheck": PathSource(
        ".testing", ("GradcheckError", "gradcheck", "gradgradcheck")
    ),
    "torch.autograd.variable": PathSource(".autograd", ("Variable",)),
    "torch.cuda.amp.autocast_mode": PathSource(
        ".cuda.amp", ("autocast", "custom_bwd", "custom_fwd")
    ),
    "torch.cuda.amp.grad_scaler": PathSource(".cuda.amp", ("GradScaler",)),
    "torch.distributed.distributed_c10d": PathSource(".distributed"),
    "torch.distributed.tensor.placement_types": PathSource(
        ".distributed.tensor", ("Partial", "Placement", "Replicate", "Shard")
    ),
    "torch.nn.parallel.distributed": PathSource(".nn.parallel", ("DistributedDataParallel",)),
    "torch.functional": PathSource(
        "tapegrad",
        (
            *("atleast_1d", "atleast_2d", "atleast_3d", "block_diag", "broadcast_shapes"),
            *("broadcast_tensors", "cartesian_prod", "cdist", "chain_matmul", "einsum", "istft"),
            *("lu", "meshgrid", "norm", "split", "stft", "tensordot", "unique"),
            *("unique_consecutive", "unravel_index"),
        ),
    ),
    "torch.quantization": PathSource(".compat.torch.ao.quantization"),
    "torch.jit.annotations": PathSource(
        ".compat.torch._jit_internal",
        (
            *("BroadcastingList1", "BroadcastingList2", "BroadcastingList3", "Dict", "Final"),
            *("List", "Optional", "Tuple", "Union"),
        ),
    ),
}
