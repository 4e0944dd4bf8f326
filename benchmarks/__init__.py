"""Benchmarks of speed and memory, with PyTorch measured in the same run: `python -m benchmarks`."""
