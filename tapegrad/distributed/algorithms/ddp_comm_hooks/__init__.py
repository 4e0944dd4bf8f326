"""Where PyTorch keeps communication hooks."""
