"""`torch.fx.experimental`: the package of `proxy_tensor`."""
