"""`torch.ao`: quantized tensors do not exist here; the stubs that mark them in models work."""
