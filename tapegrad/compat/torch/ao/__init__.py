"""`torch.ao`: there are no quantized tensors; the modules that mark where they would begin work."""
