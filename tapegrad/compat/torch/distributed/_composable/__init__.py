"""`torch.distributed._composable`: the package of `fsdp`."""
