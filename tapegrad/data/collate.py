"""Turns a list of samples into a batch: `default_collate`, and `default_convert` without batches.

Tensors, NumPy arrays and numbers become tensors with an additional leading dimension. Strings stay
as they are. Dicts, named tuples and sequences are collated item by item. Arrays of batches are made
with `empty`, which uses shared memory in a worker process, so nothing is copied afterwards. Called
by `fetch.py` and `dataset.py`.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, MutableMapping, MutableSequence, Sequence
from typing import Any

import numpy as np

from ..core.dtypes import from_numpy_dtype
from ..core.tensor import Tensor, wrap
from ..ops import CREATION
from ..ops.shape.joining import stack

_EXPECTED = (
    "a batch is made of samples that are tensors, arrays, numbers, strings, or dicts and "
    "sequences of them; found"
)

#: makes an uninitialized array: (shape, dtype) -> array; workers set their own function
allocate: Callable[[tuple[int, ...], Any], Any] = np.empty


def empty(shape: tuple[int, ...], dtype: Any) -> Any:
    """An uninitialized array, for a part of a batch."""
    return allocate(shape, dtype)


def copied(array: Any) -> Any:
    """A copy of an array, for a part of a batch."""
    out = empty(array.shape, array.dtype)
    np.copyto(out, array)
    return out


def default_collate(batch: Any) -> Any:
    """Join samples to a batch.

    >>> default_collate([(1, 0.5), (2, 1.5)])
    [tensor([1, 2]), tensor([0.5000, 1.5000], dtype=tapegrad.float64)]
    >>> default_collate([{"name": "a", "size": [1, 2]}, {"name": "b", "size": [3, 4]}])
    {'name': ['a', 'b'], 'size': [tensor([1, 3]), tensor([2, 4])]}
    """
    first = batch[0]
    if isinstance(first, Tensor):
        return _tensors(batch)
    if isinstance(first, np.ndarray):
        return _arrays(batch)
    if isinstance(first, (str, bytes)):
        return batch
    if isinstance(first, float):  # NumPy's float64 is one, too
        return CREATION["tensor"](batch, dtype="float64")
    if isinstance(first, (int, np.generic)):
        return CREATION["tensor"](batch)
    if isinstance(first, Mapping):
        return _mappings(first, batch)
    if isinstance(first, tuple) and hasattr(first, "_fields"):
        return type(first)(*(default_collate(items) for items in zip(*batch, strict=True)))
    if isinstance(first, Sequence):
        return _sequences(first, batch)
    raise TypeError(f"default_collate: {_EXPECTED} {type(first)}")


def _tensors(batch: Sequence[Tensor]) -> Any:
    if all(type(x) is Tensor and not x.requires_grad for x in batch):
        joined = _joined([x._array for x in batch], batch[0]._array.dtype)
        if joined is not None:
            return wrap(joined)
    _check_shapes([tuple(x.shape) for x in batch])
    return stack(list(batch))


def _arrays(batch: Sequence[Any]) -> Any:
    if batch[0].dtype.kind in "SUO":
        raise TypeError(f"default_collate: {_EXPECTED} {batch[0].dtype}")
    # Refuses dtypes that tensors cannot have, and converts to the native byte order.
    joined = _joined(batch, from_numpy_dtype(batch[0].dtype).numpy)
    if joined is not None:
        return wrap(joined)
    return _tensors([CREATION["as_tensor"](x) for x in batch])


def _joined(arrays: Sequence[Any], dtype: Any) -> Any:
    """NumPy arrays of one shape and dtype as one array of `dtype`; None for others."""
    shape, given = arrays[0].shape, arrays[0].dtype
    for x in arrays:
        if not isinstance(x, np.ndarray) or x.shape != shape or x.dtype != given:
            return None
    if not shape:
        out = empty((len(arrays),), dtype)
        out[:] = arrays
        return out
    # Concatenate flat arrays: NumPy does less work for each array than in `stack`.
    out = empty((len(arrays), *shape), dtype)
    np.concatenate(arrays, 0, out.reshape((len(arrays) * shape[0], *shape[1:])))
    return out


def _check_shapes(shapes: list[tuple[int, ...]]) -> None:
    for i, shape in enumerate(shapes):
        if shape != shapes[0]:
            raise RuntimeError(
                f"the samples of a batch need one shape, but sample 0 has {list(shapes[0])} and "
                f"sample {i} has {list(shape)}; give a collate_fn that pads or lists them"
            )


def _mappings(first: Any, batch: Sequence[Any]) -> Any:
    values = {key: default_collate([sample[key] for sample in batch]) for key in first}
    try:
        if isinstance(first, MutableMapping):
            like = copy.copy(first)
            like.update(values)
            return like
        return type(first)(values)
    except TypeError:  # a type that cannot be copied or made from a dict
        return values


def _sequences(first: Any, batch: Sequence[Any]) -> Any:
    lengths = {len(sample) for sample in batch}
    if len(lengths) > 1:
        raise RuntimeError(
            f"the samples of a batch are sequences of different lengths: {sorted(lengths)}"
        )
    values = [default_collate(items) for items in zip(*batch, strict=True)]
    if isinstance(first, tuple):
        return values
    return _like(first, values)


def _like(first: Any, values: list[Any]) -> Any:
    """A sequence of the type of `first` with these items; a list if that is impossible."""
    try:
        if isinstance(first, MutableSequence):
            like = copy.copy(first)
            for i, value in enumerate(values):
                like[i] = value
            return like
        return type(first)(values)
    except TypeError:
        return values


def default_convert(data: Any) -> Any:
    """NumPy arrays become tensors, at any depth; everything else stays.

    >>> import numpy
    >>> default_convert({"x": numpy.arange(3), "name": "a"})
    {'x': tensor([0, 1, 2]), 'name': 'a'}
    """
    if isinstance(data, (Tensor, str, bytes)):
        return data
    if isinstance(data, (np.ndarray, np.generic)):
        return data if data.dtype.kind in "SUO" else CREATION["as_tensor"](data)
    if isinstance(data, Mapping):
        return _converted_mapping(data)
    if isinstance(data, tuple):
        items = [default_convert(item) for item in data]
        return type(data)(*items) if hasattr(data, "_fields") else items
    if isinstance(data, Sequence):
        return _like(data, [default_convert(item) for item in data])
    return data


def _converted_mapping(data: Any) -> Any:
    values = {key: default_convert(value) for key, value in data.items()}
    try:
        if isinstance(data, MutableMapping):
            like = copy.copy(data)
            like.update(values)
            return like
        return type(data)(values)
    except TypeError:
        return values


def pinned(batch: Any) -> Any:
    """The batch with its tensors in pinned memory; objects may define `pin_memory` themselves.

    `collate_fn` may return anything: dicts and sequences are searched, and all else is unchanged.
    """
    if hasattr(batch, "pin_memory"):
        return batch.pin_memory()
    if isinstance(batch, (str, bytes)):
        return batch
    if isinstance(batch, Mapping):
        made = {key: pinned(value) for key, value in batch.items()}
        if not isinstance(batch, MutableMapping):
            return made
        clone = copy.copy(batch)
        clone.update(made)
        return clone
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*map(pinned, batch))
    if isinstance(batch, (list, tuple)):
        return type(batch)(map(pinned, batch))
    return batch
