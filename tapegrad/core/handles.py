"""Handles of hooks.

Comes in: a function that takes a hook away. Goes out: what `register_hook` returns. Made by
`tensor.py` and by the hooks of modules and optimizers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class RemovableHandle:
    """Returned by `register_hook`; `remove()` takes the hook away."""

    def __init__(self, remove: Callable[[], Any]) -> None:
        self._remove: Callable[[], Any] | None = remove

    def remove(self) -> None:
        if self._remove is not None:
            self._remove()
            self._remove = None

    def __enter__(self) -> RemovableHandle:
        return self

    def __exit__(self, *exc: object) -> None:
        self.remove()
