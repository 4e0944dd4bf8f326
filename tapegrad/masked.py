"""`tapegrad.masked`: PyTorch's functions of masked elements. Loaded at first use.

MaskedTensor, a prototype in PyTorch, does not exist here: its names raise errors that say so.
"""

from __future__ import annotations

from typing import Any

from .ops import late, public_functions

late.load_all("masked.")
_FUNCTIONS = public_functions("masked")
globals().update(_FUNCTIONS)

__all__ = sorted(("is_masked_tensor", *_FUNCTIONS))  # the names are those of the table


def is_masked_tensor(obj: Any, /) -> bool:
    """False: there are no tensors that carry a mask."""
    return False


def __getattr__(name: str) -> Any:
    from .core.missing import missing

    if name in ("MaskedTensor", "as_masked_tensor", "masked_tensor"):
        raise AttributeError(
            f"module {__name__!r} has no {name}: there are no tensors that carry a mask; pass "
            "mask= to the functions of this module, or use tapegrad.where",
            name=name,
            obj=None,
        )
    raise missing(__name__, name, __all__)
