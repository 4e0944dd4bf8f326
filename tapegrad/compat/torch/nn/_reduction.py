"""`torch.nn._reduction`: numbers and names of the reductions of losses."""

from __future__ import annotations

_NUMBERS = {"none": 0, "mean": 1, "elementwise_mean": 1, "sum": 2}


def get_enum(reduction: str) -> int:
    """The number of a reduction."""
    if reduction not in _NUMBERS:
        raise ValueError(f"reduction must be one of {tuple(_NUMBERS)}, got {reduction!r}")
    return _NUMBERS[reduction]


def legacy_get_string(
    size_average: bool | None, reduce: bool | None, emit_warning: bool = True
) -> str:
    """The name of the reduction that two older arguments mean."""
    if reduce is not None and not reduce:
        return "none"
    return "sum" if size_average is not None and not size_average else "mean"


def legacy_get_enum(
    size_average: bool | None, reduce: bool | None, emit_warning: bool = True
) -> int:
    """The number of the reduction that two older arguments mean."""
    return get_enum(legacy_get_string(size_average, reduce, emit_warning))
