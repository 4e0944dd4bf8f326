"""State dicts of models and optimizers by parameter names, with shards or whole tensors.

`get_state_dict(model, optimizer)` returns two dicts whose keys are parameter names, so that they do
not depend on wrappers or on the order of an optimizer's groups. Tensors of `fully_shard` are
shards, which `distributed.checkpoint` saves and loads as such. With `full_state_dict` all ranks get
whole tensors. Names are PyTorch's: `tapegrad.distributed.checkpoint.state_dict`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ..core.modes import no_grad
from ..core.tensor import Tensor
from ..distributed.objects import broadcast_object_list
from ..distributed.process_group import get_rank, is_initialized
from ..distributed.shards import FlatShard, mark, shard_of, whole_of
from ..nn.module import Module
from ..nn.parameter import Parameter
from ..nn.state import IncompatibleKeys
from ..optim.optimizer import Optimizer
from .data_parallel import DistributedDataParallel
from .zero import ZeroRedundancyOptimizer


@dataclass
class StateDictOptions:
    """Options of the functions that get and set state dicts.

    With `full_state_dict` tensors are whole; with `cpu_offload` as well, only rank 0 gets them, and
    the others get empty dicts. With `broadcast_from_rank0` all ranks load the whole state of
    rank 0. `ignore_frozen_params` leaves out parameters that do not require gradients. `strict` is
    that of `load_state_dict`.
    """

    full_state_dict: bool = False
    cpu_offload: bool = False
    ignore_frozen_params: bool = False
    keep_submodule_prefixes: bool = True
    strict: bool = True
    broadcast_from_rank0: bool = False
    flatten_optimizer_state_dict: bool = False

    def __post_init__(self) -> None:
        if self.broadcast_from_rank0 and not self.full_state_dict:
            raise ValueError("broadcast_from_rank0=True needs full_state_dict=True")
        if self.flatten_optimizer_state_dict:
            raise ValueError(
                "flatten_optimizer_state_dict is not there: the state of an optimizer has the "
                'items "state" and "param_groups"'
            )
        if not self.keep_submodule_prefixes:
            raise ValueError("names of parameters are whole; leave keep_submodule_prefixes out")

    @property
    def leaves_empty(self) -> bool:
        """Whether this rank gets empty dicts."""
        return self.full_state_dict and self.cpu_offload and is_initialized() and get_rank() != 0


def _inner(model: Module) -> Module:
    return model.module if isinstance(model, DistributedDataParallel) else model


def _marked(value: Tensor, shard: FlatShard | None) -> Tensor:
    """A tensor in the same memory, marked as a shard."""
    if shard is None:
        return value.detach()
    marked = Parameter(value.detach(), requires_grad=False)  # plain tensors cannot be marked
    mark(marked, shard)
    return marked


def _given(value: Any, shard: FlatShard | None, options: StateDictOptions) -> Any:
    """A value of a state for the caller: a shard, or whole."""
    if not isinstance(value, Tensor):
        return value
    if not options.full_state_dict:
        return _marked(value, shard)
    return value.detach().clone() if shard is None else whole_of(value.detach(), shard)


def _taken(value: Any, shard: FlatShard | None, options: StateDictOptions) -> Any:
    """A loaded value for this rank: its part of a whole tensor, or the value itself."""
    if not isinstance(value, Tensor):
        return value
    if shard is None or not options.full_state_dict or tuple(value.shape) != shard.shape:
        return value.detach()
    return value.detach().reshape(-1)[shard.start : shard.stop]


def _from_rank0(state: Any, options: StateDictOptions) -> Any:
    if not options.broadcast_from_rank0 or not is_initialized():
        return state
    sent = [state]
    broadcast_object_list(sent, src=0)
    return sent[0]


# -- models --------------------------------------------------------------------------------------


def get_model_state_dict(
    model: Module,
    *,
    submodules: set[Module] | None = None,
    options: StateDictOptions | None = None,
) -> dict[str, Any]:
    """The state of a model, by names without those of wrappers; all ranks call it."""
    options = options or StateDictOptions()
    if submodules is not None:
        raise ValueError("get_model_state_dict of a submodule: give that as the model")
    inner = _inner(model)
    frozen = {name for name, p in inner.named_parameters() if not p.requires_grad}
    state = {
        name: _given(value, shard_of(value) if isinstance(value, Tensor) else None, options)
        for name, value in inner.state_dict(keep_vars=True).items()
        if not (options.ignore_frozen_params and name in frozen)
    }
    return {} if options.leaves_empty else state


def set_model_state_dict(
    model: Module, model_state_dict: dict[str, Any], *, options: StateDictOptions | None = None
) -> IncompatibleKeys:
    """Load a state that `get_model_state_dict` has returned with the same options."""
    options = options or StateDictOptions()
    inner = _inner(model)
    given = _from_rank0(dict(model_state_dict), options)
    shards = {n: shard_of(p) for n, p in inner.named_parameters(remove_duplicate=False)}
    state = {name: _taken(value, shards.get(name), options) for name, value in given.items()}
    return inner.load_state_dict(state, strict=options.strict)


# -- optimizers ----------------------------------------------------------------------------------


def _listed(optimizers: Optimizer | Iterable[Optimizer]) -> list[Optimizer]:
    found = [optimizers] if isinstance(optimizers, Optimizer) else list(optimizers)
    for optimizer in found:
        if isinstance(optimizer, ZeroRedundancyOptimizer):
            raise ValueError(
                "the state of a ZeroRedundancyOptimizer is saved by distributed.checkpoint.save "
                "itself, or after consolidate_state_dict()"
            )
    return found


def _names(model: Module) -> dict[int, str]:
    return {id(p): name for name, p in _inner(model).named_parameters()}


def _init_optim_state(optimizer: Optimizer) -> None:
    """Give an optimizer that has made no step its state, by a step with learning rate 0."""
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    if optimizer.state or any(p.grad is not None for p in parameters):
        return
    rates = [group.get("lr") for group in optimizer.param_groups]
    with no_grad():
        for p in parameters:
            if p.requires_grad:
                p.grad = p.detach() * 0
        for group in optimizer.param_groups:
            if "lr" in group:
                group["lr"] = 0.0
        optimizer.step()
    for group, rate in zip(optimizer.param_groups, rates, strict=True):
        if rate is not None:
            group["lr"] = rate
    optimizer.zero_grad(set_to_none=True)


def get_optimizer_state_dict(
    model: Module,
    optimizers: Optimizer | Iterable[Optimizer],
    *,
    submodules: set[Module] | None = None,
    options: StateDictOptions | None = None,
) -> dict[str, Any]:
    """The state of a model's optimizers, by parameter names; all ranks call it."""
    options = options or StateDictOptions()
    if submodules is not None:
        raise ValueError("get_optimizer_state_dict of a submodule: give that as the model")
    names = _names(model)
    state: dict[str, Any] = {}
    groups: list[dict[str, Any]] = []
    for optimizer in _listed(optimizers):
        _init_optim_state(optimizer)
        saved = optimizer.state_dict()
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        for position, values in saved["state"].items():
            p = parameters[position]
            shard = shard_of(p)
            state[names[id(p)]] = {
                key: _given(value, shard if _is_like(value, p) else None, options)
                for key, value in values.items()
            }
        for group in saved["param_groups"]:
            params = [names[id(parameters[i])] for i in group["params"]]
            groups.append({**group, "params": params})
    return {} if options.leaves_empty else {"state": state, "param_groups": groups}


