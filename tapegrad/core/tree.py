"""Nested lists, tuples and dicts of tensors: visiting and rebuilding them.

Comes in: a nested structure. Goes out: its leaves in order, or the same structure with other
leaves. Called by `tensor.py`, `func.py`, `amp/`, `autograd/checkpointing.py` and `replay/`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any

NUMBERS: set[Any] = {bool, int, float, complex}
_LISTS = {list, tuple}
#: levels of lists after which one look tells whether a list contains itself
_DEEP = 5


def holds_numbers(tree: Any) -> bool:
    """Whether this is a Python number, or nested lists and tuples of numbers of equal depth."""
    if tree.__class__ in NUMBERS:
        return True
    if tree.__class__ not in _LISTS:
        return False
    kinds = set(map(type, tree))
    depth = 0
    while not kinds <= NUMBERS:
        depth += 1
        if not kinds <= _LISTS or (depth == _DEEP and contains_itself(tree)):
            return False
        tree = list(chain.from_iterable(tree))
        kinds = set(map(type, tree))
    return True


def contains_itself(tree: Any) -> bool:
    """Whether a nested list contains itself."""
    done: set[int] = set()
    within: set[int] = set()
    stack: list[tuple[Any, bool]] = [(tree, False)]
    while stack:
        item, left = stack.pop()
        if left:
            within.discard(id(item))
            done.add(id(item))
        elif id(item) in within:
            return True
        elif id(item) not in done:
            within.add(id(item))
            stack.append((item, True))
            stack.extend((x, False) for x in item if isinstance(x, (list, tuple)))
    return False


def not_regular(tree: Any, error: Exception) -> Exception:
    """The error for nested lists that are no array, where `error` stopped the attempt."""
    if isinstance(error, ValueError):
        return ValueError(f"cannot make a tensor of ragged data: {error}")
    if contains_itself(tree):
        return TypeError("cannot make a tensor of a list that contains itself")
    return error


def first_of(tree: Any) -> Any:
    """The first item of nested lists and tuples."""
    while isinstance(tree, (list, tuple)) and tree:
        tree = tree[0]
    return tree


def leaves(tree: Any) -> Iterator[Any]:
    """Everything in a nested structure that is not a list, tuple or dict, in order."""
    if isinstance(tree, dict):
        for value in tree.values():
            yield from leaves(value)
    elif isinstance(tree, (list, tuple)):
        for value in tree:
            yield from leaves(value)
    else:
        yield tree


def map_leaves(function: Callable[[Any], Any], tree: Any) -> Any:
    """The same structure with `function` applied to each leaf."""
    if isinstance(tree, dict):
        return type(tree)((k, map_leaves(function, v)) for k, v in tree.items())
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return type(tree)(*(map_leaves(function, v) for v in tree))
    if isinstance(tree, (list, tuple)):
        return type(tree)(map_leaves(function, v) for v in tree)
    return function(tree)


def rebuilt(tree: Any, values: Iterator[Any]) -> Any:
    """The same structure with its leaves replaced by `values`, in order."""
    return map_leaves(lambda _: next(values), tree)


def same_structure(tree: Any, other: Any) -> bool:
    """Whether two nested structures differ only in their leaves."""
    if isinstance(tree, dict):
        return (
            isinstance(other, dict)
            and list(tree) == list(other)
            and all(same_structure(tree[k], other[k]) for k in tree)
        )
    if isinstance(tree, (list, tuple)):
        return (
            type(tree) is type(other)
            and len(tree) == len(other)
            and all(map(same_structure, tree, other))
        )
    return not isinstance(other, (dict, list, tuple))
