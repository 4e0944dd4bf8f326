"""Operations that programs register: `torch.library` and `torch.ops`.

Comes in: a name such as "mylib::scale", a Python function, and optionally its derivative. Goes out:
a callable operation, also available as `torch.ops.mylib.scale`. With a derivative it is a
`Function` of autograd; without one its results have no gradient. Called by
`compat/torch/library.py`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any

from ..autograd.function import Function
from ..core.modes import is_grad_enabled, no_grad
from ..core.tensor import Tensor

#: operations by full name
REGISTERED: dict[str, CustomOpDef] = {}


class CustomOpDef:
    """A registered operation: a callable that kernels and a derivative can be added to."""

    def __init__(self, name: str, function: Callable[..., Any] | None) -> None:
        self._qualname = name
        self._kernels: dict[str | None, Callable[..., Any]] = {}
        self._fake: Callable[..., Any] | None = None
        self._function: Any = None
        self._signature: inspect.Signature | None = None
        if function is not None:
            self._kernels[None] = function
            self._signature = inspect.signature(function)
        self.__name__ = name.rpartition("::")[2]
        self.__doc__ = getattr(function, "__doc__", None)

    def __repr__(self) -> str:
        return f"<CustomOpDef({self._qualname})>"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._signature is not None:
            bound = self._signature.bind(*args, **kwargs)
            bound.apply_defaults()
            if not bound.kwargs:
                args, kwargs = bound.args, {}
        if self._function is not None and is_grad_enabled():
            if kwargs:
                raise NotImplementedError(
                    f"{self._qualname}: keyword-only arguments of an operation with a derivative "
                    "are not supported; make them positional"
                )
            return self._function.apply(*args)
        with no_grad():
            return self._run(*args, **kwargs)

    def _run(self, *args: Any, **kwargs: Any) -> Any:
        given = (*args, *kwargs.values())
        where = next((a.device.type for a in given if isinstance(a, Tensor)), None)
        kernel = self._kernels.get(where) or self._kernels.get(None)
        if kernel is None:
            raise NotImplementedError(
                f"no kernel of {self._qualname} is registered for tensors on {where!r}; there are "
                f"kernels for {sorted(str(k) for k in self._kernels)}"
            )
        return kernel(*args, **kwargs)

    @property
    def default(self) -> CustomOpDef:
        """The operation itself, as it has no overloads."""
        return self

    def register_kernel(
        self,
        device_types: str | Iterable[str | None] | None,
        fn: Callable[..., Any] | None = None,
        /,
    ) -> Any:
        """Register the kernel for tensors on these devices; None means all."""
        types = [device_types] if isinstance(device_types, str) else device_types

        def register(function: Callable[..., Any]) -> Callable[..., Any]:
            for kind in [None] if types is None else types:
                self._kernels[kind] = function
            if self._signature is None:
                self._signature = inspect.signature(function)
            return function

        return register if fn is None else register(fn)

    def register_fake(self, fn: Callable[..., Any], /) -> Callable[..., Any]:
        """Store the function that computes shapes; it is not used: tensors always have values."""
        self._fake = fn
        return fn

    def register_autograd(
        self,
        backward: Callable[..., Any],
        /,
        *,
        setup_context: Callable[..., Any] | None = None,
    ) -> None:
        """Register the derivative: `backward(ctx, *grads)`."""
        run = self._run

        def forward(*args: Any) -> Any:
            return run(*args)

        def remember(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
            if setup_context is not None:
                setup_context(ctx, inputs, output)

        members = {
            "forward": staticmethod(forward),
            "setup_context": staticmethod(remember),
            "backward": staticmethod(backward),
        }
        self._function = type(self.__name__, (Function,), members)


def register(name: str, function: Callable[..., Any] | None) -> CustomOpDef:
    """Register an operation under a name such as "mylib::scale"."""
    space, colons, plain = name.partition("::")
    if not colons or not space or not plain:
        raise ValueError(f"the name of an operation is 'namespace::name', got {name!r}")
    operation = REGISTERED[name] = CustomOpDef(name, function)
    return operation


def found(name: str) -> CustomOpDef:
    """The operation registered under a name."""
    operation = REGISTERED.get(name.removesuffix(".default"))
    if operation is None:
        raise RuntimeError(f"operator {name} does not exist; register it with torch.library")
    return operation
