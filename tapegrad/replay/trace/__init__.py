"""Tracing: a Python call becomes a recording, with slots for what comes from outside.

log (roots, decisions, wholes) ─> capture (derivative, returned) ─> recording (slots, results)
"""
