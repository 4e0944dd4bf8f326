"""`torch.fx.graph`: re-exports names of `torch.fx`."""

from . import Graph

__all__ = ["Graph"]
