"""`torch.nn.attention`: what it has beside `tapegrad.nn.attention`."""
