"""`torch.backends.quantized`: there are no quantized kernels."""

engine = "none"
supported_engines = ["none"]
