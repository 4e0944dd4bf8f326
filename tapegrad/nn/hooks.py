"""Backward hooks of modules, and hooks of all modules.

Inputs and outputs of a hooked module pass through a boundary: a function that returns its tensors
and, in backward, passes all of their gradients at once to the hooks. `Module.__call__` runs the
global hooks, which PyTorch registers through `nn.modules.module`, before a module's own.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..autograd.function import Function
from ..core.modes import numbers
from ..core.tensor import RemovableHandle, Tensor
from .state import add_hook

if TYPE_CHECKING:
    from .module import Module

Gradients = tuple[Tensor | None, ...]
Notify = Callable[[Gradients], Gradients]


class HookDict:
    """A dictionary of hooks by number, which a module gets on first access.

    Most modules have no hooks: their calls only test `_hooked`, and replays compare nothing.
    """

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, module: Module | None, owner: type | None = None) -> Any:
        if module is None:
            return self
        module.__dict__["_hooked"] = True
        return module.__dict__.setdefault(self._name, {})


def renumber(attributes: dict[str, Any]) -> None:
    """Give the hooks in the attributes of a module numbers that no other hook has.

    The numbers of a pickled module may be in use, or be given to the next hook of this program.
    """
    new: dict[int, int] = {}
    for name, hooks in attributes.items():
        if "_hooks" in name and isinstance(hooks, dict) and hooks:
            for key in hooks:
                if key not in new:
                    new[key] = next(numbers)
            attributes[name] = {new[key]: hook for key, hook in hooks.items()}


class _Everywhere:
    """The global hooks, by kind."""

    def __init__(self) -> None:
        #: by number: a kind and a hook. One dictionary, so that module calls make one test
        self.hooks: dict[int, tuple[str, Any]] = {}

    def of(self, kind: str) -> dict[int, Any]:
        """The hooks of a kind, by number."""
        return {key: hook for key, (known, hook) in self.hooks.items() if known == kind}

    def add(self, kind: str, hook: Any) -> RemovableHandle:
        """Add a hook of a kind."""
        handle = add_hook(self.hooks, (kind, hook))
        handle.hooks_dict_ref = lambda: self.of(kind)
        return handle

    def registered(self, kind: str, module: Any, name: str, value: Any) -> Any:
        """The value that a module registers under a name, after the hooks that may replace it."""
        for hook in self.of(kind).values():
            returned = hook(module, name, value)
            value = value if returned is None else returned
        return value

    def then(self, kind: str, own: dict[int, Any]) -> list[Any]:
        """The global hooks of a kind, then a module's own."""
        return [*self.of(kind).values(), *own.values()]


EVERYWHERE = _Everywhere()


def register_module_forward_pre_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call `hook(module, args)` before the forward of every module."""
    return EVERYWHERE.add("forward_pre", (hook, False))


def register_module_forward_hook(
    hook: Callable[..., Any], *, with_kwargs: bool = False, always_call: bool = False
) -> RemovableHandle:
    """Call `hook(module, args, output)` after the forward of every module."""
    return EVERYWHERE.add("forward", (hook, with_kwargs, always_call))


def register_module_full_backward_pre_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call `hook(module, grad_output)` before the backward of every module."""
    return EVERYWHERE.add("backward_pre", hook)


def register_module_full_backward_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call `hook(module, grad_input, grad_output)` in the backward of every module."""
    return EVERYWHERE.add("backward", hook)


def register_module_backward_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """PyTorch's older name of `register_module_full_backward_hook`."""
    return EVERYWHERE.add("backward", OlderHook(hook))


def register_module_parameter_registration_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call `hook(module, name, parameter)` for every parameter that a module gets.

    If the hook returns a parameter, that one is registered instead.
    """
    return EVERYWHERE.add("parameter", hook)


def register_module_buffer_registration_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call `hook(module, name, buffer)` for every buffer that a module gets."""
    return EVERYWHERE.add("buffer", hook)


