"""`torch.distributed.tensor`: names of PyTorch's distributed tensors; not supported."""

from .....core.tensor import Tensor
from ....absent import absent, absent_class

_INSTEAD = "use parallelize_module and fully_shard, whose parameters are plain tensors"

DTensor = absent_class("torch.distributed.tensor.DTensor", _INSTEAD, Tensor)
distribute_tensor = absent("torch.distributed.tensor.distribute_tensor", _INSTEAD)
distribute_module = absent("torch.distributed.tensor.distribute_module", _INSTEAD)
