"""Guards: what a recording read outside of tensors, and whether it is unchanged.

observe ─> scope ─> walk, attributes, reach ─> comparisons ─> conjunction ─> world
"""
