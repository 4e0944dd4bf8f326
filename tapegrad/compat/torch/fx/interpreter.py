"""`torch.fx.interpreter`: a path to names of `torch.fx`."""

from . import Interpreter, Transformer

__all__ = ["Interpreter", "Transformer"]
