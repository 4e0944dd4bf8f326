"""`torch.autograd`: what it has beside `tapegrad.autograd`."""
