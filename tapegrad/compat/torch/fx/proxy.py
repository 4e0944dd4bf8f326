"""`torch.fx.proxy`: re-exports names of `torch.fx`."""

from . import Proxy, Tracer

__all__ = ["Proxy", "Tracer"]
