"""Splits modules into a function and its state, as the package `functorch` did.

Comes in: a module. Goes out: a function of parameters (and buffers) and of the module's arguments,
and the state itself as a tuple. `functional_call` does the same by names.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

from .calling import functional_call, stack_module_state


class FunctionalModule:
    """A module without state: called with a tuple of parameters, then with its arguments."""

    def __init__(self, model: Any, names: tuple[str, ...]) -> None:
        self.stateless_model = model
        self.param_names = names

    def __call__(self, params: Sequence[Any], *args: Any, **kwargs: Any) -> Any:
        state = dict(zip(self.param_names, params, strict=True))
        return functional_call(self.stateless_model, state, args, kwargs)


class FunctionalModuleWithBuffers(FunctionalModule):
    """The same, called with a tuple of parameters and one of buffers."""

    def __init__(self, model: Any, names: tuple[str, ...], buffers: tuple[str, ...]) -> None:
        super().__init__(model, names)
        self.buffer_names = buffers

    def __call__(
        self, params: Sequence[Any], buffers: Sequence[Any], *args: Any, **kwargs: Any
    ) -> Any:
        state = dict(zip(self.param_names, params, strict=True))
        state.update(zip(self.buffer_names, buffers, strict=True))
        return functional_call(self.stateless_model, state, args, kwargs)


def _separated(model: Any, disable_autograd_tracking: bool) -> tuple[Any, Any, Any]:
    """A copy of the model, and its parameters and buffers by name."""
    params = dict(model.named_parameters())
    buffers = dict(model.named_buffers())
    if disable_autograd_tracking:
        params = {name: p.detach() for name, p in params.items()}
    return copy.deepcopy(model), params, buffers


def make_functional(
    model: Any, disable_autograd_tracking: bool = False
) -> tuple[FunctionalModule, tuple[Any, ...]]:
    """A module as a function, and its parameters: `f, params = make_functional(model)`.

    >>> import tapegrad
    >>> from tapegrad import func, nn
    >>> f, params = func.make_functional(nn.Linear(3, 2))
    >>> f(params, tapegrad.ones(3)).shape
    Size([2])
    """
    if list(model.buffers()):
        raise RuntimeError(
            "this model has buffers, which make_functional leaves out: use "
            "make_functional_with_buffers"
        )
    whole, params, _ = _separated(model, disable_autograd_tracking)
    return FunctionalModule(whole, tuple(params)), tuple(params.values())


def make_functional_with_buffers(
    model: Any, disable_autograd_tracking: bool = False
) -> tuple[FunctionalModuleWithBuffers, tuple[Any, ...], tuple[Any, ...]]:
    """A module as a function, its parameters, and its buffers."""
    whole, params, buffers = _separated(model, disable_autograd_tracking)
    function = FunctionalModuleWithBuffers(whole, tuple(params), tuple(buffers))
    return function, tuple(params.values()), tuple(buffers.values())


def combine_state_for_ensemble(
    models: Sequence[Any],
) -> tuple[FunctionalModuleWithBuffers, tuple[Any, ...], tuple[Any, ...]]:
    """Modules of one class as one function, with their parameters and buffers stacked."""
    params, buffers = stack_module_state(models)
    whole, _, _ = _separated(models[0], disable_autograd_tracking=False)
    function = FunctionalModuleWithBuffers(whole, tuple(params), tuple(buffers))
    return function, tuple(params.values()), tuple(buffers.values())


def replace_all_batch_norm_modules_(root: Any) -> Any:
    """Let all batch norms of a module normalize by their own batch, without running statistics.

    `vmap` needs this, because all examples share running statistics. Returns the module itself.

    >>> from tapegrad import func, nn
    >>> func.replace_all_batch_norm_modules_(nn.Sequential(nn.BatchNorm1d(2)))[0].running_mean
    """
    for module in root.modules():
        if getattr(module, "track_running_stats", False) and hasattr(module, "running_mean"):
            module.running_mean = module.running_var = module.num_batches_tracked = None
            module.track_running_stats = False
    return root
