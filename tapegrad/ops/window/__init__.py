"""Operations with sliding windows: convolution, pooling, resampling."""
