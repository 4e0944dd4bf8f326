"""PyTorch's import path of algorithms for distributed training."""
