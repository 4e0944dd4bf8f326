"""Operations on each element by itself."""
