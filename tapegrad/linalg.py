"""`tapegrad.linalg`: the functions that the op table has for this namespace, with PyTorch's names.

Eigenvalues, singular values and QR factors are not among them. Loaded at first use.
"""

from __future__ import annotations

from typing import Any

from .ops import public_functions

_FUNCTIONS = {
    **public_functions("linalg"),
    **{name: public_functions("")[name] for name in ("diagonal", "matrix_exp")},
}
globals().update(_FUNCTIONS)

__all__ = sorted(_FUNCTIONS)  # the names are those of the table


def __getattr__(name: str) -> Any:
    from .core.missing import missing

    raise missing(__name__, name, __all__)
