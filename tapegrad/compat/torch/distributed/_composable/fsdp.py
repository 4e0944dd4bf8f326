"""`torch.distributed._composable.fsdp`: the older path to `torch.distributed.fsdp`."""

from .....distributed.fsdp import FSDPModule, fully_shard

__all__ = ["FSDPModule", "fully_shard"]
