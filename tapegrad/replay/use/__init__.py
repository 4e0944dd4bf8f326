"""What recordings are used for: compiled functions, eager operations, optimizer updates."""
