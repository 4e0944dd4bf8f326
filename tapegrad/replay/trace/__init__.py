"""Tracing: a Python call becomes a recording, with slots for what comes from outside."""