def _is_like(value: Any, parameter: Tensor) -> bool:
    return isinstance(value, Tensor) and value.ndim > 0 and value.shape == parameter.shape


def set_optimizer_state_dict(
    model: Module,
    optimizers: Optimizer | Iterable[Optimizer],
    optim_state_dict: dict[str, Any],
    *,
    options: StateDictOptions | None = None,
) -> None:
    """Load a state that `get_optimizer_state_dict` has returned with the same options."""
    options = options or StateDictOptions()
    given = _from_rank0(optim_state_dict, options)
    names = _names(model)
    by_name = {name: g for g in given["param_groups"] for name in g["params"]}
    for optimizer in _listed(optimizers):
        loaded = optimizer.state_dict()
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        loaded["state"] = {
            i: {key: _taken(v, shard_of(p), options) for key, v in given["state"][name].items()}
            for i, p in enumerate(parameters)
            if (name := names[id(p)]) in given["state"]
        }
        for group in loaded["param_groups"]:
            for position in group["params"]:
                name = names[id(parameters[position])]
                if name not in by_name:
                    raise RuntimeError(f"the state has no group of options for {name!r}")
                group.update({k: v for k, v in by_name[name].items() if k != "params"})
        optimizer.load_state_dict(loaded)


# -- both ----------------------------------------------------------------------------------------


def get_state_dict(
    model: Module,
    optimizers: Optimizer | Iterable[Optimizer],
    *,
    submodules: set[Module] | None = None,
    options: StateDictOptions | None = None,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The states of a model and of its optimizers; all ranks call it."""
    return (
        get_model_state_dict(model, submodules=submodules, options=options),
        get_optimizer_state_dict(model, optimizers, submodules=submodules, options=options),
    )


def set_state_dict(
    model: Module,
    optimizers: Optimizer | Iterable[Optimizer],
    *,
    model_state_dict: dict[str, Any],
    optim_state_dict: dict[str, Any],
    options: StateDictOptions | None = None,
) -> IncompatibleKeys:
    """Load states that `get_state_dict` has returned with the same options."""
    found = set_model_state_dict(model, model_state_dict, options=options)
    set_optimizer_state_dict(model, optimizers, optim_state_dict, options=options)
    return found
