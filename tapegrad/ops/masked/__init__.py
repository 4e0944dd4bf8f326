"""Reductions and scans of the elements that a mask chooses."""
