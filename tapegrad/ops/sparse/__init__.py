"""Sparse tensors: coordinates and elements, and the operations that they have.

Imported when the first one is made: dense tensors need nothing of it.
"""

from . import picking as picking
from . import rules as rules
