"""`torch.nn`: what it has beside `tapegrad.nn`."""
