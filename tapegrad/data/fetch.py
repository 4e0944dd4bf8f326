"""Turns indices into a batch, in the main process and in workers.

Comes in: a dataset and a collate function. Goes out: a fetcher, a function that takes what the
sampler gave (a list of indices, or one index without batches) and returns a collated batch. For a
stream it takes None, and raises `EndOfStream` after the last batch. Called by `iterate.py` and
`worker.py`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from .collate import default_collate
from .dataset import IterableDataset, Subset, TensorDataset, samples_of

Fetcher = Callable[[Any], Any]


class EndOfStream(Exception):
    """An IterableDataset has no more batches."""


class Source(NamedTuple):
    """Where batches come from and how they are made."""

    dataset: Any
    collate_fn: Callable[[Any], Any]
    batch_size: int | None  # None: samples are not batched
    batched: bool  # whether the sampler gives lists of indices
    drop_last: bool

    @property
    def is_stream(self) -> bool:
        return isinstance(self.dataset, IterableDataset)

    def fetcher(self) -> Fetcher:
        """A function that makes batches; for a stream, from a new iteration over it."""
        if self.is_stream:
            return self._of_stream(iter(self.dataset))
        if not self.batched:
            return self._sample
        if self.collate_fn is default_collate and isinstance(self.dataset, (TensorDataset, Subset)):
            return self._whole_batch
        return self._batch

    def _sample(self, index: Any) -> Any:
        return self.collate_fn(self.dataset[index])

    def _batch(self, indices: Any) -> Any:
        return self.collate_fn(samples_of(self.dataset, indices))

    def _whole_batch(self, indices: Any) -> Any:
        batch = self.dataset.collated(indices)
        return self._batch(indices) if batch is None else batch

    def _of_stream(self, samples: Iterator[Any]) -> Fetcher:
        if not self.batched:
            return lambda _: self.collate_fn(_next(samples))

        def fetch(_: Any) -> Any:
            batch = list(itertools.islice(samples, self.batch_size))
            if not batch or (self.drop_last and len(batch) < (self.batch_size or 0)):
                raise EndOfStream
            return self.collate_fn(batch)

        return fetch


def _next(samples: Iterator[Any]) -> Any:
    try:
        return next(samples)
    except StopIteration:
        raise EndOfStream from None
