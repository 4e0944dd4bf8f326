"""Operations that read, write and find selected elements."""
