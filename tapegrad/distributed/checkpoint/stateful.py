"""Where PyTorch keeps `Stateful`."""

from ...saving.job import Stateful

__all__ = ["Stateful"]
