"""`torch.distributed.fsdp`: names of PyTorch's older sharding API; `fully_shard` exists."""

from __future__ import annotations

import enum

from .....nn.module import Module
from ....absent import absent_class

_INSTEAD = "use torch.distributed.fsdp.fully_shard"
_PATH = "torch.distributed.fsdp"

FullyShardedDataParallel = absent_class(f"{_PATH}.FullyShardedDataParallel", _INSTEAD, Module)
CPUOffload = absent_class(f"{_PATH}.CPUOffload", _INSTEAD)
MixedPrecision = absent_class(f"{_PATH}.MixedPrecision", _INSTEAD)
FullStateDictConfig = absent_class(f"{_PATH}.FullStateDictConfig", _INSTEAD)
FullOptimStateDictConfig = absent_class(f"{_PATH}.FullOptimStateDictConfig", _INSTEAD)
ShardedStateDictConfig = absent_class(f"{_PATH}.ShardedStateDictConfig", _INSTEAD)
LocalStateDictConfig = absent_class(f"{_PATH}.LocalStateDictConfig", _INSTEAD)


class ShardingStrategy(enum.Enum):
    """PyTorch's names for what is sharded."""

    FULL_SHARD = 1
    SHARD_GRAD_OP = 2
    NO_SHARD = 3
    HYBRID_SHARD = 4


class BackwardPrefetch(enum.Enum):
    """PyTorch's names for when parameters are gathered."""

    BACKWARD_PRE = 1
    BACKWARD_POST = 2


class StateDictType(enum.Enum):
    """PyTorch's names for formats of state dicts."""

    FULL_STATE_DICT = 1
    LOCAL_STATE_DICT = 2
    SHARDED_STATE_DICT = 3
