"""Switches of the whole process that users set and that operations depend on.

Set by `backends/` and `distributions/`. `replay/cuda/` reads how exactly, and how repeatably, a GPU
computes. A recording belongs to the values of all switches.
"""

from __future__ import annotations

from typing import Any


class Switches:
    """The settings that users have chosen."""

    #: "highest": products of float32 are full precision; "high" and "medium": factors may be
    #: rounded to TensorFloat32
    precision = "highest"
    #: whether a run must repeat another bit for bit
    deterministic = False
    #: whether distributions check their arguments unless they are told otherwise
    validate_args: bool = __debug__
    #: the values of all switches
    values: tuple[Any, ...] = (precision, deterministic, validate_args)

    def __setattr__(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)
        values = (self.precision, self.deterministic, self.validate_args)
        object.__setattr__(self, "values", values)


switches = Switches()
