"""The setting whether backward passes may use threads, as in `torch.autograd`.

It has no effect: here a backward pass always runs in the thread of its caller.
"""

from __future__ import annotations

_enabled = [True]


class set_multithreading_enabled:
    """Switch at once, and for a block in a `with`; only `is_multithreading_enabled` shows it."""

    def __init__(self, mode: bool) -> None:
        self.mode, self._before = bool(mode), _enabled[0]
        _enabled[0] = self.mode

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exc: object) -> None:
        _enabled[0] = self._before


def is_multithreading_enabled() -> bool:
    """The setting: true unless switched off, as in PyTorch; nothing depends on it here."""
    return _enabled[0]
