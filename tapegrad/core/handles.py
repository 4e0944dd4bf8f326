"""What few tensors have beside their data: hooks, and the handles that take hooks away again.

Made by `tensor.py` for hooks on a tensor, and by everything else that takes hooks: modules,
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
    """What few tensors have: hooks, a retained gradient, memory shared until it is written."""

    __slots__ = ("accumulator", "hooks", "last_relayout", "lender", "post_hooks")

    #: whether the tensor was made inside of inference_mode
    inference = False

    #: the node that fills `.grad` of this leaf, once somebody has asked for it
    accumulator: Any

    def __init__(self, lender: Callable[[], Any] | None = None) -> None:
        self.hooks: Hooks = _NO_HOOKS
        self.post_hooks: Hooks = _NO_HOOKS
        # None, or a callable that says whether somebody else still reads this array.
        self.lender = lender
        # The sequence number of the latest `transpose_` or the like: older views lead through other
        # dimensions.
        self.last_relayout = 0


class InferenceExtra(Extra):
    """That of a tensor which was made inside of inference_mode."""

    __slots__ = ()

    inference = True


_handle_numbers = itertools.count()


class RemovableHandle:
    """Returned by `register_hook`; `remove()` takes the hook away.

    Made of a function that does so, or, as in PyTorch, of a dictionary of hooks, in which the hook
    then stands under the `id` of the handle.
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
        #: the dictionary that the hook stands in
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
