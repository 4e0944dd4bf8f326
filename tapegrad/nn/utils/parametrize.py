"""Parametrizations: a parameter computed from others, each time it is read.

`register_parametrization` moves the tensor into a `ParametrizationList` under
`module.parametrizations`, and gives the module a new class with a property of that name that
computes the tensor.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ...core.modes import no_grad
from ...core.tensor import Tensor
from ..containers import ModuleDict, ModuleList
from ..module import Module
from ..parameter import Parameter

#: tensors computed inside the outermost `cached`, or None outside of it
_cache: dict[tuple[int, str], Any] | None = None


@contextmanager
def cached() -> Iterator[None]:
    """Inside, each parametrized tensor is computed once, however often it is read."""
    global _cache
    outer = _cache
    _cache = {} if outer is None else outer
    try:
        yield
    finally:
        _cache = outer


def _register(module: Module, name: str, tensor: Any) -> None:
    if isinstance(tensor, Parameter):
        module.register_parameter(name, tensor)
    else:
        module.register_buffer(name, tensor)


class ParametrizationList(ModuleList):
    """The parametrizations of one tensor, in order, and the original tensors."""

    original: Any

    def __init__(self, modules: Sequence[Module], original: Any, unsafe: bool = False) -> None:
        if not len(modules):
            raise ValueError("a ParametrizationList needs at least one module")
        super().__init__(modules)
        self.unsafe = unsafe
        new = self._inverse(original, optional=True)
        self.is_tensor = isinstance(new, Tensor)
        self.ntensors = 1 if self.is_tensor else len(new)
        shape, dtype = original.shape, original.dtype
        if self.is_tensor:
            if new.dtype is not dtype:
                raise ValueError(f"right_inverse made {new.dtype} of {dtype}; it must keep it")
            # The tensor stays the same object, for optimizers that hold it.
            original.data = new.detach()
            _register(self, "original", original)
        else:
            for i, part in enumerate(new):
                if isinstance(original, Parameter):
                    part = Parameter(part, original.requires_grad)
                _register(self, f"original{i}", part)
        if not unsafe:
            made = self()
            if not isinstance(made, Tensor):
                raise ValueError(
                    f"the parametrization made a {type(made).__name__}; its forward must return "
                    "a Tensor"
                )
            _check_same(made, shape, dtype)

    def _inverse(self, value: Any, optional: bool = False) -> Any:
        """The originals from which the parametrizations compute a value."""
        with no_grad():
            for module in reversed(list(self)):
                if hasattr(module, "right_inverse"):
                    try:
                        value = module.right_inverse(value)
                    except NotImplementedError:
                        if not optional:
                            raise
                elif not optional:
                    raise RuntimeError(f"{type(module).__name__} has no right_inverse")
        parts = [value] if isinstance(value, Tensor) else value
        if not isinstance(parts, Sequence) or not all(isinstance(p, Tensor) for p in parts):
            raise ValueError(
                f"right_inverse made a {type(value).__name__}; it must return a Tensor or a "
                "sequence of them"
            )
        return value

    def right_inverse(self, value: Any) -> None:
        """Set the originals so that the parametrized tensor becomes `value`."""
        new = self._inverse(value)
        parts = [new] if isinstance(new, Tensor) else list(new)
        if len(parts) != self.ntensors:
            raise ValueError(f"right_inverse must return {self.ntensors} tensors, got {len(parts)}")
        originals = self._originals()
        for before, after in zip(originals, parts, strict=True):
            if before.dtype is not after.dtype:
                raise ValueError(
                    f"right_inverse made {after.dtype}, the original is {before.dtype}"
                )
        for before, after in zip(originals, parts, strict=True):
            before.data = after.detach()

    def _originals(self) -> list[Any]:
        if self.is_tensor:
            return [self.original]
        return [getattr(self, f"original{i}") for i in range(self.ntensors)]

    def forward(self) -> Any:
        first, *rest = self
        x = first(*self._originals())
        for module in rest:
            x = module(x)
        return x


def _check_same(made: Any, shape: Any, dtype: Any) -> None:
    if not isinstance(made, Tensor):
        raise ValueError(
            f"the parametrization made a {type(made).__name__}; also with unsafe=True its "
            "forward must return a Tensor"
        )
    if made.dtype is not dtype or made.shape != shape:
        raise ValueError(
            f"the parametrization makes {made.dtype} of shape {tuple(made.shape)} from {dtype} of "
            f"shape {tuple(shape)}; unsafe=True allows that"
        )


# -- classes with properties -------------------------------------------------------------------


def _no_pickle(self: Any) -> Any:
    raise RuntimeError("parametrized modules are not pickled; save their state_dict()")


def _deep_copy(self: Any, memo: dict[int, Any]) -> Any:
    kind = type(self)
    body = {k: v for k, v in vars(kind).items() if k not in ("__dict__", "__weakref__")}
    # A new class, so that later registrations on the copy do not affect this module.
    replica: Any = object.__new__(type(kind.__name__, kind.__bases__, body))
    memo[id(self)] = replica
    object.__setattr__(replica, "__dict__", copy.deepcopy(self.__dict__, memo))
    return replica


def _computed(name: str) -> property:
    def read(self: Any) -> Any:
        source = self.parametrizations[name]
        if _cache is None:
            return source()
        key = (id(self), name)
        if key not in _cache:
            _cache[key] = source()
        return _cache[key]

    def write(self: Any, value: Any) -> None:
        self.parametrizations[name].right_inverse(value)

    return property(read, write)


def is_parametrized(module: Module, tensor_name: str | None = None) -> bool:
    """Whether a module has parametrizations, or one of this name."""
    found = module._modules.get("parametrizations")
    if not isinstance(found, ModuleDict):
        return False
    return len(found) > 0 if tensor_name is None else tensor_name in found


def register_parametrization(
    module: Any, tensor_name: str, parametrization: Module, *, unsafe: bool = False
) -> Any:
    """Compute a parameter or buffer with a module, each time it is read.

    >>> from tapegrad import nn
    >>> class Symmetric(nn.Module):
    ...     def forward(self, x):
    ...         return x.triu() + x.triu(1).T
    >>> layer = register_parametrization(nn.Linear(3, 3), "weight", Symmetric())
    >>> bool((layer.weight == layer.weight.T).all())
    True
    """
    parametrization.train(module.training)
    if is_parametrized(module, tensor_name):
        if not unsafe:
            with no_grad():
                now = getattr(module, tensor_name)
                made = parametrization(now)
                _check_same(made, now.shape, now.dtype)
                inverse = getattr(parametrization, "right_inverse", None)
                if inverse is not None:
                    # Invert a result of it: `now` itself may be outside its range.
                    with contextlib.suppress(NotImplementedError):
                        made = inverse(made)
                if not isinstance(made, Tensor):
                    raise ValueError("a further parametrization has one tensor as its original")
                _check_same(made, now.shape, now.dtype)
        parts = module.parametrizations[tensor_name]
        parts.append(parametrization)
        parts.unsafe = parts.unsafe or unsafe
        return module
    if tensor_name not in module._parameters and tensor_name not in module._buffers:
        raise ValueError(
            f"{type(module).__name__} has no parameter, buffer or parametrized tensor "
            f"{tensor_name!r}"
        )
    parts = ParametrizationList([parametrization], getattr(module, tensor_name), unsafe)
    delattr(module, tensor_name)
    if not is_parametrized(module):
        kind = type(module)
        body = {"__getstate__": _no_pickle, "__deepcopy__": _deep_copy}
        module.__class__ = type(f"Parametrized{kind.__name__}", (kind,), body)
        module.parametrizations = ModuleDict()
    setattr(type(module), tensor_name, _computed(tensor_name))
    module.parametrizations[tensor_name] = parts
    return module


def remove_parametrizations(module: Any, tensor_name: str, leave_parametrized: bool = True) -> Any:
    """Make a tensor an ordinary one again, with its computed or its original value."""
    if not is_parametrized(module, tensor_name):
        raise ValueError(f"{tensor_name!r} of {type(module).__name__} is not parametrized")
    parts = module.parametrizations[tensor_name]
    if not leave_parametrized and not parts.is_tensor:
        raise ValueError(
            f"{tensor_name!r} is computed from {parts.ntensors} tensors, none of which could "
            "stand for it; use leave_parametrized=True"
        )
    tensor = parts._originals()[0]
    if leave_parametrized:
        with no_grad():
            value = getattr(module, tensor_name).detach()
        if parts.is_tensor:
            tensor.data = value
        else:
            trained = isinstance(tensor, Parameter)
            tensor = Parameter(value, tensor.requires_grad) if trained else value
    delattr(type(module), tensor_name)
    del module.parametrizations[tensor_name]
    _register(module, tensor_name, tensor)
    if not is_parametrized(module):
        delattr(module, "parametrizations")
        module.__class__ = type(module).__bases__[0]
    return module


def type_before_parametrizations(module: Module) -> type:
    """The class that a module had before it was parametrized."""
    return type(module).__bases__[0] if is_parametrized(module) else type(module)


def transfer_parametrizations_and_params(
    from_module: Any, to_module: Any, tensor_name: str | None = None
) -> Any:
    """Give another module the same parametrizations, with copies of the originals."""
    if not is_parametrized(from_module):
        return to_module
    wanted = list(from_module.parametrizations) if tensor_name is None else [tensor_name]
    for name in wanted:
        source = from_module.parametrizations[name]
        if not hasattr(to_module, name):
            setattr(to_module, name, Parameter(getattr(from_module, name).detach().clone()))
        for parametrization in source:
            register_parametrization(to_module, name, parametrization, unsafe=True)
        for mine, theirs in zip(
            to_module.parametrizations[name]._originals(), source._originals(), strict=True
        ):
            mine.data = theirs.detach().clone()
    return to_module


__all__ = [
    "ParametrizationList",
    "cached",
    "is_parametrized",
    "register_parametrization",
    "remove_parametrizations",
    "transfer_parametrizations_and_params",
    "type_before_parametrizations",
]
