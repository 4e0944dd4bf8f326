"""Passes: functions from program to program that keep the meaning and know no machine.

simplify ─> lower (builder, loops) ─> sink_writes ─> fuse ─> rematerialize
"""
