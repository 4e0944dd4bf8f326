"""PyTorch's import path of `fully_shard`."""

from ..parallel.fully_shard import (
    FSDPModule,
    UnshardHandle,
    full_state_dict,
    fully_shard,
    load_full_state_dict,
    summon_full_params,
)
from ..parallel.mixed_precision import CPUOffloadPolicy, MixedPrecisionPolicy, OffloadPolicy

__all__ = [
    "CPUOffloadPolicy",
    "FSDPModule",
    "MixedPrecisionPolicy",
    "OffloadPolicy",
    "UnshardHandle",
    "full_state_dict",
    "fully_shard",
    "load_full_state_dict",
    "summon_full_params",
]
