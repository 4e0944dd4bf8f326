"""`torch.backends`: what it has beside `tapegrad.backends`."""
