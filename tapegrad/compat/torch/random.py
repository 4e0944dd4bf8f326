"""`torch.random`: the generator's state as a tensor of bytes, which scripts save and move."""

from __future__ import annotations

from typing import Any

import numpy as np

from ... import random
from ...core.dtypes import uint8
from ...core.tensor import Tensor, wrap

_BYTES = 16


def get_rng_state() -> Any:
    """The state of the default generator: 16 bytes, its seed and its offset."""
    state = random.get_rng_state()
    if isinstance(state, Tensor):  # during capture
        return state
    return wrap(np.array(state, np.uint64).view(np.uint8))


def set_rng_state(new_state: Any) -> None:
    """Restore a state from `get_rng_state` in the default generator."""
    if isinstance(new_state, Tensor) and new_state.dtype is uint8:
        if new_state.numel() != _BYTES:
            raise RuntimeError(
                f"the state of a generator has {_BYTES} bytes here, got {new_state.numel()}; "
                "a state that PyTorch has saved means nothing to this generator: use manual_seed"
            )
        # A copy: bytes from a file may not be aligned for 64-bit numbers.
        values = np.array(new_state.cpu().numpy()).reshape(-1).view(np.uint64)
        new_state = tuple(values.tolist())
    random.set_rng_state(new_state)
