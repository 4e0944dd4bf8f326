"""`torch.distributed.elastic`: leads to `multiprocessing.errors`."""
