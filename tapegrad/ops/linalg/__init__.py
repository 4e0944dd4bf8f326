"""Products, functions and equations of matrices."""
