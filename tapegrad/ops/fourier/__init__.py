"""Fourier transforms: of whole dimensions, of short times, and the windows for those."""
