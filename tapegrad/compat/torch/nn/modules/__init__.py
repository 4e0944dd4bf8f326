"""`torch.nn.modules`: names that `tapegrad.nn.modules` lacks."""
