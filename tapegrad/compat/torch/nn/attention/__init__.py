"""`torch.nn.attention`: names that `tapegrad.nn.attention` lacks."""
