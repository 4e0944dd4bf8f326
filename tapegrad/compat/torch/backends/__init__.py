"""`torch.backends`: names that `tapegrad.backends` lacks."""
