"""PyTorch's import path of PowerSGD."""

from ....parallel.power_sgd import PowerSGDState, powerSGD_hook

__all__ = ["PowerSGDState", "powerSGD_hook"]
