"""DataLoader: batches of a dataset, in this process or from worker processes.

Comes in: a dataset and PyTorch's arguments. Goes out: batches. In addition to PyTorch,
`state_dict()` gives the position of the loader, also in the middle of an epoch and with workers,
and `load_state_dict()` makes the next iteration continue there with the same batches. Called by
users.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, TypeVar

from ..cuda import is_available
from ..random import Generator
from .collate import default_collate, default_convert
from .dataset import Dataset, IterableDataset
from .fetch import Source
from .iterate import LoaderSettings, ParallelIterator, SerialIterator
from .position import Epoch, RandomSource, own_generators, random_sources
from .sampler import BatchSampler, RandomSampler, SequentialSampler

T = TypeVar("T", covariant=True)

#: attributes that must not be assigned later: other attributes were derived from them
_FIXED = frozenset(
    {"batch_size", "batch_sampler", "sampler", "drop_last", "dataset", "persistent_workers"}
)


class DataLoader(Generic[T]):
    """Iterates over a dataset in batches.

    >>> import tapegrad
    >>> data = tapegrad.data.TensorDataset(tapegrad.arange(5))
    >>> [batch.tolist() for (batch,) in DataLoader(data, batch_size=2)]
    [[0, 1], [2, 3], [4]]

    `num_workers` processes make `prefetch_factor` batches each in advance. The arrays of their
    batches are in shared memory, which is reused for later batches when no references are left.
    With `pin_memory`, and a GPU, batches are in pinned memory, from which
    `.to("cuda", non_blocking=True)` copies while Python goes on. With the same seed the order is
    the same for any number of workers, and so are the random numbers that a dataset draws in
    workers.
    """

    def __init__(
        self,
        dataset: Dataset[T],
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Iterable[Any] | None = None,
        batch_sampler: Iterable[Any] | None = None,
        num_workers: int = 0,
        collate_fn: Callable[[Any], Any] | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], Any] | None = None,
        multiprocessing_context: Any = None,
        generator: Generator | None = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
    ) -> None:
        _check_workers(num_workers, timeout, prefetch_factor, persistent_workers)
        is_stream = isinstance(dataset, IterableDataset)
        if is_stream:
            _check_stream(shuffle, sampler, batch_sampler)
        elif shuffle not in (None, False, True):
            raise ValueError(f"shuffle must be True, False or None, got {shuffle!r}")
        if sampler is not None and shuffle:
            raise ValueError(
                "shuffle=True chooses the order, and so does a sampler: give one of the two"
            )
        if batch_sampler is not None:
            if batch_size != 1 or shuffle or sampler is not None or drop_last:
                raise ValueError(
                    "a batch_sampler decides about all of batch_size, shuffle, sampler and "
                    "drop_last: leave these out"
                )
            batch_size = None
        elif batch_size is None and drop_last:
            raise ValueError(
                "batch_size=None makes no batches, so there is none that drop_last could drop"
            )
        if sampler is None and not is_stream:
            sampler = (
                RandomSampler(dataset, generator=generator)  # type: ignore[arg-type]
                if shuffle
                else SequentialSampler(dataset)  # type: ignore[arg-type]
            )
        if batch_size is not None:
            # For a stream this sampler only checks the options: its batches have no indices.
            batch_sampler = BatchSampler(() if sampler is None else sampler, batch_size, drop_last)
        batched = batch_sampler is not None
        if collate_fn is None:
            collate_fn = default_collate if batched else default_convert

        self.dataset = dataset
        self.batch_size = batch_size
        self.sampler = sampler
        self.batch_sampler = batch_sampler
        self.num_workers = num_workers
        self.collate_fn = collate_fn
        self.pin_memory = pin_memory
        self.pin_memory_device = pin_memory_device
        self.drop_last = drop_last
        self.timeout = timeout
        self.worker_init_fn = worker_init_fn
        self.multiprocessing_context = multiprocessing_context
        self.generator = generator
        self.prefetch_factor = 2 if num_workers and prefetch_factor is None else prefetch_factor
        self.persistent_workers = persistent_workers
        self.in_order = in_order

        self._iterator: ParallelIterator | None = None
        self._epoch: Epoch | None = None
        #: the state that the next iteration resumes, and the seed of persistent workers
        self._resumed: dict[str, Any] | None = None
        self._first_seed: int | None = None
        self._made = True

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _FIXED and self.__dict__.get("_made"):
            raise ValueError(f"{name} of a DataLoader cannot be changed: make a new one")
        super().__setattr__(name, value)

    @property
    def multiprocessing_context(self) -> Any:
        """How workers are started: None for Python's default, or a context."""
        return self._context

    @multiprocessing_context.setter
    def multiprocessing_context(self, context: Any) -> None:
        self._context = _checked_context(context, self.num_workers)

    def __len__(self) -> int:
        if not isinstance(self.dataset, IterableDataset):
            return len(self._indices)  # type: ignore[arg-type]
        count = len(self.dataset)  # type: ignore[arg-type]
        if self.batch_size is None:
            return count
        return count // self.batch_size if self.drop_last else -(-count // self.batch_size)

    @property
    def _indices(self) -> Iterable[Any]:
        """The sampler of indices: lists for batches, or single ones without batches."""
        return self.sampler if self.batch_sampler is None else self.batch_sampler  # type: ignore[return-value]

    def __iter__(self) -> Iterator[Any]:
        if self.num_workers == 0:
            return SerialIterator(self)
        if self._iterator is not None and not self._iterator.crew.is_stopped:
            self._iterator.begin(self._next_epoch())
            return self._iterator
        iterator = ParallelIterator(self)
        if self.persistent_workers:
            self._iterator = iterator
        return iterator

    def _next_epoch(self) -> Epoch:
        """Begin an epoch, or continue the one that was loaded; for iterators."""
        resumed, self._resumed = self._resumed, None
        stream = isinstance(self.dataset, IterableDataset)
        indices = None if stream else self._indices
        self._epoch = Epoch(indices, self._sources(), self.generator, resumed)
        return self._epoch

    def _seed_of_workers(self, epoch: Epoch) -> int:
        """The seed of new workers: the epoch's, or if they persist that of their first epoch."""
        if self._first_seed is None or not self.persistent_workers:
            self._first_seed = epoch.seed
        return self._first_seed

    def _settings(self) -> LoaderSettings:
        """The settings that iterators need."""
        batched = self.batch_sampler is not None
        source = Source(self.dataset, self.collate_fn, self.batch_size, batched, self.drop_last)
        return LoaderSettings(
            source,
            self.num_workers,
            self.prefetch_factor or 1,
            self.timeout,
            self._context or multiprocessing.get_context(),
            self.worker_init_fn,
            self.in_order,
            self.persistent_workers,
            self._known_length(),
            self.pin_memory and is_available(),
        )

    # -- position ----------------------------------------------------------------------------

    def _samplers(self) -> list[Any]:
        found = [self.sampler, self.batch_sampler, getattr(self.batch_sampler, "sampler", None)]
        return [sampler for sampler in found if sampler is not None]

    def _sources(self) -> list[RandomSource]:
        return random_sources(self._samplers(), self.generator)

    def _known_length(self) -> int | None:
        try:
            return len(self)
        except (TypeError, NotImplementedError):
            return None

    def state_dict(self) -> dict[str, Any]:
        """The position of this loader, in JSON's types.

        In the middle of an epoch, the position is right after the last batch that the consumer
        received; batches that workers made in advance do not count. The order is repeated exactly
        for all samplers of this package, and for others if they choose it when an iteration begins.
        """
        if not self.in_order and isinstance(self.dataset, IterableDataset):
            raise RuntimeError("the position in a stream is not defined with in_order=False")
        epoch = self._resumed
        if epoch is None and self._epoch is not None:
            epoch = self._epoch.state()
        generators = own_generators(self._samplers(), self.generator)
        return {
            "epoch": epoch,
            "generators": [list(generator.get_state()) for generator in generators],
            "batches": self._known_length(),
            "num_workers": self.num_workers,
            "first_seed": self._first_seed if self.persistent_workers else None,
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Let the next iteration continue from the position in this state."""
        epoch, generators = self._checked_state(state_dict)
        own = own_generators(self._samplers(), self.generator)
        for generator, state in zip(own, generators, strict=True):
            generator.set_state(state)
        self._iterator = None  # its workers may have begun with another seed
        self._epoch = None
        self._resumed = None if epoch is None else dict(epoch)
        self._first_seed = state_dict["first_seed"]

    def _checked_state(self, state: dict[str, Any]) -> tuple[dict[str, Any] | None, list[Any]]:
        expected = {"epoch", "generators", "batches", "num_workers", "first_seed"}
        if not isinstance(state, dict) or set(state) != expected:
            found = sorted(map(str, state)) if isinstance(state, dict) else type(state).__name__
            raise ValueError(
                f"the state of a DataLoader has the keys {sorted(expected)}, got {found}"
            )
        epoch, generators = state["epoch"], state["generators"]
        own = len(own_generators(self._samplers(), self.generator))
        if len(generators) != own:
            raise ValueError(
                f"the state is of a loader with {len(generators)} generators of its own, this one "
                f"has {own}: make the loader with the same sampler and generator"
            )
        if state["batches"] != self._known_length():
            raise ValueError(
                f"the state is of a loader with {state['batches']} batches, this one has "
                f"{self._known_length()}: use the same dataset, batch size and sampler"
            )
        if epoch is None:
            return None, generators
        if set(epoch) != {"start", "position", "ahead"}:
            raise ValueError(f"the state's epoch has other keys than expected: {sorted(epoch)}")
        if len(epoch["start"]) != len(self._sources()):
            raise ValueError("the state is of a loader with another kind of sampler")
        stream = isinstance(self.dataset, IterableDataset)
        if stream and state["num_workers"] != self.num_workers:
            raise ValueError(
                f"a stream that {state['num_workers']} workers read cannot be resumed with "
                f"{self.num_workers}: each one gives its own part"
            )
        return epoch, generators


def _check_workers(
    num_workers: int, timeout: float, prefetch_factor: int | None, persistent_workers: bool
) -> None:
    if num_workers < 0:
        raise ValueError(f"num_workers must be 0 (load in this process) or more, got {num_workers}")
    if timeout < 0:
        raise ValueError(f"timeout must be 0 or more seconds, got {timeout}")
    if num_workers == 0 and timeout:
        raise ValueError("timeout option needs num_workers > 0: nothing is waited for without")
    if num_workers == 0 and prefetch_factor is not None:
        raise ValueError("prefetch_factor option needs num_workers > 0")
    if prefetch_factor is not None and prefetch_factor < 1:
        raise ValueError(f"prefetch_factor must be at least 1, got {prefetch_factor}")
    if persistent_workers and num_workers == 0:
        raise ValueError("persistent_workers option needs num_workers > 0")


def _check_stream(shuffle: Any, sampler: Any, batch_sampler: Any) -> None:
    """Refuse options that would set the order of a stream."""
    options = {"shuffle": shuffle or None, "sampler": sampler, "batch_sampler": batch_sampler}
    for name, value in options.items():
        if value is not None:
            raise ValueError(
                f"DataLoader with IterableDataset: expected unspecified {name} option, but got "
                f"{name}={value}"
            )


def _checked_context(context: Any, num_workers: int) -> Any:
    if context is None:
        return None
    if num_workers == 0:
        raise ValueError("multiprocessing_context is for worker processes, and num_workers is 0")
    if isinstance(context, str):
        methods = multiprocessing.get_all_start_methods()
        if context not in methods:
            raise ValueError(
                "multiprocessing_context must be a start method of this system, one of "
                f"{methods}; got {context!r}"
            )
        return multiprocessing.get_context(context)
    if not isinstance(context, multiprocessing.context.BaseContext):
        raise TypeError(
            "multiprocessing_context must be a context of multiprocessing or the name of a "
            f"start method, got {context!r}"
        )
    return context
