"""Jacobians and Hessians, by a batch of vjps or jvps.

Comes in: a function and the arguments to differentiate for. Goes out: a function that returns, for
each output, the derivative of each of its elements by each element of each input. All rows (or
columns) are computed at once: a batch of unit vectors goes backward (`jacrev`) or forward
(`jacfwd`) through the function, by `vmap`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..core.tensor import Tensor, wrap
from ..core.tree import leaves, rebuilt
from ..transforms.vmap import vmap
from .derivatives import Argnums, _Call, _picked, check_outputs, jvp


def unit_vectors(parts: Sequence[Tensor]) -> list[Tensor]:
    """Unit vectors over all tensors together, as one tensor (all elements, *shape) for each."""
    count = sum(x.numel() for x in parts)
    units, start = [], 0
    for x in parts:
        size = x.numel()
        unit = np.zeros((count, size), x._array.dtype)
        unit[np.arange(start, start + size), np.arange(size)] = 1
        units.append(wrap(unit.reshape(count, *x.shape)))
        start += size
    return units


def jacrev(
    func: Callable[..., Any],
    argnums: Argnums = 0,
    *,
    has_aux: bool = False,
    chunk_size: int | None = None,
    _preallocate_and_copy: bool = False,
) -> Callable[..., Any]:
    """The Jacobian in reverse mode: for functions with fewer results than inputs.

    `chunk_size` rows are computed at a time; by default all of them.

    >>> import tapegrad
    >>> tapegrad.func.jacrev(lambda x: x**2)(tapegrad.tensor([1.0, 2.0]))
    tensor([[2., 0.],
            [0., 4.]])
    """
    if chunk_size is not None and chunk_size <= 0:
        raise ValueError(f"jacrev: chunk_size must be at least 1, got {chunk_size}")

    @functools.wraps(func, assigned=("__doc__", "__name__", "__qualname__"), updated=())
    def jacobian(*args: Any, **kwargs: Any) -> Any:
        call = _Call(func, args, kwargs, argnums, has_aux)
        outs = list(leaves(call.output))
        check_outputs("jacrev", call.output)

        def rows_of(*cotangents: Tensor) -> Any:
            return call.pull(outs, list(cotangents))

        units = unit_vectors(outs)
        if units and units[0].shape[0]:
            rows = vmap(rows_of, chunk_size=chunk_size)(*units)
        else:
            rows = [x.new_zeros((0, *x.shape)) for x in call.inputs]
        found, start = [], 0
        for y in outs:
            stop = start + y.numel()
            parts = [row[start:stop].reshape(*y.shape, *row.shape[1:]) for row in rows]
            found.append(call.shaped(parts))
            start = stop
        result = rebuilt(call.output, iter(found))
        return (result, call.plain(call.aux)) if has_aux else result

    return jacobian


def jacfwd(
    func: Callable[..., Any],
    argnums: Argnums = 0,
    has_aux: bool = False,
    *,
    randomness: str = "error",
    chunk_size: int | None = None,
) -> Callable[..., Any]:
    """The Jacobian in forward mode: for functions with fewer inputs than results.

    >>> import tapegrad
    >>> tapegrad.func.jacfwd(lambda x: x**2)(tapegrad.tensor([1.0, 2.0]))
    tensor([[2., 0.],
            [0., 4.]])
    """

    @functools.wraps(func, assigned=("__doc__", "__name__", "__qualname__"), updated=())
    def jacobian(*args: Any, **kwargs: Any) -> Any:
        picked = _picked(args, argnums)
        chosen = args[picked[0]] if isinstance(argnums, int) else tuple(args[n] for n in picked)
        inputs = list(leaves(chosen))
        for x in inputs:
            if not isinstance(x, Tensor):
                raise RuntimeError(
                    f"jacfwd: expected the inputs to be tensors, got {type(x).__name__}"
                )

        def applied(*values: Any) -> Any:
            given = rebuilt(chosen, iter(values))
            full = list(args)
            for n, value in zip(
                picked, (given,) if isinstance(argnums, int) else given, strict=True
            ):
                full[n] = value
            return func(*full, **kwargs)

        shown: list[Any] = []

        def columns_of(*tangents: Tensor) -> Any:
            found = jvp(applied, tuple(inputs), tangents, has_aux=has_aux)
            shown[:] = [found[1], found[2] if has_aux else None]
            return list(leaves(found[1]))

        units = unit_vectors(inputs)
        if not units or not units[0].shape[0]:
            raise RuntimeError("jacfwd needs inputs with at least one element")
        columns = vmap(columns_of, randomness=randomness, chunk_size=chunk_size)(*units)
        out, aux = shown
        results = []
        for column in columns:
            shape = tuple(column.shape[1:])
            parts, start = [], 0
            for x in inputs:
                stop = start + x.numel()
                part = column[start:stop].movedim(0, -1)
                parts.append(part.reshape(*shape, *x.shape))
                start = stop
            results.append(rebuilt(chosen, iter(parts)))
        result = rebuilt(out, iter(results))
        return (result, aux) if has_aux else result

    return jacobian


def hessian(func: Callable[..., Any], argnums: Argnums = 0) -> Callable[..., Any]:
    """The second derivatives: the forward-mode Jacobian of the reverse-mode Jacobian.

    >>> import tapegrad
    >>> tapegrad.func.hessian(lambda x: (x**3).sum())(tapegrad.tensor([1.0, 2.0]))
    tensor([[ 6.,  0.],
            [ 0., 12.]])
    """
    return jacfwd(jacrev(func, argnums), argnums)
