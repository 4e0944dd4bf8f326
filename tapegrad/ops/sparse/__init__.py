"""Sparse tensors in coordinate format, and the operations on them.

Imported when the first one is made; dense tensors do not need it.
"""

from . import picking as picking
from . import rules as rules
