"""`torch.fx.proxy`: a path to names of `torch.fx`."""

from . import Proxy, Tracer

__all__ = ["Proxy", "Tracer"]
