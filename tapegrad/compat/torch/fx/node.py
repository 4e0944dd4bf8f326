"""`torch.fx.node`: re-exports names of `torch.fx`."""

from . import Node

__all__ = ["Node"]
