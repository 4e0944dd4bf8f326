"""Short paths for elementwise operations on one or two small tensors.

Operations on small tensors spend their time in Python, so unary and binary elementwise primitives
get a function that handles the common case in one frame: float32 or float64, small, shapes that
broadcast (or a Python number), no tape, no hooks. Everything else goes through `bind`, with the
same result. `shortpaths.py` generates the functions; `ops/families.py` gives them to operations.
A chain of 10-element `mul`/`add`, forward and backward, costs 3.8 µs per operation this way and
7.3 µs through `bind`.
"""

from __future__ import annotations

from collections.abc import Callable
from sys import _getframe
from typing import Any

import numpy as np

from . import casting, overriding
from .casting import Policy
from .device import GPU_CLASSES
from .modes import GRAD, STATE, numbers
from .primitive import ARRAY_SIZE, NO_PARAMS, Primitive, bind
from .shortpaths import small_binary, small_savers, small_unary
from .source import LIBRARY, outside
from .tape import Entry
from .tensor import Tensor, refresh


def _fill(savers: list[Any], p: Primitive) -> list[Any]:
    """Make the savers on the first entry: most primitives are never differentiated."""
    savers.extend(small_savers(p))
    return savers


def _fits(shape: tuple[int, ...], other: tuple[int, ...]) -> bool:
    """Whether two shapes broadcast together; a bias is found first."""
    if len(other) < len(shape) and shape[len(shape) - len(other) :] == other:
        return True
    for n, m in zip(reversed(shape), reversed(other), strict=False):
        if n != m and n != 1 and m != 1:
            return False
    return True


#: the names that the generated functions use
NAMES: dict[str, Any] = {
    "ARRAY_SIZE": ARRAY_SIZE, "Entry": Entry, "F32": np.dtype(np.float32),
    "F64": np.dtype(np.float64), "GRAD": GRAD, "LIBRARY": LIBRARY, "NO_PARAMS": NO_PARAMS,
    "STATE": STATE, "Tensor": Tensor, "as_array": np.asarray, "bind": bind, "fill": _fill,
    "fits": _fits, "generic": np.generic, "getframe": _getframe, "ndarray": np.ndarray,
    "new": object.__new__, "numbers": numbers, "on_gpu": GPU_CLASSES, "outside": outside,
    "refresh": refresh,
}  # fmt: skip
_make_unary = small_unary(NAMES)
_make_binary, _make_reflected = small_binary(NAMES)


def binary(
    p: Primitive,
    kernel: Any,
    reflected: bool = False,
    autocast: Policy | None = None,
    operator: str | None = None,
    accepts: Callable[[Any], bool] | None = None,
) -> Callable[..., Any]:
    """`x op y` for a Tensor x; with `reflected`, `y op x`.

    For one of Python's operators, `accepts` says which operands it takes. For any other operand the
    operator returns NotImplemented, so that Python tries the operand's own operator.
    """
    make = _make_reflected if reflected else _make_binary
    slow = _with_autocast(p, autocast)
    if accepts is not None and operator is not None:
        slow = _accepting(p, operator, accepts, 0 if reflected else 1, slow)
    return make(p, kernel, slow, GRAD if p.differentiable else 0)


def _accepting(
    p: Primitive,
    operator: str,
    accepts: Callable[[Any], bool],
    which: int,
    slow: Callable[..., Any] | None,
) -> Callable[..., Any]:
    def accepting(*inputs: Any) -> Any:
        if not accepts(inputs[which]):
            given = inputs if which else inputs[::-1]
            function = overriding.function_of_operator(operator)
            found = overriding.override(function, given, {}, declinable=True)
            return NotImplemented if found is overriding.DECLINED else found
        return bind(p, inputs) if slow is None else slow(*inputs)

    return accepting


def unary(p: Primitive, kernel: Any, autocast: Policy | None = None) -> Callable[[Any], Any]:
    """`op(x)` for a Tensor x."""
    recording = GRAD if p.differentiable else 0
    limit = min(p.native_size, ARRAY_SIZE)
    return _make_unary(p, kernel, _with_autocast(p, autocast), recording, limit)


def _with_autocast(p: Primitive, policy: Policy | None) -> Callable[..., Any] | None:
    """`bind` with a policy applied, or None without one: under autocast no short path runs."""

    def slow(*inputs: Any) -> Any:
        return bind(p, inputs)

    return None if policy is None else casting.applied(slow, policy)
