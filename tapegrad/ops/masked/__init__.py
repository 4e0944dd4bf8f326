"""Masked reductions and scans."""
