"""The users of recordings: compiled functions, eager operations, optimizer updates.

compiled ─> undo, variant ─> replay ─> compiled_entry
update ─> replay        eager ─> programs of single operations
"""
