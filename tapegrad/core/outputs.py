"""`out=`: the result of a function goes into the memory of tensors that exist already.

Comes in: a public function, its arguments, and the tensor (or tuple of tensors) given as `out`.
Goes out: that tensor, with the values. The function computes its result first, so `out` may be or
overlap an input. A result of another size gives `out` other memory, with a warning if there were
elements. Called by the functions of the op table (`ops/table.py`) and by those that make tensors
(`ops/creation.py`).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

from . import dtypes, inplace
from .codegen import parameters_of
from .modes import GRAD, STATE
from .tensor import Tensor
from .tree import leaves


def computed_into(
    name: str,
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    differentiable: bool,
) -> Any:
    """Call a function whose keywords have `out`: its result is put there."""
    out = kwargs.pop("out")
    if out is None:
        return function(*args, **kwargs)
    outs = _tensors_of(name, out)
    if differentiable and STATE.mode & GRAD:
        for x in (*outs, *leaves((args, kwargs))):
            if isinstance(x, Tensor) and x.requires_grad:
                raise RuntimeError(
                    f"{name}(): functions with out=... arguments don't support automatic "
                    "differentiation, but one of the arguments requires grad; leave out= away, or "
                    "call it inside `with tapegrad.no_grad():`"
                )
    if len(outs) == 1 and kwargs.get("dtype") is None and _chooses_dtype(function, args):
        kwargs["dtype"] = outs[0].dtype
    result = function(*args, **kwargs)
    if isinstance(result, Tensor):
        if isinstance(out, (tuple, list)):
            raise TypeError(f"{name}(): out= must be a Tensor, got {type(out).__name__}")
        return put(name, out, result)
    several = isinstance(result, (tuple, list)) and all(isinstance(r, Tensor) for r in result)
    if not several:
        raise TypeError(f"{name}() takes no out=: its result is no tensor")
    if not isinstance(out, (tuple, list)) or len(outs) != len(result):
        raise TypeError(f"{name}(): out= must be a tuple of {len(result)} tensors")
    for one, value in zip(outs, result, strict=True):
        _check_fits(name, one, value)
    for one, value in zip(outs, result, strict=True):
        put(name, one, value)
    make: Any = getattr(type(result), "_make", type(result))
    return make(outs)


def created_into(
    out: Tensor,
    function: Callable[..., Any],
    *args: Any,
    dtype: Any = None,
    requires_grad: bool = False,
    counted: bool = False,
    **options: Any,
) -> Tensor:
    """What a function that makes tensors would make, in `out`, whose dtype it has.

    Numbers that are `counted` fill an `out` of as many elements, whatever its shape.
    """
    name = function.__name__
    (out,) = _tensors_of(name, out)
    if dtype is not None and dtypes.as_dtype(dtype) is not out.dtype:
        raise RuntimeError(
            f"{name}(): dtype {dtypes.as_dtype(dtype)} does not match the dtype of out= "
            f"({out.dtype})"
        )
    if out.requires_grad and STATE.mode & GRAD:
        raise RuntimeError(
            f"{name}(): functions with out=... arguments don't support automatic differentiation, "
            "but one of the arguments requires grad"
        )
    value = function(*args, dtype=out.dtype, **options)
    if counted and value._array.size == out._array.size:
        value = value.reshape(out._array.shape)
    put(name, out, value, warn=False)
    return out.requires_grad_() if requires_grad else out


def put(name: str, out: Tensor, value: Tensor, warn: bool = True) -> Tensor:
    """Give `out` the value, in its own dtype; it gets memory of the value's size if it must."""
    _check_fits(name, out, value)
    if out._array.shape != value._array.shape:
        if warn and out._array.size:
            warnings.warn(
                "An output with one or more elements was resized since it had shape "
                f"{list(out.shape)}, which does not match the required output shape "
                f"{list(value.shape)}; give an out= of that shape, or of no elements (resize_(0))",
                UserWarning,
                stacklevel=4,
            )
        inplace.resize(out, value._array.shape)
    return inplace.assign(out, value, name)


def _tensors_of(name: str, out: Any) -> tuple[Tensor, ...]:
    outs = tuple(out) if isinstance(out, (tuple, list)) else (out,)
    for one in outs:
        if not isinstance(one, Tensor):
            raise TypeError(f"{name}(): out= must be a Tensor, got {type(one).__name__}")
    return outs


def _check_fits(name: str, out: Tensor, value: Tensor) -> None:
    if value.dtype.category > out.dtype.category:
        raise RuntimeError(
            f"{name}(): result type {value.dtype} can't be cast to the desired output type "
            f"{out.dtype}"
        )
    if value.device != out.device:
        raise RuntimeError(
            f"{name}(): out= is on {out.device}, but the result is on {value.device}"
        )


def _chooses_dtype(function: Callable[..., Any], args: tuple[Any, ...]) -> bool:
    """Whether the function computes in a dtype that it is told, as sums do, and was not told one.

    Then it computes in the dtype of its output.
    """
    inner: Any = function
    while hasattr(inner, "__wrapped__"):
        inner = inner.__wrapped__
    parameters = parameters_of(inner)
    if parameters is None:
        return False
    return "dtype" in parameters.keywords or "dtype" in parameters.positional[len(args) :]
