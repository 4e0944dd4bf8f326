"""Switches of the whole process that decide how exactly, and how repeatably, a GPU computes.

Set by `tapegrad/backends`, read by `replay/cuda/` when a program is recorded or run.
"""

from __future__ import annotations


class Switches:
    """The settings that users have chosen."""

    #: "highest": products of float32 are full precision; "high" and "medium": factors may be
    #: rounded to TensorFloat32
    precision = "highest"
    #: whether a run must repeat another bit for bit
    deterministic = False


switches = Switches()
