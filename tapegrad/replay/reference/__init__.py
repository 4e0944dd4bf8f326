"""The reference for other targets: programs run with NumPy or CuPy, one instruction at a time.

A recorded program comes in, an executable goes out. Used through `use/targets.py`, as the backends
"numpy" and "cupy".
"""
