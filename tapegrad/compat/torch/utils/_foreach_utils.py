"""`torch.utils._foreach_utils`: lists of tensors, grouped by device and dtype."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def _group_tensors_by_device_and_dtype(
    tensorlistlist: Sequence[Sequence[Any]], with_indices: bool = False
) -> dict[tuple[Any, Any], tuple[list[list[Any]], list[int]]]:
    """By device and dtype in the first list: the items of all lists, and optionally indices."""
    groups: dict[tuple[Any, Any], tuple[list[list[Any]], list[int]]] = {}
    for i, x in enumerate(tensorlistlist[0]):
        if x is None:
            raise RuntimeError("the first list must have a tensor at every place")
        lists, indices = groups.setdefault((x.device, x.dtype), ([[] for _ in tensorlistlist], []))
        for found, given in zip(lists, tensorlistlist, strict=True):
            if given:
                found.append(given[i])
        if with_indices:
            indices.append(i)
    return groups


def _device_has_foreach_support(device: Any) -> bool:
    """True: lists of tensors are supported on every device."""
    return True


def _has_foreach_support(tensors: list[Any], device: Any) -> bool:
    """True: lists of tensors are supported on every device."""
    return True
