"""Decompositions of matrices and what is made of them; loaded at first use (see `later.py`)."""

from . import least_squares, low_rank, lu, older, orthogonal, spectra, systems, triangles

MODULES = (least_squares, low_rank, lu, older, orthogonal, spectra, systems, triangles)

__all__ = ["MODULES"]
