"""Ghosts: the arrays of tensors inside of `vmap`.

A ghost has the shape, dtype and layout of one example. Reading its values raises an error, because
one example's values are not the batch's. Made by `wrapped.py`.
"""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np

_SHAPED = {np.zeros_like: np.zeros, np.ones_like: np.ones, np.empty_like: np.empty}


class Ghost(np.ndarray):
    """The array of a batched tensor: shape, dtype and memory of the first example.

    It has the values of one example only, so reading them is an error that names the reader.
    """

    def __array_ufunc__(self, ufunc: Any, *args: Any, **kwargs: Any) -> NoReturn:
        raise refusal(ufunc.__name__)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if function in _SHAPED and args[0] is self:
            dtype = kwargs.get("dtype") or self.dtype
            return _SHAPED[function](kwargs.get("shape") or self.shape, dtype)
        raise refusal(function.__name__)

    def _refuse(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise refusal("reading its values")

    item = tolist = astype = copy = tobytes = take = _refuse
    __bool__ = __int__ = __float__ = __index__ = __array__ = __iter__ = _refuse
    min = max = sum = any = all = argmin = argmax = nonzero = _refuse


def refusal(what: str) -> RuntimeError:
    """The error for code without a batch rule that reads the values of an example."""
    return RuntimeError(
        f"vmap: {what} needs the values of a tensor, and inside of vmap a tensor stands for all "
        "examples of the batch; use operations of tapegrad on the tensor itself"
    )
