"""Module: parameters, buffers and other modules under names, and a `forward` over them.

Attributes that are Parameters or Modules are registered when they are set. Everything else here
walks that tree: lists of parameters, dtype and device moves, modes, hooks. State dictionaries
stand in `state.py`.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, Self, TypeVar

import numpy as np

from ..core import storage
from ..core.device import as_device
from ..core.dtypes import DType, as_dtype, bfloat16, float16, float32, float64
from ..core.modes import no_grad
from ..core.tensor import RemovableHandle, Tensor, wrap
from ..ops.creation import CREATION
from .hooks import EVERYWHERE, BackwardHooks, HookDict, OlderHook, renumber
from .parameter import Buffer, Parameter
from .state import IncompatibleKeys, StateDict, add_hook

if TYPE_CHECKING:
    P = ParamSpec("P")
    R = TypeVar("R", covariant=True)

    class _HasForward(Protocol[P, R]):
        """What a module is to a caller."""

        def forward(self, *args: P.args, **kwargs: P.kwargs) -> R: ...


class Module(StateDict):
    """Base of everything that has parameters: subclass it and write `forward`.

    >>> import tapegrad
    >>> class Model(tapegrad.nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.layer = tapegrad.nn.Linear(3, 2)
    ...
    ...     def forward(self, x):
    ...         return self.layer(x).relu()
    >>> model = Model()
    >>> [name for name, _ in model.named_parameters()]
    ['layer.weight', 'layer.bias']
    >>> model(tapegrad.ones(5, 3)).shape
    Size([5, 2])
    """

    #: dictionaries whose entries are attributes too
    _attributes_in = ("_parameters", "_buffers", "_modules")

    training: bool
    call_super_init: bool = False
    dump_patches: bool = False
    _modules: dict[str, Module | None]
    _forward_hooks = HookDict()
    _forward_hooks_with_kwargs = HookDict()
    _forward_hooks_always_called = HookDict()
    _forward_pre_hooks = HookDict()
    _forward_pre_hooks_with_kwargs = HookDict()
    _backward_hooks = HookDict()
    _backward_pre_hooks = HookDict()
    _hooked = False
    _without_forward = "needs a method forward(self, ...)"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        goes_on = self.call_super_init
        if (args or kwargs) and not goes_on:
            given = next(iter(kwargs), None)
            raise TypeError(
                f"{type(self).__name__}.__init__() got an unexpected keyword argument {given!r}"
                if kwargs
                else f"{type(self).__name__}.__init__() takes 1 positional argument but "
                f"{len(args) + 1} were given"
            )
        # Directly into __dict__, because __setattr__ reads these dictionaries.
        self.__dict__.update(
            training=True,
            _parameters={},
            _buffers={},
            _modules={},
            _non_persistent_buffers_set=set(),
            _state_dict_hooks={},
            _state_dict_pre_hooks={},
            _load_state_dict_pre_hooks={},
            _load_state_dict_post_hooks={},
        )
        if goes_on:
            super().__init__(*args, **kwargs)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Compute the result. Subclasses write this; calling the module runs it with its hooks."""
        raise NotImplementedError(f"{type(self).__name__} {self._without_forward}")

    # -- calling -----------------------------------------------------------------------------

    if TYPE_CHECKING:
        # For type checkers: a module is called with the signature of its `forward`.
        def __call__(self: _HasForward[P, R], *args: P.args, **kwargs: P.kwargs) -> R: ...
    else:

        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            if self._hooked or EVERYWHERE.hooks:
                return self._call_hooked(args, kwargs)
            return self.forward(*args, **kwargs)

    def _call_hooked(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        finished: set[int] = set()
        with_kwargs, always = self._forward_hooks_with_kwargs, self._forward_hooks_always_called
        own = self._forward_hooks.items()
        hooks = EVERYWHERE.of("forward")
        hooks.update({key: (hook, key in with_kwargs, key in always) for key, hook in own})
        result: Any = None
        try:
            for pre_hook, keywords in self._pre_hooks():
                args, kwargs = self._prepared(pre_hook, keywords, args, kwargs)
            backward = BackwardHooks(
                self,
                EVERYWHERE.then("backward_pre", self._backward_pre_hooks),
                EVERYWHERE.then("backward", self._backward_hooks),
            )
            args = backward.pass_inputs(args)
            result = self.forward(*args, **kwargs)
            for key, (hook, keywords, _) in hooks.items():
                finished.add(key)
                returned = _run_forward_hook(hook, keywords, self, args, kwargs, result)
                result = result if returned is None else returned
            return backward.pass_outputs(result)
        except Exception:
            for key, (hook, keywords, anyway) in hooks.items():
                if anyway and key not in finished:
                    self._run_after_failure(hook, keywords, args, kwargs, result)
            raise

    def _pre_hooks(self) -> list[tuple[Callable[..., Any], bool]]:
        """The hooks before forward, and whether each takes keyword arguments."""
        keywords = self._forward_pre_hooks_with_kwargs
        own = [(hook, key in keywords) for key, hook in self._forward_pre_hooks.items()]
        return [*EVERYWHERE.of("forward_pre").values(), *own]

    def _run_after_failure(
        self, hook: Callable[..., Any], with_kwargs: bool, args: Any, kwargs: Any, result: Any
    ) -> None:
        """Run a hook with `always_call` after an error; the caller gets the first error."""
        try:
            _run_forward_hook(hook, with_kwargs, self, args, kwargs, result)
        except Exception as error:
            warnings.warn(
                f"a forward hook with always_call=True failed after another error: {error!r}",
                stacklevel=4,
            )

    def _prepared(
        self, hook: Callable[..., Any], with_kwargs: bool, args: Any, kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments after a forward pre-hook."""
        if not with_kwargs:
            returned = hook(self, args)
            if returned is None:
                return args, kwargs
            return returned if isinstance(returned, tuple) else (returned,), kwargs
        returned = hook(self, args, kwargs)
        if returned is None:
            return args, kwargs
        if isinstance(returned, tuple) and len(returned) == 2:
            return returned
        raise RuntimeError(
            "a forward pre-hook with kwargs must return None or (args, kwargs), got "
            f"{type(returned).__name__}"
        )

    def register_forward_pre_hook(
        self, hook: Callable[..., Any], *, prepend: bool = False, with_kwargs: bool = False
    ) -> RemovableHandle:
        """Call `hook(module, args)` before forward; what it returns replaces the arguments."""
        flags = [self._forward_pre_hooks_with_kwargs] if with_kwargs else []
        return add_hook(self._forward_pre_hooks, hook, prepend, flags)

    def register_forward_hook(
        self,
        hook: Callable[..., Any],
        *,
        prepend: bool = False,
        with_kwargs: bool = False,
        always_call: bool = False,
    ) -> RemovableHandle:
        """Call `hook(module, args, output)` after forward; what it returns replaces the output."""
        flags = [self._forward_hooks_with_kwargs] if with_kwargs else []
        flags += [self._forward_hooks_always_called] if always_call else []
        return add_hook(self._forward_hooks, hook, prepend, flags)

    def register_full_backward_hook(
        self, hook: Callable[..., Any], prepend: bool = False
    ) -> RemovableHandle:
        """Call `hook(module, grad_input, grad_output)` in backward; it may replace grad_input."""
        return add_hook(self._backward_hooks, hook, prepend)

    def register_backward_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """PyTorch's older name of `register_full_backward_hook`."""
        return add_hook(self._backward_hooks, OlderHook(hook))

    def register_full_backward_pre_hook(
        self, hook: Callable[..., Any], prepend: bool = False
    ) -> RemovableHandle:
        """Call `hook(module, grad_output)` before the module's backward; it may replace it."""
        return add_hook(self._backward_pre_hooks, hook, prepend)

    # -- compiling ---------------------------------------------------------------------------

    def compile(self, **options: Any) -> None:
        """Compile this module in place: its calls replay from now on; see `tapegrad.compile`."""
        from ..replay import compile

        self.__dict__.pop("forward", None)
        if not options.get("disable", False):
            self.__dict__["forward"] = compile(self._compiled_function(), **options)

    def _compiled_function(self) -> Callable[..., Any]:
        """What calls of a compiled module record: its `forward`."""
        forward: Any = self.forward
        function: Callable[..., Any] = getattr(forward, "function", forward)
        return function

    def _compiled_copy(self, options: Any) -> Module:
        from .compiled import compiled_module

        return compiled_module(self, options)

    # -- registering -------------------------------------------------------------------------

    def _check_name(self, name: Any, what: str, group: str) -> None:
        if "_parameters" not in self.__dict__:
            raise AttributeError(
                f"{type(self).__name__}: call super().__init__() before registering {what}s"
            )
        if not isinstance(name, str):
            raise TypeError(f"the name of a {what} must be a string, got {type(name).__name__}")
        if "." in name or not name:
            raise KeyError(f"the name of a {what} must be non-empty and without dots, got {name!r}")
        if hasattr(self, name) and name not in self.__dict__[group]:
            raise KeyError(f"{type(self).__name__} has an attribute {name!r} already")

    def register_parameter(self, name: str, param: Parameter | None) -> None:
        """Add a parameter under a name; None keeps the name without one."""
        self._check_name(name, "parameter", "_parameters")
        if param is not None:
            if not isinstance(param, Parameter):
                raise TypeError(
                    f"parameter {name!r} must be a Parameter or None, got {type(param).__name__}; "
                    "wrap it with nn.Parameter(...)"
                )
            if not param.is_leaf:
                raise ValueError(f"parameter {name!r} must be a leaf, not a result of operations")
            if EVERYWHERE.hooks:
                param = EVERYWHERE.registered("parameter", self, name, param)
        self._put("_parameters", name, param)

    def _put(self, group: str, name: str, value: Any) -> None:
        """Add an entry under a name."""
        self.__dict__[group][name] = value

    def _drop(self, group: str, name: str) -> None:
        """Remove the entry under a name."""
        del self.__dict__[group][name]

    def register_buffer(self, name: str, tensor: Tensor | None, persistent: bool = True) -> None:
        """Add a tensor that is not trained; with `persistent` it is part of the state dict."""
        self._check_name(name, "buffer", "_buffers")
        if tensor is not None and not isinstance(tensor, Tensor):
            raise TypeError(
                f"buffer {name!r} must be a Tensor or None, got {type(tensor).__name__}"
            )
        if EVERYWHERE.hooks and tensor is not None:
            tensor = EVERYWHERE.registered("buffer", self, name, tensor)
        self._put("_buffers", name, tensor)
        (
            self._non_persistent_buffers_set.discard
            if persistent
            else self._non_persistent_buffers_set.add
        )(name)

    def add_module(self, name: str, module: Module | None) -> None:
        """Add a module under a name."""
        check_module(name, module)
        self._check_name(name, "module", "_modules")
        self._put_module(name, module)

    def _put_module(self, name: str, module: Module | None) -> None:
        if EVERYWHERE.hooks and module is not None:
            module = EVERYWHERE.registered("module", self, name, module)
        self._put("_modules", name, module)

    register_module = add_module

    def __setattr__(self, name: str, value: Any) -> None:
        attributes = self.__dict__
        if isinstance(value, Parameter):
            self._forget(name, "_parameters")
            attributes.get("_non_persistent_buffers_set", set()).discard(name)
            self.register_parameter(name, value)
        elif name in attributes.get("_parameters", ()):
            self.register_parameter(name, value)
        elif isinstance(value, Module):
            if "_modules" not in attributes:
                self._check_name(name, "module", "_modules")  # which raises
            self._forget(name, "_modules")
            self._put_module(name, value)  # even if the class has an attribute of this name
        elif isinstance(value, Buffer):
            self._register_given(name, value, value.persistent)
        elif name in attributes.get("_modules", ()):
            self.add_module(name, value)
        elif name in attributes.get("_buffers", ()):
            self._register_given(name, value, name not in self._non_persistent_buffers_set)
        else:
            object.__setattr__(self, name, value)

    def _register_given(self, name: str, value: Any, persistent: bool) -> None:
        """Register a buffer that was set as an attribute; subclasses may override the method."""
        register: Any = self.register_buffer
        own = register.__func__ is not Module.register_buffer
        if not own or "persistent" in inspect.signature(register).parameters:
            register(name, value, persistent)
            return
        if not persistent:
            raise RuntimeError(
                f"{type(self).__name__}.register_buffer has no argument `persistent`, and the "
                f"buffer {name!r} should not be saved"
            )
        register(name, value)

    def _forget(self, name: str, group: str) -> None:
        """Remove a name from the other groups, before a new value gets it."""
        for other in ("_parameters", "_buffers", "_modules"):
            if other != group:
                self.__dict__.get(other, {}).pop(name, None)
        self.__dict__.pop(name, None)

    def __getattr__(self, name: str) -> Any:
        attributes = self.__dict__
        for group in ("_parameters", "_modules", "_buffers"):  # the most frequent first
            if group in attributes and name in attributes[group]:
                return attributes[group][name]
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __delattr__(self, name: str) -> None:
        for group in ("_parameters", "_buffers", "_modules"):
            if name in self.__dict__.get(group, ()):
                self._drop(group, name)
                self._non_persistent_buffers_set.discard(name)
                return
        if isinstance(vars(Module).get(name), HookDict):
            self.__dict__.pop(name, None)
            return
        object.__delattr__(self, name)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self._parameters, *self._buffers, *self._modules})

    # -- walking -----------------------------------------------------------------------------

    def named_children(self) -> Iterator[tuple[str, Module]]:
        """The modules directly in this one, each once."""
        seen: set[int] = set()
        for name, module in self._modules.items():
            if module is not None and id(module) not in seen:
                seen.add(id(module))
                yield name, module

    def children(self) -> Iterator[Module]:
        """The modules directly in this one, each once."""
        for _, module in self.named_children():
            yield module

    def named_modules(
        self, memo: set[Module] | None = None, prefix: str = "", remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Module]]:
        """This module and all within it, with their dotted names."""
        seen = set() if memo is None else memo
        if self in seen:
            return
        if remove_duplicate:
            seen.add(self)
        yield prefix, self
        for name, module in self._modules.items():
            if module is not None:
                inner = f"{prefix}.{name}" if prefix else name
                yield from module.named_modules(seen, inner, remove_duplicate)

    def modules(self, remove_duplicate: bool = True) -> Iterator[Module]:
        """This module and all within it, each once."""
        for _, module in self.named_modules(remove_duplicate=remove_duplicate):
            yield module

    def _named(self, group: str, *where: Any) -> Iterator[tuple[str, Any]]:
        return self._named_members(lambda module: module.__dict__[group].items(), *where)

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Parameter]]:
        """All parameters with their dotted names."""
        return self._named("_parameters", prefix, recurse, remove_duplicate)

    def parameters(self, recurse: bool = True) -> Iterator[Parameter]:
        """All parameters, each once."""
        for _, parameter in self.named_parameters(recurse=recurse):
            yield parameter

    def named_buffers(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Tensor]]:
        """All buffers with their dotted names."""
        return self._named("_buffers", prefix, recurse, remove_duplicate)

    def buffers(self, recurse: bool = True) -> Iterator[Tensor]:
        """All buffers, each once."""
        for _, buffer in self.named_buffers(recurse=recurse):
            yield buffer

    def get_submodule(self, target: str) -> Module:
        """The module with a dotted name."""
        module: Module = self
        for name in target.split(".") if target else ():
            found = module._modules.get(name)
            if found is None:
                raise AttributeError(f"{type(module).__name__} has no module {name!r}")
            module = found
        return module

    def set_submodule(self, target: str, module: Module, strict: bool = False) -> None:
        """Put a module under a dotted name; with `strict`, only in place of another."""
        path, _, name = target.rpartition(".")
        if not name:
            raise ValueError("the name of a module must not be empty")
        if not isinstance(module, Module):
            raise ValueError(f"expected a Module, got {type(module).__name__}")
        parent = self.get_submodule(path)
        if strict and name not in parent._modules:
            raise AttributeError(f"{type(parent).__name__} has no module {name!r}")
        if name not in parent._modules and hasattr(parent, name):
            raise AttributeError(f"{name!r} of {type(parent).__name__} is not a Module")
        parent._put("_modules", name, module)

    def _named_members(
        self,
        get_members_fn: Callable[[Module], Any],
        prefix: str = "",
        recurse: bool = True,
        remove_duplicate: bool = True,
    ) -> Iterator[tuple[str, Any]]:
        """The (name, value) pairs that a function returns for each module, with dotted names."""
        seen: set[int] = set()
        modules: Any = [(prefix, self)]
        if recurse:
            modules = self.named_modules(prefix=prefix, remove_duplicate=remove_duplicate)
        for path, module in modules:
            for name, value in get_members_fn(module):
                if value is None or (remove_duplicate and id(value) in seen):
                    continue
                seen.add(id(value))
                yield (f"{path}.{name}" if path else name), value

    def _get(self, target: str, group: str, what: str) -> Any:
        path, _, name = target.rpartition(".")
        found = self.get_submodule(path).__dict__[group].get(name)
        if found is None:
            raise AttributeError(f"{type(self).__name__} has no {what} {target!r}")
        return found

    def get_parameter(self, target: str) -> Parameter:
        """The parameter with a dotted name."""
        found: Parameter = self._get(target, "_parameters", "parameter")
        return found

    def get_buffer(self, target: str) -> Tensor:
        """The buffer with a dotted name."""
        found: Tensor = self._get(target, "_buffers", "buffer")
        return found

    def apply(self, fn: Callable[[Module], Any]) -> Self:
        """Call `fn` with every module, the innermost first; returns this module."""
        for module in self.children():
            module.apply(fn)
        fn(self)
        return self

    # -- modes and places --------------------------------------------------------------------

    def train(self, mode: bool = True) -> Self:
        """Switch this module and all within it to training (or to evaluation)."""
        if not isinstance(mode, bool):
            raise ValueError(f"the training mode must be True or False, got {mode!r}")
        self.training = mode
        for module in self._modules.values():
            if module is not None:
                module.train(mode)  # which classes may override
        return self

    def eval(self) -> Self:
        """Switch this module and all within it to evaluation."""
        return self.train(False)

    def requires_grad_(self, requires_grad: bool = True) -> Self:
        """Set `requires_grad` of all parameters."""
        for parameter in self.parameters():
            parameter.requires_grad_(requires_grad)
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clear the gradients of all parameters."""
        for parameter in self.parameters():
            parameter.zero_grad(set_to_none)

    def _apply(self, fn: Callable[[Tensor], Any], recurse: bool = True) -> Self:
        """Replace the data of all parameters and buffers by what `fn` makes of it."""
        if recurse:
            for module in self.children():
                module._apply(fn)  # which classes may override
        with no_grad():
            for parameter in self._parameters.values():
                if parameter is not None:
                    gradient = parameter.grad
                    parameter.data = fn(parameter.detach())
                    parameter.grad = None if gradient is None else fn(gradient)
            for name, buffer in self._buffers.items():
                if buffer is not None:
                    self._put("_buffers", name, fn(buffer))
        return self

    def to(self, *args: Any, **kwargs: Any) -> Self:
        """Move to a device and/or convert floating tensors: `to(device)`, `to(dtype)`, ..."""
        device, dtype = _parse_to(args, kwargs)
        if dtype is not None and not (dtype.is_floating_point or dtype.is_complex):
            raise TypeError(f"Module.to converts to floating and complex types, got {dtype}")

        def convert(x: Tensor) -> Any:
            kind = dtype if x.dtype.is_floating_point or x.dtype.is_complex else None
            return x.to(device=device, dtype=kind)

        return self._apply(convert)

    def type(self, dst_type: Any) -> Self:
        """Convert all parameters and buffers to a dtype."""
        target = as_dtype(dst_type)
        return self._apply(lambda x: x.to(target))

    def float(self) -> Self:
        """Convert floating parameters and buffers to float32."""
        return self.to(float32)

    def double(self) -> Self:
        """Convert floating parameters and buffers to float64."""
        return self.to(float64)

    def half(self) -> Self:
        """Convert floating parameters and buffers to float16."""
        return self.to(float16)

    def bfloat16(self) -> Self:
        """Convert floating parameters and buffers to bfloat16."""
        return self.to(bfloat16)

    def cpu(self) -> Self:
        """Move all parameters and buffers to the CPU."""
        return self.to("cpu")

    def cuda(self, device: Any = None) -> Self:
        """Move all parameters and buffers to a GPU."""
        return self.to(f"cuda:{device}" if isinstance(device, int) else device or "cuda")

    def to_empty(self, *, device: Any = None, recurse: bool = True) -> Self:
        """Move to a device without copying the values: memory there is uninitialized."""
        place = None if device is None else as_device(device)

        def unset(x: Tensor) -> Any:
            return CREATION["empty_like"](x, device=x.device if place is None else place)

        return self._apply(unset, recurse)

    def share_memory(self) -> Self:
        """Move to memory that this process shares with its forked children."""
        for lazy in (*self.parameters(), *self.buffers()):
            if hasattr(lazy, "materialize"):
                lazy.share_memory_()  # type: ignore[attr-defined,unused-ignore]
        return self._apply(_shared)

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore the attributes of a pickled module; missing ones are empty."""
        Module.__init__(self)
        self.__dict__.update(state)
        renumber(self.__dict__)
        if "_computed" in state:
            from .utils.computed import settle

            settle(self)

    # -- showing -----------------------------------------------------------------------------

    def _get_name(self) -> str:
        return type(self).__name__

    def extra_repr(self) -> str:
        """The text in the parentheses of this module's own line; subclasses write this."""
        return ""

    def __repr__(self) -> str:
        extra = self.extra_repr().splitlines()
        children = [
            f"({name}): " + _indented(repr(module)) for name, module in self._modules.items()
        ]
        if not children and len(extra) <= 1:
            return f"{self._get_name()}({''.join(extra)})"
        lines = "\n  ".join(extra + children)
        return f"{self._get_name()}(\n  {lines}\n)"


