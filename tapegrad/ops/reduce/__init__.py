"""Operations that reduce dimensions, scan along them, or sort their elements."""
