"""`torch.distributed._composable`: leads to `fsdp`."""
