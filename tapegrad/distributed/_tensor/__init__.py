"""The import path of `distributed.tensor` in PyTorch before 2.5."""

from ..tensor import DeviceMesh, Partial, Placement, Replicate, Shard, init_device_mesh

__all__ = ["DeviceMesh", "Partial", "Placement", "Replicate", "Shard", "init_device_mesh"]
