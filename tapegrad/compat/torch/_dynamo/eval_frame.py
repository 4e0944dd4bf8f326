"""`torch._dynamo.eval_frame`: the class of compiled modules."""

from ....nn.compiled import CompiledModule as OptimizedModule

__all__ = ["OptimizedModule"]
