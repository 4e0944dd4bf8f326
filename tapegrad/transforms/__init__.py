"""Transforms of running functions: batches of examples (`vmap`) and forward mode.

    vmap, jvp ─> levels (bind) ─> batching or forward ─> the primitives below

Names are imported from the single modules; users call `func`.
"""
