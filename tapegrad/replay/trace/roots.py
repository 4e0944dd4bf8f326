"""Roots: how tensors from outside are separated or joined while a call is recorded.

Comes in: the arguments of a call, and captured tensors that alias others. An argument that is a
view is made a tensor of its own: the next call may pass another view. But if tensors overlap and
one of them is written to, the others change too. Each of them is then made a view of one tensor,
the span, which reaches from the first byte of all to the last. The span is an input of the program
(`slots.Span`) and is written as a whole. Called by the log of a capture (`log.py`).
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ...core import storage
from ...core.arrays import bounds, flat, over
from ...core.inplace import Chain, through
from ...core.modes import GRAD, STATE
from ...core.storage import owner_of
from ...core.strided import strided_
from ...core.tensor import Tensor, wrap
from ...core.xp import address
from ..guards.facts import overlapping, steps_of
from .slots import Argument, Captured, Span


class Roots:
    """The arguments of a call, and captured tensors that are known to alias others."""

    def __init__(self, arguments: Sequence[Tensor], sharing: Sequence[Tensor] | None) -> None:
        """`sharing` is None if no overlapping memory is known to be written to."""
        self._arguments = arguments
        self._spanned: list[Spanned] = []
        if sharing is not None:
            slots: list[tuple[Tensor, Any]] = [(t, Captured(t)) for t in sharing]
            self._spanned = spans_of([*slots, *((t, Argument(i)) for i, t in enumerate(arguments))])
        #: by id of a span's tensor: the span
        self.spans = {spanned.tensor.id: spanned.span for spanned in self._spanned}
        #: arguments that are views, with their `_view`; by tensor id: their bases
        self._views: list[tuple[Tensor, Any]] = []
        self._bases: dict[int, Tensor] = {}
        #: members of spans, with their old `_view` and the chain from the span
        self._members: list[tuple[Tensor, Any, Chain]] = []

    def take_off(self) -> None:
        """Detach arguments that are views from their bases."""
        members = {tensor.id for spanned in self._spanned for tensor, _ in spanned.members}
        for tensor in self._arguments:
            if tensor._view is not None and tensor.id not in members:
                self._views.append((tensor, tensor._view))
                self._bases[tensor.id] = tensor._view[0]
                tensor._view = None

    def put_on_spans(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Make members views of their spans; yields each with a new view of the same memory."""
        for spanned in self._spanned:
            for tensor, chain in spanned.members:
                yield tensor, through(chain, spanned.tensor)
                self._members.append((tensor, tensor._view, chain))
                tensor._view = (spanned.tensor, chain, storage.latest)

    def members(self) -> list[Tensor]:
        """The tensors that are views of spans."""
        return [tensor for tensor, _, _ in self._members]

    def holds(self, tensor: Tensor) -> bool:
        """Whether a tensor has, in eager code, a base or other views that it does not have here."""
        root = tensor if tensor._view is None else tensor._view[0]
        taken_off = root.id in self._bases or any(root is base for base in self._bases.values())
        return taken_off or root.id in self.spans

    def share_history(self, tensor: Tensor, value: Tensor) -> bool:
        """Whether other tensors also get the history of a value that this one gets."""
        if not self.holds(tensor):
            return False
        root = tensor if tensor._view is None else tensor._view[0]
        base = self._bases.get(root.id, root)
        return value._requires or tensor._requires or root._requires or base._requires

    def member_of(self, root: Tensor, chain: Chain) -> tuple[Tensor, Chain]:
        """The member and the rest of the chain, for a view of a span; else the same root, chain."""
        if root.id in self.spans:
            for tensor, _, step in self._members:
                if chain[0] is step[0]:
                    return tensor, chain[1:]
        return root, chain

    def restore(self, born: Sequence[weakref.ref[Tensor]]) -> None:
        """Give all views their former bases; `born` are the tensors that the run has made."""
        views = {t.id: view for t, view in self._views} | {t.id: v for t, v, _ in self._members}
        if not views:
            return
        for made in (reference() for reference in born):
            if made is None or made._view is None:
                continue
            root, chain, refreshed_at = made._view
            root, chain = self.member_of(root, chain)
            view = views.get(root.id)
            base, before, _ = view or (root, (), 0)
            made._view = (base, (*before, *chain), refreshed_at)
        for tensor in (*(t for t, _ in self._views), *(t for t, _, _ in self._members)):
            tensor._view = views[tensor.id]
        self._views, self._members = [], []

    def check_writable(self, tensor: Tensor) -> None:
        """Refuse to change an argument that is a view of a leaf, as eager operations do."""
        root = tensor if tensor._view is None else tensor._view[0]
        base = self._bases.get(root.id)
        leaf = base is not None and base._requires and base._edge is None
        if leaf and STATE.mode & GRAD:
            raise RuntimeError(
                "this would change a view of a leaf that requires gradients, so its gradient would "
                "be lost; update it inside `with tapegrad.no_grad():`, or work on a clone()"
            )


@dataclass(frozen=True, slots=True)
class Spanned:
    """A span in one call: its tensor, and its members with the chain that leads to each."""

    span: Span
    tensor: Tensor
    members: tuple[tuple[Tensor, Chain], ...]


def spans_of(slots: Sequence[tuple[Tensor, Argument | Captured]]) -> list[Spanned]:
    """The spans of tensors that overlap; groups that do not fit one span are left out."""
    found = []
    known = {tensor.id: slot for tensor, slot in reversed(slots)}
    order = list(dict.fromkeys(tensor.id for tensor, _ in slots))
    for group in overlapping([tensor for tensor, _ in slots]):
        group.sort(key=lambda tensor: order.index(tensor.id))
        arrays = [tensor._array for tensor in group]
        if len({id(a) for a in arrays}) < 2 or not _can_be_views(group):
            continue
        size = arrays[0].itemsize
        low = min(bounds(a)[0] for a in arrays)
        count = (max(bounds(a)[1] for a in arrays) - low) // size
        memory = over(arrays[0], low, count)
        offsets = tuple((address(a) - low) // size for a in arrays)
        chains = [
            ((strided_, {"shape": a.shape, "strides": steps_of(a), "offset": offset}),)
            for a, offset in zip(arrays, offsets, strict=True)
        ]
        span = Span(tuple(known[tensor.id] for tensor in group), offsets, count)
        found.append(Spanned(span, wrap(memory), tuple(zip(group, chains, strict=True))))
    return found


def _can_be_views(tensors: list[Tensor]) -> bool:
    """Whether tensors can be views of one tensor: same dtype, same memory, without gaps."""
    arrays = [t._array for t in tensors]
    bases = [t._view[0] for t in tensors if t._view is not None]
    if any(t._requires for t in (*tensors, *bases)):
        return False
    owner, first, size = owner_of(arrays[0]), address(arrays[0]), arrays[0].itemsize
    return (
        all(a.dtype == arrays[0].dtype and owner_of(a) is owner for a in arrays)
        and all(s % size == 0 for a in arrays for s in (*a.strides, address(a) - first))
        and flat(owner) is not None
    )
