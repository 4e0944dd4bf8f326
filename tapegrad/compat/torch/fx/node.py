"""`torch.fx.node`: a path to names of `torch.fx`."""

from . import Node

__all__ = ["Node"]
