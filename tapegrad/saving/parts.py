"""Parts of a training: how their state is read, split into values, and restored.

A part is a module, an optimizer, a schedule, a loader, a random generator. `taken_apart` makes a
flat dict of its state, from paths to values, so that ranks can write different values of it; a
shard of a whole tensor becomes a `Piece`. `put_together` builds the state that this rank needs from
the saved one, whatever the number of ranks that saved it. Called by `checkpoint.py` and
`sharded.py`.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np

from ..core.tensor import Tensor, wrap
from ..data.dataloader import DataLoader
from ..distributed.shards import FlatShard, shard_of
from ..nn.module import Module
from ..nn.state import SavedState
from ..optim.optimizer import Optimizer
from ..random import default_generator

#: the keys that lead to a value in the state of a part
Path = tuple[Any, ...]
_VERSIONS: Path = ("", "versions")


class Piece(NamedTuple):
    """A tensor with some of the elements of a whole one."""

    tensor: Tensor
    shard: FlatShard


class StateReader(Protocol):
    """The saved state of all parts, read on request."""

    def paths(self, prefix: Path) -> list[Path]:
        """The paths of the values below a path, relative to it."""

    def value(self, path: Path) -> Any:
        """A value, whole."""

    def shape(self, path: Path) -> tuple[int, ...] | None:
        """The shape of a whole tensor; None for something else."""

    def elements(self, path: Path, start: int, stop: int) -> Any:
        """An array with some elements of a flattened tensor."""


# -- the state of a part -------------------------------------------------------------------------


def access(part: Any) -> tuple[str, str] | None:
    """The names of the methods that give and take the state of a part."""
    pairs = (
        ("local_state_dict", "load_state_dict"),  # of a sharded optimizer
        ("state_dict", "load_state_dict"),
        ("get_state", "set_state"),
        ("getstate", "setstate"),
    )
    for pair in pairs:
        if all(callable(getattr(part, name, None)) for name in pair):
            return pair
    return ("state", "state") if isinstance(part, np.random.Generator) else None


def state_of(part: Any) -> Any:
    """The state of a part; of a sharded one, this rank's share."""
    if isinstance(part, np.random.Generator):
        return part.bit_generator.state
    names = access(part)
    assert names is not None
    return getattr(part, names[0])()


def give(part: Any, state: Any) -> None:
    """Set a part to a state."""
    if isinstance(part, np.random.Generator):
        part.bit_generator.state = state
        return
    names = access(part)
    assert names is not None
    getattr(part, names[1])(state)


def belongs_to_rank(part: Any) -> bool:
    """Whether each rank has a state of its own, as with random generators and loaders."""
    names = access(part)
    return isinstance(part, DataLoader) or (names is not None and "load_state_dict" not in names)


def random_state() -> dict[str, Any]:
    """The states of the global random generators."""
    return {
        "tapegrad": default_generator.get_state(),
        "numpy": np.random.get_state(legacy=False),
        "python": random.getstate(),
    }


def give_random_state(state: Mapping[str, Any]) -> None:
    """Set the global random generators."""
    default_generator.set_state(state["tapegrad"])
    np.random.set_state(state["numpy"])
    random.setstate(state["python"])


def give_all(chosen: list[tuple[Any, Any]], randomness: Any) -> None:
    """Load every part's state; if one raises an error, restore the old state of all."""
    before = [(part, copy.deepcopy(state_of(part))) for part, _ in chosen]
    random_before = random_state()
    try:
        for part, state in chosen:
            give(part, state)
        if randomness is not None:
            give_random_state(randomness)
    except BaseException:
        for part, state in before:
            give(part, state)
        give_random_state(random_before)
        raise


# -- taking apart --------------------------------------------------------------------------------


def split(state: Any, part: Any) -> dict[Path, Any]:
    """The state of a part as a flat dict; a plain value becomes one item with an empty path."""
    if isinstance(part, Module) and isinstance(state, Mapping):
        versions = {_VERSIONS: getattr(state, "_metadata", {})}
        return {**{(name,): value for name, value in state.items()}, **versions}
    if isinstance(part, Optimizer) and isinstance(state, Mapping):
        flat: dict[Path, Any] = {(k,): v for k, v in state.items() if k != "state"}
        for position, values in state.get("state", {}).items():
            if isinstance(values, Mapping):
                flat.update({("state", position, k): v for k, v in values.items()})
            else:
                flat["state", position] = values
        return flat
    return {(): state}


