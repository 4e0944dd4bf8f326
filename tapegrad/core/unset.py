"""Arrays without a shape, for parameters and buffers of lazy layers.

Only the dtype and device of an `UnsetArray` have a meaning. Short paths check for NumPy's own
class, so they leave its tensor to `bind`, which refuses it. Short paths without that check call a
NumPy function, which calls `__array_ufunc__` here.
"""

from __future__ import annotations

from typing import Any

import numpy as np


class UnsetArray(np.ndarray[Any, Any]):
    """The array of a tensor that has no shape yet; its elements mean nothing and are read-only."""

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        raise refusal(ufunc.__name__)


class UnsetError(ValueError, RuntimeError):
    """A tensor without a shape was used."""


def unset(array: Any) -> Any:
    """A CPU array as one without a shape."""
    made = array.view(UnsetArray)
    made.flags.writeable = False
    return made


def refusal(what: str) -> UnsetError:
    """The error of an operation on a tensor without a shape."""
    return UnsetError(
        f"{what}: an uninitialized parameter or buffer of a lazy layer has no shape yet; call the "
        "layer once, or load a state dict into it"
    )
