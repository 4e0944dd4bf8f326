"""Sequences of several lengths: padded to one tensor, or packed step after step."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from ...core.tensor import Tensor, not_recorded, wrap
from ...ops.elementwise.comparison import where_ as where
from ...ops.shape.joining import cat, stack
from ..packed import PackedSequence, invert_permutation


def _as_list(sequences: Any, what: str) -> list[Any]:
    if isinstance(sequences, Tensor):
        return list(sequences.unbind(0))  # type: ignore[attr-defined,unused-ignore]
    if not isinstance(sequences, Iterable):
        raise RuntimeError(f"{what} expects sequences, got {type(sequences).__name__}")
    found = list(sequences)
    if not found:
        raise RuntimeError(f"{what} expects at least one sequence")
    return found


def pad_sequence(
    sequences: Any,
    batch_first: bool = False,
    padding_value: float = 0.0,
    padding_side: str = "right",
) -> Any:
    """Sequences (length, ...) as one tensor (longest, batch, ...), padded with a value.

    >>> import tapegrad
    >>> pad_sequence([tapegrad.ones(2), tapegrad.ones(3)], batch_first=True).tolist()
    [[1.0, 1.0, 0.0], [1.0, 1.0, 1.0]]
    """
    if padding_side not in ("left", "right"):
        raise RuntimeError(f"padding_side must be 'left' or 'right', got {padding_side!r}")
    rows = _as_list(sequences, "pad_sequence")
    longest = max(len(row) for row in rows)

    def filled(row: Any) -> Any:
        if len(row) == longest:
            return row
        rest = row.new_full((longest - len(row), *row.shape[1:]), padding_value)
        return cat([rest, row] if padding_side == "left" else [row, rest])

    return stack([filled(row) for row in rows], 0 if batch_first else 1)


def unpad_sequence(padded_sequences: Any, lengths: Any, batch_first: bool = False) -> list[Any]:
    """The sequences that `pad_sequence` put together."""
    padded = padded_sequences if batch_first else padded_sequences.transpose(0, 1)
    counts = _lengths(lengths)
    if len(counts) != len(padded):
        raise RuntimeError(f"got {len(counts)} lengths for {len(padded)} sequences")
    return [row[:n] for row, n in zip(padded, counts, strict=True)]


def _lengths(lengths: Any, what: str = "") -> list[int]:
    """The lengths as numbers; if a list would do, `what` names the caller for the error message."""
    if what and isinstance(lengths, Tensor):
        not_recorded(lengths, f"{what} with lengths in a tensor (give a list of numbers)")
    return [int(n) for n in (lengths.tolist() if hasattr(lengths, "tolist") else lengths)]


def pack_padded_sequence(
    input: Any, lengths: Any, batch_first: bool = False, enforce_sorted: bool = True
) -> PackedSequence:
    """Pack padded sequences: their rows ordered by step, without the padding.

    Without `enforce_sorted` the sequences may come in any order; they are sorted by length.
    """
    padded = input.transpose(0, 1) if batch_first else input
    times, batch = padded.shape[:2]
    if not batch or not times:
        raise RuntimeError(f"pack_padded_sequence needs elements, got shape {tuple(input.shape)}")
    counts = np.array(_lengths(lengths, "pack_padded_sequence"), np.int64)
    if counts.shape != (batch,):
        raise RuntimeError(f"pack_padded_sequence: got {counts.size} lengths for {batch} sequences")
    if counts.size and (counts.min() <= 0 or counts.max() > times):
        raise RuntimeError(
            f"pack_padded_sequence: lengths must lie between 1 and {times}, got {counts.tolist()}"
        )
    order = np.argsort(-counts, kind="stable")
    if enforce_sorted and (np.diff(counts) > 0).any():
        raise RuntimeError(
            "pack_padded_sequence: lengths must not increase; enforce_sorted=False sorts them"
        )
    sorted_counts = counts[order]
    sizes = (sorted_counts[None, :] > np.arange(int(counts.max(initial=0)))[:, None]).sum(1)
    rows = np.concatenate([t * batch + order[:n] for t, n in enumerate(sizes)])
    data = padded.reshape(times * batch, *padded.shape[2:])[wrap(rows).to(input.device)]
    if enforce_sorted:
        return PackedSequence(data, wrap(sizes))
    return PackedSequence(data, wrap(sizes), wrap(order).to(input.device))


def pad_packed_sequence(
    sequence: Any,
    batch_first: bool = False,
    padding_value: float = 0.0,
    total_length: int | None = None,
) -> tuple[Any, Any]:
    """The padded sequences of a PackedSequence, and their lengths."""
    data, batch_sizes, _, unsorted_indices = sequence
    sizes = np.array(_lengths(batch_sizes), np.int64)
    times, batch = len(sizes), int(sizes[0])
    if total_length is not None:
        if total_length < times:
            raise ValueError(f"total_length {total_length} is shorter than the longest, {times}")
        times = total_length
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    counts = (sizes[:, None] > np.arange(batch)).sum(0)
    place = np.full((times, batch), -1, np.int64)
    for t, (start, n) in enumerate(zip(starts, sizes, strict=True)):
        place[t, :n] = start + np.arange(n)
    if unsorted_indices is not None:
        order = unsorted_indices.cpu().numpy()
        place, counts = place[:, order], counts[order]
    place = np.ascontiguousarray(place.T) if batch_first else place
    index = wrap(np.maximum(place, 0)).to(data.device)
    padded = data[index]
    missing = (place < 0).reshape(*place.shape, *[1] * (data.ndim - 1))
    if missing.any():
        filler = padded.new_full((), padding_value)
        padded = where(wrap(missing).to(data.device), filler, padded)
    return padded, wrap(counts)


def pack_sequence(sequences: Any, enforce_sorted: bool = True) -> PackedSequence:
    """Sequences of several lengths, packed."""
    rows = _as_list(sequences, "pack_sequence")
    lengths = [len(row) for row in rows]
    return pack_padded_sequence(pad_sequence(rows), lengths, enforce_sorted=enforce_sorted)


def unpack_sequence(packed_sequences: Any) -> list[Any]:
    """The sequences that `pack_sequence` packed."""
    padded, lengths = pad_packed_sequence(packed_sequences, batch_first=True)
    return unpad_sequence(padded, lengths, batch_first=True)


__all__ = [
    "PackedSequence",
    "invert_permutation",
    "pack_padded_sequence",
    "pack_sequence",
    "pad_packed_sequence",
    "pad_sequence",
    "unpack_sequence",
    "unpad_sequence",
]
