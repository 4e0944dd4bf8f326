"""Attributes of graph nodes, as PyTorch's nodes have them.

Comes in: an entry and the name of an attribute. Goes out: its value: an attribute of a user
Function's context, a value saved for backward (`_saved_self`, `_saved_result`), or a static
parameter (`_saved_dim`). `run` calls a node like a function. Called by `Entry`.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import Any

from ..core.packing import hooked
from ..core.tape import Entry, Freed, Handle, Packed
from ..core.tensor import Tensor
from . import engine

_METADATA: weakref.WeakKeyDictionary[Entry, dict[str, Any]] = weakref.WeakKeyDictionary()

#: PyTorch's names of operands and results, where they differ from those here
_NAMES = {"self": "x", "other": "y", "result": "out", "exponent": "y"}


class SavedTensor:
    """A tensor that a node has saved, with hooks for it."""

    def __init__(self, entry: Entry | None = None, place: int = 0) -> None:
        if entry is None:
            raise RuntimeError(
                "saved tensors are made by operations alone; the _raw_saved_ attributes of a "
                "node show them"
            )
        self._entry, self._place = entry, place

    def register_hooks(
        self, pack_hook: Callable[[Tensor], Any], unpack_hook: Callable[[Any], Tensor]
    ) -> None:
        """Keep the result of `pack_hook(tensor)`; `unpack_hook` restores the tensor."""
        entry, place = self._entry, self._place
        saved = entry.saved
        _check_not_freed(saved)
        values = list(saved.values if isinstance(saved, Packed) else saved)
        if isinstance(values[place], Handle):
            raise RuntimeError("this saved tensor has hooks already, and can have one pair of them")
        if not hasattr(values[place], "nbytes"):
            raise RuntimeError("Calling register_hooks on a value that is no tensor")
        shown = _shown(entry, place, values[place])
        values[place] = Handle(hooked(pack_hook, shown), unpack_hook)
        entry.saved = Packed(tuple(values))


class FunctionNode:
    """The node of a Function: the attributes of its context, and those of nodes.

    Its class is named after the node, such as `SquareBackward`.
    """

    _entry: Entry

    def __init__(self, entry: Entry) -> None:
        object.__setattr__(self, "_entry", entry)

    def __getattr__(self, name: str) -> Any:
        if name == "saved_tensors":
            return saved_tensors(self._entry)
        if name == "_raw_saved_tensors":
            count = len(self._entry.primitive.slots)
            return tuple(SavedTensor(self._entry, i) for i in range(count))
        if hasattr(type(self._entry), name):
            return getattr(self._entry, name)
        return getattr(self._entry.primitive.context, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._entry.primitive.context, name, value)

    def __call__(self, *grad_outputs: Any) -> Any:
        return run(self._entry, grad_outputs)

    def __repr__(self) -> str:
        return repr(self._entry)


@functools.cache
def _node_class(name: str) -> type[FunctionNode]:
    return type(name, (FunctionNode,), {})


def function_node(entry: Entry) -> FunctionNode:
    """The node of a Function's entry: always the same object while it is referenced."""
    context = entry.primitive.context
    reference: Any = getattr(context, "_node", None)
    node: FunctionNode | None = None if reference is None else reference()
    if node is None or node._entry is not entry:
        node = _node_class(entry.name())(entry)
        context._node = weakref.ref(node)
    return node


def attribute_of(entry: Entry, name: str) -> Any:
    """An attribute of a node that not all nodes have."""
    if name == "metadata":
        return _METADATA.setdefault(entry, {})
    for prefix in ("_saved_", "_raw_saved_"):
        if name.startswith(prefix):
            return _saved(entry, name.removeprefix(prefix), raw=prefix == "_raw_saved_")
    if name == "_sequence_nr":
        return lambda: entry.number
    raise AttributeError(f"{entry.name()} has no attribute {name!r}")


def _saved(entry: Entry, name: str, raw: bool) -> Any:
    p = entry.primitive
    for known in (name, _NAMES.get(name, name)):
        made = (*p.outputs, *p.extras)
        for place, (what, index, _) in enumerate(p.slots):
            if (what == "in" and p.inputs[index] == known) or (
                what == "out" and made[index] == known
            ):
                _check_not_freed(entry.saved)
                return SavedTensor(entry, place) if raw else _value(entry, place)
        if known in entry.params and not raw:
            return entry.params[known]
    raise AttributeError(f"{entry.name()} has saved nothing of the name {name!r}")


def _check_not_freed(saved: Any) -> None:
    if isinstance(saved, Freed):
        raise RuntimeError(
            "the saved tensors of this graph are gone, because backward ran through it; run it "
            "with retain_graph=True to keep them"
        )


def _value(entry: Entry, place: int) -> Any:
    saved = entry.saved
    value = saved.values[place] if isinstance(saved, Packed) else saved[place]
    return _shown(entry, place, engine.unpacked(value))


def _shown(entry: Entry, place: int, value: Any) -> Any:
    """A saved value as a tensor with its history."""
    return engine.as_tensor(entry, entry.primitive.slots[place], value)


def saved_tensors(entry: Entry) -> tuple[Any, ...]:
    """The tensors that the node of a Function has saved."""
    _check_not_freed(entry.saved)
    return tuple(_value(entry, i) for i in range(len(entry.primitive.slots)))


def run(entry: Entry, grad_outputs: tuple[Any, ...]) -> Any:
    """The gradients of a node's inputs, given those of its outputs."""
    expected = len(entry.primitive.outputs)
    if len(grad_outputs) != expected:
        raise TypeError(f"{entry.name()} expected {expected} arguments, got {len(grad_outputs)}")
    for g in grad_outputs:
        if g is not None and not isinstance(g, Tensor):
            raise TypeError(f"{entry.name()} expected Tensors or None, got {type(g).__name__}")
    saved = entry.saved
    if type(saved) is not tuple:
        saved = engine.unpack(entry, saved)
    tensors = engine.as_tensors(entry, saved)
    g = list(grad_outputs) if expected > 1 else grad_outputs[0]
    found = entry.primitive.pull(g, entry.edges, tensors, entry.params)
    shapes = entry.shapes or (None,) * len(found)
    results = tuple(
        r if r is None or shape is None else engine.unbroadcast(r, shape)
        for r, shape in zip(found, shapes, strict=True)
    )
    return results[0] if len(results) == 1 else results
