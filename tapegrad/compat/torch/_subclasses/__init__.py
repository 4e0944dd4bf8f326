"""`torch._subclasses`: the package of `fake_tensor`."""
