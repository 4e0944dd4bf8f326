"""Speed and memory, measured against PyTorch in the same run: `python -m benchmarks`."""
