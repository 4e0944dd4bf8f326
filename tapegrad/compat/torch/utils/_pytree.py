"""`torch.utils._pytree`: nested containers; programs can register their own.

A tree is a leaf, or a container of trees: list, tuple, named tuple, dict, OrderedDict,
defaultdict, deque, or a registered class. Leaves are visited in order.
"""

from __future__ import annotations

import dataclasses
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

PyTree = Any
Context = Any


class MappingKey(NamedTuple):
    """A step of a path into a dict."""

    key: Any

    def __str__(self) -> str:
        return f"[{self.key!r}]"

    def get(self, parent: Any) -> Any:
        return parent[self.key]


class SequenceKey(NamedTuple):
    """A step of a path into a list or tuple."""

    idx: int

    def __str__(self) -> str:
        return f"[{self.idx!r}]"

    def get(self, parent: Any) -> Any:
        return parent[self.idx]


class GetAttrKey(NamedTuple):
    """A step of a path into an object."""

    name: str

    def __str__(self) -> str:
        return f".{self.name}"

    def get(self, parent: Any) -> Any:
        return getattr(parent, self.name)


class NodeDef(NamedTuple):
    """How containers of a class are flattened and unflattened."""

    type: type
    flatten_fn: Callable[[Any], tuple[list[Any], Any]]
    unflatten_fn: Callable[[Iterable[Any], Any], Any]
    flatten_with_keys_fn: Callable[[Any], tuple[list[tuple[Any, Any]], Any]] | None


def _dict_flatten(d: Any) -> tuple[list[Any], Any]:
    return list(d.values()), list(d.keys())


def _dict_flatten_with_keys(d: Any) -> tuple[list[tuple[Any, Any]], Any]:
    return [(MappingKey(k), v) for k, v in d.items()], list(d.keys())


def _dict_unflatten(values: Iterable[Any], context: list[Any]) -> dict[Any, Any]:
    return dict(zip(context, values, strict=True))


def _keyed_items(items: Any) -> tuple[list[tuple[Any, Any]], Any]:
    return [(SequenceKey(i), v) for i, v in enumerate(items)], None


def _default_parts(d: Any) -> tuple[list[Any], Any]:
    return list(d.values()), (d.default_factory, list(d.keys()))


SUPPORTED_NODES: dict[Any, NodeDef] = {
    list: NodeDef(list, lambda x: (list(x), None), lambda v, c: list(v), _keyed_items),
    tuple: NodeDef(tuple, lambda x: (list(x), None), lambda v, c: tuple(v), _keyed_items),
    dict: NodeDef(dict, _dict_flatten, _dict_unflatten, _dict_flatten_with_keys),
    OrderedDict: NodeDef(
        OrderedDict,
        _dict_flatten,
        lambda v, keys: OrderedDict(zip(keys, v, strict=True)),
        _dict_flatten_with_keys,
    ),
    defaultdict: NodeDef(
        defaultdict,
        _default_parts,
        lambda v, c: defaultdict(c[0], zip(c[1], v, strict=True)),
        lambda d: (_dict_flatten_with_keys(d)[0], _default_parts(d)[1]),
    ),
    deque: NodeDef(
        deque, lambda d: (list(d), d.maxlen), lambda v, longest: deque(v, longest), _keyed_items
    ),
}

#: containers with keys: a tree may have another one of them than a structure
_KEYED = (dict, OrderedDict, defaultdict)


def _keys_of(kind: Any, context: Any) -> list[Any]:
    """The keys of a container with keys, in order, from its class and context."""
    return list(context[1] if kind is defaultdict else context)


def _is_namedtuple(tree: Any) -> bool:
    return isinstance(tree, tuple) and type(tree) is not tuple and hasattr(type(tree), "_fields")


def _namedtuple_flatten(d: Any) -> tuple[list[Any], Any]:
    return list(d), type(d)


def _namedtuple_unflatten(values: Iterable[Any], context: Any) -> Any:
    return context(*values)


def _node_type(tree: Any) -> Any:
    kind = type(tree)
    if kind in SUPPORTED_NODES:
        return kind
    return tuple if _is_namedtuple(tree) else None


def _get_node_type(tree: Any) -> Any:
    return type(tree)


def _taken_apart(tree: Any) -> tuple[Any, list[Any], Any]:
    """The class of a container, its children, and the context for unflattening."""
    kind = type(tree)
    if kind not in SUPPORTED_NODES and _is_namedtuple(tree):
        return kind, list(tree), kind
    children, context = SUPPORTED_NODES[kind].flatten_fn(tree)
    return kind, list(children), context


def register_pytree_node(
    cls: type,
    flatten_fn: Callable[[Any], tuple[list[Any], Any]],
    unflatten_fn: Callable[[Iterable[Any], Any], Any],
    *,
    serialized_type_name: str | None = None,
    to_dumpable_context: Any = None,
    from_dumpable_context: Any = None,
    flatten_with_keys_fn: Any = None,
) -> None:
    """Register a class as a container."""
    if cls in SUPPORTED_NODES:
        raise ValueError(f"{cls} is a pytree node already")
    SUPPORTED_NODES[cls] = NodeDef(cls, flatten_fn, unflatten_fn, flatten_with_keys_fn)


