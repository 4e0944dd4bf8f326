"""Arrays without a shape: those of parameters and buffers of lazy layers.

An `UnsetArray` has a dtype and a device and nothing else that means something. Its class is another
than NumPy's, so short paths leave its tensor to `bind`, which refuses it; those that do not look
at the class of an array call one of NumPy's functions, which asks the array.
"""

from __future__ import annotations

from typing import Any

import numpy as np


class UnsetArray(np.ndarray[Any, Any]):
    """The array of a tensor that has no shape yet; it has no elements, and cannot be written to."""

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        raise refusal(ufunc.__name__)


class UnsetError(ValueError, RuntimeError):
    """A tensor without a shape was used."""


def unset(array: Any) -> Any:
    """An array on the CPU as one without a shape."""
    made = array.view(UnsetArray)
    made.flags.writeable = False
    return made


def refusal(what: str) -> UnsetError:
    """The error of an operation on a tensor without a shape."""
    return UnsetError(
        f"{what}: an uninitialized parameter or buffer of a lazy layer has no shape yet; call the "
        "layer once, or load a state dict into it"
    )
