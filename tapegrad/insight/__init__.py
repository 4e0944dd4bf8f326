"""Inspection: printed tensors and tapes, memory kept for backward, what is installed.

printing ─> tensors and tapes as text        memory ─> bytes kept for backward
installation ─> `tapegrad info`
"""
