"""`torch.fx.graph`: a path to names of `torch.fx`."""

from . import Graph

__all__ = ["Graph"]
