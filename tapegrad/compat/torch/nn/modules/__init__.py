"""`torch.nn.modules`: what it has beside `tapegrad.nn.modules`."""
