"""`autocast`, and the functions that read and set its state.

Comes in: a device type, a dtype, on or off. Each thread has its own state. The record of each
operation says how autocast affects it, and `casting.py` applies that. User code calls this.
"""

from __future__ import annotations

import copy
import functools
import warnings
from collections.abc import Callable
from typing import Any, TypeVar

from ..core import casting
from ..core.casting import DEVICES
from ..core.dtypes import DType, as_dtype
from ..core.modes import Mode
from ..core.tensor import Tensor
from ..core.tree import map_leaves
from ..ops.convert import to

F = TypeVar("F", bound=Callable[..., Any])

_DEVICES_ELSEWHERE = ("hpu", "ipu", "maia", "mps", "mtia", "privateuseone", "xla", "xpu")


def _check_device(device_type: Any) -> str:
    if not isinstance(device_type, str):
        raise ValueError(
            f"autocast takes the name of a device type, one of {', '.join(map(repr, DEVICES))}; "
            f"got {type(device_type).__name__}"
        )
    if device_type not in DEVICES:
        raise RuntimeError(
            f"autocast knows the device types {', '.join(map(repr, DEVICES))}, got {device_type!r}"
        )
    return device_type


def _has_cuda() -> bool:
    from ..cuda import is_available

    return is_available()


class autocast(Mode):
    """Inside, operations choose their dtype: products run in half precision, losses in float32.

    A context manager and a decorator. `device_type` is "cpu" or "cuda"; without one it is on for
    both. `dtype` is bfloat16 on the CPU and float16 on a GPU unless it is given. Parameters are
    cast once for the outermost context, unless `cache_enabled` is False. Gradients come back in
    the dtype of the parameter.

    >>> import tapegrad
    >>> w = tapegrad.ones(2, 2, requires_grad=True)
    >>> with tapegrad.autocast("cpu"):
    ...     y = w @ w
    >>> y.dtype, y.float().sum().backward()[w].dtype
    (tapegrad.bfloat16, tapegrad.float32)
    """

    def __init__(
        self,
        device_type: str | None = None,
        dtype: Any = None,
        enabled: bool = True,
        cache_enabled: bool | None = None,
    ) -> None:
        self.devices = tuple(DEVICES) if device_type is None else (_check_device(device_type),)
        self.device = self.devices[0]
        known = dict(casting.settings().dtypes)
        self._dtypes = {d: known[d] if dtype is None else as_dtype(dtype) for d in self.devices}
        self.fast_dtype = self._dtypes[self.device]
        self._cache_enabled = cache_enabled
        self._enabled = bool(enabled) and self._usable(device_type)

    def _usable(self, device_type: str | None) -> bool:
        """Whether autocast can be used; as in PyTorch, a warning says why not."""
        if device_type == "cuda" and not _has_cuda():
            warnings.warn("there is no GPU here: autocast is off", stacklevel=3)
            return False
        for device, dtype in self._dtypes.items():
            if dtype not in DEVICES[device]:
                allowed = " and ".join(map(str, DEVICES[device]))
                warnings.warn(
                    f"autocast on {device} works in {allowed}, not in {dtype}: it is off",
                    stacklevel=3,
                )
                return False
        return True

    def __enter__(self) -> autocast:
        now = casting.settings()
        self.__dict__.setdefault("_previous", []).append(now)
        on = self._enabled and casting.allowed()
        others = tuple(d for d in now.enabled if d not in self.devices)
        cached = now.cached if self._cache_enabled is None else bool(self._cache_enabled)
        casting.use(
            casting.Settings(
                tuple(sorted(others + self.devices)) if on else others,
                tuple((d, self._dtypes.get(d, known)) for d, known in now.dtypes),
                cached,
                now.depth + 1,
            )
        )
        return self

    def __exit__(self, *exc: object) -> None:
        casting.use(self.__dict__["_previous"].pop())

    def _fresh(self) -> autocast:
        """A copy for one call of a decorated function, which may run in several threads."""
        fresh = copy.copy(self)
        fresh.__dict__.pop("_previous", None)
        return fresh


# -- the state of the thread -------------------------------------------------------------------


def is_autocast_available(device_type: str) -> bool:
    """Whether there is an autocast for this type of device."""
    return device_type in DEVICES


def is_autocast_enabled(device_type: str = "cuda") -> bool:
    """Whether autocast is on for a device; without an argument for "cuda", as in PyTorch.

    False for devices of PyTorch that tapegrad does not have.
    """
    if device_type in _DEVICES_ELSEWHERE:
        return False
    return _check_device(device_type) in casting.settings().enabled


def get_autocast_dtype(device_type: str) -> DType:
    """The dtype of autocast on a device."""
    return dict(casting.settings().dtypes)[_check_device(device_type)]


