"""Operations that read, write and find chosen elements."""
