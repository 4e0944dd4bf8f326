"""`torch.distributed.nn`: collectives with gradients, under PyTorch's names."""

from __future__ import annotations

from ....absent import absent_class
from . import functional
from .functional import *  # noqa: F403

__all__ = ["RemoteModule", *functional.__all__]

RemoteModule = absent_class(
    "torch.distributed.nn.RemoteModule", "use collectives: there are no remote procedure calls"
)
