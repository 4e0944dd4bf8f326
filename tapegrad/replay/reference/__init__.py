"""The reference for other targets: programs run with NumPy, one instruction at a time."""
