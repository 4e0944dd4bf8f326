"""Gradients: what a backward call returns, a mapping from tensors to their gradients.

Keys are tensors or their ids. The mapping holds the gradients of this call, while `.grad`
accumulates over calls; the two share memory until one of them is written to. Made by `api.py`, read
by users and by `optim/optimizer.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, MutableMapping
from typing import Any

from ..core.tensor import Extra, Tensor, wrap


def _key(key: Tensor | int) -> int:
    return key.id if isinstance(key, Tensor) else key


class Lease:
    """Held by a mapping and the tensors it gave out, for as long as they share memory."""

    __slots__ = ("__weakref__",)

    def __call__(self) -> bool:
        return True


class Gradients(MutableMapping[Any, Tensor]):
    """Gradients by tensor or tensor id: read, replace, scale and merge them.

    >>> import tapegrad
    >>> x = tapegrad.tensor([3.0], requires_grad=True)
    >>> grads = (x * x).sum().backward()
    >>> grads[x], grads.get(x.id), len(grads)
    (tensor([6.]), tensor([6.]), 1)
    """

    __slots__ = ("__weakref__", "_items", "_lease")

    def __init__(self, items: Any = ()) -> None:
        self._lease = Lease()
        # Values are raw arrays until they are read.
        self._items: dict[int, Any] = {}
        if items:
            for key, value in dict(items).items():
                self[key] = value

    def _adopt(self, tensor_id: int, value: Any) -> None:
        """Store an array that may be shared; it is copied before the first write."""
        self._items[tensor_id] = value

    def __getitem__(self, key: Tensor | int) -> Tensor:
        tensor_id = _key(key)
        try:
            value = self._items[tensor_id]
        except KeyError:
            raise KeyError(f"no gradient for tensor {tensor_id}") from None
        if isinstance(value, Tensor):
            return value
        tensor = wrap(value)
        tensor._extra = Extra(self._lease)
        self._items[tensor_id] = tensor
        return tensor

    def __setitem__(self, key: Tensor | int, value: Tensor) -> None:
        if not isinstance(value, Tensor):
            raise TypeError(f"a gradient must be a Tensor, got {type(value).__name__}")
        self._items[_key(key)] = value

    def __delitem__(self, key: Tensor | int) -> None:
        del self._items[_key(key)]

    def __contains__(self, key: object) -> bool:
        return isinstance(key, (Tensor, int)) and _key(key) in self._items

    def __iter__(self) -> Iterator[int]:
        return iter(list(self._items))

    def __len__(self) -> int:
        return len(self._items)

    def insert(self, key: Tensor | int, gradient: Tensor) -> None:
        """Set the gradient of a tensor; the same as `gradients[key] = gradient`."""
        self[key] = gradient

    def update_each(self, function: Callable[[Tensor], Tensor]) -> Gradients:
        """Replace every gradient by `function(gradient)`; returns the mapping itself."""
        for tensor_id in self:
            self[tensor_id] = function(self[tensor_id])
        return self

    def scale_(self, factor: Any) -> Gradients:
        """Multiply every gradient by `factor`; `.grad` of the tensors stays as it is."""
        return self.update_each(lambda g: g * factor)

    def merge(self, other: Gradients) -> Gradients:
        """Add another call's gradients to these, tensor by tensor; returns the mapping itself."""
        for tensor_id in other:
            self[tensor_id] = (
                self[tensor_id] + other[tensor_id] if tensor_id in self else other[tensor_id]
            )
        return self

    __iadd__ = merge

    def norm(self, norm_type: float = 2.0) -> Tensor:
        """The norm of all gradients taken as one vector."""
        from ..nn.utils import total_norm

        norm: Tensor = total_norm(list(self.values()), norm_type)
        return norm

    def has_nan(self) -> bool:
        """Whether any gradient has a NaN."""
        return any(g.has_nan() for g in self.values())

    def has_inf(self) -> bool:
        """Whether any gradient has an infinity."""
        return any(g.has_inf() for g in self.values())

    def __repr__(self) -> str:
        shown = ", ".join(f"{n}: {tuple(self[n].shape)}" for n in self)
        return f"Gradients({{{shown}}})"


GradientMap = Gradients
