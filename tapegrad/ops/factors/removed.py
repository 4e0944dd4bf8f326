"""Names that PyTorch keeps only to raise an error that names the replacement."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def _removed(name: str, instead: str) -> Callable[..., Any]:
    def removed(*args: Any, **options: Any) -> Any:
        raise RuntimeError(f"{name} was removed from PyTorch; use {instead}")

    removed.__name__ = removed.__qualname__ = name
    removed.__doc__ = f"Raises an error that names `{instead}`, as PyTorch's does."
    return removed


eig = _removed("eig", "tapegrad.linalg.eig")
lstsq = _removed("lstsq", "tapegrad.linalg.lstsq, with the arguments exchanged")
matrix_rank = _removed("matrix_rank", "tapegrad.linalg.matrix_rank")
solve = _removed("solve", "tapegrad.linalg.solve, with the arguments exchanged")
symeig = _removed("symeig", "tapegrad.linalg.eigh or eigvalsh")
