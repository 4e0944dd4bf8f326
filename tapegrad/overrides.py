"""PyTorch's protocol for classes that behave like tensors: `__torch_function__`.

If a class has the method `__torch_function__(func, types, args, kwargs)`, functions of the library
call it when they get its objects. Subclasses of Tensor have it: their results are of the subclass
too. A `TorchFunctionMode` handles all calls inside its context.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable
from typing import Any

from . import linalg, ops
from .core import overriding
from .core.overriding import (
    DisableTorchFunction,
    DisableTorchFunctionSubclass,
    TorchFunctionMode,
    disabled_torch_function,
)
from .core.tensor import Tensor
from .nn import functional

_disabled_torch_function_impl = disabled_torch_function

__all__ = [
    "DisableTorchFunction",
    "DisableTorchFunctionSubclass",
    "TorchFunctionMode",
    "get_ignored_functions",
    "get_overridable_functions",
    "handle_torch_function",
    "has_torch_function",
    "has_torch_function_unary",
    "has_torch_function_variadic",
    "is_tensor_like",
    "is_tensor_method_or_property",
    "resolve_name",
    "wrap_torch_function",
]


def has_torch_function(relevant_args: Iterable[Any]) -> bool:
    """Whether a function should let its arguments, or a mode, handle the call.

    >>> import tapegrad
    >>> from tapegrad.overrides import has_torch_function
    >>> class Named(tapegrad.Tensor):
    ...     pass
    >>> has_torch_function((tapegrad.ones(2),)), has_torch_function((Named([1.0]),))
    (False, True)
    """
    if overriding.LOCAL.modes and not overriding.LOCAL.all_disabled:
        return True
    return not overriding.LOCAL.disabled and bool(
        overriding.overriding_arguments(
            [x for x in relevant_args if not isinstance(x, (list, tuple))]
        )
    )


def has_torch_function_unary(obj: Any) -> bool:
    """`has_torch_function` of one argument."""
    return has_torch_function((obj,))


def has_torch_function_variadic(*objs: Any) -> bool:
    """`has_torch_function` of any number of arguments."""
    return has_torch_function(objs)


def handle_torch_function(
    public_api: Callable[..., Any], relevant_args: Iterable[Any], *args: Any, **kwargs: Any
) -> Any:
    """Let the arguments that override functions handle a call of `public_api`."""
    found = overriding.override(public_api, args, kwargs, relevant=tuple(relevant_args))
    if found is NotImplemented:
        raise TypeError(
            f"no argument of {overriding.name_of(public_api)!r} overrides functions; ask "
            "has_torch_function() first"
        )
    return found


def wrap_torch_function(dispatcher: Callable[..., Any]) -> Callable[..., Any]:
    """A decorator: lets the arguments that `dispatcher(*args)` returns handle the call."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            relevant = dispatcher(*args, **kwargs)
            if has_torch_function(relevant):
                return handle_torch_function(call, relevant, *args, **kwargs)
            return function(*args, **kwargs)

        return call

    return decorate


def is_tensor_like(inp: Any) -> bool:
    """Whether something is a Tensor, or has `__torch_function__`."""
    return isinstance(inp, Tensor) or hasattr(type(inp), "__torch_function__")


@functools.cache
def get_overridable_functions() -> dict[Any, list[Callable[..., Any]]]:
    """The functions that classes can override, for each module or class that has them."""
    tapegrad = sys.modules[__package__]
    ops.late.load_all()
    members = overriding.overridable_members().values()
    return {
        tapegrad: [
            function
            for name in sorted({*ops.CREATION, *ops.public_functions("")})
            if (function := getattr(tapegrad, name, None)) is not None and name not in _IGNORED
        ],
        functional: list(ops.public_functions("nn.functional").values()),
        linalg: list(ops.public_functions("linalg").values()),
        Tensor: [m.__get__ if isinstance(m, property) else m for m in members],
    }


#: functions that make tensors from numbers and sizes only
_IGNORED = (
    *("arange", "as_tensor", "asarray", "empty", "eye", "from_dlpack", "from_numpy", "full"),
    *("linspace", "logspace", "ones", "rand", "randint", "randn", "randperm", "tensor"),
    *("tril_indices", "triu_indices", "zeros"),
)


@functools.cache
def get_ignored_functions() -> set[Callable[..., Any]]:
    """Functions that no argument can override; modes can."""
    tapegrad = sys.modules[__package__]
    return {getattr(tapegrad, name) for name in _IGNORED if hasattr(tapegrad, name)}


def is_tensor_method_or_property(func: Callable[..., Any]) -> bool:
    """Whether a function is a method of Tensor, or reads or sets a property."""
    return func in _methods()


@functools.cache
def _methods() -> set[Any]:
    found: set[Any] = set()
    for member in overriding.overridable_members().values():
        if isinstance(member, property):
            found |= {member.__get__, member.__set__}
        else:
            found.add(member)
    return found


def resolve_name(f: Any) -> str | None:
    """The name of a function, qualified with its module."""
    owner = getattr(f, "__self__", None)
    for name, member in overriding.overridable_members().items():
        if member is f:
            return f"tapegrad.Tensor.{name}"
        if member is owner:
            return f"tapegrad.Tensor.{name}.{f.__name__}"
    own = getattr(f, "__name__", None)
    return None if own is None else f"{getattr(f, '__module__', 'tapegrad')}.{own}"
