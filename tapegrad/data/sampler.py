"""Samplers: in which order a DataLoader asks for samples.

Comes in: the length of a dataset, or weights. Goes out: indices, or lists of indices. All samplers
here draw from a generator only when an iteration begins: a DataLoader that resumes in the middle of
an epoch relies on that. Called by `dataloader.py`, through `position.py`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence, Sized
from typing import Any, Generic, TypeVar

from ..ops import CREATION
from ..random import Generator, default_generator, pair_of, words_at

T = TypeVar("T", covariant=True)

#: how many indices are drawn at once with replacement
_CHUNK = 4096


def draw_seed(generator: Generator | None) -> int:
    """A seed of 63 bits from a generator, or from the default one."""
    seed, offset = pair_of((generator or default_generator).take(1))
    return int(words_at(seed, offset, 1)[0]) >> 1


def _positive(value: Any, name: str) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value <= 0:
        raise ValueError(f"{name} must be a positive integer, got {value!r}")


class Sampler(Generic[T]):
    """Gives indices, or lists of them; a subclass defines `__iter__` and mostly `__len__`."""

    def __init__(self, data_source: Any = None) -> None:
        pass

    def __iter__(self) -> Iterator[T]:
        raise NotImplementedError("a subclass of Sampler defines __iter__()")


class SequentialSampler(Sampler[int]):
    """0, 1, 2, ..."""

    def __init__(self, data_source: Sized) -> None:
        self.data_source = data_source

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self.data_source)))

    def __len__(self) -> int:
        return len(self.data_source)


class RandomSampler(Sampler[int]):
    """All indices in random order, or with `replacement` `num_samples` independent ones."""

    def __init__(
        self,
        data_source: Sized,
        replacement: bool = False,
        num_samples: int | None = None,
        generator: Generator | None = None,
    ) -> None:
        if not isinstance(replacement, bool):
            raise TypeError(f"replacement must be True or False, got {replacement!r}")
        self.data_source = data_source
        self.replacement = replacement
        self._num_samples = num_samples
        self.generator = generator
        _positive(self.num_samples, "num_samples")

    @property
    def num_samples(self) -> int:
        """How many indices an epoch has."""
        return len(self.data_source) if self._num_samples is None else self._num_samples

    def __iter__(self) -> Iterator[int]:
        seed = draw_seed(self.generator)
        return self._indices(Generator().manual_seed(seed))

    def _indices(self, generator: Generator) -> Iterator[int]:
        size, left = len(self.data_source), self.num_samples
        while left > 0:
            if self.replacement:
                chunk = CREATION["randint"](size, (min(left, _CHUNK),), generator=generator)
            else:
                chunk = CREATION["randperm"](size, generator=generator)[:left]
            yield from chunk.tolist()
            left -= len(chunk)

    def __len__(self) -> int:
        return self.num_samples


class SubsetRandomSampler(Sampler[int]):
    """The given indices in random order."""

    def __init__(self, indices: Sequence[int], generator: Generator | None = None) -> None:
        self.indices = indices
        self.generator = generator

    def __iter__(self) -> Iterator[int]:
        order = CREATION["randperm"](len(self.indices), generator=self.generator)
        return (self.indices[i] for i in order.tolist())

    def __len__(self) -> int:
        return len(self.indices)


class WeightedRandomSampler(Sampler[int]):
    """Indices drawn with the given weights, which need not add up to 1."""

    def __init__(
        self,
        weights: Sequence[float],
        num_samples: int,
        replacement: bool = True,
        generator: Generator | None = None,
    ) -> None:
        _positive(num_samples, "num_samples")
        if not isinstance(replacement, bool):
            raise ValueError(f"replacement must be True or False, got {replacement!r}")
        self.weights = CREATION["as_tensor"](weights, dtype="float64")
        if self.weights.ndim != 1:
            shape = tuple(self.weights.shape)
            raise ValueError(f"weights must have one dimension, got the shape {shape}")
        self.num_samples = num_samples
        self.replacement = replacement
        self.generator = generator

    def __iter__(self) -> Iterator[int]:
        drawn = CREATION["multinomial"](
            self.weights, self.num_samples, self.replacement, generator=self.generator
        )
        return iter(drawn.tolist())

    def __len__(self) -> int:
        return self.num_samples


class BatchSampler(Sampler[list[int]]):
    """Lists of `batch_size` indices of another sampler; the last one may be shorter.

    >>> list(BatchSampler(SequentialSampler(range(5)), 2, drop_last=False))
    [[0, 1], [2, 3], [4]]
    """

    def __init__(self, sampler: Iterable[int], batch_size: int, drop_last: bool) -> None:
        _positive(batch_size, "batch_size")
        if not isinstance(drop_last, bool):
            raise ValueError(f"drop_last must be True or False, got {drop_last!r}")
        self.sampler = sampler
        self.batch_size = batch_size
        self.drop_last = drop_last

    def __iter__(self) -> Iterator[list[int]]:
        indices = iter(self.sampler)
        while batch := list(itertools.islice(indices, self.batch_size)):
            if len(batch) == self.batch_size or not self.drop_last:
                yield batch

    def __len__(self) -> int:
        count = len(self.sampler)  # type: ignore[arg-type]
        return count // self.batch_size if self.drop_last else -(-count // self.batch_size)


class DistributedSampler(Sampler[int]):
    """This process's share of the indices, if several processes divide the data.

    `num_replicas` and `rank` are those of the process group, unless they are given.
    `set_epoch` before each epoch gives another order, the same in all processes.
    """

    def __init__(
        self,
        dataset: Sized,
        num_replicas: int | None = None,
        rank: int | None = None,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
    ) -> None:
        if num_replicas is None or rank is None:
            from ..distributed import process_group

            if num_replicas is None:
                num_replicas = process_group.get_world_size()
            if rank is None:
                rank = process_group.get_rank()
        if not 0 <= rank < num_replicas:
            raise ValueError(f"rank must be one of 0 to {num_replicas - 1}, got {rank}")
        self.dataset = dataset
        self.num_replicas = num_replicas
        self.rank = rank
        self.epoch = 0
        self.drop_last = drop_last
        size = len(dataset)
        self.num_samples = size // num_replicas if drop_last else math.ceil(size / num_replicas)
        self.total_size = self.num_samples * num_replicas
        self.shuffle = shuffle
        self.seed = seed

    def __iter__(self) -> Iterator[int]:
        indices = list(range(len(self.dataset)))
        if self.shuffle:
            generator = Generator().manual_seed(self.seed + self.epoch)
            indices = CREATION["randperm"](len(indices), generator=generator).tolist()
        # Repeat indices from the beginning until all parts are equal.
        whole = itertools.islice(itertools.cycle(indices), self.total_size)
        return itertools.islice(whole, self.rank, None, self.num_replicas)

    def __len__(self) -> int:
        return self.num_samples

    def set_epoch(self, epoch: int) -> None:
        """Choose the order of the next iteration."""
        self.epoch = epoch
