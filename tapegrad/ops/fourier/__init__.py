"""Fourier transforms along whole dimensions, and short-time Fourier transforms."""
