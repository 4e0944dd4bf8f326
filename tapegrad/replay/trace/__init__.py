"""Tracing: a Python call becomes a recording, with a slot for each input from outside.

log (roots, decisions, wholes) ─> capture (derivative, returned) ─> recording (slots, results)
"""
