"""Where PyTorch keeps algorithms for distributed training."""
