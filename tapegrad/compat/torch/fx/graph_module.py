"""`torch.fx.graph_module`: a path to names of `torch.fx`."""

from . import GraphModule

__all__ = ["GraphModule"]
