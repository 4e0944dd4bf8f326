"""`torch._jit_internal`: decorators and annotations that packages import from there."""

from __future__ import annotations

from typing import Any, Dict, Final, List, Optional, Tuple, Union  # noqa: UP035

from .jit import export, ignore, is_scripting, unused

__all__ = [
    "Dict",
    "Final",
    "List",
    "Optional",
    "Tuple",
    "Union",
    "export",
    "ignore",
    "is_scripting",
    "unused",
]


class BroadcastingList(type):
    """The metaclass of `BroadcastingList2` and the others, which are used in annotations."""

    def __getitem__(cls, item: Any) -> Any:
        return list[item]


def _broadcasting(name: str) -> Any:
    return BroadcastingList(name, (), {"__module__": "torch._jit_internal"})


BroadcastingList1 = _broadcasting("BroadcastingList1")
BroadcastingList2 = _broadcasting("BroadcastingList2")
BroadcastingList3 = _broadcasting("BroadcastingList3")


def _overload(func: Any) -> Any:
    return func


def _overload_method(func: Any) -> Any:
    return func


def _copy_to_script_wrapper(fn: Any) -> Any:
    return fn


def boolean_dispatch(
    arg_name: str,
    arg_index: int,
    default: bool,
    if_true: Any,
    if_false: Any,
    module_name: str,
    func_name: str,
) -> Any:
    """A function that calls `if_true` or `if_false`, depending on one of its arguments."""

    def function(*args: Any, **kwargs: Any) -> Any:
        given = args[arg_index] if arg_index < len(args) else kwargs.get(arg_name, default)
        return if_true(*args, **kwargs) if given else if_false(*args, **kwargs)

    function.__name__ = func_name
    function.__doc__ = if_true.__doc__
    return function
