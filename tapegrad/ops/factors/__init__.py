"""Decompositions of matrices, and functions computed from them."""
