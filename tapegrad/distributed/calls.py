"""Calls: how a function of `collectives.py` becomes a collective.

Such a function checks its arguments and returns a `Call`: the collective, this rank's input, and
where the result goes. `@collective` does what all of them share. It finds the group, returns at
once on ranks outside it, checks that tensors are tensors, and runs the call as a recorded
operation, in the background, or at once.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ParamSpec

from ..core import inplace, storage
from ..core.modes import GRAD, LISTENING, STATE, no_grad
from ..core.tensor import Tensor, own, refresh, wrap
from ..ops.collective import moving, reducing
from . import transport
from .background import Done, Work
from .process_group import NON_GROUP_MEMBER, get_group_rank, resolved

P = ParamSpec("P")

#: the operation of each kind of collective; functions of these names in `transport` and of groups
#: take the same parameters, in the order of `Call.params`
OPERATIONS: dict[str, Callable[..., Any]] = {
    "all_reduce": reducing.all_reduce,
    "reduce": reducing.reduce_,
    "reduce_scatter": reducing.reduce_scatter_,
    "broadcast": moving.broadcast_,
    "all_gather": moving.all_gather_,
    "gather": moving.gather_,
    "scatter": moving.scatter_,
    "all_to_all": moving.all_to_all_,
}


@dataclass(slots=True)
class Call:
    """One collective: its kind, a key of OPERATIONS, and `x`, this rank's input."""

    kind: str
    x: Tensor
    params: dict[str, Any] = field(default_factory=dict)
    #: called with the result; None: the result overwrites `x`
    take: Callable[[Any], None] | None = None
    #: tensors besides `x` whose histories decide whether the call is recorded
    seen: Sequence[Tensor] = ()
    #: the tensors that the call changes, if not `x`
    outputs: Sequence[Tensor] = ()


def collective(function: Callable[P, Call]) -> Callable[P, Work | None]:
    """Make a collective of a function with `group` and `async_op` that returns a `Call`."""
    signature = inspect.signature(function)
    tensors = [name for name, p in signature.parameters.items() if p.annotation == "Tensor"]

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> Work | None:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        given = bound.arguments
        if given["group"] is NON_GROUP_MEMBER:
            return None
        given["group"] = resolved(given["group"])
        for name in tensors:
            check_tensor(given[name], function.__name__)
        return _run(function(*bound.args, **bound.kwargs), given["group"], given["async_op"])

    call.__signature__ = signature.replace(  # type: ignore[attr-defined]
        return_annotation="Work | None"
    )
    return call


def _run(call: Call, group: Any, async_op: bool) -> Work | None:
    what, take, params = call.kind, call.take, call.params
    outputs = call.outputs or [call.x]
    if _is_recorded(call.x, *call.seen):
        result = OPERATIONS[what](call.x, **params, group=group)
        assign(call.x, result, f"{what}_") if take is None else take(result)
        return Done(outputs=outputs) if async_op else None
    args = params.values()
    if take is None:
        array = memory(call.x, what)
        used = transport.whole(array)
        if not async_op:
            getattr(group, f"{what}_in_place")(used, *args)
            changed(array, used)
            return None
        work, finish = f"{what}_in_place", lambda _: changed(array, used)
    else:
        if not async_op:
            take(OPERATIONS[what](call.x, **params, group=group))
            return None
        used, work, finish = call.x._array, what, lambda out: take(wrap(out))
    started: Work = group.start(what, used, getattr(transport, work), *args, finish=finish)
    started.outputs = outputs
    return started


# -- arguments -----------------------------------------------------------------------------------


def check_tensor(tensor: Any, what: str) -> None:
    """Raise unless an argument is a Tensor."""
    if not isinstance(tensor, Tensor):
        raise TypeError(f"{what} expected a Tensor, got {type(tensor).__name__}")


def check_parts(parts: Sequence[Any], group: Any, like: Any, what: str) -> None:
    """Raise unless there is a tensor for each rank, with the shape and dtype of `like`."""
    if len(parts) != group.size:
        raise ValueError(f"{what} needs {group.size} tensors, one for each rank, got {len(parts)}")
    for part in parts:
        check_tensor(part, what)
        if part.shape != like.shape or part.dtype != like.dtype:
            raise ValueError(
                f"{what} needs tensors of one shape and dtype, got {part.dtype}"
                f"{tuple(part.shape)} beside {like.dtype}{tuple(like.shape)}"
            )


def member(group: Any, rank: int | None, group_rank: int | None, default: int | None = None) -> int:
    """The rank in a group, given in the whole job or in the group; `default` if neither is."""
    if rank is None and group_rank is None and default is not None:
        return default
    if (rank is None) == (group_rank is None):
        raise ValueError("give either the rank in the whole job or the one within the group")
    return get_group_rank(group, rank) if rank is not None else int(group_rank or 0)


# -- tensors and their memory --------------------------------------------------------------------


def _is_recorded(*tensors: Tensor) -> bool:
    """Whether a tape is active, or recording is on and one of the tensors has a history."""
    mode = STATE.mode
    return bool(
        mode & LISTENING
        or (mode & GRAD and any(t._requires and t._edge is not None for t in tensors))
    )


def memory(tensor: Tensor, what: str) -> Any:
    """The array of a tensor that will be written to; raise if it must not be."""
    if tensor._view is not None:
        refresh(tensor)
    with no_grad():
        inplace.check_writable(tensor, what)
    own(tensor)
    return tensor._array


def changed(array: Any, used: Any) -> None:
    """After a write to `used`: copy it back if it is a contiguous copy of `array`."""
    if used is not array:
        array[...] = used
    storage.note(array)


def assign(tensor: Tensor, value: Any, what: str) -> None:
    """Assign a value with its history; a leaf that requires gradients gets only the value."""
    if tensor._requires and tensor._edge is None:
        with no_grad():
            inplace.assign(tensor, value, what)
    else:
        inplace.assign(tensor, value, what)


def assign_each(tensors: Sequence[Tensor], what: str) -> Callable[[Any], None]:
    """A function that assigns one row of the result to each tensor."""

    def take(stacked: Any) -> None:
        for i, tensor in enumerate(tensors):
            assign(tensor, stacked[i], what)

    return take