def set_autocast_enabled(device_type: Any, enabled: bool | None = None) -> None:
    """Turn autocast on or off for a device; with one argument, for "cuda"."""
    if enabled is None:
        device_type, enabled = "cuda", device_type
    now, device = casting.settings(), _check_device(device_type)
    others = {d for d in now.enabled if d != device}
    casting.use(now._replace(enabled=tuple(sorted(others | {device} if enabled else others))))


def set_autocast_dtype(device_type: str, dtype: Any) -> None:
    """Set the dtype of autocast on a device."""
    now, device = casting.settings(), _check_device(device_type)
    dtypes = tuple((d, as_dtype(dtype) if d == device else known) for d, known in now.dtypes)
    casting.use(now._replace(dtypes=dtypes))


def is_autocast_cache_enabled() -> bool:
    """Whether casts of parameters are kept until the outermost context ends."""
    return casting.settings().cached


def set_autocast_cache_enabled(enabled: bool) -> None:
    """Set whether casts of parameters are kept until the outermost context ends."""
    casting.use(casting.settings()._replace(cached=bool(enabled)))


def clear_autocast_cache() -> None:
    """Drop the cached casts of parameters."""
    casting.clear_cache()


def autocast_increment_nesting() -> int:
    """Count one more context, by hand."""
    now = casting.settings()
    casting.use(now._replace(depth=now.depth + 1))
    return now.depth + 1


def autocast_decrement_nesting() -> int:
    """Count one context fewer, by hand."""
    now = casting.settings()
    casting.use(now._replace(depth=now.depth - 1))
    return now.depth - 1


def is_autocast_cpu_enabled() -> bool:
    """The older name of `is_autocast_enabled("cpu")`."""
    return is_autocast_enabled("cpu")


def set_autocast_cpu_enabled(enabled: bool) -> None:
    """The older name of `set_autocast_enabled("cpu", enabled)`."""
    set_autocast_enabled("cpu", enabled)


def get_autocast_cpu_dtype() -> DType:
    """The older name of `get_autocast_dtype("cpu")`."""
    return get_autocast_dtype("cpu")


def set_autocast_cpu_dtype(dtype: Any) -> None:
    """The older name of `set_autocast_dtype("cpu", dtype)`."""
    set_autocast_dtype("cpu", dtype)


def get_autocast_gpu_dtype() -> DType:
    """The older name of `get_autocast_dtype("cuda")`."""
    return get_autocast_dtype("cuda")


def set_autocast_gpu_dtype(dtype: Any) -> None:
    """The older name of `set_autocast_dtype("cuda", dtype)`."""
    set_autocast_dtype("cuda", dtype)


# -- functions with gradients written by the user ----------------------------------------------


def custom_fwd(fwd: Any = None, *, device_type: str, cast_inputs: Any = None) -> Callable[..., Any]:
    """For `forward` of a `Function`: `backward` gets the same autocast state; see `custom_bwd`.

    With `cast_inputs`, floating tensors on the device are cast to that dtype first and `forward`
    runs without autocast; outside of autocast it changes nothing.
    """
    _check_device(device_type)
    if fwd is None:
        return functools.partial(custom_fwd, device_type=device_type, cast_inputs=cast_inputs)

    @functools.wraps(fwd)
    def call(*args: Any, **kwargs: Any) -> Any:
        ctx = args[0]
        ctx._autocast_dtype = get_autocast_dtype(device_type)
        on = is_autocast_enabled(device_type)
        if cast_inputs is None:
            ctx._autocast_on = on
            return fwd(*args, **kwargs)
        ctx._autocast_on = False
        if not on:
            return fwd(*args, **kwargs)
        with autocast(device_type, enabled=False):
            return fwd(
                *_cast(args, device_type, cast_inputs), **_cast(kwargs, device_type, cast_inputs)
            )

    return call


def custom_bwd(bwd: Any = None, *, device_type: str) -> Callable[..., Any]:
    """For `backward` of a `Function`: it runs with the autocast that `forward` ran with."""
    _check_device(device_type)
    if bwd is None:
        return functools.partial(custom_bwd, device_type=device_type)

    @functools.wraps(bwd)
    def call(*args: Any, **kwargs: Any) -> Any:
        ctx = args[0]
        with autocast(device_type, ctx._autocast_dtype, ctx._autocast_on):
            return bwd(*args, **kwargs)

    return call


def _cast(value: Any, device_type: str, dtype: Any) -> Any:
    """Floating tensors of a device, anywhere in lists, tuples and dicts, in another dtype."""

    def cast(x: Any) -> Any:
        chosen = (
            isinstance(x, Tensor)
            and x.device.type == device_type
            and x.dtype.is_floating_point
            and x.dtype.itemsize < 8
        )
        return to(x, dtype) if chosen else x

    return map_leaves(cast, value)
