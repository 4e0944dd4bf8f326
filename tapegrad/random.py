"""Random numbers by counter: Philox 4x64-10, keyed by the seed.

Element i of a draw depends only on the seed, the draw's offset and i, never on how the work was
split. Each draw takes whole blocks of four 64-bit words and moves the offset past them. The whole
state is (seed, offset), so it is cheap to save, to restore for recomputation and to capture.
"""

from __future__ import annotations

import os
import threading
from typing import Any

import numpy as np

_MASK = (1 << 64) - 1


class Generator:
    """A stream of random numbers: `Generator().manual_seed(0)`."""

    def __init__(self, device: Any = "cpu") -> None:
        self.device = device
        self._lock = threading.Lock()
        self._seed = int.from_bytes(os.urandom(8), "little")
        self._offset = 0

    def manual_seed(self, seed: int) -> Generator:
        """Start the stream of this seed from its beginning."""
        with self._lock:
            self._seed = int(seed) & _MASK
            self._offset = 0
        return self

    def seed(self) -> int:
        """Seed from the operating system; returns the new seed."""
        self.manual_seed(int.from_bytes(os.urandom(8), "little"))
        return self._seed

    def initial_seed(self) -> int:
        return self._seed

    def get_state(self) -> tuple[int, int]:
        """The seed and the offset, which together are the whole state."""
        with self._lock:
            return self._seed, self._offset

    def set_state(self, state: tuple[int, int]) -> None:
        seed, offset = state
        with self._lock:
            self._seed, self._offset = int(seed), int(offset)

    def words(self, count: int) -> Any:
        """The next `count` 64-bit words, and the offset moved past their blocks."""
        with self._lock:
            seed, offset = self._seed, self._offset
            self._offset += -(-count // 4)
        return words_at(seed, offset, count)


def words_at(seed: int, offset: int, count: int) -> Any:
    """`count` words of the stream of `seed`, from block `offset` on."""
    # NumPy counts up before it makes a block, so it starts one block earlier.
    return np.random.Philox(key=seed, counter=(offset - 1) % (1 << 256)).random_raw(count)


def uniform32(words: Any, count: int) -> Any:
    """float32 in [0, 1): 24 bits of each half of the words."""
    halves = words.view(np.uint32)[:count]
    return (halves >> 8).astype(np.float32) * np.float32(2.0**-24)


def uniform64(words: Any) -> Any:
    """float64 in [0, 1): 53 bits of each word."""
    return (words >> 11).astype(np.float64) * 2.0**-53


def normal(words: Any, count: int, dtype: Any) -> Any:
    """Normal numbers by Box and Muller's formula, a pair from each pair of uniforms."""
    if dtype == np.float64:
        u = 1.0 - uniform64(words)
        first, second = u[0::2], u[1::2]
    else:
        half = uniform32(words, words.size * 2)
        first, second = np.float32(1.0) - half[0::2], half[1::2]
    radius = np.sqrt(-2 * np.log(first))
    angle = second * first.dtype.type(2 * np.pi)
    out = np.empty(first.size * 2, first.dtype)
    out[0::2] = radius * np.cos(angle)
    out[1::2] = radius * np.sin(angle)
    return out[:count]


default_generator = Generator()


def manual_seed(seed: int) -> Generator:
    """Seed the default generator, which all random functions use unless given another."""
    return default_generator.manual_seed(seed)


def seed() -> int:
    """Seed the default generator from the operating system."""
    return default_generator.seed()


def initial_seed() -> int:
    return default_generator.initial_seed()


def get_rng_state() -> Any:
    """The state of the default generator."""
    return default_generator.get_state()


def set_rng_state(state: Any) -> None:
    """Bring the default generator back to a state from `get_rng_state`."""
    default_generator.set_state(state)


class fork_rng:
    """Random draws inside leave the default generator as it was."""

    def __init__(self, devices: Any = None, enabled: bool = True) -> None:
        self.enabled = enabled

    def __enter__(self) -> None:
        self._state = get_rng_state()

    def __exit__(self, *exc: object) -> None:
        if self.enabled:
            set_rng_state(self._state)
