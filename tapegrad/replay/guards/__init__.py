"""Guards: which plain Python values a recording could read, and whether they are unchanged.

observe ─> scope ─> walk, attributes, reach ─> comparisons ─> conjunction ─> world
"""