_register_pytree_node = register_pytree_node


def register_dataclass(cls: type, **options: Any) -> None:
    """Register a dataclass as a container of its fields."""
    names = [field.name for field in dataclasses.fields(cls) if field.init]
    register_pytree_node(
        cls,
        lambda obj: ([getattr(obj, name) for name in names], None),
        lambda values, _: cls(**dict(zip(names, values, strict=True))),
        flatten_with_keys_fn=lambda obj: (
            [(GetAttrKey(name), getattr(obj, name)) for name in names],
            None,
        ),
    )


def _deregister_pytree_node(cls: type) -> None:
    SUPPORTED_NODES.pop(cls, None)


@dataclasses.dataclass(frozen=True)
class TreeSpec:
    """The structure of a tree, without its leaves."""

    type: Any
    context: Any
    children_specs: list[TreeSpec]

    @property
    def num_leaves(self) -> int:
        """The number of leaves."""
        return 1 if self.is_leaf() else sum(child.num_leaves for child in self.children_specs)

    @property
    def num_nodes(self) -> int:
        """The number of leaves and containers."""
        return 1 + sum(child.num_nodes for child in self.children_specs)

    @property
    def num_children(self) -> int:
        """The number of children of the outermost container."""
        return len(self.children_specs)

    def is_leaf(self) -> bool:
        """Whether the tree is a single leaf."""
        return self.type is None

    def children(self) -> list[TreeSpec]:
        """The structures of the outermost container's children."""
        return list(self.children_specs)

    def unflatten(self, leaves: Iterable[Any]) -> Any:
        """A tree of this structure with these leaves."""
        return tree_unflatten(leaves, self)

    def flatten_up_to(self, tree: Any) -> list[Any]:
        """The parts of `tree` at the positions of this structure's leaves."""
        if self.is_leaf():
            return [tree]
        kind, children, context = _taken_apart(tree) if _node_type(tree) else (None, [], None)
        keyed = kind in _KEYED and self.type in _KEYED
        if (not keyed and kind is not self.type) or len(children) != self.num_children:
            raise ValueError(f"expected a tree of structure {self}, got {type(tree).__name__}")
        if keyed:
            keys, found = _keys_of(self.type, self.context), _keys_of(kind, context)
            if {*keys} != {*found}:
                raise ValueError(f"expected keys {keys}, got {found}")
            children = [tree[key] for key in keys]
        elif context != self.context and kind is not deque:
            raise ValueError(f"expected a tree of structure {self}, got context {context}")
        parts = zip(self.children_specs, children, strict=True)
        return [leaf for spec, child in parts for leaf in spec.flatten_up_to(child)]


class LeafSpec(TreeSpec):
    """The structure of a leaf."""

    def __init__(self) -> None:
        super().__init__(None, None, [])

    def __repr__(self) -> str:
        return "*"


def _visited(tree: Any, is_leaf: Any, leaves: list[Any]) -> TreeSpec:
    if (is_leaf is not None and is_leaf(tree)) or _node_type(tree) is None:
        leaves.append(tree)
        return LeafSpec()
    kind, children, context = _taken_apart(tree)
    return TreeSpec(kind, context, [_visited(child, is_leaf, leaves) for child in children])


def tree_flatten(tree: Any, is_leaf: Any = None) -> tuple[list[Any], TreeSpec]:
    """The leaves of a tree, and its structure."""
    leaves: list[Any] = []
    return leaves, _visited(tree, is_leaf, leaves)


def tree_unflatten(leaves: Iterable[Any], treespec: TreeSpec) -> Any:
    """A tree of a structure with these leaves."""
    if not isinstance(treespec, TreeSpec):
        raise TypeError(f"expected a TreeSpec, got {type(treespec).__name__}")
    values = list(leaves)
    if len(values) != treespec.num_leaves:
        raise ValueError(f"a tree of {treespec.num_leaves} leaves cannot have {len(values)}")
    return _put_together(treespec, iter(values))


def _put_together(spec: TreeSpec, values: Any) -> Any:
    if spec.is_leaf():
        return next(values)
    children = [_put_together(child, values) for child in spec.children_specs]
    if spec.type not in SUPPORTED_NODES:
        return spec.context(*children)  # a named tuple
    return SUPPORTED_NODES[spec.type].unflatten_fn(children, spec.context)


def tree_leaves(tree: Any, is_leaf: Any = None) -> list[Any]:
    """The leaves of a tree."""
    return tree_flatten(tree, is_leaf)[0]


def tree_iter(tree: Any, is_leaf: Any = None) -> Any:
    """An iterator over the leaves of a tree."""
    return iter(tree_leaves(tree, is_leaf))


def tree_structure(tree: Any, is_leaf: Any = None) -> TreeSpec:
    """The structure of a tree."""
    return tree_flatten(tree, is_leaf)[1]


