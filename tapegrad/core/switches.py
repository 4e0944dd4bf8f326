"""Switches of the whole process that decide how exactly, and how repeatably, a GPU computes.

Set by `tapegrad/backends`, read by `replay/cuda/` when a program is recorded or run.
"""

from __future__ import annotations


class Switches:
    """What users have asked for."""

    #: "highest": products of float32 keep all their bits; "high" and "medium": factors may be
    #: rounded to TensorFloat32
    precision = "highest"
    #: whether a run must repeat another bit for bit
    deterministic = False


switches = Switches()
