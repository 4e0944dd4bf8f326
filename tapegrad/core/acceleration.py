"""The interface for running kernels and rules as native code.

Comes in: a primitive with raw arrays, or a chain of rules. Goes out: their results, or
NotImplemented where NumPy should run. `replay/use/eager.py` registers itself here; `primitive.py`
and the reverse walk call it.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from .primitive import Primitive


class Link(NamedTuple):
    """A rule in a chain: what it reads, and the positions to which its results are added."""

    primitive: Primitive
    params: dict[str, Any]
    saved: tuple[Any, ...]
    targets: tuple[int | None, ...]


class Accelerator:
    """Runs kernels and rules as native code; NotImplemented means that NumPy should run."""

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
        """The results of `pull`; one with a total is added to that, and is None here."""
        return NotImplemented

    def draw(self, p: Primitive, state: Any, blocks: int, each: int, params: dict[str, Any]) -> Any:
        """Run a primitive that draws, for `blocks` times `each` numbers in a row: all its results.

        `params` has all parameters except `shape`, by which calls differ.
        """
        return NotImplemented

    def chain(self, links: Sequence[Link], waiting: Sequence[Any]) -> Any:
        """Run a chain of rules: link i takes the gradient at position i and adds to later ones.

        Returns the gradients at the positions beyond the links.
        """
        return NotImplemented


#: smallest size of the largest operand, in elements, for which native code is tried: below it, the
#: call of native code takes longer than NumPy
COMPOSITE_SIZE = 1
#: the same for composites with products: they have a program for each size
MIXED_SIZE = 256
PRODUCT_SIZE = 2048
ARRAY_SIZE = 1 << 15

#: builtin functions that run small kernels and rules as native code, by primitive or rule and
#: parameters; the accelerator fills this, and `shortpaths.py` looks here first
SITES: dict[Any, Callable[..., Any]] = {}

_accelerator: Accelerator | None = None


def set_accelerator(accelerator: Accelerator) -> None:
    """Use this accelerator for large kernels and rules from now on."""
    global _accelerator
    _accelerator = accelerator


def accelerator() -> Accelerator:
    """The accelerator that was set, or the library's own."""
    if _accelerator is None:
        importlib.import_module("tapegrad.replay.use.eager")  # registers itself
        assert _accelerator is not None
    return _accelerator