def tree_map(func: Callable[..., Any], tree: Any, *rests: Any, is_leaf: Any = None) -> Any:
    """The tree with a function applied to each leaf and the parts of `rests` at its position."""
    leaves, spec = tree_flatten(tree, is_leaf)
    others = [spec.flatten_up_to(rest) for rest in rests]
    return tree_unflatten([func(*together) for together in zip(leaves, *others, strict=True)], spec)


def tree_map_(func: Callable[..., Any], tree: Any, *rests: Any, is_leaf: Any = None) -> Any:
    """Call a function with each leaf; returns the tree itself."""
    tree_map(func, tree, *rests, is_leaf=is_leaf)
    return tree


def _matches(kinds: Any) -> Callable[[Any], bool]:
    if isinstance(kinds, (type, tuple)) or not callable(kinds):
        return lambda leaf: isinstance(leaf, kinds)
    return kinds  # type: ignore[no-any-return]


def map_only(type_or_types_or_pred: Any, /) -> Any:
    """A decorator: the function is applied only to leaves of a type; others are unchanged."""
    matches = _matches(type_or_types_or_pred)

    def decorate(func: Callable[[Any], Any]) -> Callable[[Any], Any]:
        return lambda leaf: func(leaf) if matches(leaf) else leaf

    return decorate


def tree_map_only(
    type_or_types_or_pred: Any, func: Callable[[Any], Any], tree: Any, is_leaf: Any = None
) -> Any:
    """The tree with a function applied to leaves of a type."""
    return tree_map(map_only(type_or_types_or_pred)(func), tree, is_leaf=is_leaf)


def tree_map_only_(
    type_or_types_or_pred: Any, func: Callable[[Any], Any], tree: Any, is_leaf: Any = None
) -> Any:
    """Call a function with leaves of a type; returns the tree itself."""
    tree_map_only(type_or_types_or_pred, func, tree, is_leaf)
    return tree


def tree_all(pred: Callable[[Any], bool], tree: Any, is_leaf: Any = None) -> bool:
    """Whether `pred` holds for all leaves."""
    return all(map(pred, tree_leaves(tree, is_leaf)))


def tree_any(pred: Callable[[Any], bool], tree: Any, is_leaf: Any = None) -> bool:
    """Whether `pred` holds for any leaf."""
    return any(map(pred, tree_leaves(tree, is_leaf)))


def tree_all_only(kinds: Any, pred: Callable[[Any], bool], tree: Any, is_leaf: Any = None) -> bool:
    """Whether `pred` holds for all leaves of a type."""
    return all(pred(x) for x in tree_leaves(tree, is_leaf) if isinstance(x, kinds))


def tree_any_only(kinds: Any, pred: Callable[[Any], bool], tree: Any, is_leaf: Any = None) -> bool:
    """Whether `pred` holds for any leaf of a type."""
    return any(pred(x) for x in tree_leaves(tree, is_leaf) if isinstance(x, kinds))


def tree_flatten_with_path(tree: Any, is_leaf: Any = None) -> tuple[list[Any], TreeSpec]:
    """Pairs of paths and leaves, and the structure."""
    found: list[Any] = []
    _visit_paths(tree, (), is_leaf, found)
    return found, tree_structure(tree, is_leaf)


def tree_leaves_with_path(tree: Any, is_leaf: Any = None) -> list[Any]:
    """Pairs of paths and leaves."""
    return tree_flatten_with_path(tree, is_leaf)[0]


def tree_map_with_path(
    func: Callable[..., Any], tree: Any, *rests: Any, is_leaf: Any = None
) -> Any:
    """The tree with a function applied to each path and leaf."""
    found, spec = tree_flatten_with_path(tree, is_leaf)
    others = [spec.flatten_up_to(rest) for rest in rests]
    rows = zip(found, *others, strict=True)
    return tree_unflatten([func(path, leaf, *more) for (path, leaf), *more in rows], spec)


def _visit_paths(tree: Any, path: tuple[Any, ...], is_leaf: Any, found: list[Any]) -> None:
    if (is_leaf is not None and is_leaf(tree)) or _node_type(tree) is None:
        found.append((path, tree))
        return
    node = SUPPORTED_NODES.get(type(tree))
    if node is None:
        steps = [(GetAttrKey(name), getattr(tree, name)) for name in tree._fields]
    elif node.flatten_with_keys_fn is not None:
        steps = list(node.flatten_with_keys_fn(tree)[0])
    else:
        raise ValueError(f"{type(tree).__name__} was registered without flatten_with_keys_fn")
    for step, child in steps:
        _visit_paths(child, (*path, step), is_leaf, found)


def keystr(kp: Iterable[Any]) -> str:
    """A path as text."""
    return "".join(str(step) for step in kp)


def key_get(obj: Any, kp: Iterable[Any]) -> Any:
    """The part of a tree at a path."""
    for step in kp:
        obj = step.get(obj)
    return obj
