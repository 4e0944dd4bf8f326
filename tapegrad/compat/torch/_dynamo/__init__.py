"""`torch._dynamo`: marks that packages put on functions; there is no Dynamo here."""

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
    """Nothing to break: `torch.compile` records whole functions."""


def mark_dynamic(t: Any, index: Any, **options: Any) -> None:
    """Nothing to mark: each shape is recorded once, and its kernels serve other shapes."""


def maybe_mark_dynamic(t: Any, index: Any) -> None:
    """Nothing to mark: each shape is recorded once, and its kernels serve other shapes."""


def mark_static(t: Any, index: Any = None) -> None:
    """Nothing to mark: each shape is recorded once."""


def mark_static_address(t: Any, guard: bool = True) -> None:
    """Nothing to mark: tensors from outside are read and written in place."""


def is_dynamo_supported() -> bool:
    """False: there is no Dynamo."""
    return False