def joined(flat: Mapping[Path, Any]) -> Any:
    """The nested state from the flat dict that `split` made."""
    if () in flat:
        return flat[()]
    if _VERSIONS in flat:
        state = SavedState((path[0], v) for path, v in flat.items() if path != _VERSIONS)
        state._metadata = flat[_VERSIONS]
        return state
    nested: dict[Any, Any] = {"state": {}}
    for (*outer, last), value in flat.items():
        inner = nested
        for key in outer:
            inner = inner.setdefault(key, {})
        inner[last] = value
    return nested


def taken_apart(part: Any) -> dict[Path, Any]:
    """This rank's share of a part's state: values and pieces, by path."""
    if isinstance(part, Module):
        flat = split(part.state_dict(keep_vars=True), part)
        for path, value in flat.items():
            if isinstance(value, Tensor):
                shard = shard_of(value)
                plain = value.detach()
                flat[path] = plain if shard is None else Piece(plain, shard)
        return flat
    flat = split(state_of(part), part)
    if isinstance(part, Optimizer):
        parameters = [p for group in part.param_groups for p in group["params"]]
        for path, value in flat.items():
            if path[0] == "state" and len(path) == 3 and isinstance(path[1], int):
                p = parameters[path[1]]
                shard = shard_of(p)
                if shard is not None and _is_like(value, p):
                    flat[path] = Piece(value.detach(), shard)
    return flat


def _is_like(value: Any, parameter: Tensor) -> bool:
    return isinstance(value, Tensor) and value.ndim > 0 and value.shape == parameter.shape


# -- putting together ----------------------------------------------------------------------------


def put_together(part: Any, reader: StateReader, prefix: Path) -> Any:
    """The state that this rank's part needs, from the values saved under a path."""
    if isinstance(part, Module):
        return _for_module(part, reader, prefix)
    if isinstance(part, Optimizer):
        return _for_optimizer(part, reader, prefix)
    return joined({path: reader.value((*prefix, *path)) for path in reader.paths(prefix)})


def _for_module(module: Module, reader: StateReader, prefix: Path) -> Any:
    shards = {
        name: shard_of(value)
        for name, value in module.state_dict(keep_vars=True).items()
        if isinstance(value, Tensor)
    }
    flat = {}
    for path in reader.paths(prefix):
        shard = shards.get(path[0]) if len(path) == 1 else None
        flat[path] = _fitted(reader, (*prefix, *path), shard)
    return joined(flat)


def _for_optimizer(optimizer: Optimizer, reader: StateReader, prefix: Path) -> Any:
    parameters: dict[Any, Tensor] = {}
    groups = reader.value((*prefix, "param_groups"))
    for saved, group in zip(groups, optimizer.param_groups, strict=False):
        parameters.update(zip(saved["params"], group["params"], strict=False))
    owns = getattr(optimizer, "owns", lambda parameter: True)
    flat = {}
    for path in reader.paths(prefix):
        p = parameters.get(path[1]) if len(path) == 3 else None
        if p is not None and not owns(p):
            continue
        shard = None if p is None else shard_of(p)
        place = (*prefix, *path)
        if shard is not None and reader.shape(place) != shard.shape:
            shard = None  # a count, or another value without the parameter's shape
        flat[path] = _fitted(reader, place, shard)
    return joined(flat)


def _fitted(reader: StateReader, path: Path, shard: FlatShard | None) -> Any:
    if shard is None:
        return reader.value(path)
    if reader.shape(path) != shard.shape:
        raise RuntimeError(
            f"{'.'.join(map(str, path))} was saved with shape {reader.shape(path)}, and is needed "
            f"with {shard.shape}; nothing was changed"
        )
    return wrap(reader.elements(path, shard.start, shard.stop))
