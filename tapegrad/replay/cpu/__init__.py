"""The CPU as a target: a program goes in, native code that runs on arrays comes out.

plan ─> emit ─> jit ─> executable
"""
