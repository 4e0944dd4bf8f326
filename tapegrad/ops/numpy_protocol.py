"""NumPy's functions on tensors: `np.add(t, 1)`, `np.mean(t)`, `np.stack([t, t])`.

Comes in: a NumPy function and its arguments, some of them tensors. Universal functions and
reductions run as operations of the table, and return tensors with gradients. Other functions return
NumPy's result for the tensors' arrays, as for PyTorch's tensors. But if a tensor requires
gradients, which NumPy would lose, or during capture, the equivalent operation runs instead, if
there is one. NumPy calls the two methods that are attached here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..core import dtypes
from ..core.modes import STATE, TAPE
from ..core.tensor import Tensor, wrap
from ..core.tree import leaves, map_leaves
from .table import TABLE, attach

#: universal functions whose operation has another name
_NAMES = {
    "absolute": "abs", "arccos": "acos", "arccosh": "acosh", "arcsin": "asin", "arcsinh": "asinh",
    "arctan": "atan", "arctan2": "atan2", "arctanh": "atanh", "bitwise_invert": "bitwise_not",
    "conjugate": "conj", "degrees": "rad2deg", "divide": "div", "equal": "eq", "greater": "gt",
    "greater_equal": "ge", "invert": "bitwise_not", "left_shift": "bitwise_left_shift",
    "less": "lt", "less_equal": "le", "multiply": "mul", "negative": "neg", "not_equal": "ne",
    "power": "pow", "radians": "deg2rad", "right_shift": "bitwise_right_shift", "rint": "round",
    "subtract": "sub", "true_divide": "div",
}  # fmt: skip

#: operations of two tensors that do not accept numbers
_TENSORS_ONLY = {
    *("atan2", "copysign", "fmax", "fmin", "gcd", "heaviside", "hypot", "lcm", "logaddexp"),
    *("logaddexp2", "logical_and", "logical_or", "logical_xor", "maximum", "minimum", "nextafter"),
}

#: reductions and shape functions that return tensors, as in PyTorch: NumPy's name and ours
_GIVE_TENSORS = {
    **{n: n for n in ("mean", "sum", "prod", "argmax", "argmin", "any", "all", "cumsum")},
    **{n: n for n in ("cumprod", "std", "var", "reshape", "squeeze", "round", "nansum")},
    "amax": "amax",
    "max": "amax",
    "amin": "amin",
    "min": "amin",
    "clip": "clamp",
    "transpose": "permute",
    "take": "index_select",
    "nanmean": "nanmean",
}

#: functions that run as operations only where NumPy would lose gradients
_KEEP_GRADIENTS = {
    **{n: n for n in ("stack", "vstack", "hstack", "dstack", "column_stack", "where", "ravel")},
    **{n: n for n in ("swapaxes", "moveaxis", "flip", "roll", "tril", "triu", "trace", "outer")},
    **{n: n for n in ("dot", "inner", "sort", "argsort", "diff", "tile", "kron", "cross")},
    "concatenate": "cat",
    "expand_dims": "unsqueeze",
}


def _array_ufunc(self: Tensor, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
    entry = TABLE.get(_NAMES.get(ufunc.__name__, ufunc.__name__))
    if method == "__call__" and not kwargs and entry is not None and ufunc.nout == 1:
        operands = [_operand(x) for x in inputs]
        for i, x in enumerate(operands):
            if not isinstance(x, Tensor) and (i == 0 or entry.name in _TENSORS_ONLY):
                operands[i] = _number(x)
        return entry.function(*operands)
    outs = kwargs.get("out", ())
    written = [x for x in outs if isinstance(x, Tensor)]
    if written:  # by an in-place operation, so that entries detect the change
        del kwargs["out"]
    result = getattr(ufunc, method)(*map(_array, inputs), **kwargs)
    if written:
        for target, value in zip(outs, leaves(result), strict=True):
            target.copy_(wrap(np.asarray(value)))
    if outs:
        return outs[0] if len(outs) == 1 else outs
    return map_leaves(_tensor, result)


def _array_function(
    self: Tensor, func: Callable[..., Any], types: Any, args: Any, kwargs: dict[str, Any]
) -> Any:
    given = [x for x in leaves((args, kwargs)) if isinstance(x, Tensor)]
    keeps = STATE.mode & TAPE or any(t.requires_grad for t in given)
    name = _GIVE_TENSORS.get(func.__name__)
    if name is None and keeps:
        name = _KEEP_GRADIENTS.get(func.__name__)
    if name is not None and func.__module__ == "numpy":
        return _operation(func.__name__, name, args, dict(kwargs))
    plain = map_leaves(_array, list(args))
    return func(*plain, **map_leaves(_array, dict(kwargs)))


def _operation(numpy_name: str, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A function of NumPy as an operation of the table, with its parameters renamed."""
    options = {k: v for k, v in kwargs.items() if v is not None and v is not np._NoValue}
    rest = list(args)
    if numpy_name in ("std", "var"):
        options["correction"] = options.pop("ddof", 0)  # NumPy divides by the number of elements
    if numpy_name == "transpose":
        axes = rest.pop() if len(rest) > 1 else options.pop("axes", None)
        return rest[0].permute(*(range(rest[0].ndim)[::-1] if axes is None else axes))
    if numpy_name == "take":
        return _taken(*rest, **options)
    if numpy_name == "clip":
        renamed = {"a_min": "min", "a_max": "max"}
        options = {renamed.get(k, k): v for k, v in options.items()}
    if numpy_name in ("amax", "max", "amin", "min") and len(rest) == 1 and not options:
        return rest[0].amax() if name == "amax" else rest[0].amin()
    if numpy_name == "reshape":
        options.pop("order", None)
        options["shape"] = options.pop("newshape", options.get("shape"))
        shape = rest.pop() if len(rest) > 1 else options["shape"]
        return rest[0].reshape(shape)
    if numpy_name in ("cumsum", "cumprod") and len(rest) == 1 and "axis" not in options:
        rest[0], options["axis"] = rest[0].reshape(-1), 0
    if "dtype" in options:
        options["dtype"] = dtypes.as_dtype(options["dtype"])
    made = TABLE[name].function(*rest, **options)
    return made.values if numpy_name == "sort" else made


def _taken(x: Tensor, indices: Any, axis: int | None = None, **options: Any) -> Any:
    """`np.take`: elements at indices, of the flattened tensor or along a dimension."""
    if options:
        raise TypeError(f"np.take of a Tensor takes no {', '.join(options)}")
    if axis is None:
        x, axis = x.reshape(-1), 0
    return x[(slice(None),) * (axis % x.ndim) + (indices,)]


def _number(x: Any) -> Tensor:
    """A number as a 0-d tensor, for functions that take only tensors."""
    return wrap(np.asarray(x, dtypes.number_dtype(x).numpy))


def _operand(x: Any) -> Any:
    if isinstance(x, np.generic):
        x = x.item()
    return wrap(np.asarray(x)) if isinstance(x, np.ndarray) else x


def _array(x: Any) -> Any:
    return x.numpy() if isinstance(x, Tensor) else x


def _tensor(x: Any) -> Any:
    return wrap(np.asarray(x)) if isinstance(x, (np.ndarray, np.generic)) else x


attach(__array_ufunc__=_array_ufunc, __array_function__=_array_function)