def register_module_module_registration_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call `hook(module, name, submodule)` for every module that a module gets."""
    return EVERYWHERE.add("module", hook)


class OlderHook:
    """A hook of `register_backward_hook`.

    Code may change the result of such a module in place, which a view would refuse; so the
    boundaries of these modules copy.
    """

    def __init__(self, hook: Callable[..., Any]) -> None:
        self.hook = hook

    def __call__(self, *args: Any) -> Any:
        return self.hook(*args)


class _Boundary(Function):
    """Returns its tensors; backward passes their gradients to `notify` and returns its result.

    The results share the tensors' memory: packages recognize by `data_ptr` that the result of one
    module is the input of another.
    """

    @staticmethod
    def forward(ctx: Any, *args: Any, **kwargs: Any) -> Any:
        notify, copies, *tensors = args
        ctx.notify = notify
        ctx.set_materialize_grads(False)
        return tuple(x.clone() for x in tensors) if copies else tuple(tensors)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        return (None, None, *ctx.notify(grad_outputs))


class BackwardHooks:
    """The hooks of one call of a module."""

    def __init__(self, module: Module, before: Sequence[Any], after: Sequence[Any]) -> None:
        self.module = module
        self.before = before
        self.after = after
        self.copies = any(isinstance(hook, OlderHook) for hook in after)
        self.inputs = 0
        self.has_inputs = False
        #: None until gradients reach the results
        self.grad_output: Gradients | None = None

    def pass_inputs(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """The arguments of the module, with a boundary around those that need gradients."""
        if not self.before and not self.after:
            return args
        self.inputs = len(args)
        self.has_inputs = any(isinstance(x, Tensor) and x.requires_grad for x in args)
        return tuple(self._passed(args, self._inputs_known)) if self.has_inputs else args

    def pass_outputs(self, result: Any) -> Any:
        """The result of the module, with a boundary around its tensors."""
        if not self.before and not self.after:
            return result
        if isinstance(result, Tensor):
            return self._passed([result], self._outputs_known)[0]
        if not isinstance(result, (tuple, list)):
            warnings.warn(
                "backward hooks are not called: they need a module that returns a Tensor or a "
                f"tuple of them, {type(self.module).__name__} returned {type(result).__name__}",
                stacklevel=4,
            )
            self.after = ()
            return result
        passed = self._passed(result, self._outputs_known)
        make = getattr(type(result), "_make", type(result))  # namedtuples take fields one by one
        return make(passed)

    def _outputs_known(self, gradients: Gradients) -> Gradients:
        for hook in self.before:
            gradients = _replaced(hook(self.module, gradients), gradients, "grad_output")
        self.grad_output = gradients
        if not self.has_inputs:
            # No gradient will reach the inputs, so call these hooks now.
            for hook in self.after:
                returned = hook(self.module, (None,) * self.inputs, gradients)
                given = returned if isinstance(returned, (tuple, list)) else (returned,)
                if any(g is not None for g in given):
                    raise RuntimeError(
                        f"a backward hook of {type(self.module).__name__} returned gradients of "
                        "inputs, none of which requires one; return None"
                    )
        return gradients

    def _inputs_known(self, gradients: Gradients) -> Gradients:
        if self.grad_output is None:
            # A second backward pass reached the inputs without passing the results.
            return gradients
        for hook in self.after:
            returned = hook(self.module, gradients, self.grad_output)
            gradients = _replaced(returned, gradients, "grad_input")
        self.grad_output = None
        return gradients

    def _passed(self, values: Sequence[Any], notify: Notify) -> list[Any]:
        """`values` with their tensors passed through a boundary."""
        places = [i for i, x in enumerate(values) if isinstance(x, Tensor) and x.requires_grad]
        results = list(values)
        if not places:
            return results

        def spread(gradients: Gradients) -> Gradients:
            whole: list[Tensor | None] = [None] * len(values)
            for i, g in zip(places, gradients, strict=True):
                whole[i] = g
            shown = notify(tuple(whole))
            return tuple(shown[i] for i in places)

        made = _Boundary.apply(spread, self.copies, *[values[i] for i in places])
        for i, x in zip(places, made, strict=True):
            results[i] = x
        return results


def _replaced(returned: Any, gradients: Gradients, what: str) -> Gradients:
    """The gradients that a hook returned, or those it received if it returned None."""
    if returned is None:
        return gradients
    new = tuple(returned) if isinstance(returned, (tuple, list)) else (returned,)
    if len(new) != len(gradients):
        raise RuntimeError(
            f"a backward hook must return as many gradients as {what} has: {len(gradients)}, got "
            f"{len(new)}"
        )
    return new


class GlobalHooks(Mapping[int, Any]):
    """The global hooks of one kind, in a dictionary as in PyTorch."""

    def __init__(self, kind: str, place: int | None = None) -> None:
        self._kind, self._place = kind, place

    def _all(self) -> dict[int, Any]:
        found = EVERYWHERE.of(self._kind)
        return found if self._place is None else {k: v for k, v in found.items() if v[self._place]}

    def __getitem__(self, key: int) -> Any:
        return self._all()[key]

    def __iter__(self) -> Iterator[int]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())

    def clear(self) -> None:
        """Remove all of them."""
        for key in self._all():
            EVERYWHERE.hooks.pop(key, None)

    def replace(self, hooks: Mapping[int, Any] | None) -> None:
        """Replace all of them by others."""
        new = dict(hooks or {})
        self.clear()
        EVERYWHERE.hooks.update({key: (self._kind, hook) for key, hook in new.items()})


#: by PyTorch's names
GLOBAL_HOOKS = {
    "_global_backward_pre_hooks": GlobalHooks("backward_pre"),
    "_global_backward_hooks": GlobalHooks("backward"),
    "_global_is_full_backward_hook": GlobalHooks("backward"),
    "_global_forward_pre_hooks": GlobalHooks("forward_pre"),
    "_global_forward_hooks": GlobalHooks("forward"),
    "_global_forward_hooks_with_kwargs": GlobalHooks("forward", 1),
    "_global_forward_hooks_always_called": GlobalHooks("forward", 2),
    "_global_buffer_registration_hooks": GlobalHooks("buffer"),
    "_global_module_registration_hooks": GlobalHooks("module"),
    "_global_parameter_registration_hooks": GlobalHooks("parameter"),
}
