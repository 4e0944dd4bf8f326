"""`torch.distributed.rpc`: remote procedure calls, which are not supported."""

from ....absent import absent, absent_class

_INSTEAD = "processes send tensors and objects to each other with torch.distributed's functions"
_PATH = "torch.distributed.rpc"

init_rpc = absent(f"{_PATH}.init_rpc", _INSTEAD)
shutdown = absent(f"{_PATH}.shutdown", _INSTEAD)
rpc_sync = absent(f"{_PATH}.rpc_sync", _INSTEAD)
rpc_async = absent(f"{_PATH}.rpc_async", _INSTEAD)
remote = absent(f"{_PATH}.remote", _INSTEAD)
get_worker_info = absent(f"{_PATH}.get_worker_info", _INSTEAD)
BackendType = absent_class(f"{_PATH}.BackendType", _INSTEAD)
RpcBackendOptions = absent_class(f"{_PATH}.RpcBackendOptions", _INSTEAD)
TensorPipeRpcBackendOptions = absent_class(
    f"{_PATH}.TensorPipeRpcBackendOptions", _INSTEAD, RpcBackendOptions
)
RRef = absent_class(f"{_PATH}.RRef", _INSTEAD)


def is_available() -> bool:
    """False: there are no remote procedure calls."""
    return False
