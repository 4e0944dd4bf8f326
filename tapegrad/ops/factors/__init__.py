"""Decompositions of matrices and what is made of them."""
