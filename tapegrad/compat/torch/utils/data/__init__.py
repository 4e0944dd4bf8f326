"""`torch.utils.data`: paths that only PyTorch has."""
