"""The methods of `Tensor` that come from the op table.

This class is empty here: `ops/table.py` attaches the methods when the operations are defined.
`Tensor` inherits from it. The signatures are in `methods.pyi`, which `tools/stubs.py` generates
from the table.
"""

from __future__ import annotations


class TensorMethods:
    """Holds the methods derived from the op table."""

    __slots__ = ()
