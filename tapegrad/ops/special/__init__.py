"""Special functions; SciPy computes those that NumPy does not have."""
