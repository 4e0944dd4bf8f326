"""The import path of `distributed.device_mesh` in PyTorch before 2.5."""

from ..device_mesh import DeviceMesh, init_device_mesh

__all__ = ["DeviceMesh", "init_device_mesh"]
