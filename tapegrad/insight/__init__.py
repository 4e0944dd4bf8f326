"""Seeing what happened: printed tensors and tapes, memory kept for backward."""
