"""Special functions: SciPy computes what NumPy does not have."""
