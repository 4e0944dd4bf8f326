"""Guards: what a recording read outside of tensors, and whether it is still the same."""
