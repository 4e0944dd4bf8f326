"""`torch.nn.parallel.scatter_gather`: batches are not split over GPUs; not supported."""

from ....absent import absent

_INSTEAD = "use torch.nn.parallel.DistributedDataParallel with one process for each GPU"
_PATH = "torch.nn.parallel.scatter_gather"

scatter = absent(f"{_PATH}.scatter", _INSTEAD)
scatter_kwargs = absent(f"{_PATH}.scatter_kwargs", _INSTEAD)
gather = absent(f"{_PATH}.gather", _INSTEAD)
