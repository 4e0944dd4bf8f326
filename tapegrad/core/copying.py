"""Copies and pickles of tensors.

Comes in: a tensor. Goes out: a copy, or the parts that a pickle stores: an array on the CPU, the
names of its dtype and device, and its attributes. Called by the methods of `Tensor` that `copy` and
`pickle` call.
"""

from __future__ import annotations

from typing import Any

from . import dtypes, numeric
from .device import as_device, device, to_device
from .modes import GRAD, STATE, TAPE, switched
from .tensor import Tensor, not_recorded, own, wrap


def deep_copy(tensor: Tensor, memo: dict[int, Any]) -> Tensor:
    """A leaf with its own copies of memory, attributes and gradient."""
    if not tensor.is_leaf:
        raise RuntimeError(
            "only leaves can be deep-copied, this tensor is the result of an operation; "
            "use tensor.detach().clone()"
        )
    if id(tensor) in memo:
        found: Tensor = memo[id(tensor)]
        return found
    array = duplicate(tensor)._array
    copy = _copied(type(tensor), array, tensor._requires, _attributes(tensor))
    memo[id(tensor)] = copy
    if tensor._grad is not None:
        copy._grad = tensor._grad.__deepcopy__(memo)
    return copy


def shallow_copy(tensor: Tensor) -> Tensor:
    """Another tensor on the same memory, with the same history."""
    own(tensor)
    copy = _copied(type(tensor), tensor._array, tensor._requires, _attributes(tensor))
    copy._edge = tensor._edge
    copy._grad = tensor._grad
    for tape in STATE.tapes:
        tape.values[copy.id] = tape.value_of(tensor).number
    return copy


def alias(tensor: Tensor, kind: type[Tensor]) -> Any:
    """Another tensor object of a subclass, with the same memory and history.

    Gradients of results computed from it reach the tensor, even if that is a leaf.
    """
    own(tensor)
    made = tensor
    if tensor.requires_grad and tensor._edge is None and STATE.mode & GRAD:
        from .primitive import PRIMITIVES, bind

        made = bind(PRIMITIVES["reshape"], (tensor,), {"shape": tuple(tensor._array.shape)})
    copy = wrap(made._array, kind)
    copy._edge, copy._view = made._edge, made._view
    copy._requires = made._requires
    for tape in STATE.tapes:
        tape.values[copy.id] = tape.value_of(made).number
    return copy


def reduced(tensor: Tensor) -> tuple[Any, ...]:
    """What a pickle stores of a tensor; one with a history becomes a leaf, as in PyTorch."""
    not_recorded(tensor, "pickling")
    array = to_device(tensor._array, device("cpu"))
    name = tensor.dtype.name
    if numeric.is_foreign(array.dtype):
        array = array.view(f"u{array.dtype.itemsize}")
    device_name = str(tensor.device)
    about = (type(tensor), array, name, device_name, tensor.requires_grad, _attributes(tensor))
    return _unpickled, about


def duplicate(tensor: Tensor) -> Tensor:
    """A leaf with the same values in its own memory; a tape logs the copy."""
    if not STATE.mode & TAPE:
        return wrap(tensor._array.copy())
    from .primitive import PRIMITIVES, bind

    with switched(off=GRAD):
        made: Tensor = bind(PRIMITIVES["clone"], (tensor,))
    return made


def _attributes(tensor: Tensor) -> dict[str, Any]:
    return dict(getattr(tensor, "__dict__", {}))


def _copied(kind: type[Tensor], array: Any, requires: bool, attributes: dict[str, Any]) -> Tensor:
    copy = wrap(array, kind)
    copy._requires = requires
    for name, value in attributes.items():
        setattr(copy, name, value)
    return copy


def _unpickled(
    kind: type[Tensor],
    array: Any,
    dtype: str,
    device_name: str,
    requires: bool,
    attributes: dict[str, Any],
) -> Tensor:
    array = array.view(dtypes.dtype_named(dtype).numpy)
    return _copied(kind, to_device(array, as_device(device_name)), requires, attributes)
