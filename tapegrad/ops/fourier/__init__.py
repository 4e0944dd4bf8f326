"""Fourier transforms: of whole dimensions, and of short times."""
