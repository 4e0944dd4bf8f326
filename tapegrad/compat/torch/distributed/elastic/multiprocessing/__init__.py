"""`torch.distributed.elastic.multiprocessing`: leads to `errors`."""
