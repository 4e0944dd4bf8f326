"""PyTorch's import path of `Join`."""

from ...parallel.join import Join, Joinable, JoinHook

__all__ = ["Join", "JoinHook", "Joinable"]
