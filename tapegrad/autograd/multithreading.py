"""Whether backward passes may use threads, as `torch.autograd` has it.

A backward pass runs in the thread of its caller here, whatever is said.
"""

from __future__ import annotations


class set_multithreading_enabled:
    """Accepted at once and as a context; it changes nothing."""

    def __init__(self, mode: bool) -> None:
        self.mode = bool(mode)

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exc: object) -> None:
        pass
