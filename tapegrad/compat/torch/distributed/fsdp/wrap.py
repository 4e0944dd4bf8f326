"""`torch.distributed.fsdp.wrap`: policies of PyTorch's older sharding API; they raise."""

from ....absent import absent

_INSTEAD = "use torch.distributed.fsdp.fully_shard"
_PATH = "torch.distributed.fsdp.wrap"

size_based_auto_wrap_policy = absent(f"{_PATH}.size_based_auto_wrap_policy", _INSTEAD)
transformer_auto_wrap_policy = absent(f"{_PATH}.transformer_auto_wrap_policy", _INSTEAD)
lambda_auto_wrap_policy = absent(f"{_PATH}.lambda_auto_wrap_policy", _INSTEAD)
wrap = absent(f"{_PATH}.wrap", _INSTEAD)
enable_wrap = absent(f"{_PATH}.enable_wrap", _INSTEAD)
