"""`torch.fx.graph_module`: re-exports names of `torch.fx`."""

from . import GraphModule

__all__ = ["GraphModule"]
