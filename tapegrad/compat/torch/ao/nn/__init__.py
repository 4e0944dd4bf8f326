"""`torch.ao.nn`: modules of quantization."""
