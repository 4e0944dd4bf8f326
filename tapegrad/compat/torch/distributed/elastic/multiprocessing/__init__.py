"""`torch.distributed.elastic.multiprocessing`: the package of `errors`."""
