"""Operations with windows that slide over images: convolution, pooling, resampling."""
