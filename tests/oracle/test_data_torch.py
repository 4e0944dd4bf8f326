"""Data loading against PyTorch: collating, samplers, batches, lengths, errors."""

from __future__ import annotations

from collections import OrderedDict, namedtuple
from collections.abc import Callable, Iterator
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
import torch
import torch.utils.data

import tapegrad
import tapegrad.utils.data

Point = namedtuple("Point", "x y")


class Words(OrderedDict):
    """A mapping of a user's."""


class Items(list):
    """A sequence of a user's."""


#: batches made with a library `t`
BATCHES: dict[str, Callable[[Any], Any]] = {
    "integers": lambda t: [1, 2],
    "floats": lambda t: [1.0, 2.0],
    "float first": lambda t: [1.0, 2],
    "integer first": lambda t: [1, 2.5],
    "bools": lambda t: [True, False],
    "bool first": lambda t: [True, 2],
    "large integers": lambda t: [2**40, -1],
    **{
        f"NumPy numbers {name}": lambda t, name=name: [np.dtype(name).type(1)] * 2
        for name in ("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32")
    },
    "float64 numbers": lambda t: [np.float64(1.5), np.float64(2.5)],
    "strings": lambda t: ["a", "b"],
    "NumPy strings": lambda t: [np.str_("a"), np.str_("b")],
    "bytes": lambda t: [b"a", b"b"],
    "bytearrays": lambda t: [bytearray(b"ab"), bytearray(b"cd")],
    "0-d arrays": lambda t: [np.array(1.5), np.array(2.5)],
    "arrays": lambda t: [np.arange(6.0).reshape(2, 3), np.ones((2, 3))],
    "float32 arrays": lambda t: [np.arange(2, dtype=np.float32)] * 3,
    "arrays of two types": lambda t: [np.ones(2, np.float32), np.ones(2)],
    "arrays with negative steps": lambda t: [np.ascontiguousarray(np.arange(4)[::-1])] * 2,
    "empty arrays": lambda t: [np.ones((0, 2))] * 2,
    "tensors": lambda t: [t.tensor([1.5]), t.tensor([2.5])],
    "0-d tensors": lambda t: [t.tensor(1), t.tensor(2)],
    "tensors of two types": lambda t: [t.tensor([1]), t.tensor([2.5])],
    "bfloat16": lambda t: [t.ones(2, dtype=t.bfloat16)] * 2,
    "tuples": lambda t: [(1, 2.0, "a"), (3, 4.0, "b")],
    "lists": lambda t: [[1, 2.0], [3, 4.0]],
    "ranges": lambda t: [range(2), range(2)],
    "named tuples": lambda t: [Point(1, np.ones(2)), Point(2, np.zeros(2))],
    "dicts": lambda t: [{"a": 1, "b": {"c": [1, 2]}}, {"a": 2, "b": {"c": [3, 4]}}],
    "ordered dicts": lambda t: [OrderedDict(b=1, a=2), OrderedDict(a=3, b=4)],
    "a mapping of a user's": lambda t: [Words(a=1), Words(a=2)],
    "read-only mappings": lambda t: [MappingProxyType({"a": 1}), MappingProxyType({"a": 2})],
    "a sequence of a user's": lambda t: [Items([1, 2]), Items([3, 4])],
    "nothing in lists": lambda t: [[], []],
    "nothing in dicts": lambda t: [{}, {}],
    "one sample": lambda t: [(np.ones(2), 1)],
    # refused
    "None": lambda t: [None],
    "sets": lambda t: [{1}],
    "arrays of strings": lambda t: [np.array(["a"])],
    "arrays of objects": lambda t: [np.array([None])],
    "complex": lambda t: [1j],
    "two lengths": lambda t: [[1, 2], [1]],
    "two shapes": lambda t: [t.ones(2), t.ones(3)],
    "arrays of two shapes": lambda t: [np.ones(2), np.ones(3)],
    "another key": lambda t: [{"a": 1}, {"b": 2}],
    "no sample": lambda t: [],
}


def outcome(function: Callable[[], Any]) -> Any:
    """A result in plain types, or the type of the error."""
    try:
        return plain(function())
    except Exception as error:
        return type(error)


def plain(value: Any) -> Any:
    if isinstance(value, (torch.Tensor, tapegrad.Tensor)):
        dtype = str(value.dtype).rpartition(".")[2]
        return "tensor", dtype, tuple(value.shape), value.tolist()
    if isinstance(value, np.ndarray):
        return "array", str(value.dtype), value.tolist()
    if hasattr(value, "items"):
        return type(value), [(key, plain(item)) for key, item in value.items()]
    if isinstance(value, (list, tuple)):
        return type(value), [plain(item) for item in value]
    return type(value), value


@pytest.mark.parametrize("name", BATCHES)
def test_collate(name: str) -> None:
    found, expected = (
        outcome(lambda t=t: t.utils.data.default_collate(BATCHES[name](t)))
        for t in (tapegrad, torch)
    )
    assert found == expected


@pytest.mark.parametrize("name", BATCHES)
def test_convert(name: str) -> None:
    found, expected = (
        outcome(lambda t=t: t.utils.data.default_convert(BATCHES[name](t)))
        for t in (tapegrad, torch)
    )
    assert found == expected


