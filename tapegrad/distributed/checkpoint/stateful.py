"""PyTorch's import path of `Stateful`."""

from ...saving.job import Stateful

__all__ = ["Stateful"]
