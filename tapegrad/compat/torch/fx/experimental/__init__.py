"""`torch.fx.experimental`: leads to `proxy_tensor`."""
