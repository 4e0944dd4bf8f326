"""`torch.distributed`: names that `tapegrad.distributed` lacks."""
