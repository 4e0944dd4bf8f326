"""Calling a module with other parameters and buffers than its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from ...core.tensor import Tensor
from ..module import Module


def _owner(module: Module, name: str) -> tuple[Module, str, str] | None:
    """The module, the group and the name that a dotted name stands for."""
    path, _, last = name.rpartition(".")
    try:
        owner = module.get_submodule(path)
    except AttributeError:
        return None
    for group in ("_parameters", "_buffers"):
        if last in owner.__dict__[group]:
            return owner, group, last
    return None


@contextmanager
def _replaced(module: Module, values: Mapping[str, Any], tie: bool, strict: bool) -> Iterator[None]:
    own: dict[str, Any] = dict(module.named_parameters(remove_duplicate=False))
    own.update(module.named_buffers(remove_duplicate=False))
    unexpected = [name for name in values if _owner(module, name) is None]
    missing = [name for name in own if name not in values]
    if unexpected or (strict and missing):
        raise RuntimeError(
            f"{type(module).__name__}: unexpected keys {unexpected}, missing keys {missing}"
            if strict
            else f"{type(module).__name__} has no parameters or buffers {unexpected}"
        )
    wanted = dict(values)
    if tie:
        given = {id(own[name]): value for name, value in values.items() if name in own}
        wanted = {n: given[id(x)] for n, x in own.items() if id(x) in given} | wanted
    kept: list[tuple[dict[str, Any], str, Any]] = []
    try:
        for name, value in wanted.items():
            found = _owner(module, name)
            assert found is not None
            owner, group, last = found
            if not isinstance(value, (Tensor, type(None))):
                raise TypeError(f"{name!r} must be a Tensor, got {type(value).__name__}")
            entries = owner.__dict__[group]
            kept.append((entries, last, entries[last]))
            entries[last] = value
        yield
    finally:
        for entries, last, value in reversed(kept):
            entries[last] = value


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

    >>> import tapegrad
    >>> layer = tapegrad.nn.Linear(2, 1)
    >>> other = {"weight": tapegrad.ones(1, 2), "bias": tapegrad.zeros(1)}
    >>> functional_call(layer, other, tapegrad.tensor([[3.0, 4.0]])).tolist()
    [[7.0]]
    """
    values: dict[str, Any] = {}
    given = parameters_and_buffers
    for part in given if isinstance(given, (tuple, list)) else (given,):
        repeated = values.keys() & part.keys()
        if repeated:
            raise ValueError(f"{sorted(repeated)} are given twice")
        values.update(part)
    positional = () if args is None else args if isinstance(args, tuple) else (args,)
    with _replaced(module, values, tie_weights, strict):
        return module(*positional, **(kwargs or {}))
