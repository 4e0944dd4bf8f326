"""PyTorch's import path of placements: how tensors are divided among ranks."""

from ...parallel.layouts import Partial, Placement, Replicate, Shard
from ..device_mesh import DeviceMesh, init_device_mesh

__all__ = ["DeviceMesh", "Partial", "Placement", "Replicate", "Shard", "init_device_mesh"]
