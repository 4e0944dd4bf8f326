"""The position of a DataLoader: the order of an epoch, and how many batches were received.

An `Epoch` numbers its batches from 0. The state of the random sources at its beginning determines
its order, so that state and the index of the next batch suffice to resume. A resumed epoch sets the
sources to that state while it chooses the order, and then restores them. Everything that is saved
has JSON's types. Called by `dataloader.py` and `iterate.py`.
"""

from __future__ import annotations

import contextlib
import itertools
import random
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from ..random import Generator, default_generator
from .sampler import (
    BatchSampler,
    DistributedSampler,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
    draw_seed,
)

#: samplers that draw random numbers only from their generator
_KNOWN = (
    BatchSampler,
    DistributedSampler,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
    list,
    range,
    tuple,
)


class RandomSource(NamedTuple):
    """A source of random numbers: how to read its state and how to set it."""

    get: Callable[[], Any]
    set: Callable[[Any], None]


def _of_generator(generator: Generator) -> RandomSource:
    return RandomSource(lambda: list(generator.get_state()), generator.set_state)


def _python_state() -> Any:
    version, words, normal = random.getstate()
    return [version, list(words), normal]


def _set_python_state(state: Any) -> None:
    version, words, normal = state
    random.setstate((version, tuple(words), normal))


def _numpy_state() -> Any:
    name, words, *rest = np.random.get_state(legacy=True)
    return [name, [int(word) for word in words], *rest]


def _set_numpy_state(state: Any) -> None:
    name, words, *rest = state
    np.random.set_state((name, np.array(words, np.uint32), *rest))


def own_generators(samplers: Iterable[Any], generator: Generator | None) -> list[Generator]:
    """The generators of a loader and its samplers, without the default one."""
    found: list[Generator] = []
    for candidate in (generator, *(getattr(sampler, "generator", None) for sampler in samplers)):
        known = any(candidate is other for other in (*found, default_generator))
        if isinstance(candidate, Generator) and not known:
            found.append(candidate)
    return found


def random_sources(samplers: Iterable[Any], generator: Generator | None) -> list[RandomSource]:
    """Everything that the order of an epoch may depend on."""
    samplers = list(samplers)
    sources = [_of_generator(g) for g in (default_generator, *own_generators(samplers, generator))]
    if any(type(sampler) not in _KNOWN for sampler in samplers):
        # A sampler of the user's may shuffle with Python's or NumPy's global generator.
        sources += _FOREIGN
    return sources


_FOREIGN = [
    RandomSource(_python_state, _set_python_state),
    RandomSource(_numpy_state, _set_numpy_state),
]


def preserved() -> contextlib.AbstractContextManager[None]:
    """Restores the global generators afterwards, whatever is drawn inside."""
    sources = [_of_generator(default_generator), *_FOREIGN]
    return _gone_back(sources, [source.get() for source in sources])


@contextlib.contextmanager
def _gone_back(sources: list[RandomSource], states: list[Any]) -> Iterator[None]:
    """Sets the sources to other states inside, and restores their own afterwards."""
    now = [source.get() for source in sources]
    try:
        for source, state in zip(sources, states, strict=True):
            source.set(state)
        yield
    finally:
        for source, state in zip(sources, now, strict=True):
            source.set(state)


class Epoch:
    """One pass over the data: its seed, its batches, and which of them the consumer received."""

    def __init__(
        self,
        indices: Iterable[Any] | None,
        sources: list[RandomSource],
        generator: Generator | None,
        resumed: dict[str, Any] | None = None,
    ) -> None:
        """`indices` are those of the sampler, or None for a stream."""
        self.finished = False
        #: index of the first batch that the consumer has not had; of those after it that it has had
        self.position: int = resumed["position"] if resumed else 0
        self._ahead: set[int] = set(resumed["ahead"]) if resumed else set()
        #: batches before this index were received before the epoch was resumed
        self.resumed_at = self.position
        if resumed:
            self.start = resumed["start"]
            with _gone_back(sources, self.start):
                self._begin(indices, generator)
        else:
            self.start = [source.get() for source in sources]
            self._begin(indices, generator)

    def _begin(self, indices: Iterable[Any] | None, generator: Generator | None) -> None:
        self.seed = draw_seed(generator)
        if indices is None:
            #: batches not requested yet: the batch index, and the indices of its samples
            self.remaining: Iterator[tuple[int, Any]] = zip(
                itertools.count(), itertools.repeat(None)
            )
            return
        order = enumerate(indices)
        for _ in range(self.position):
            if next(order, None) is None:
                break
        # Take the first one now, which makes a sampler choose its order.
        first = list(itertools.islice(order, 1))
        had = frozenset(self._ahead)
        rest = itertools.chain(first, order)
        self.remaining = (item for item in rest if item[0] not in had) if had else rest

    def consumed(self, batch_index: int) -> None:
        """Note that the consumer received a batch."""
        self._ahead.add(batch_index)
        while self.position in self._ahead:
            self._ahead.remove(self.position)
            self.position += 1

    def state(self) -> dict[str, Any] | None:
        """The state to resume this epoch from; None at its end."""
        if self.finished:
            return None
        return {"start": self.start, "position": self.position, "ahead": sorted(self._ahead)}
