"""Passes: programs come in, better programs go out. They know no machine.

simplify ─> lower ─> sink_writes ─> fuse ─> rematerialize
"""
