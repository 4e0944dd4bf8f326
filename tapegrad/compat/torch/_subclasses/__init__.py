"""`torch._subclasses`: leads to `fake_tensor`."""
