"""`torch._dynamo`: functions that packages call, without effect; there is no Dynamo here."""

from __future__ import annotations

from typing import Any

from ..compiler import allow_in_graph, assume_constant_result, disable, is_compiling, reset
from . import config
from .eval_frame import OptimizedModule

__all__ = [
    "OptimizedModule",
    "allow_in_graph",
    "assume_constant_result",
    "config",
    "disable",
    "is_compiling",
    "reset",
]


def graph_break(msg: str = "") -> None:
    """Does nothing: `torch.compile` records whole functions."""


def mark_dynamic(t: Any, index: Any, **options: Any) -> None:
    """Does nothing: each shape is recorded once, and its kernels also run other shapes."""


def maybe_mark_dynamic(t: Any, index: Any) -> None:
    """Does nothing: each shape is recorded once, and its kernels also run other shapes."""


def mark_static(t: Any, index: Any = None) -> None:
    """Does nothing: each shape is recorded once."""


def mark_static_address(t: Any, guard: bool = True) -> None:
    """Does nothing: tensors from outside are read and written in place."""


def is_dynamo_supported() -> bool:
    """False: there is no Dynamo."""
    return False
