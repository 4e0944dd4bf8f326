"""`torch.distributed._tensor`: the older path to `torch.distributed.tensor`."""

from ..tensor import DTensor, distribute_module, distribute_tensor

__all__ = ["DTensor", "distribute_module", "distribute_tensor"]
