"""Rarely used attributes of tensors, such as hooks, and the handles that remove hooks.

`tensor.py` makes them for hooks on a tensor, as does everything else that takes hooks: modules,
optimizers, state dicts, nodes of the graph.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Self

Hooks = Mapping[int, Callable[[Any], Any]]

_NO_HOOKS: Hooks = MappingProxyType({})


class Extra:
    """Rare attributes of a tensor: hooks, the node of a leaf, memory shared until it is written."""

    __slots__ = ("accumulator", "hooks", "last_relayout", "lender", "post_hooks")

    #: whether the tensor was made inside of inference_mode
    inference = False

    #: the node that accumulates into `.grad` of this leaf, once it was requested
    accumulator: Any

    def __init__(self, lender: Callable[[], Any] | None = None) -> None:
        self.hooks: Hooks = _NO_HOOKS
        self.post_hooks: Hooks = _NO_HOOKS
        # None, or a callable that returns None once no other object shares this array.
        self.lender = lender
        # Sequence number of the latest `transpose_` or similar: chains of older views start from
        # other dimensions.
        self.last_relayout = 0


class InferenceExtra(Extra):
    """The `Extra` of a tensor made inside of inference_mode."""

    __slots__ = ()

    inference = True


_handle_numbers = itertools.count()


class RemovableHandle:
    """Returned by `register_hook`; `remove()` removes the hook.

    It is made from a function that does so or, as in PyTorch, from a dictionary of hooks, where the
    key of the hook is the handle's `id`.
    """

    def __init__(
        self,
        remove: Callable[[], Any] | dict[Any, Any],
        *,
        id: int | None = None,
        hooks: Callable[[], Any] | None = None,
        extra_dict: Any = None,
    ) -> None:
        self.id = next(_handle_numbers) if id is None else id
        if isinstance(remove, dict):
            given = (remove, *(extra_dict if isinstance(extra_dict, list) else [extra_dict]))
            hooks = functools.partial(_itself, remove)
            remove = functools.partial(_pop_from, given, self.id)
        self._remove: Callable[[], Any] | None = remove
        #: returns the dictionary that holds the hook, or None
        self.hooks_dict_ref = hooks or _nothing

    def remove(self) -> None:
        if self._remove is not None:
            self._remove()
            self._remove = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.remove()


def _itself(hooks: Any) -> Any:
    return hooks


def _nothing() -> None:
    return None


def _pop_from(dicts: tuple[Any, ...], key: int) -> None:
    for hooks in dicts:
        if hooks is not None:
            hooks.pop(key, None)
