"""`torch.distributed.rpc`: calls between processes, which are not there."""

from ...absent import absent, absent_class

_INSTEAD = "processes send tensors and objects to each other with torch.distributed's functions"

init_rpc = absent("torch.distributed.rpc.init_rpc", _INSTEAD)
shutdown = absent("torch.distributed.rpc.shutdown", _INSTEAD)
rpc_sync = absent("torch.distributed.rpc.rpc_sync", _INSTEAD)
rpc_async = absent("torch.distributed.rpc.rpc_async", _INSTEAD)
remote = absent("torch.distributed.rpc.remote", _INSTEAD)
TensorPipeRpcBackendOptions = absent_class(
    "torch.distributed.rpc.TensorPipeRpcBackendOptions", _INSTEAD
)
RRef = absent_class("torch.distributed.rpc.RRef", _INSTEAD)


def is_available() -> bool:
    """False."""
    return False
