"""Random numbers in worker processes: the same for the same seed, batch by batch.

A worker starts with seed + its id, as in PyTorch, and then runs `worker_init_fn`. Before every
batch, the global generators of Python, NumPy and tapegrad are seeded from the epoch's seed and the
batch's index. So the numbers that a dataset draws for a batch do not depend on the number of
workers, nor on earlier draws, and an epoch can be resumed in its middle. Seeds that
`worker_init_fn` sets are mixed into those of the batches. Called by `worker.py`.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np

from ..random import default_generator, get_rng_state, manual_seed
from .sampler import draw_seed

_MASK = (1 << 64) - 1


def mixed(first: int, second: int) -> int:
    """Mix two numbers into 64 bits: two rounds of splitmix64."""
    x = (first + second * 0x9E3779B97F4A7C15) & _MASK
    for _ in range(2):
        x = (x + 0x9E3779B97F4A7C15) & _MASK
        x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK
        x ^= x >> 31
    return x


def _seed_all(python: int, numpy: int, tapegrad: int) -> None:
    random.seed(python)
    np.random.seed(numpy & 0xFFFFFFFF)
    manual_seed(tapegrad)


class BatchSeeds:
    """Seeds the global generators of a worker."""

    def __init__(self, seed: int) -> None:
        _seed_all(seed, mixed(seed, 0), seed)
        self._before = self._states()
        self._salts = [0, 0, 0]

    @staticmethod
    def _states() -> list[Any]:
        state: Any = np.random.get_state(legacy=True)
        words, position = state[1:3]
        return [random.getstate(), (bytes(words), position), get_rng_state()]

    def initialised(self) -> None:
        """After `worker_init_fn`: find out which generators it has seeded."""
        states = self._states()
        drawn = (
            lambda: random.getrandbits(64),
            lambda: int(np.random.randint(1 << 32, dtype=np.uint64)),
            lambda: draw_seed(default_generator),
        )
        for i, (state, before) in enumerate(zip(states, self._before, strict=True)):
            self._salts[i] = drawn[i]() if state != before else 0

    def begin(self, seed: int, batch_index: int) -> None:
        """Seed everything for one batch of the epoch with this seed."""
        seed = mixed(seed, batch_index)
        python, numpy, tapegrad = self._salts
        _seed_all(seed ^ python, seed ^ numpy, seed ^ tapegrad)
