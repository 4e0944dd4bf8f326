"""`out=`: put the result of a function into tensors that exist already.

Comes in: a public function, its arguments, and the tensor (or tuple of tensors) given as `out`.
Goes out: that tensor, with the values. The function computes its result first, so `out` may be or
overlap an input. If the result has another size, `out` gets new memory, with a warning unless it
was empty. Called by the functions of the op table (`ops/table.py`) and by those that make tensors
(`ops/creation.py`).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

from . import dtypes, inplace, xp
from .codegen import parameters_of
from .modes import GRAD, STATE, TRANSFORM
from .tensor import Tensor
from .tree import leaves
from .wrapped import Wrapped


def computed_into(
    name: str,
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    differentiable: bool,
    casts: bool,
    apart: bool,
) -> Any:
    """Call a function whose keywords contain `out`, and put its result there.

    With `casts`, `out` may have any dtype to which the result can be cast. With `apart`, no
    input may share memory with `out`; else an input of the same shape may be `out` itself.
    """
    out = kwargs.pop("out")
    if out is None:
        return function(*args, **kwargs)
    outs = _tensors_of(name, out)
    if differentiable and STATE.mode & GRAD:
        for x in (*outs, *leaves((args, kwargs))):
            if isinstance(x, Tensor) and x.requires_grad:
                raise RuntimeError(
                    f"{name}() cannot write to out= what gradients have to flow through: an "
                    "argument requires gradients; leave out= away, or call it inside `with "
                    "tapegrad.no_grad():`"
                )
    if differentiable and STATE.mode & TRANSFORM:
        for x in (*outs, *leaves((args, kwargs))):
            if isinstance(x, Wrapped) and x._extra.tangent is not None:
                raise RuntimeError(
                    f"{name}() cannot write to out= in forward mode, where an argument has a "
                    "tangent; leave out= away"
                )
    for one in outs:
        check_apart(name, one, args, kwargs, apart)
    if len(outs) == 1 and _chooses_dtype(function, args):
        if kwargs.get("dtype") is None:
            if casts:
                kwargs["dtype"] = outs[0].dtype
        elif dtypes.as_dtype(kwargs["dtype"]) is not outs[0].dtype:
            raise _wrong_dtype(name, dtypes.as_dtype(kwargs["dtype"]), outs[0])
    result = function(*args, **kwargs)
    if not casts:
        for one, value in zip(outs, leaves(result), strict=False):
            same = not isinstance(value, Tensor) or value.dtype is one.dtype
            if not same and (value.dtype, one.dtype) != (dtypes.bool_, dtypes.uint8):
                raise _wrong_dtype(name, value.dtype, one)
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
    """Put the new tensor that a function makes into `out`, in the dtype of `out`.

    With `counted`, `out` keeps its shape if it has as many elements as the result.
    """
    name = function.__name__
    (out,) = _tensors_of(name, out)
    if dtype is not None and dtypes.as_dtype(dtype) is not out.dtype:
        raise _wrong_dtype(name, dtypes.as_dtype(dtype), out)
    if out.requires_grad and STATE.mode & GRAD:
        raise RuntimeError(
            f"{name}() cannot write to out= what gradients have to flow through: an argument "
            "requires gradients"
        )
    value = function(*args, dtype=out.dtype, **options)
    if counted and value._array.size == out._array.size:
        value = value.reshape(out._array.shape)
    put(name, out, value, warn=False)
    return out.requires_grad_() if requires_grad else out


def check_apart(name: str, out: Tensor, args: Any, kwargs: Any, apart: bool = True) -> None:
    """Refuse arguments that share memory with the tensor that is written: see `_shares`."""
    if not out._array.flags.forc and xp.overlaps_itself(out._array):
        raise RuntimeError(
            f"{name}: several elements of the tensor that is written share one place in memory "
            "(expand); use clone() first"
        )
    for x in leaves((args, kwargs)):
        if isinstance(x, Tensor) and _shares(out, x, apart):
            raise RuntimeError(
                f"{name}: an argument shares memory with the tensor that is written; clone() one "
                "of them first"
            )


def _shares(out: Tensor, x: Tensor, apart: bool) -> bool:
    """Whether tensors share memory other than element by element; with `apart`, in any way.

    As in PyTorch, tensors with gaps count as apart unless they are the same.
    """
    a, b = out._array, x._array
    if type(a) is not type(b) or not a.size or not b.size:
        return False
    if out is x:
        return apart
    if not (_is_dense(a) and _is_dense(b)):
        return False
    start, other = xp.address(a), xp.address(b)
    if start == other and a.nbytes == b.nbytes:
        return apart or (a.shape == b.shape and a.strides != b.strides)
    meets = start < other + b.nbytes and other < start + a.nbytes
    return meets and (apart or a.shape == b.shape)


def _is_dense(array: Any) -> bool:
    reach = array.itemsize
    for stride, n in sorted(zip(array.strides, array.shape, strict=True)):
        if n > 1:
            if stride != reach:
                return False
            reach *= n
    return True


def put(name: str, out: Tensor, value: Tensor, warn: bool = True) -> Tensor:
    """Give `out` the value in its own dtype; resize it if the value has another size."""
    _check_fits(name, out, value)
    if out._array.shape != value._array.shape:
        if warn and out._array.size:
            warnings.warn(
                f"out= had the shape {list(out.shape)} and was resized to {list(value.shape)}; "
                "give an out= of that shape, or of no elements (resize_(0))",
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
            f"{name}(): the result is {value.dtype}, which out= of {out.dtype} cannot hold"
        )
    if value.device != out.device:
        raise RuntimeError(
            f"{name}(): out= is on {out.device}, but the result is on {value.device}"
        )


def _wrong_dtype(name: str, dtype: Any, out: Tensor) -> RuntimeError:
    return RuntimeError(
        f"{name}(): the result has dtype {dtype}, which does not match the dtype of out= "
        f"({out.dtype})"
    )


def _chooses_dtype(function: Callable[..., Any], args: tuple[Any, ...]) -> bool:
    """Whether the function takes a dtype to compute in, as sums do, that was not given by position.

    Then it computes in the dtype of `out`.
    """
    inner: Any = function
    while hasattr(inner, "__wrapped__"):
        inner = inner.__wrapped__
    parameters = parameters_of(inner)
    if parameters is None:
        return False
    return "dtype" in parameters.keywords or "dtype" in parameters.positional[len(args) :]
