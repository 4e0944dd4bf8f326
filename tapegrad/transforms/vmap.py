"""vmap: turns a function of one example into a function of a batch.

Comes in: a function, and the batch dimension of each argument. Goes out: a function that runs it
once, on tensors that stand for all examples (`batching.py`). Called by users, as `tapegrad.vmap`
and `tapegrad.func.vmap`, and by `func` for Jacobians.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from ..core.batch_rules import with_batch
from ..core.primitive import PRIMITIVES
from ..core.tensor import Tensor
from ..core.tree import leaves, rebuilt
from ..core.wrapped import batched
from .batching import BatchLevel

RANDOMNESS = ("error", "different", "same")


def vmap(
    func: Callable[..., Any],
    in_dims: Any = 0,
    out_dims: Any = 0,
    randomness: str = "error",
    *,
    chunk_size: int | None = None,
) -> Callable[..., Any]:
    """Run `func`, written for one example, on all examples of a batch at once.

    `in_dims` gives the batch dimension of each argument, None for an argument that all examples
    share; `out_dims` gives the batch dimension of the results. Random operations draw for each
    example ("different"), once for all ("same"), or raise ("error"). `chunk_size` examples run at a
    time.

    >>> import tapegrad
    >>> rows = tapegrad.tensor([[1.0, 2.0], [3.0, 4.0]])
    >>> tapegrad.vmap(tapegrad.dot)(rows, rows)
    tensor([ 5., 25.])
    """
    if randomness not in RANDOMNESS:
        raise RuntimeError(
            f"vmap: randomness must be 'error', 'different' or 'same', got {randomness!r}"
        )
    if chunk_size is not None and (not isinstance(chunk_size, int) or chunk_size <= 0):
        raise ValueError(f"vmap: chunk_size must be at least 1 or None, got {chunk_size}")

    @functools.wraps(func, assigned=("__doc__", "__name__", "__qualname__"), updated=())
    def mapped(*args: Any, **kwargs: Any) -> Any:
        dims = _dims_of(func, in_dims, args)
        size = _batch_size(func, in_dims, args, dims)
        if chunk_size is None or chunk_size >= size:
            return _run(func, args, kwargs, dims, size, out_dims, randomness)
        return _in_chunks(func, args, kwargs, dims, size, out_dims, randomness, chunk_size)

    return mapped


def _name(func: Any) -> str:
    return getattr(func, "__name__", repr(func))


# -- arguments ---------------------------------------------------------------------------------


def spread_dims(dims: Any, tree: Any) -> list[Any] | None:
    """One entry for each leaf of `tree`, from a structure that may end above its leaves."""
    if dims is None or isinstance(dims, int):
        return [dims] * len(list(leaves(tree)))
    if isinstance(tree, dict) and isinstance(dims, dict):
        if tree.keys() != dims.keys():
            return None
        pairs = [(dims[key], value) for key, value in tree.items()]
    elif isinstance(tree, (list, tuple)) and isinstance(dims, (list, tuple)):
        if len(tree) != len(dims) or isinstance(tree, list) != isinstance(dims, list):
            return None
        pairs = list(zip(dims, tree, strict=True))
    elif isinstance(dims, (dict, list, tuple)) or isinstance(tree, (dict, list, tuple)):
        return None
    else:
        return [dims]
    found: list[Any] = []
    for part, value in pairs:
        below = spread_dims(part, value)
        if below is None:
            return None
        found += below
    return found


def _dims_of(func: Any, in_dims: Any, args: tuple[Any, ...]) -> list[int | None]:
    """For each leaf of the arguments the batch dimension, as a non-negative number."""
    what = f"vmap({_name(func)}, in_dims={in_dims}, ...)(<inputs>)"
    if not isinstance(in_dims, (int, tuple)):
        raise ValueError(
            f"{what}: in_dims must be an int or a tuple, which may be nested like the inputs; "
            f"got a {type(in_dims).__name__}"
        )
    if not args:
        raise ValueError(f"{what}: there is no input whose dimension could count the examples")
    found = spread_dims(in_dims, args)
    if found is None:
        raise ValueError(
            f"{what}: in_dims must have an entry for each input, or for the parts of each"
        )
    dims = []
    for dim, arg in zip(found, leaves(args), strict=True):
        if dim is not None and (not isinstance(dim, int) or isinstance(dim, bool)):
            raise ValueError(f"{what}: {dim!r} in in_dims is neither an int nor None")
        if dim is not None and not isinstance(arg, Tensor):
            raise ValueError(
                f"{what}: in_dims has {dim} for a {type(arg).__name__}; only tensors have "
                "examples, so put None there"
            )
        if dim is not None and not -arg.ndim <= dim < arg.ndim:
            raise ValueError(f"{what}: in_dims has {dim} for a tensor of {arg.ndim} dimensions")
        dims.append(None if dim is None else dim % arg.ndim)
    return dims


def _batch_size(func: Any, in_dims: Any, args: tuple[Any, ...], dims: Sequence[int | None]) -> int:
    sizes = [int(x.shape[d]) for x, d in zip(leaves(args), dims, strict=True) if d is not None]
    if not sizes:
        raise ValueError(
            f"vmap({_name(func)}, in_dims={in_dims}, ...)(<inputs>): got in_dims of None for all "
            "inputs, so there is no dimension to map over; give at least one input a dimension"
        )
    if len(set(sizes)) > 1:
        raise ValueError(f"vmap: the inputs have different numbers of examples: {sizes}")
    return sizes[0]


def moved_dim(x: Any, source: int, target: int) -> Any:
    """`x` with one dimension moved to another position."""
    if source == target:
        return x
    dims = [d for d in range(len(x.shape)) if d != source]
    dims.insert(target, source)
    return PRIMITIVES["permute"](x, dims=tuple(dims))


# -- running -----------------------------------------------------------------------------------


def _run(
    func: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    dims: Sequence[int | None],
    size: int,
    out_dims: Any,
    randomness: str,
) -> Any:
    level = BatchLevel(size, randomness)
    examples = [
        x if d is None else batched(moved_dim(x, d, 0), level)
        for x, d in zip(leaves(args), dims, strict=True)
    ]
    try:
        with level.entered():
            out = func(*rebuilt(args, iter(examples)), **kwargs)
        return _unwrapped(func, out, out_dims, level)
    finally:
        level.alive = False


def _unwrapped(func: Any, out: Any, out_dims: Any, level: BatchLevel) -> Any:
    """The results of all examples, with the batch at `out_dims`."""
    results = []
    for y, d in zip(leaves(out), _out_dims(func, out, out_dims), strict=True):
        if not isinstance(y, Tensor):
            raise ValueError(
                f"vmap: {_name(func)} returned a {type(y).__name__}; it must return tensors, "
                "nested as out_dims is"
            )
        if d is None:
            if level.has(y):
                raise ValueError(
                    f"vmap: {_name(func)} returned a result for each example, where "
                    "out_dims=None expects one for all"
                )
            results.append(y)
            continue
        value = y._extra.value if level.has(y) else with_batch(y, level.size)
        rank = len(value.shape)
        if not -rank <= d < rank:
            raise IndexError(
                f"vmap({_name(func)}, ...): out_dim {d} does not fit a result of {rank} dimensions"
            )
        results.append(moved_dim(value, 0, d % rank))
    return rebuilt(out, iter(results))


def _out_dims(func: Any, out: Any, out_dims: Any) -> list[Any]:
    for d in leaves(out_dims):
        if d is not None and (not isinstance(d, int) or isinstance(d, bool)):
            raise ValueError(
                f"vmap({_name(func)}, ..., out_dims={out_dims}): out_dims must have ints or "
                f"None, nested like the outputs; got a {type(d).__name__}"
            )
    wanted = out_dims
    if isinstance(out, Tensor) and isinstance(out_dims, (tuple, list)) and len(out_dims) == 1:
        wanted = out_dims[0]
    found = spread_dims(wanted, out)
    if found is None:
        raise ValueError(
            f"vmap({_name(func)}, ..., out_dims={out_dims}): out_dims must be nested like the "
            "outputs"
        )
    return found


def _in_chunks(
    func: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    dims: Sequence[int | None],
    size: int,
    out_dims: Any,
    randomness: str,
    chunk: int,
) -> Any:
    from .. import random

    generator = random.default_generator
    state = generator.get_state() if randomness == "same" else None
    parts = []
    for start in range(0, size, chunk):
        stop = min(start + chunk, size)
        pieces = [
            x if d is None else _piece(x, d, start, stop)
            for x, d in zip(leaves(args), dims, strict=True)
        ]
        if state is not None:
            generator.set_state(state)
        given = rebuilt(args, iter(pieces))
        parts.append(_run(func, given, kwargs, dims, stop - start, out_dims, randomness))
    columns = list(zip(*[list(leaves(part)) for part in parts], strict=True))
    where = _out_dims(func, parts[0], out_dims)
    joined = [
        column[0] if d is None else PRIMITIVES["cat"](*column, dim=d % len(column[0].shape))
        for column, d in zip(columns, where, strict=True)
    ]
    return rebuilt(parts[0], iter(joined))


def _piece(x: Tensor, dim: int, start: int, stop: int) -> Any:
    index: list[Any] = [None] * x.ndim
    index[dim] = (start, stop, 1)
    return PRIMITIVES["slice"](x, index=tuple(index))
