"""`torch.optim`: what it has beside `tapegrad.optim`."""
