"""Datasets: what a DataLoader reads from.

A dataset gives a sample for an index (`Dataset`) or a stream of samples (`IterableDataset`).
Datasets that can give a whole batch at once have two more methods: `__getitems__(indices)` returns
a list of samples, and `collated(indices)` returns what `default_collate` would make of that list,
or None if it cannot. Called by `fetch.py`.
"""

from __future__ import annotations

import bisect
import itertools
import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Generic, TypeVar

import numpy as np

from ..core.tensor import Tensor, wrap
from ..ops import CREATION
from ..random import Generator
from . import collate

T = TypeVar("T", covariant=True)


class Dataset(Generic[T]):
    """Samples by index: a subclass defines `__getitem__`, and `__len__` for the samplers."""

    def __getitem__(self, index: Any) -> T:
        raise NotImplementedError("a subclass of Dataset defines __getitem__(index)")

    def __add__(self, other: Dataset[Any]) -> ConcatDataset[Any]:
        return ConcatDataset([self, other])


class IterableDataset(Dataset[T], ABC):
    """A stream of samples: a subclass defines `__iter__`.

    Each worker process iterates its own copy of the dataset: `get_worker_info()` tells which part
    of the stream this worker should give.
    """

    @abstractmethod
    def __iter__(self) -> Iterator[T]: ...

    def __add__(self, other: Dataset[Any]) -> Any:
        return ChainDataset([self, other])


class TensorDataset(Dataset[tuple[Tensor, ...]]):
    """Rows of tensors of equal length: sample i is `(a[i], b[i], ...)`.

    >>> import tapegrad
    >>> data = TensorDataset(tapegrad.arange(3), tapegrad.tensor([0.5, 1.5, 2.5]))
    >>> data[1]
    (tensor(1), tensor(1.5000))
    """

    tensors: tuple[Tensor, ...]

    def __init__(self, *tensors: Tensor) -> None:
        if any(len(tensor) != len(tensors[0]) for tensor in tensors):
            sizes = [len(tensor) for tensor in tensors]
            raise AssertionError(f"the tensors of a TensorDataset need one length, got {sizes}")
        self.tensors = tensors

    def __getitem__(self, index: Any) -> tuple[Tensor, ...]:
        return tuple(tensor[index] for tensor in self.tensors)

    def __len__(self) -> int:
        return len(self.tensors[0])

    def __getitems__(self, indices: Sequence[int]) -> list[tuple[Tensor, ...]]:
        columns = self._rows(indices)
        if columns is None:
            return [self[i] for i in indices]
        return list(
            zip(*([wrap(row) for row in _scalars_too(rows)] for rows in columns), strict=True)
        )

    def collated(self, indices: Sequence[int]) -> list[Tensor] | None:
        """A batch gathered from the tensors at once; None if it must be made of samples."""
        columns = self._rows(indices)
        return None if columns is None else [wrap(rows) for rows in columns]

    def _rows(self, indices: Sequence[int]) -> list[Any] | None:
        """The rows of each tensor, copied; None if single samples would differ."""
        if type(self).__getitem__ is not TensorDataset.__getitem__:
            return None
        if any(t.requires_grad or type(t._array) is not np.ndarray for t in self.tensors):
            return None
        where = np.asarray(indices, np.int64)
        size = len(self)
        if where.ndim != 1 or not where.size:
            return None
        low, high = int(where.min()), int(where.max())
        if low < -size or high >= size:
            raise IndexError(f"index {low if low < -size else high} of a dataset of {size} samples")
        if low >= 0 and high - low == len(where) - 1 and (np.diff(where) == 1).all():
            return [collate.copied(t._array[low : high + 1]) for t in self.tensors]
        return [_taken(t._array, where) for t in self.tensors]


def _taken(array: Any, where: Any) -> Any:
    """`array[where]`, for indices that are in range."""
    out = collate.empty((len(where), *array.shape[1:]), array.dtype)
    return np.take(array, where, 0, out, "wrap")


def _scalars_too(rows: Any) -> Any:
    """The rows as arrays: NumPy gives the elements of a 1-d array as scalars."""
    return rows if rows.ndim > 1 else (rows[i, ...] for i in range(len(rows)))


class StackDataset(Dataset[Any]):
    """Datasets side by side: samples are tuples, or dicts where datasets are given by name."""

    datasets: Any

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if args and kwargs:
            raise ValueError("StackDataset takes datasets by position or by name, not both")
        if not args and not kwargs:
            raise ValueError("StackDataset needs at least one dataset")
        self.datasets = args or kwargs
        lengths = [len(dataset) for dataset in args or kwargs.values()]
        if len(set(lengths)) > 1:
            raise ValueError(f"the datasets of a StackDataset need one length, got {lengths}")
        self._length = lengths[0]

    def __getitem__(self, index: Any) -> Any:
        if isinstance(self.datasets, dict):
            return {name: dataset[index] for name, dataset in self.datasets.items()}
        return tuple(dataset[index] for dataset in self.datasets)

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        if type(self).__getitem__ is not StackDataset.__getitem__:
            return [self[i] for i in indices]
        if isinstance(self.datasets, dict):
            columns = zip(*(samples_of(d, indices) for d in self.datasets.values()), strict=True)
            return [dict(zip(self.datasets, values, strict=True)) for values in columns]
        return list(zip(*(samples_of(d, indices) for d in self.datasets), strict=True))

    def __len__(self) -> int:
        return self._length


