"""Where PyTorch keeps how tensors lie on ranks."""

from ...parallel.tensor_styles import Placement, Replicate, Shard

__all__ = ["Placement", "Replicate", "Shard"]
