"""PyTorch's import path of communication hooks."""
