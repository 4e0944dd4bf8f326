"""Where PyTorch keeps `fully_shard`."""

from ..parallel.fully_shard import (
    FSDPModule,
    UnshardHandle,
    full_state_dict,
    fully_shard,
    load_full_state_dict,
    summon_full_params,
)

__all__ = [
    "FSDPModule",
    "UnshardHandle",
    "full_state_dict",
    "fully_shard",
    "load_full_state_dict",
    "summon_full_params",
]
