"""The CPU as a target: a program comes in, native code that runs on arrays goes out.

plan ─> emit (loops, products, contraction) ─> jit ─> executable ─> pool, driver
"""