class ConcatDataset(Dataset[T]):
    """Datasets one after the other."""

    datasets: list[Dataset[T]]
    cumulative_sizes: list[int]

    def __init__(self, datasets: Iterable[Dataset[Any]]) -> None:
        self.datasets = list(datasets)
        if not self.datasets:
            raise AssertionError("ConcatDataset needs at least one dataset")
        for dataset in self.datasets:
            if isinstance(dataset, IterableDataset):
                raise AssertionError(
                    "ConcatDataset cannot join an IterableDataset: it has no index"
                )
        sizes = (len(dataset) for dataset in self.datasets)  # type: ignore[arg-type]
        self.cumulative_sizes = list(itertools.accumulate(sizes))

    def __len__(self) -> int:
        return self.cumulative_sizes[-1]

    def __getitem__(self, index: int) -> T:
        size = len(self)
        if index < 0:
            if index < -size:
                raise ValueError(f"index {index} of a dataset of {size} samples")
            index += size
        which = bisect.bisect_right(self.cumulative_sizes, index)
        before = self.cumulative_sizes[which - 1] if which else 0
        return self.datasets[which][index - before]


class ChainDataset(IterableDataset[Any]):
    """Streams one after the other."""

    def __init__(self, datasets: Iterable[Dataset[Any]]) -> None:
        super().__init__()
        self.datasets = datasets

    def __iter__(self) -> Iterator[Any]:
        for dataset in self.datasets:
            yield from self._stream(dataset)

    def __len__(self) -> int:
        return sum(len(self._stream(dataset)) for dataset in self.datasets)

    def _stream(self, dataset: Any) -> Any:
        if not isinstance(dataset, IterableDataset):
            kind = type(dataset).__name__
            raise AssertionError(f"ChainDataset joins IterableDatasets only, got {kind}")
        return dataset


class Subset(Dataset[T]):
    """The samples of a dataset at a list of indices."""

    def __init__(self, dataset: Dataset[T], indices: Sequence[int]) -> None:
        self.dataset = dataset
        self.indices = indices

    def __getitem__(self, index: Any) -> T:
        if isinstance(index, list):
            return self.dataset[[self.indices[i] for i in index]]
        return self.dataset[self.indices[index]]

    def __getitems__(self, indices: Sequence[int]) -> list[T]:
        if type(self).__getitem__ is not Subset.__getitem__:
            return [self[i] for i in indices]
        return samples_of(self.dataset, [self.indices[i] for i in indices])

    def collated(self, indices: Sequence[int]) -> Any:
        """A batch that the underlying dataset makes at once; None if it cannot."""
        kind = type(self)
        overridden = (
            kind.__getitem__ is not Subset.__getitem__
            or kind.__getitems__ is not Subset.__getitems__
        )
        if overridden or not isinstance(self.dataset, (TensorDataset, Subset)):
            return None
        return self.dataset.collated([self.indices[i] for i in indices])

    def __len__(self) -> int:
        return len(self.indices)


def samples_of(dataset: Any, indices: Sequence[int]) -> list[Any]:
    """The samples at these indices, with one call of `__getitems__` if the dataset has it."""
    at_once = getattr(dataset, "__getitems__", None)
    if not callable(at_once):
        return [dataset[i] for i in indices]
    samples: list[Any] = at_once(indices)
    # Anything but a list is a batch already, for the dataset's own `collate_fn`.
    if isinstance(samples, list) and len(samples) != len(indices):
        raise ValueError(
            f"{type(dataset).__name__}.__getitems__ gave {len(samples)} samples for "
            f"{len(indices)} indices"
        )
    return samples


def random_split(
    dataset: Dataset[Any], lengths: Sequence[int | float], generator: Generator | None = None
) -> list[Subset[Any]]:
    """Parts of a dataset, of these lengths or fractions, with samples drawn without repetition.

    >>> import tapegrad
    >>> a, b = random_split(range(10), [0.8, 0.2])
    >>> len(a), len(b), sorted([*a, *b]) == list(range(10))
    (8, 2, True)
    """
    size = len(dataset)  # type: ignore[arg-type]
    if math.isclose(sum(lengths), 1) and sum(lengths) <= 1:
        lengths = _from_fractions(lengths, size)
    if sum(lengths) != size:
        raise ValueError(
            f"the lengths of the parts add up to {sum(lengths)}, the dataset has {size} samples"
        )
    order = CREATION["randperm"](size, generator=generator).tolist()
    ends = itertools.accumulate(int(length) for length in lengths)
    return [
        Subset(dataset, order[end - int(length) : end])
        for length, end in zip(lengths, ends, strict=True)
    ]


def _from_fractions(fractions: Sequence[float], size: int) -> list[int]:
    """Lengths rounded down; the remaining samples go to the first parts in turn."""
    for i, fraction in enumerate(fractions):
        if not 0 <= fraction <= 1:
            raise ValueError(f"fraction {i} of a split must lie between 0 and 1, got {fraction}")
    lengths = [math.floor(size * fraction) for fraction in fractions]
    for i in range(size - sum(lengths)):
        lengths[i % len(lengths)] += 1
    for i, length in enumerate(lengths):
        if length == 0:
            warnings.warn(f"part {i} of the split is empty", stacklevel=3)
    return lengths
