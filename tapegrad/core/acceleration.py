"""What runs kernels and rules as native code, for `primitive.py` and the reverse walk.

Comes in: a primitive with raw arrays, or rules one after another. Goes out: their results, or
NotImplemented where NumPy should run. `replay/use/eager.py` sets itself here.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from .primitive import Primitive


class Link(NamedTuple):
    """A rule in a chain: what it reads, and the positions that its results are added to."""

    primitive: Primitive
    params: dict[str, Any]
    saved: tuple[Any, ...]
    targets: tuple[int | None, ...]


class Accelerator:
    """What runs kernels and rules as native code; NotImplemented says that NumPy should run."""

    def kernel(self, p: Primitive, inputs: Any, params: dict[str, Any]) -> Any:
        return NotImplemented

    def rule(
        self,
        p: Primitive,
        pull: Any,
        g: Any,
        edges: Any,
        saved: Any,
        params: dict[str, Any],
        totals: Sequence[Any] = (),
    ) -> Any:
        """What `pull` returns; where there is a total, that is added to, and None stands there."""
        return NotImplemented

    def chain(self, links: Sequence[Link], waiting: Sequence[Any]) -> Any:
        """Rules one after another: link i takes what waits at position i, and sends to later ones.

        Returns what is at the positions beyond the links in the end.
        """
        return NotImplemented


_accelerator: Accelerator | None = None


def set_accelerator(accelerator: Accelerator) -> None:
    """Run large kernels and rules through this from now on."""
    global _accelerator
    _accelerator = accelerator


def accelerator() -> Accelerator:
    """What was set, or the library's own."""
    if _accelerator is None:
        importlib.import_module("tapegrad.replay.use.eager")  # sets itself
        assert _accelerator is not None
    return _accelerator
