"""fully_shard: parameters, gradients and optimizer state are divided among the ranks.

`fully_shard(module)` makes the module a unit. Its parameters are concatenated in a flat array, of
which each rank keeps an equal part: every parameter becomes a 1-D shard, its elements in that part.
A call of the module first gathers the whole parameters, and drops them when it returns. Backward
gathers them again for the operations that need them (`units.py`), and each rank gets the average of
its part of the gradients. Optimizers update the shards.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from ..core.modes import GRAD, LISTENING, STATE
from ..core.tensor import Tensor, wrap
from ..distributed.process_group import resolved
from ..distributed.shards import shard_of
from ..nn.module import Module
from ..nn.state import IncompatibleKeys, SavedState
from ..nn.utils.clip_grad import clip_grad_norm_
from ..replay import Compiled
from .mixed_precision import MixedPrecisionPolicy
from .units import Unit

_UNIT = "_fully_sharded_unit"


class FSDPModule(Module):
    """The class that `fully_shard` adds to the class of a module."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        unit = unit_of(self)
        args, kwargs = unit.precision.inputs(args, kwargs)
        if isinstance(self.forward, Compiled):  # the compiled forward gathers
            return unit.precision.outputs(super().__call__(*args, **kwargs))
        with unit.gathered():
            return unit.precision.outputs(super().__call__(*args, **kwargs))

    def _compiled_function(self) -> Any:
        """`forward` with its gathers, so that these are part of the program."""
        return self._gathered_forward

    def _gathered_forward(self, *args: Any, **kwargs: Any) -> Any:
        with unit_of(self).gathered():
            return type(self).forward(self, *args, **kwargs)

    def unshard(self, async_op: bool = False) -> UnshardHandle | None:
        """Gather the parameters of this unit; attributes are the whole ones until `reshard()`.

        With `async_op` the gather only starts. It is completed by `wait()` of the returned handle,
        or by a call of the module.
        """
        unit = unit_of(self)
        unit.stays = True
        handle = UnshardHandle(unit)
        if async_op and not STATE.mode & LISTENING:  # the compiler starts gathers itself
            unit.begin()
            return handle
        handle.wait()
        return handle if async_op else None

    def reshard(self) -> None:
        """Drop the whole parameters of this unit."""
        unit_of(self).drop()

    def set_requires_gradient_sync(
        self, requires_gradient_sync: bool, *, recurse: bool = True
    ) -> None:
        """Set whether backward reduces gradients, in this unit and those inside it.

        If not, each rank accumulates its own whole gradients, which takes memory for them. The next
        backward pass that reduces gradients includes them. Call this before the forward pass.
        """
        for unit in self._affected(recurse):
            unit.syncs = bool(requires_gradient_sync)

    def set_is_last_backward(self, is_last_backward: bool) -> None:
        """Set whether the next backward pass is the last before the optimizer's step (the default).

        At the end of the last pass, units that took no part in it reduce the gradients that they
        have accumulated.
        """
        unit_of(self).is_last = bool(is_last_backward)

    def set_reshard_after_forward(self, reshard_after_forward: bool, recurse: bool = True) -> None:
        """Set whether backward gathers the parameters again, in this unit and those inside it."""
        for unit in self._affected(recurse):
            unit.reshards = bool(reshard_after_forward)

    def _affected(self, recurse: bool) -> list[Unit]:
        return list(_units(self)) if recurse else [unit_of(self)]

    def clip_grad_norm_(self, max_norm: float, norm_type: float = 2.0) -> Tensor:
        """Scale all gradients so that their norm, over all ranks, is at most `max_norm`.

        Returns the norm that they had. All ranks call it.
        """
        total: Tensor = clip_grad_norm_(self.parameters(), max_norm, norm_type)
        return total

    def set_modules_to_forward_prefetch(self, modules: list[FSDPModule]) -> None:
        """No effect: the unit that came next in the previous pass is gathered ahead anyway."""
        _check_units(modules)

    def set_modules_to_backward_prefetch(self, modules: list[FSDPModule]) -> None:
        """No effect: the unit that came before this one in forward is gathered ahead anyway."""
        _check_units(modules)


def _check_units(modules: list[FSDPModule]) -> None:
    for module in modules:
        if not isinstance(module, FSDPModule):
            raise TypeError(f"expected modules with fully_shard, got {type(module).__name__}")


class UnshardHandle:
    """A gather that `unshard(async_op=True)` has started."""

    def __init__(self, unit: Unit) -> None:
        self._unit: Unit | None = unit

    def wait(self) -> None:
        """Complete the gather: attributes of the module become the whole parameters."""
        unit, self._unit = self._unit, None
        if unit is not None and unit.stays and not unit.is_gathered:
            unit.gather(recorded=bool(STATE.mode & GRAD))


def unit_of(module: Any) -> Unit:
    """The unit that `fully_shard` has made for a module."""
    unit: Unit = module.__dict__[_UNIT]
    return unit


