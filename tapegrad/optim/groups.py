"""Parameter groups and state: the constructor's arguments, and dicts that recordings notice.

Comes in: what users pass as parameters. Goes out: lists of tensors, groups, the dicts that hold the
state of a parameter. Used by `optimizer.py`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from numbers import Real
from typing import Any, TypeAlias

from ..core.modes import STATE, TAPE
from ..core.tensor import Tensor
from ..replay.trace.options import decided, happens_once, runtime_number, setting

Group = dict[str, Any]
#: what an optimizer is made from: tensors, groups, or (name, tensor) pairs
ParamsT: TypeAlias = Iterable[Tensor | Group | tuple[str, Tensor]]


class State(dict[str, Any]):
    """The state of one parameter: a step that stores a new tensor here is not replayed."""

    __slots__ = ()

    def __setitem__(self, key: str, value: Any) -> None:
        if isinstance(value, Tensor) and self.get(key) is not value:
            happens_once()
        super().__setitem__(key, value)

    def setdefault(self, key: str, default: Any = None) -> Any:
        if key not in self:
            self[key] = default
        return self[key]

    def update(self, *args: Any, **kwargs: Any) -> None:
        for key, value in dict(*args, **kwargs).items():
            self[key] = value

    def __reduce__(self) -> tuple[Any, ...]:
        return State, (dict(self),)


class States(defaultdict[Any, State]):
    """The state of all parameters, each in a `State`."""

    def __init__(self, given: Any = ()) -> None:
        super().__init__(State, given)

    def __setitem__(self, key: Any, value: Any) -> None:
        if value:
            happens_once()
        super().__setitem__(key, State(value) if type(value) is dict else value)

    def __reduce__(self) -> tuple[Any, ...]:
        return States, (), None, None, iter(self.items())


class _Raw:
    """Reads the values of a watched group unchanged."""

    def __init__(self, group: Group) -> None:
        self.group = group

    def __getitem__(self, key: str) -> Any:
        return dict.__getitem__(self.group, key)


class WatchedGroup(Group):
    """A group of a user's optimizer, whose `step` reads `group["lr"]` directly.

    While that step is captured, numbers are read as tensors, so that a replay reads them anew, and
    everything else joins the signature. In eager code it is a dict like any other.
    """

    _read_anew = True

    def __init__(self, given: Group) -> None:
        super().__init__(given)
        self.raw = _Raw(self)

    def __getitem__(self, key: str) -> Any:
        value = super().__getitem__(key)
        return self._watched(key, value) if STATE.mode & TAPE else value

    def get(self, key: str, default: Any = None) -> Any:
        if key not in self:
            return default
        return self[key]

    def values(self) -> Any:
        return [self[key] for key in self] if STATE.mode & TAPE else super().values()

    def items(self) -> Any:
        return [(key, self[key]) for key in self] if STATE.mode & TAPE else super().items()

    def _watched(self, key: str, value: Any) -> Any:
        if key in ("params", "param_names"):
            return value
        if isinstance(value, bool):
            return decided(self.raw, key)
        if isinstance(value, Real):
            return runtime_number(self.raw, key)
        if isinstance(value, (tuple, list)) and all(isinstance(v, Real) for v in value):
            return type(value)(runtime_number(self.raw, key, i) for i in range(len(value)))
        return setting(self.raw, key) if value is None or isinstance(value, str) else value

    def __reduce__(self) -> tuple[Any, ...]:
        return WatchedGroup, (dict(self),)


def ordered(params: Any) -> list[Any]:
    """The parameters, as a list."""
    if isinstance(params, (set, frozenset)):
        raise TypeError("the order of a set changes from run to run; give the parameters as a list")
    if not isinstance(params, Iterable):
        way_out = "; use module.parameters()" if hasattr(params, "parameters") else ""
        raise TypeError(f"expected an iterable of Tensors, got {type(params).__name__}{way_out}")
    return list(params)


def as_groups(params: Any) -> list[Group]:
    """Parameter groups from what the constructor was given."""
    if isinstance(params, Tensor):
        raise TypeError("params is an iterable of Tensors or groups, got one Tensor; use [tensor]")
    items = ordered(params)
    if not items:
        raise ValueError("the optimizer got an empty list of parameters")
    if isinstance(items[0], dict):
        return [dict(item) if isinstance(item, dict) else item for item in items]
    return [{"params": items}]


def as_parameters(parameters: Any) -> list[Tensor]:
    """Parameters given to `step` or `zero_grad`."""
    given = [parameters] if isinstance(parameters, Tensor) else ordered(parameters)
    for parameter in given:
        if not isinstance(parameter, Tensor):
            raise TypeError(f"expected Tensors as parameters, got {type(parameter).__name__}")
    return given
