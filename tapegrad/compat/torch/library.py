"""`torch.library`: operations that programs register and call through `torch.ops`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any

from ..absent import absent
from ..custom_ops import REGISTERED, CustomOpDef, found, register

__all__ = ["CustomOpDef", "Library", "custom_op", "define", "impl", "register_fake"]

triton_op = absent("torch.library.triton_op", "write the operation with tensors or NumPy")
wrap_triton = absent("torch.library.wrap_triton", "write the operation with tensors or NumPy")
opcheck = absent("torch.library.opcheck", "use torch.autograd.gradcheck")

#: by dispatch key of PyTorch: the device type of the kernel; None means all
_KEYS: dict[str, str | None] = {
    "CPU": "cpu",
    "CUDA": "cuda",
    "CompositeExplicitAutograd": None,
    "CompositeImplicitAutograd": None,
    "": None,
}


def custom_op(
    name: str,
    fn: Callable[..., Any] | None = None,
    /,
    *,
    mutates_args: str | Iterable[str] = (),
    device_types: str | Iterable[str] | None = None,
    schema: str | None = None,
    tags: Any = None,
) -> Any:
    """Register a function as an operation; use it as a decorator.

    >>> from tapegrad.compat.torch import library
    >>> @library.custom_op("doctest::double", mutates_args=())
    ... def double(x):
    ...     return x * 2
    >>> import tapegrad
    >>> double(tapegrad.ones(2))
    tensor([2., 2.])
    """

    def make(function: Callable[..., Any]) -> CustomOpDef:
        operation = register(name, None)
        operation._signature = inspect.signature(function)
        operation.__doc__ = function.__doc__
        operation.register_kernel(device_types, function)
        return operation

    return make if fn is None else make(fn)


def define(qualname: str, schema: Any = None, *, lib: Any = None, tags: Any = ()) -> Any:
    """Register a name; `impl` adds its kernels."""
    register(qualname, None)
    if callable(schema):  # as a decorator of the function for all devices
        return impl(qualname, "default", schema)
    return None


def impl(qualname: str, types: Any, func: Any = None, *, lib: Any = None) -> Any:
    """Register the kernel for tensors on some devices: "cpu", "cuda", or "default" for all."""
    kinds = [types] if isinstance(types, str) else list(types)
    plain = None if "default" in kinds else [_device_of(kind) for kind in kinds]
    return found(qualname).register_kernel(plain if plain != [None] else None, func)


def register_kernel(op: Any, device_types: Any, func: Any = None, /, *, lib: Any = None) -> Any:
    """Register the kernel for tensors on some devices; None means all."""
    return _operation(op).register_kernel(device_types, func)


def register_fake(
    op: Any, func: Any = None, /, *, lib: Any = None, _stacklevel: int = 1, **options: Any
) -> Any:
    """Store the function that computes shapes; it is not used: tensors always have values.

    So the operation may be registered later, or never.
    """
    operation = op if isinstance(op, CustomOpDef) else REGISTERED.get(op)
    keep = (lambda fn: fn) if operation is None else operation.register_fake
    return keep if func is None else keep(func)


impl_abstract = register_fake


def register_autograd(
    op: Any, backward: Any, /, *, setup_context: Any = None, lib: Any = None
) -> None:
    """Register the derivative: `backward(ctx, *grads)`."""
    _operation(op).register_autograd(backward, setup_context=setup_context)


def _operation(op: Any) -> CustomOpDef:
    return op if isinstance(op, CustomOpDef) else found(op)


def _device_of(key: str) -> str | None:
    if key in ("cpu", "cuda"):
        return key
    if key not in _KEYS:
        raise NotImplementedError(
            f"kernels for {key!r} do not exist in tapegrad; expected one of "
            f"{', '.join(name for name in _KEYS if name)}; for gradients use register_autograd"
        )
    return _KEYS[key]


class Library:
    """A namespace of operations: `define` registers them, `impl` adds their kernels."""

    def __init__(self, ns: str, kind: str, dispatch_key: str = "") -> None:
        if kind not in ("IMPL", "DEF", "FRAGMENT"):
            raise ValueError(f"Unsupported kind: {kind}")
        self.ns = ns
        self.kind = kind
        self.dispatch_key = dispatch_key

    def define(self, schema: str, alias_analysis: str = "", *, tags: Any = ()) -> str:
        """Register the operation of a schema such as "scale(Tensor x, float by) -> Tensor"."""
        name = schema.partition("(")[0].strip().partition(".")[0]
        register(f"{self.ns}::{name}", None)
        return name

    def impl(
        self, op_name: Any, fn: Any, dispatch_key: str = "", *, with_keyset: bool = False, **o: Any
    ) -> None:
        """Register the kernel for tensors on the device of a dispatch key."""
        name = op_name if isinstance(op_name, str) else op_name.__name__
        if self.ns == "aten":
            raise NotImplementedError(
                "the kernels of PyTorch's own operations cannot be replaced; register another name"
            )
        impl(f"{self.ns}::{name.rpartition('::')[2].partition('.')[0]}",
             dispatch_key or self.dispatch_key, fn)  # fmt: skip
