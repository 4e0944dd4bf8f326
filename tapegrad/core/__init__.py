"""What everything stands on: dtypes, devices, modes, tensors, the tape, primitives."""
