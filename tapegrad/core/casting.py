"""Autocast: each operation chooses the dtype that it runs in.

Comes in: the function of an operation, and the policy in its record (`autocast=` of
`ops/table.py`). Goes out: the function with casts of its arguments (`applied`). Called by
`ops/table.py`; `amp/autocast_mode.py` switches autocast on. The choices are:

    "lower"   in the dtype of autocast: products and convolutions
    "full"    in float32: losses and other sums that lose too much in half precision
    "widest"  in float32 if an operand is float32, else in the dtype of autocast
    "keep"    without autocast, and so do the operations inside it
    "refuse"  not at all: it raises an error that says what to use

A string holds for all devices; a dict has one choice for each device. Operations without a policy
take their operands as they are. The casts are recorded operations, so gradients have the dtype of
the tensor.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from . import numeric, storage
from .codegen import in_front, parameters_of
from .dtypes import DType, bfloat16, float16, float32, from_numpy_dtype
from .modes import AUTOCAST, GRAD, STATE, TAPE, switched
from .primitive import ELEMENTWISE, Primitive, bind, cast_to, define
from .tensor import Tensor

Choice = str | Callable[..., str | None]
Policy = Choice | dict[str, Choice]

#: the public namespace of the package, with `enable_autocast`, the switch for the whole process
_public = sys.modules[__package__.partition(".")[0]].__dict__

#: a policy for operations that lose too much precision in float16, on a GPU
ON_GPU: Policy = {"cuda": "full"}

#: the devices that have autocast, and the dtypes that it may use there
DEVICES: dict[str, tuple[DType, ...]] = {
    "cpu": (bfloat16, float16),
    "cuda": (float16, bfloat16, float32),
}


class Settings(NamedTuple):
    """What autocast does in a thread."""

    enabled: tuple[str, ...] = ()
    dtypes: tuple[tuple[str, DType], ...] = (("cpu", bfloat16), ("cuda", float16))
    cached: bool = True
    #: how many contexts are open
    depth: int = 0


DEFAULT = Settings()


class _Cache(NamedTuple):
    """A cached cast of a parameter, with the sequence number of when it was made."""

    source: Tensor
    array: Any
    moment: int
    cast: Tensor


def settings() -> Settings:
    """The settings of this thread."""
    found: Settings | None = STATE.autocast
    return DEFAULT if found is None else found


def key() -> Any:
    """The settings that change which operations a function runs, for signatures of programs."""
    now: Settings | None = STATE.autocast
    return allowed(), None if now is None else now[:2]


def allowed() -> bool:
    """`tapegrad.enable_autocast`, the switch for the whole process."""
    return bool(_public.get("enable_autocast", True))


def use(new: Settings | None) -> None:
    """Set the settings of this thread; cached casts live until the outermost context ends."""
    STATE.autocast = None if new == DEFAULT else new  # so that `key` finds earlier programs
    if new is not None and new.enabled:
        STATE.mode |= AUTOCAST
    else:
        STATE.mode &= ~AUTOCAST
    if new is None or not new.depth:
        clear_cache()


class restored_settings:
    """Inside, these settings hold: for work that belongs to an earlier moment."""

    def __init__(self, given: Settings | None) -> None:
        self.given = given

    def __enter__(self) -> None:
        self.before = STATE.autocast, STATE.mode & AUTOCAST
        # This does not count as an autocast context: the depth stays, and decides about the cache.
        use((self.given or DEFAULT)._replace(depth=settings().depth))

    def __exit__(self, *exc: object) -> None:
        before, bit = self.before
        use(before)
        STATE.mode = (STATE.mode & ~AUTOCAST) | bit


# -- applying a policy -------------------------------------------------------------------------


def applied(function: Any, policy: Policy) -> Callable[..., Any]:
    """`function`, which casts its operands by the policy while autocast is on."""
    parameters = parameters_of(function)
    assert parameters, f"{function.__name__}: autocast needs the names of all arguments"
    every = (*parameters.positional, *parameters.keywords)
    kept = " and dtype is None" if "dtype" in every else ""
    lines = [
        f"def call({parameters.declared}):",
        f"    if STATE.mode & {AUTOCAST}{kept}:",
        f"        args = ({''.join(f'{name}, ' for name in parameters.given)})",
        f"        kwargs = dict({', '.join(parameters.named)})",
        "        return cast_call(function, policy, args, kwargs)",
        f"    return function({parameters.passed})",
    ]
    namespace = {"STATE": STATE, "cast_call": cast_call, "function": function, "policy": policy}
    return in_front(function, lines, namespace, "autocast")


def cast_call(
    function: Callable[..., Any], policy: Policy, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Cast the operands, then run without autocast: its choice covers the inner operations."""
    now = settings()
    operands = [x for x in _flat([*args, *kwargs.values()]) if isinstance(x, Tensor)]
    for device, dtype in now.dtypes:
        if device in now.enabled and any(_device(x) == device for x in operands):
            choice = policy.get(device) if isinstance(policy, dict) else policy
            if callable(choice):
                choice = choice(*args, **kwargs)
            if choice is not None:
                return _chosen(function, choice, device, dtype, operands, args, kwargs)
    return function(*args, **kwargs)


