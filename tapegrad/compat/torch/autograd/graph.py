"""`torch.autograd.graph`: classes that stand in annotations."""

from ....core.tape import Entry as Node

__all__ = ["Node"]