def _indented(text: str) -> str:
    return text.replace("\n", "\n  ")


def _run_forward_hook(
    hook: Callable[..., Any],
    with_kwargs: bool,
    module: Module,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    result: Any,
) -> Any:
    if with_kwargs:
        return hook(module, args, kwargs, result)
    return hook(module, args, result)


def check_module(name: str, module: Any) -> None:
    """Raise unless `module` can be registered as a module; the error says what to pass instead."""
    if module is None or isinstance(module, Module):
        return
    found, way_out = type(module).__name__, ""
    if isinstance(module, type):
        found = f"the class {module.__name__}"
        way_out = f"; make one with {module.__name__}(...)" if issubclass(module, Module) else ""
    elif isinstance(module, (list, tuple)):
        way_out = "; give the modules one by one, as in Sequential(*layers), or use ModuleList"
    elif callable(module):
        way_out = "; wrap it in a Module whose forward calls it"
    raise TypeError(f"module {name!r} must be a Module or None, got {found}{way_out}")


def _shared(x: Tensor) -> Tensor:
    array = x._array
    if not isinstance(array, np.ndarray):
        return x  # memory of a GPU cannot be shared any further
    return wrap(storage.shared_copy(array))


def _parse_to(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, DType | None]:
    """The device and the dtype in the arguments of `to`."""
    if "copy" in kwargs:
        raise RuntimeError("a module is converted in place; use copy.deepcopy(module).to(...)")
    unknown = set(kwargs) - {"device", "dtype", "tensor", "non_blocking", "memory_format"}
    if unknown:
        raise TypeError(f"to() got unexpected keyword arguments {sorted(unknown)}")
    device, dtype = kwargs.get("device"), kwargs.get("dtype")
    if isinstance(args[1] if len(args) == 2 else None, bool) and not isinstance(args[0], DType):
        raise TypeError("to(device, dtype, non_blocking): the second argument must be a dtype")
    for value in (*args, kwargs.get("tensor")):
        if isinstance(value, Tensor):
            device, dtype = value.device, value.dtype
        elif isinstance(value, (DType, np.dtype, type)):
            dtype = value
        elif value is not None and not isinstance(value, bool):
            device = value
    return (
        None if device is None else as_device(device),
        None if dtype is None else as_dtype(dtype),
    )


__all__ = ["IncompatibleKeys", "Module"]
