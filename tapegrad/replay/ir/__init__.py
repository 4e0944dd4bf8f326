"""The program that a recording becomes: values, instructions and shapes. It knows no machine."""
