"""Passes: programs come in, better programs go out. They know no machine.

simplify ─> lower (builder, loops) ─> sink_writes ─> fuse ─> rematerialize
"""