def fully_shard(
    module: Any,
    *,
    mesh: Any = None,
    reshard_after_forward: bool | None = None,
    shard_placement_fn: Any = None,
    mp_policy: MixedPrecisionPolicy = MixedPrecisionPolicy(),  # noqa: B008
    offload_policy: Any = None,
    process_group: Any = None,
    ignored_params: Any = None,
) -> Any:
    """Divide a module's parameters among the ranks of a group; returns the same module.

    The unit has all parameters of the module that are not in a unit inside it: apply `fully_shard`
    to layers first, then to the whole model. All ranks start with the values of the group's first
    rank. Create the optimizer afterwards, with `module.parameters()`. With
    `reshard_after_forward=False` the whole parameters stay until backward has used them, which
    saves a message and costs their memory. `mp_policy` sets the precision in which the module
    computes. The ranks are those of a 1-D mesh or of a group. `offload_policy` has no effect:
    shards are in host memory. A list of modules becomes one unit per module.
    """
    if isinstance(module, (list, tuple)):
        options: dict[str, Any] = {
            "mesh": mesh,
            "reshard_after_forward": reshard_after_forward,
            "shard_placement_fn": shard_placement_fn,
            "mp_policy": mp_policy,
            "process_group": process_group,
            "ignored_params": ignored_params,
        }
        return [fully_shard(m, **options) for m in module]
    if not isinstance(module, Module):
        raise TypeError(f"fully_shard divides a Module, got {type(module).__name__}")
    if shard_placement_fn is not None:
        raise ValueError("fully_shard cuts flat arrays of parameters; leave shard_placement_fn out")
    if reshard_after_forward not in (None, True, False):
        raise ValueError("reshard_after_forward is True or False: no rank keeps a larger part")
    if mesh is not None:
        if process_group is not None:
            raise ValueError("give the ranks as mesh=... or as process_group=..., not as both")
        process_group = mesh.get_group()
    if _UNIT in module.__dict__:
        raise ValueError(f"fully_shard was applied to this {type(module).__name__} already")
    group = resolved(process_group)
    ignored = {id(p) for p in ignored_params or ()}
    within = list(_units(module))
    reshards = reshard_after_forward is not False
    unit = Unit(_places(module, ignored), group, reshards, within, mp_policy)
    module.__dict__[_UNIT] = unit
    kind = type(module)
    module.__class__ = type(f"FSDP{kind.__name__}", (FSDPModule, kind), {})
    compiled = module.__dict__.get("forward")
    if isinstance(compiled, Compiled):  # set earlier, by `module.compile()`
        module.__dict__["forward"] = Compiled(module._compiled_function(), compiled.options)
    return module


def _places(module: Module, ignored: set[int]) -> list[tuple[Any, str]]:
    """The modules and attribute names that hold the parameters of a new unit."""
    places: list[tuple[Any, str]] = []

    def visit(inner: Any) -> None:
        for name, parameter in inner._parameters.items():
            if parameter is None or id(parameter) in ignored:
                continue
            if shard_of(parameter) is not None:
                raise ValueError(
                    f"parameter {name!r} of {type(inner).__name__} belongs to another unit: "
                    "modules that share a parameter must be in one unit"
                )
            places.append((inner, name))
        for child in inner.children():
            if _UNIT not in child.__dict__:
                visit(child)

    visit(module)
    return places


# -- the whole state -----------------------------------------------------------------------------


def _units(module: Module) -> Iterator[Unit]:
    for inner in module.modules():
        if _UNIT in inner.__dict__:
            yield unit_of(inner)


def full_state_dict(module: Module) -> SavedState:
    """The state dict with whole parameters, the same on all ranks; all ranks call it."""
    whole: dict[int, Any] = {}
    for unit in _units(module):
        for shard, array in zip(unit.parameters, unit.whole_arrays(), strict=True):
            whole[id(shard)] = array
    state: SavedState = module.state_dict(keep_vars=True)
    for name, value in list(state.items()):
        if isinstance(value, Tensor):
            state[name] = wrap(whole[id(value)]) if id(value) in whole else value.detach().clone()
    return state


def load_full_state_dict(
    module: Module, state_dict: Mapping[str, Any], strict: bool = True
) -> IncompatibleKeys:
    """Load a state dict with whole parameters: each rank takes its part of them."""
    given = SavedState(state_dict)
    given._metadata = getattr(state_dict, "_metadata", {})
    for name, parameter in module.named_parameters(remove_duplicate=False):
        shard, value = shard_of(parameter), given.get(name)
        if shard is None or not isinstance(value, Tensor):
            continue
        if tuple(value.shape) != shard.shape:
            raise RuntimeError(
                f"cannot load the state dict: {name!r} has shape {tuple(value.shape)}, and the "
                f"module has {shard.shape}; nothing was changed"
            )
        given[name] = value.detach().reshape(-1)[shard.start : shard.stop]
    return module.load_state_dict(given, strict=strict)


@contextmanager
def summon_full_params(module: Module) -> Iterator[None]:
    """Inside, attributes of all units of a module are the whole parameters, for reading only."""
    units = [unit for unit in _units(module) if not unit.is_gathered]
    for unit in units:
        unit.gather(recorded=False)
        unit.stays = True
    try:
        yield
    finally:
        for unit in units:
            unit.drop()
