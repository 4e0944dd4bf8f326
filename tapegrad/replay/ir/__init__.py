"""The program that a recording becomes: values, instructions and shapes. It knows no machine.

Passes take and return it; targets make executables of it.
"""
