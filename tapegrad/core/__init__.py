"""The base of everything else: dtypes, devices, modes, tensors, the tape, primitives.

Code here imports nothing from the rest of the library, except inside a few functions that
`tests/test_structure.py` lists. Every other folder imports single modules from here.
"""
