"""The names of `torch.autograd.graph`: nodes, edges, hooks on several tensors and on saved ones.

Used by programs written for PyTorch. Nodes are entries of the tape (`core/tape.py`); hooks on saved
tensors and contexts for them are in `checkpointing.py` and here.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from ..core import storage
from ..core.modes import STATE
from ..core.tape import AccumulateGrad, Entry, accumulator_of
from ..core.tensor import RemovableHandle, Tensor, wrap
from .checkpointing import saved_tensors_hooks
from .nodes import FunctionNode

Node = Entry | AccumulateGrad | FunctionNode


class GradientEdge(NamedTuple):
    """A place in the graph: one output of a node, for `autograd.grad` and `backward`."""

    node: Any
    output_nr: int
    #: keeps the graph of the node alive
    ownership_token: Any = None


def get_gradient_edge(tensor: Tensor) -> GradientEdge:
    """The edge at which the gradient of a tensor arrives.

    >>> import tapegrad
    >>> x = tapegrad.ones(2, requires_grad=True)
    >>> edge = tapegrad.autograd.graph.get_gradient_edge(x * 2)
    >>> edge.output_nr
    0
    """
    if not tensor.requires_grad:
        raise RuntimeError("a tensor that does not require gradients has no gradient edge")
    node = accumulator_of(tensor) if tensor.grad_fn is None else tensor.grad_fn
    return GradientEdge(node, tensor.output_nr)


def increment_version(tensor: Tensor | Sequence[Tensor]) -> None:
    """Record that the memory of a tensor was changed other than by its operations."""
    for t in [tensor] if isinstance(tensor, Tensor) else tensor:
        storage.note(t._array)


class save_on_cpu(saved_tensors_hooks):
    """Inside, tensors saved for backward are kept in host memory."""

    def __init__(self, pin_memory: bool = False, device_type: str = "cuda") -> None:
        def pack(tensor: Tensor) -> tuple[Any, Tensor]:
            return tensor.device, tensor.cpu()  # type: ignore[attr-defined,unused-ignore]

        def unpack(packed: tuple[Any, Tensor]) -> Tensor:
            device, tensor = packed
            return tensor.to(device)  # type: ignore[attr-defined,no-any-return,unused-ignore]

        super().__init__(pack, unpack)


@contextmanager
def disable_saved_tensors_hooks(error_message: str) -> Iterator[None]:
    """Inside, `saved_tensors_hooks` raise a RuntimeError with this message."""
    before = STATE.without_saved_hooks
    STATE.without_saved_hooks = error_message
    try:
        yield
    finally:
        STATE.without_saved_hooks = before


# -- hooks on several tensors ------------------------------------------------------------------


def register_multi_grad_hook(
    tensors: Sequence[Tensor],
    fn: Callable[..., Any],
    *,
    mode: str = "all",
) -> RemovableHandle:
    """Call a hook once in each backward pass that computes gradients of some tensors.

    With `mode="all"`, `fn(gradients)` runs when the last gradient is known; those that the pass
    does not compute are None. With "any", `fn(gradient)` runs at the first gradient.

    >>> import tapegrad
    >>> x, y = (tapegrad.ones(1, requires_grad=True) for _ in range(2))
    >>> seen = []
    >>> handle = tapegrad.autograd.graph.register_multi_grad_hook((x, y), seen.append)
    >>> _ = (x * y).backward()
    >>> seen
    [[tensor([1.]), tensor([1.])]]
    """
    if mode not in ("all", "any"):
        raise ValueError(f"mode must be 'all' or 'any', got {mode!r}")
    passes: dict[int, list[Tensor | None]] = {}

    def of_all(index: int) -> Callable[[Tensor], None]:
        def hook(gradient: Tensor) -> None:
            walk = STATE.walk
            if id(walk) not in passes:
                passes.clear()
                passes[id(walk)] = [None] * len(tensors)
            found = passes[id(walk)]
            found[index] = gradient
            expected = sum(walk.reaches(t) for t in tensors)
            if sum(g is not None for g in found) == expected:
                del passes[id(walk)]
                fn(found)

        return hook

    seen: list[int] = []

    def of_any(gradient: Tensor) -> None:
        if seen != [id(STATE.walk)]:
            seen[:] = [id(STATE.walk)]
            fn(gradient)

    hooks = [of_all(i) if mode == "all" else of_any for i in range(len(tensors))]
    handles = [t.register_hook(hook) for t, hook in zip(tensors, hooks, strict=True)]

    def remove() -> None:
        for handle in handles:
            handle.remove()

    return RemovableHandle(remove)


# -- saved tensors that may be changed ---------------------------------------------------------


class _Handle:
    """Represents one saved tensor."""


class _Mutations:
    """Copies of saved tensors, made just before they are overwritten."""

    def __init__(self) -> None:
        self.cloned: weakref.WeakKeyDictionary[_Handle, Any] = weakref.WeakKeyDictionary()
        self.originals: weakref.WeakKeyDictionary[_Handle, Any] = weakref.WeakKeyDictionary()
        #: by address, layout and version: the handle of a tensor that is saved
        self.tid_to_weakhandle: weakref.WeakValueDictionary[Any, _Handle] = (
            weakref.WeakValueDictionary()
        )

    def pack(self, tensor: Tensor) -> _Handle:
        array = tensor._array
        layout = (array.__array_interface__["data"][0], array.shape, array.strides)
        key = (layout, str(array.dtype), storage.version(array))
        handle = self.tid_to_weakhandle.get(key)
        if handle is None:
            handle = self.tid_to_weakhandle[key] = _Handle()
            self.originals[handle] = array
        return handle

    def unpack(self, handle: _Handle) -> Tensor:
        found = self.cloned.get(handle)
        found = self.originals.get(handle) if found is None else found
        if found is None or STATE.mutations is not self:
            raise AssertionError(
                "this graph was recorded inside of allow_mutation_on_saved_tensors, so backward "
                "must run there too"
            )
        return wrap(found)

    def will_write(self, array: Any) -> None:
        owner = storage.owner_of(array)
        for handle, saved in list(self.originals.items()):
            if storage.owner_of(saved) is owner:
                self.cloned[handle] = saved.copy()
                del self.originals[handle]


@contextmanager
def allow_mutation_on_saved_tensors() -> Iterator[_Mutations]:
    """Inside, tensors that are saved for backward may be changed in place: they are copied first.

    >>> import tapegrad
    >>> x = tapegrad.ones(2, requires_grad=True)
    >>> with tapegrad.autograd.graph.allow_mutation_on_saved_tensors():
    ...     y = x.clone()
    ...     z = (y**2).sum()
    ...     _ = y.sin_()
    ...     _ = z.backward()
    >>> x.grad
    tensor([2., 2.])
    """
    if STATE.mutations is not None:
        raise RuntimeError("allow_mutation_on_saved_tensors contexts cannot be nested")
    mutations = _Mutations()
    with saved_tensors_hooks(mutations.pack, mutations.unpack):
        STATE.mutations = mutations
        try:
            yield mutations
        finally:
            STATE.mutations = None
            mutations.cloned.clear()
            mutations.originals.clear()


__all__ = [
    "GradientEdge",
    "Node",
    "allow_mutation_on_saved_tensors",
    "disable_saved_tensors_hooks",
    "get_gradient_edge",
    "increment_version",
    "register_multi_grad_hook",
    "save_on_cpu",
    "saved_tensors_hooks",
]
