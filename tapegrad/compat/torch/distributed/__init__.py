"""`torch.distributed`: what it has beside `tapegrad.distributed`."""
