"""Calls a module with other parameters and buffers than its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from ...core.tensor import Tensor
from ..module import Module

#: stands for the value of a name that a module does not have
_ABSENT: Any = object()


def _entries(module: Module, name: str) -> tuple[dict[str, Any], str] | None:
    """The mapping that holds the value of a dotted name, and the last part of the name.

    None if there is no such module. A plain attribute is in the mapping of all attributes.
    """
    path, _, last = name.rpartition(".")
    if not last:
        raise KeyError(f"{name!r} is no name of a tensor")
    try:
        owner = module.get_submodule(path)
    except AttributeError:
        return None
    for group in ("_parameters", "_buffers"):
        if last in owner.__dict__[group]:
            return owner.__dict__[group], last
    if hasattr(type(owner), last):
        raise RuntimeError(f"{name!r} is a property or method, and not replaced")
    return owner.__dict__, last


def _tied(own: dict[str, Any], values: dict[str, Any]) -> dict[str, Any]:
    """Extend `values` to all names of the same tensors."""
    given: dict[int, tuple[str, Any]] = {}
    for name, value in values.items():
        if name not in own:
            continue
        other, known = given.setdefault(id(own[name]), (name, value))
        if known is not value:
            raise ValueError(f"{other!r} and {name!r} are one tensor, but two values are given")
    return {n: given[id(x)][1] for n, x in own.items() if id(x) in given} | values


@contextmanager
def _replaced(module: Module, values: dict[str, Any], tie: bool, strict: bool) -> Iterator[None]:
    own: dict[str, Any] = dict(module.named_parameters(remove_duplicate=False))
    own.update(module.named_buffers(remove_duplicate=False))
    wanted = _tied(own, values) if tie else dict(values)
    unexpected = [name for name in values if name not in own]
    missing = [name for name in own if name not in wanted]
    if strict and (unexpected or missing):
        raise RuntimeError(
            f"{type(module).__name__}: unexpected keys {unexpected}, missing keys {missing}"
        )
    kept: list[tuple[str, dict[str, Any], str, Any]] = []
    try:
        for name, value in wanted.items():
            found = _entries(module, name)
            if found is None:
                raise AttributeError(f"{type(module).__name__} has no module for {name!r}")
            if not isinstance(value, (Tensor, type(None))):
                raise TypeError(f"{name!r} must be a Tensor, got {type(value).__name__}")
            entries, last = found
            before = entries.get(last, _ABSENT)
            if before is not _ABSENT and not isinstance(before, (Tensor, type(None))):
                raise TypeError(f"{name!r} of {type(module).__name__} is no Tensor")
            kept.append((name, entries, last, before))
            entries[last] = value
        yield
    finally:
        for name, entries, last, before in reversed(kept):
            if name in values:
                values[name] = entries.get(last)  # the call may have replaced it
            if before is _ABSENT:
                entries.pop(last, None)
            else:
                entries[last] = before


def functional_call(
    module: Module,
    parameters_and_buffers: Any,
    args: Any = None,
    kwargs: Mapping[str, Any] | None = None,
    *,
    tie_weights: bool = True,
    strict: bool = False,
) -> Any:
    """Call a module with tensors in place of the parameters and buffers of the same names.

    If one mapping is given, it has the module's tensors after the call: some may be replaced.

    >>> import tapegrad
    >>> layer = tapegrad.nn.Linear(2, 1)
    >>> other = {"weight": tapegrad.ones(1, 2), "bias": tapegrad.zeros(1)}
    >>> functional_call(layer, other, tapegrad.tensor([[3.0, 4.0]])).tolist()
    [[7.0]]
    """
    given = parameters_and_buffers
    if isinstance(given, dict):
        values = given
    else:
        values = {}
        for part in given if isinstance(given, (tuple, list)) else (given,):
            if not isinstance(part, Mapping):
                raise ValueError(
                    f"functional_call takes mappings of names to tensors, got {type(part).__name__}"
                )
            repeated = values.keys() & part.keys()
            if repeated:
                raise ValueError(f"{sorted(repeated)} are given twice")
            values.update(part)
    positional = () if args is None else args if isinstance(args, tuple) else (args,)
    with _replaced(module, values, tie_weights, strict):
        return module(*positional, **(kwargs or {}))
