"""`torch.fx.interpreter`: re-exports names of `torch.fx`."""

from . import Interpreter, Transformer

__all__ = ["Interpreter", "Transformer"]
