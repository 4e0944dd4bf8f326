"""Random numbers by counter: Philox 4x64-10, keyed by the seed.

Element i of a draw depends only on the seed, the draw's offset and i, never on how the work was
split. Each draw takes whole blocks of four 64-bit words and advances the offset past them. The
whole state is (seed, offset), so it is cheap to save, to restore for recomputation and to capture:
it is a tensor of two integers, which compiled functions read and advance in place.

`philox_uint64` and the `sine_of_turn` functions are written in the language of
`replay/native/functions.py`, so that native code computes the same.
"""

from __future__ import annotations

import os
import weakref
from typing import Any

import numpy as np

from .core import locks
from .core.inplace import assign
from .core.modes import capturing
from .core.primitive import PRIMITIVES, bind
from .core.tensor import Tensor, not_recorded, wrap

_MASK = (1 << 64) - 1

#: by id: the states of generators; they are in host memory even if a draw is on a GPU
STATES: weakref.WeakValueDictionary[int, Tensor] = weakref.WeakValueDictionary()


class Generator:
    """A stream of random numbers: `Generator().manual_seed(0)`."""

    def __init__(self, device: Any = "cpu") -> None:
        self.device = device
        self.lock = locks.new()
        #: the seed and the offset, as int64
        self.state = wrap(np.zeros(2, np.int64))
        STATES[self.state.id] = self.state
        self.seed()

    def manual_seed(self, seed: int) -> Generator:
        """Start the stream of this seed from its beginning."""
        if not -(1 << 63) <= int(seed) < 1 << 64:
            raise ValueError(f"a seed has 64 bits, got {seed}")
        self.set_state((int(seed), 0))
        return self

    def seed(self) -> int:
        """Seed from the operating system; returns the new seed."""
        seed = int.from_bytes(os.urandom(8), "little")
        self.manual_seed(seed)
        return seed

    def initial_seed(self) -> int:
        """The seed that the generator began with."""
        not_recorded(self.state, "initial_seed()")
        return pair_of(self.state._array)[0]

    def get_state(self) -> Any:
        """The seed and the offset; during capture, a tensor that holds them."""
        if capturing():
            return bind(PRIMITIVES["clone"], (self.state,))
        with self.lock:
            return pair_of(self.state._array)

    def set_state(self, state: Any) -> None:
        """Go back to what `get_state` gave."""
        if not isinstance(state, Tensor):
            seed, offset = state
            pair = np.array([int(seed) & _MASK, int(offset) & _MASK], np.uint64).view(np.int64)
            state = wrap(pair)
        if capturing():
            assign(self.state, state, "set_state")
            return
        with self.lock:
            self.state._array[...] = state._array

    def take(self, words: int) -> Any:
        """The current state, for a draw of so many words; advances the state past them."""
        with self.lock:
            state = self.state._array
            before = state.copy()
            state[1] += -(-words // 4)
        return before


def moved(state: Any, words: int) -> Any:
    """A state with its offset moved past the blocks of a draw."""
    out = state.copy()
    out[1] += -(-words // 4)
    return out


def pair_of(state: Any) -> tuple[int, int]:
    """The seed and the offset that an array holds."""
    seed, offset = state.view(np.uint64).tolist()
    return seed, offset


def words_at(seed: int, offset: int, count: int) -> Any:
    """`count` words of the stream of `seed`, from block `offset` on."""
    # NumPy increments the counter before it makes a block, so it starts one block earlier.
    return np.random.Philox(key=seed, counter=(offset - 1) % (1 << 256)).random_raw(count)


def philox_uint64(seed: Any, counter: Any, which: Any) -> Any:
    """One of the four words of a block; `words_at` gives the same faster."""
    a = counter
    b = 0
    c = 0
    d = 0
    first = seed
    second = 0
    for _ in range(10):
        high = mulhi(a, 15197193596820024467)
        low = a * 15197193596820024467
        e = mulhi(c, 14581110107779764567)
        f = c * 14581110107779764567
        a = e ^ b ^ first
        b = f
        c = high ^ d ^ second
        d = low
        first = first + 11400714819323198485
        second = second + 13503953896175478587
    return where(which < 2, where(which < 1, a, b), where(which < 3, c, d))


def mulhi(x: Any, y: Any) -> Any:
    """The upper half of the product of two unsigned integers of 64 bits."""
    return ((x & _MASK) * (y & _MASK)) >> 64


def where(condition: Any, x: Any, y: Any) -> Any:
    """`x` if the condition holds, else `y`."""
    return x if condition else y


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
        u = uniform64(words)
        radius = np.sqrt(-2 * np.log(1.0 - u[0::2]))
        turn, sine = u[1::2], sine_of_turn_float64
    else:
        u = uniform32(words, words.size * 2)
        # NumPy's logarithm of float32 may be wrong by 3.5 units in the last place.
        wide = np.log(1.0 - u[0::2].astype(np.float64))
        radius = np.sqrt(-2 * wide.astype(np.float32))
        turn, sine = u[1::2], sine_of_turn_float32
    out = np.empty(count, radius.dtype)
    turn = turn - 0.5
    size = np.abs(turn) - 0.25
    out[0::2] = radius * sine(size)
    second = radius * sine(np.copysign(0.25 - np.abs(size), -turn))
    out[1::2] = second[: count // 2]
    return out


def sine_of_turn_float32(z: Any) -> Any:
    """sin(2 pi z) for z from -1/4 to 1/4: the same operations in NumPy and in native code."""
    s = z * z
    p = s * -14.394135475158691 + 42.00980758666992
    p = p * s + -76.70428466796875
    p = p * s + 81.605224609375
    p = p * s + -41.34170150756836
    p = p * s + 6.2831854820251465
    return p * z


def sine_of_turn_float64(z: Any) -> Any:
    """The same for float64, by the terms of the series."""
    s = z * z
    p = s * -8.823533599242996e-05 + 0.0011309237482517954
    p = p * s + -0.012031585942120619
    p = p * s + 0.10422916220813978
    p = p * s + -0.7181223017785001
    p = p * s + 3.8199525848482803
    p = p * s + -15.094642576822984
    p = p * s + 42.058693944897634
    p = p * s + -76.70585975306136
    p = p * s + 81.60524927607504
    p = p * s + -41.341702240399755
    p = p * s + 6.283185307179586
    return p * z


default_generator = Generator()


def manual_seed(seed: int) -> Generator:
    """Seed the default generator, which all random functions use unless given another."""
    return default_generator.manual_seed(seed)


def seed() -> int:
    """Seed the default generator from the operating system."""
    return default_generator.seed()


def initial_seed() -> int:
    """The seed that the default generator began with."""
    return default_generator.initial_seed()


def get_rng_state() -> Any:
    """The state of the default generator: its seed and offset."""
    return default_generator.get_state()


def set_rng_state(state: Any) -> None:
    """Bring the default generator back to a state from `get_rng_state`."""
    default_generator.set_state(state)


class fork_rng:
    """Draws inside do not change the state of the default generator."""

    def __init__(self, devices: Any = None, enabled: bool = True) -> None:
        self.enabled = enabled

    def __enter__(self) -> None:
        self._state = get_rng_state()

    def __exit__(self, *exc: object) -> None:
        if self.enabled:
            set_rng_state(self._state)