def _chosen(
    function: Callable[..., Any],
    choice: str,
    device: str,
    lower: DType,
    operands: list[Tensor],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    if choice == "refuse":
        raise RuntimeError(
            f"{function.__name__} overflows in half precision; inside autocast use "
            f"{function.__name__}_with_logits, or run it under "
            f'autocast("{device}", enabled=False) on float32 tensors'
        )
    if choice != "keep":
        target = lower
        if choice == "full" or (
            choice == "widest"
            and any(_eligible(x, device) and x._array.dtype == np.float32 for x in operands)
        ):
            target = float32

        def cast(x: Any) -> Any:
            if isinstance(x, Tensor):
                return _cast(x, target, lower) if _eligible(x, device) else x
            return type(x)([cast(item) for item in x]) if isinstance(x, (list, tuple)) else x

        args = tuple([cast(x) for x in args])
        kwargs = {name: cast(x) for name, x in kwargs.items()}
    with switched(off=AUTOCAST):
        return function(*args, **kwargs)


def _flat(values: Any) -> list[Any]:
    out: list[Any] = []
    for x in values:
        if isinstance(x, (list, tuple)):
            out += _flat(x)
        else:
            out.append(x)
    return out


def _device(x: Tensor) -> str:
    return "cpu" if isinstance(x._array, np.ndarray) else "cuda"


def _eligible(x: Tensor, device: str) -> bool:
    """Whether autocast may cast a tensor: float64 was chosen on purpose and stays."""
    dtype = x._array.dtype
    return numeric.is_floating(dtype) and dtype.itemsize < 8 and _device(x) == device


# -- casts -------------------------------------------------------------------------------------

#: a cast that several operations share; it saves no values, so one backward pass frees nothing that
#: another one needs
shared_cast: Primitive = define(
    "shared_cast",
    lambda x, *, dtype, source: x.astype(dtype.numpy),
    kind=ELEMENTWISE,
    vjp=lambda g, dtype, source: shared_cast(g, dtype=source, source=dtype),
    expression="cast(x)",
)


def _cast(x: Tensor, target: DType, lower: DType) -> Tensor:
    if x._array.dtype == target.numpy:
        return x
    parameter = x._requires and x._edge is None and x._view is None
    now = settings()
    # Programs merge equal casts anyway, and a cached tensor would be outdated in a replay.
    if parameter and target is lower and now.cached and now.depth and not STATE.mode & TAPE:
        return _kept(x, target)
    return cast_to(x, target)


def _kept(x: Tensor, target: DType) -> Tensor:
    """A parameter in half precision, cast once for all operations of the outermost context.

    If the parameter has changed since, it is cast again. A cast without recording has no gradient,
    so recorded and unrecorded casts have separate keys.
    """
    cache: dict[Any, _Cache] | None = getattr(STATE, "autocast_cache", None)
    if cache is None:
        cache = STATE.autocast_cache = {}
    key = x.id, target, STATE.mode & GRAD
    found = cache.get(key)
    if (
        found is not None
        and found.array is x._array
        and storage.changed_since(x._array, found.moment) is None
    ):
        return found.cast
    source = from_numpy_dtype(x._array.dtype)
    cast: Tensor = bind(shared_cast, (x,), {"dtype": target, "source": source})
    cache[key] = _Cache(x, x._array, cast.id, cast)
    return cast


def clear_cache() -> None:
    """Drop the cached casts of this thread."""
    STATE.__dict__.pop("autocast_cache", None)
