"""Units: parameters that are gathered together, used whole, and dropped again.

Comes in: modules and the names of their parameters. A `Unit` replaces each parameter by this rank's
shard of it. While it is gathered, attributes of the modules show the whole parameters. What an
operation saves of them for backward is not kept: only where it lies in the flat array, so that it
can be found in the array that backward gathers anew. Made and used by `fully_shard.py`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ..autograd.api import queue_callback
from ..autograd.checkpointing import saved_tensors_hooks
from ..core import source
from ..core.modes import GRAD, LISTENING, STATE, no_grad
from ..core.storage import owner_of
from ..core.tensor import Tensor, wrap
from ..distributed import checks
from ..distributed.shards import FlatShard, mark, whole_of
from ..nn.parameter import Parameter
from ..ops.collective.conjugate import unshard_
from ..ops.shape.joining import cat_
from ..ops.shape.pieces import as_strided
from .mixed_precision import MixedPrecisionPolicy


class _SavedPart(NamedTuple):
    """Where a value that an operation has saved lies in the flat array, counted in elements."""

    bundle: int
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


class _Bundle:
    """Parameters of one dtype, one after another, and this rank's part of them."""

    def __init__(
        self, parameters: Sequence[Tensor], group: Any, policy: MixedPrecisionPolicy
    ) -> None:
        self.group = group
        is_float = parameters[0].dtype.is_floating_point
        #: how parameters are gathered and gradients averaged; None: as they are
        self.dtype = policy.param_dtype if is_float else None
        self.reduce_dtype = policy.reduce_dtype if is_float else None
        self.shapes = [tuple(p.shape) for p in parameters]
        sizes = [math.prod(shape) for shape in self.shapes]
        self.offsets = [sum(sizes[:i]) for i in range(len(sizes))]
        self.size = sum(sizes)
        #: elements of each rank's part; the last ones may have fewer, and are padded
        self.part = -(-self.size // group.size) if self.size else 0
        begin, end = group.rank * self.part, (group.rank + 1) * self.part
        self.shards = []
        for p, offset, size in zip(parameters, self.offsets, sizes, strict=True):
            start = min(max(begin - offset, 0), size)
            stop = min(max(end - offset, 0), size)
            values = _first_rank_values(p, group).reshape(-1)[start:stop].copy()
            shard = Parameter(wrap(values), requires_grad=p.requires_grad)
            mark(shard, FlatShard(tuple(p.shape), start, stop, group))
            self.shards.append(shard)
        held = sum(shard.numel() for shard in self.shards)
        self.padding = wrap(np.zeros(self.part - held, parameters[0]._array.dtype))

    def flat(self) -> Any:
        """The whole parameters of all ranks, in one tensor."""
        parts = [*self.shards, self.padding] if self.padding.numel() else self.shards
        # `cat` leaves empty tensors out: a rank with nothing but padding would have no gradient
        # to reduce, and the others would wait for it.
        mine = cat_(*parts, dim=0) if len(parts) > 1 else parts[0].reshape(-1)
        whole = unshard_(mine, group=self.group, dtype=self.dtype, reduce_dtype=self.reduce_dtype)
        return whole.reshape(-1)

    def wholes(self, flat: Any) -> list[Any]:
        """Each parameter in its shape, as a view of the flat tensor."""
        return [
            flat[offset : offset + math.prod(shape)].view(shape)
            for offset, shape in zip(self.offsets, self.shapes, strict=True)
        ]


def _first_rank_values(p: Tensor, group: Any) -> Any:
    return group.broadcast(p._array, 0) if group.size > 1 else p._array


class Unit:
    """The parameters of a module that are gathered together."""

    def __init__(
        self,
        places: list[tuple[Any, str]],
        group: Any,
        reshards: bool,
        precision: MixedPrecisionPolicy,
    ) -> None:
        self.group = group
        self.precision = precision
        #: whether backward gathers again, instead of keeping what forward has gathered
        self.reshards = reshards
        #: whether the whole parameters stay after a call, until somebody drops them
        self.stays = False
        owners: dict[int, list[tuple[Any, str]]] = {}
        given: dict[int, Tensor] = {}
        for module, name in places:
            p = module._parameters[name]
            given[id(p)] = p
            owners.setdefault(id(p), []).append((module, name))
        self._check_same(places)
        kinds: dict[Any, list[Tensor]] = {}
        for p in given.values():
            kinds.setdefault((p._array.dtype, p.requires_grad), []).append(p)
        self._bundles: list[_Bundle] = []
        #: the shards, and for each of them the modules and names under which it stands
        self.parameters: list[Parameter] = []
        self._slots: list[list[tuple[Any, str]]] = []
        for alike in kinds.values():
            bundle = _Bundle(alike, group, precision)
            self._bundles.append(bundle)
            for p, shard in zip(alike, bundle.shards, strict=True):
                self.parameters.append(shard)
                self._slots.append(owners[id(p)])
                for module, name in owners[id(p)]:
                    module._put("_parameters", name, shard)
        self.is_gathered = False
        #: id() of the arrays that were gathered for forward: the array, and which bundle it is
        self._owners: dict[int, tuple[Any, int]] = {}
        #: what backward has gathered: flat tensors, and the whole parameters in them
        self._again: dict[int, tuple[Any, list[Any]]] = {}

    def _check_same(self, places: list[tuple[Any, str]]) -> None:
        """All ranks must divide the same parameters."""
        if self.group.size > 1:
            parameters = [(n, m._parameters[n]) for m, n in places]
            shown = "; ".join(f"{n}: {p.dtype} {tuple(p.shape)}" for n, p in parameters)
            what = f"fully_shard of a module with {shown}"
            checks.compare(self.group.mpi, self.group.comm, self.group.ranks, what, source.here())

    # -- gathering -------------------------------------------------------------------------------

    def gather(self, recorded: bool) -> None:
        """Let the modules' attributes show the whole parameters."""
        slots = iter(self._slots)
        for index, bundle in enumerate(self._bundles):
            if recorded:
                flat = bundle.flat()
                if flat.requires_grad and not STATE.mode & LISTENING:
                    flat.register_hook(self._drop_again)
            else:
                with no_grad():
                    flat = bundle.flat()
            owner = owner_of(flat._array)
            self._owners[id(owner)] = (owner, index)
            for whole in bundle.wholes(flat):
                for module, name in next(slots):
                    module.__dict__[name] = whole
        self.is_gathered = True

    def drop(self) -> None:
        """Let the modules' attributes show the shards."""
        for places in self._slots:
            for module, name in places:
                module.__dict__.pop(name, None)
        self._owners.clear()
        self.is_gathered = self.stays = False

    def gathered(self) -> _Gathered:
        """A context around a call of the module: inside, its parameters are whole."""
        return _Gathered(self)

    def whole_arrays(self) -> list[Any]:
        """The arrays of all whole parameters, in the order of `parameters`."""
        with no_grad():
            return [whole_of(p)._array for p in self.parameters]

    # -- backward --------------------------------------------------------------------------------

    def _hooks(self, outer: Any) -> tuple[Any, Any]:
        """What replaces saved values in whole parameters, and what brings them back.

        Other values go to the hooks around this call, if there are any.
        """

        def pack(tensor: Tensor) -> Any:
            part = self._part(tensor._array)
            if part is not None:
                return part
            return tensor if outer is None else outer[0](tensor)

        def unpack(packed: Any) -> Tensor:
            if isinstance(packed, _SavedPart):
                return self._found(packed)
            found: Tensor = packed if outer is None else outer[1](packed)
            return found

        return pack, unpack

    def _part(self, array: Any) -> _SavedPart | None:
        """Where an array lies in what was gathered; None if it lies elsewhere."""
        owner, index = self._owners.get(id(owner_of(array)), (None, 0))
        if owner is None:
            return None
        offset = _address(array) - _address(owner)
        size = array.itemsize
        strides = tuple(s // size for s in array.strides)
        return _SavedPart(index, offset // size, tuple(array.shape), strides)

    def _found(self, part: _SavedPart) -> Tensor:
        """The same part of the parameters that backward gathers."""
        flat, wholes = self._gathered_again(part.bundle)
        bundle = self._bundles[part.bundle]
        with no_grad():
            if part.offset in bundle.offsets:
                at = bundle.offsets.index(part.offset)
                while at + 1 < len(bundle.offsets) and not math.prod(bundle.shapes[at]):
                    at += 1  # an empty parameter lies where the next one does
                order = _permutation(bundle.shapes[at], part)
                if order is not None:
                    whole: Tensor = wholes[at]
                    return whole if order == [*range(whole.ndim)] else whole.permute(*order)
            found: Tensor = as_strided(flat, part.shape, part.strides, part.offset)
            return found

    def _gathered_again(self, index: int) -> tuple[Any, list[Any]]:
        if index in self._again:
            return self._again[index]
        with no_grad():
            bundle = self._bundles[index]
            flat = bundle.flat()
            found = flat, bundle.wholes(flat)
        if STATE.endings is not None:
            self._again[index] = found
            queue_callback(self._again.clear)
        return found

    def _drop_again(self, g: Any) -> None:
        """The gradient of the flat array is final: backward needs the parameters no more."""
        self._again.clear()


class _Gathered:
    """Around a call of a unit's module. A class, since operations name the line that calls them."""

    def __init__(self, unit: Unit) -> None:
        self._unit = unit

    def __enter__(self) -> None:
        unit, recorded = self._unit, bool(STATE.mode & GRAD)
        self._is_inner = unit.is_gathered  # a call within a call, or after `unshard()`
        self._hooks: saved_tensors_hooks | None = None
        if not self._is_inner:
            unit.gather(recorded)
        if recorded and unit.reshards and not unit.stays:
            outer = STATE.saved_hooks[-1] if STATE.saved_hooks else None
            self._hooks = saved_tensors_hooks(*unit._hooks(outer))
            self._hooks.__enter__()

    def __exit__(self, *exc: object) -> None:
        if self._hooks is not None:
            self._hooks.__exit__(*exc)
        if not self._is_inner:
            self._unit.drop()


def _address(array: Any) -> int:
    return int(array.__array_interface__["data"][0])


def _permutation(shape: tuple[int, ...], part: _SavedPart) -> list[int] | None:
    """The order of dimensions that makes a part of a contiguous array of a shape; None if none."""
    if sorted(shape) != sorted(part.shape):
        return None
    strides = [math.prod(shape[d + 1 :]) for d in range(len(shape))]
    pairs = list(zip(shape, strides, strict=True))
    order: list[int] = []
    for pair in zip(part.shape, part.strides, strict=True):
        options = [d for d, p in enumerate(pairs) if p == pair and d not in order]
        if not options:
            return None
        order.append(options[0])
    return order
