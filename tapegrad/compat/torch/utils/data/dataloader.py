"""`torch.utils.data.dataloader`: the iterator classes, which packages import."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .....data.iterate import BatchIterator, ParallelIterator, SerialIterator

_BaseDataLoaderIter = BatchIterator
_SingleProcessDataLoaderIter = SerialIterator
_MultiProcessingDataLoaderIter = ParallelIterator


class _DatasetKind:
    """Numbers of the two kinds of datasets."""

    Map = 0
    Iterable = 1


_collate_fn_t = Callable[[list[Any]], Any]
