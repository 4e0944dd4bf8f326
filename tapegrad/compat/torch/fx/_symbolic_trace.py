"""`torch.fx._symbolic_trace`: re-exports names of `torch.fx`."""

from . import Tracer, symbolic_trace, wrap

__all__ = ["Tracer", "symbolic_trace", "wrap"]


def is_fx_tracing() -> bool:
    """False: nothing is traced."""
    return False
