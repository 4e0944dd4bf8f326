"""`torch.distributed.elastic`: the package of `multiprocessing.errors`."""
