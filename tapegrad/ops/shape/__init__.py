"""Operations that rearrange, join and compare whole tensors."""
