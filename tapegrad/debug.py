"""Inspects recorded operations and gradients while a program runs.

`print_tape` shows the operations that backward would visit; `gradient_stats` summarizes gradients,
to find those that vanish, explode or are not finite. Operations pay nothing for this: live entries
are found through Python's garbage collector on request.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable, Mapping
from typing import Any, TextIO

from .core.modes import STATE
from .core.tape import Entry, Tape, entries_of
from .core.tensor import Tensor
from .insight.printing import format_entries

# -- the tape ----------------------------------------------------------------------------------


def live_entries() -> list[Entry]:
    """Every recorded operation that is still referenced in this process, oldest first."""
    found = [item for item in gc.get_objects() if type(item) is Entry]
    return sorted(found, key=lambda entry: entry.number)


def format_recorded(source: Tape | Tensor | None = None) -> str:
    """What `print_tape` prints."""
    if isinstance(source, Tape):
        return str(source)
    if isinstance(source, Tensor):
        entries = entries_of(source)
        return format_entries(entries, f"{len(entries)} operations made this tensor")
    if source is not None:
        raise TypeError(f"expected a Tape, a Tensor or nothing, got {type(source).__name__}")
    if STATE.tapes:
        return str(STATE.tapes[-1])
    entries = live_entries()
    return format_entries(entries, f"{len(entries)} recorded operations")


def print_tape(source: Tape | Tensor | None = None, file: TextIO | None = None) -> None:
    """Print recorded operations, one a line, with the line of the program that ran each.

    `source` is an explicit tape, or a tensor, for the operations that made it. Without it, the tape
    that is recording now is shown or, if there is none, everything that backward could still reach.
    """
    print(format_recorded(source), file=file)


# -- gradients ---------------------------------------------------------------------------------


class GradientStats:
    """Statistics of one gradient; `nans` and `infs` count elements, which the others ignore."""

    __slots__ = ("infs", "largest", "mean", "nans", "norm", "shape", "smallest", "std")

    def __init__(self, gradient: Tensor) -> None:
        values = gradient.detach().double().reshape(-1)
        finite = values[values.isfinite()]
        self.shape = tuple(gradient.shape)
        self.nans = int(values.isnan().sum().item())
        self.infs = int(values.isinf().sum().item())
        empty = finite.numel() == 0
        self.norm = float((finite * finite).sum().sqrt().item())
        self.mean = 0.0 if empty else float(finite.mean().item())
        self.std = 0.0 if empty else float(finite.std(correction=0).item())
        self.smallest = 0.0 if empty else float(finite.min().item())
        self.largest = 0.0 if empty else float(finite.max().item())

    @property
    def healthy(self) -> bool:
        """Whether all elements are finite numbers."""
        return self.nans == 0 and self.infs == 0

    def __repr__(self) -> str:
        bad = "" if self.healthy else f", {self.nans} NaN, {self.infs} infinite"
        return (
            f"GradientStats(shape={self.shape}, norm={self.norm:.4g}, mean={self.mean:.4g}, "
            f"std={self.std:.4g}, {self.smallest:.4g}..{self.largest:.4g}{bad})"
        )


def gradient_stats(source: Any) -> dict[Any, GradientStats]:
    """Statistics of each gradient, by name, tensor id or position.

    `source` is the mapping that a backward call returned (or any other mapping of gradients), a
    module, or an iterable of tensors or (name, tensor) pairs, whose `.grad` is then looked at.

    >>> import tapegrad
    >>> x = tapegrad.tensor([3.0, 4.0], requires_grad=True)
    >>> grads = (x * x).sum().backward()
    >>> tapegrad.debug.gradient_stats(grads)[x.id].norm
    10.0
    """
    if isinstance(source, Mapping):
        return {key: GradientStats(gradient) for key, gradient in source.items()}
    if hasattr(source, "named_parameters"):
        source = source.named_parameters()
    if isinstance(source, Tensor) or not isinstance(source, Iterable):
        raise TypeError(
            "gradient_stats needs a mapping of gradients, a module or an iterable of tensors, got "
            f"{type(source).__name__}"
        )
    pairs = [p if isinstance(p, tuple) else (i, p) for i, p in enumerate(source)]
    return {name: GradientStats(t.grad) for name, t in pairs if t.grad is not None}


def print_gradients(source: Any, file: TextIO | None = None) -> None:
    """Print `gradient_stats(source)` as a table."""
    print(f"{'gradient':<24} {'norm':>10} {'mean':>10} {'std':>10}  bad  shape", file=file)
    for name, stats in gradient_stats(source).items():
        numbers = f"{stats.norm:>10.3e} {stats.mean:>10.3e} {stats.std:>10.3e}"
        print(f"{name!s:<24} {numbers} {stats.nans + stats.infs:>4}  {stats.shape}", file=file)
