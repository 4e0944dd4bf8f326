"""Operations that fold dimensions, run along them, or put their elements in order."""
