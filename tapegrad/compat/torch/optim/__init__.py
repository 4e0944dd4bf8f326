"""`torch.optim`: names that `tapegrad.optim` lacks."""