def stream(t: Any, length: int | None = None) -> Any:
    class Stream(t.utils.data.IterableDataset):
        def __iter__(self) -> Iterator[int]:
            return iter(range(7))

        if length is not None:

            def __len__(self) -> int:
                return length

    return Stream()


def rows(t: Any) -> Any:
    return t.utils.data.TensorDataset(t.arange(14.0).reshape(7, 2), t.arange(7))


#: expressions with a library `t` and its `utils.data`, `d`
CALLS: dict[str, Callable[[Any, Any], Any]] = {
    "batches": lambda t, d: list(d.DataLoader(rows(t), 3)),
    "batches, drop_last": lambda t, d: list(d.DataLoader(rows(t), 3, drop_last=True)),
    "single": lambda t, d: list(d.DataLoader(rows(t))),
    "no batches": lambda t, d: list(d.DataLoader(rows(t), None)),
    "sampler": lambda t, d: list(d.DataLoader(rows(t), 2, sampler=[3, 1, 1])),
    "batch sampler": lambda t, d: list(d.DataLoader(rows(t), batch_sampler=[[3, 1], [0]])),
    "no batches, sampler": lambda t, d: list(d.DataLoader(rows(t), None, sampler=[3, 1])),
    "collate_fn": lambda t, d: list(d.DataLoader(rows(t), 4, collate_fn=len)),
    "workers": lambda t, d: list(d.DataLoader(rows(t), 3, num_workers=2)),
    "stream": lambda t, d: list(d.DataLoader(stream(t), 3)),
    "stream, drop_last": lambda t, d: list(d.DataLoader(stream(t), 3, drop_last=True)),
    "stream, no batches": lambda t, d: list(d.DataLoader(stream(t), None)),
    "stream, workers": lambda t, d: list(d.DataLoader(stream(t), 3, num_workers=2)),
    "subset": lambda t, d: list(d.DataLoader(d.Subset(rows(t), [5, 2, 2]), 2)),
    "stacked": lambda t, d: list(d.DataLoader(d.StackDataset(rows(t), range(7)), 3)),
    "stacked by name": lambda t, d: list(d.DataLoader(d.StackDataset(a=rows(t), b=range(7)), 3)),
    "joined": lambda t, d: list(d.DataLoader(rows(t) + rows(t), 5)),
    "chained": lambda t, d: list(d.DataLoader(stream(t) + stream(t), 5)),
    "lengths": lambda t, d: [
        len(d.DataLoader(rows(t), 3)),
        len(d.DataLoader(rows(t), 3, drop_last=True)),
        len(d.DataLoader(rows(t), None)),
        len(d.DataLoader(stream(t, 7), 3)),
        len(d.DataLoader(stream(t, 7), 3, drop_last=True)),
        len(d.RandomSampler(range(7), num_samples=20)),
        len(d.RandomSampler(range(7), True, 3)),
        len(d.WeightedRandomSampler([1.0, 2.0], 9)),
        len(d.SubsetRandomSampler([4, 5])),
        len(d.BatchSampler(range(7), 3, True)),
        len(d.DistributedSampler(range(7), 3, 0)),
    ],
    "random order": lambda t, d: sorted(d.RandomSampler(range(7), num_samples=14)),
    "subset in random order": lambda t, d: sorted(d.SubsetRandomSampler([4, 5, 9])),
    "weighted": lambda t, d: sorted(d.WeightedRandomSampler([1.0, 2.0, 3.0], 3, False)),
    "distributed": lambda t, d: [
        list(d.DistributedSampler(range(7), 3, r, shuffle=False, drop_last=drop))
        for r in range(3)
        for drop in (False, True)
    ],
    "distributed, few": lambda t, d: list(d.DistributedSampler(range(2), 5, 4, shuffle=False)),
    "split": lambda t, d: [len(part) for part in d.random_split(range(11), [0.5, 0.3, 0.2])],
    "options": lambda t, d: [
        getattr(d.DataLoader(rows(t), num_workers=1), name)
        for name in ("batch_size", "drop_last", "prefetch_factor", "timeout", "in_order")
    ],
    # refused
    "split of too much": lambda t, d: d.random_split(range(11), [5, 5]),
    "index": lambda t, d: (rows(t) + rows(t))[-15],
    "length of a stream": lambda t, d: len(d.DataLoader(stream(t))),
    "shuffled stream": lambda t, d: d.DataLoader(stream(t), shuffle=True),
    "sampler and shuffle": lambda t, d: d.DataLoader(rows(t), sampler=[1], shuffle=True),
    "batch size": lambda t, d: d.DataLoader(rows(t), 0),
    "size of tensors": lambda t, d: d.TensorDataset(t.ones(2), t.ones(3)),
    "weights": lambda t, d: d.WeightedRandomSampler([[1.0]], 1),
    "too many without replacement": lambda t, d: list(d.WeightedRandomSampler([1.0], 2, False)),
    "rank": lambda t, d: d.DistributedSampler(range(7), 3, 3),
    "nothing to shuffle": lambda t, d: d.DataLoader([], shuffle=True),
    "bare dataset": lambda t, d: d.Dataset()[0],
}


@pytest.mark.parametrize("name", CALLS)
def test_loading(name: str) -> None:
    found, expected = (outcome(lambda t=t: CALLS[name](t, t.utils.data)) for t in (tapegrad, torch))
    assert found == expected
