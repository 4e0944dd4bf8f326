"""Units: parameters that are gathered together, used whole, and dropped afterwards.

Comes in: modules and the names of their parameters. A `Unit` replaces each parameter by this rank's
shard of it (`bundles.py`). While it is gathered, the modules' attributes are the whole parameters.
When an operation saves one for backward, only its position in the flat array is kept: backward
gathers the array again and reads the value from that. The next unit's gather starts while this one
computes (`prefetch.py`). Made and used by `fully_shard.py`.
"""

from __future__ import annotations

import copy
import math
from typing import Any, NamedTuple

from ..autograd.api import queue_callback
from ..autograd.checkpointing import saved_tensors_hooks
from ..core import source
from ..core.modes import GRAD, LISTENING, STATE, no_grad
from ..core.storage import owner_of
from ..core.tensor import Tensor
from ..distributed import checks
from ..distributed.shards import whole_of
from ..nn.parameter import Parameter
from ..ops.shape.pieces import as_strided
from . import prefetch
from .bundles import Bundle
from .mixed_precision import MixedPrecisionPolicy


class _SavedPart(NamedTuple):
    """The position of a saved value in the flat array; offset and strides are in elements."""

    call: prefetch.UnitCall | None
    bundle: int
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


class Unit:
    """The parameters of a module that are gathered together."""

    #: state of passes, and what never changes: replays need not compare it
    _unguarded = ("bundles", "parameters", "_slots", "_owners", "_begun", "_again", "_backward")

    def __init__(
        self,
        places: list[tuple[Any, str]],
        group: Any,
        reshards: bool,
        within: list[Unit],
        precision: MixedPrecisionPolicy,
    ) -> None:
        self.group = group
        self.precision = precision
        #: the units inside this unit's module
        self.within = within
        #: whether backward gathers again, instead of using the arrays gathered in forward
        self.reshards = reshards
        #: whether the whole parameters stay after a call, until `drop()`
        self.stays = False
        #: whether gradients are reduced; if not, they are kept locally, in the bundles' `total`
        self.syncs = True
        #: whether the end of backward reduces the local gradients left in it and units inside it
        self.is_last = True
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
        self.bundles: list[Bundle] = []
        #: the shards, and for each the modules and attribute names that hold it
        self.parameters: list[Parameter] = []
        self._slots: list[list[tuple[Any, str]]] = []
        for alike in kinds.values():
            bundle = Bundle(alike, group, precision)
            self.bundles.append(bundle)
            for p, shard in zip(alike, bundle.shards, strict=True):
                self.parameters.append(shard)
                self._slots.append(owners[id(p)])
                for module, name in owners[id(p)]:
                    module._put("_parameters", name, shard)
        self.is_gathered = False
        #: by id() of an array gathered for forward: the array, and the index of its bundle
        self._owners: dict[int, tuple[Any, int]] = {}
        #: handles of the gathers that `begin` has started, by bundle index
        self._begun: dict[int, int] = {}
        #: by bundle index, what a backward pass gathered: flat tensor, and whole parameters in it
        self._again: dict[int, tuple[Any, list[Any]]] = {}
        #: that pass, identified by its `STATE.endings`
        self._backward: Any = None
        self._listen()

    def _listen(self) -> None:
        """Call `_kept` when backward has added a gradient to the `total` of a bundle."""
        for bundle in self.bundles:
            if bundle.trains:
                bundle.total.register_post_accumulate_grad_hook(self._kept)

    def __deepcopy__(self, memo: dict[int, Any]) -> Unit:
        """A separate unit, without started gathers or the arrays of a backward pass."""
        made = memo[id(self)] = object.__new__(Unit)
        for name, value in self.__dict__.items():
            if name not in ("_begun", "_again", "_backward"):
                setattr(made, name, copy.deepcopy(value, memo))
        made._begun, made._again, made._backward = {}, {}, None
        made._listen()
        return made

    def _check_same(self, places: list[tuple[Any, str]]) -> None:
        """Raise unless all ranks divide the same parameters."""
        if self.group.size > 1:
            parameters = [(n, m._parameters[n]) for m, n in places]
            shown = "; ".join(f"{n}: {p.dtype} {tuple(p.shape)}" for n, p in parameters)
            what = f"fully_shard of a module with {shown}"
            checks.compare(self.group.mpi, self.group.comm, self.group.ranks, what, source.here())

    # -- gathering -------------------------------------------------------------------------------

    def begin(self) -> None:
        """Start to gather, unless the gather is started or done already."""
        if not self.is_gathered and not self._begun:
            self._begun = {index: bundle.begin() for index, bundle in enumerate(self.bundles)}

    def gather(self, recorded: bool) -> None:
        """Gather the whole parameters, and set the modules' attributes to them."""
        slots = iter(self._slots)
        forward = prefetch.current()
        apart = recorded and (not self.syncs or (forward is not None and forward.root.keeps()))
        if STATE.mode & LISTENING:  # a program has its own gathers
            self._abandon()
        for index, bundle in enumerate(self.bundles):
            begun = self._begun.pop(index, None)
            if begun is None and forward is not None:
                begun = forward.take(self, index)
            if recorded:
                flat = bundle.flat(begun, apart and bundle.trains)
                if flat.requires_grad and not STATE.mode & LISTENING:
                    flat.register_hook(self._drop_again)
            else:
                with no_grad():
                    flat = bundle.flat(begun)
            owner = owner_of(flat._array)
            self._owners[id(owner)] = (owner, index)
            for whole in bundle.wholes(flat):
                for module, name in next(slots):
                    module.__dict__[name] = whole
        self.is_gathered = True

    def drop(self) -> None:
        """Drop the whole parameters; the modules' attributes are the shards again."""
        for places in self._slots:
            for module, name in places:
                module.__dict__.pop(name, None)
        self._owners.clear()
        self._abandon()
        self.is_gathered = self.stays = False

    def _abandon(self) -> None:
        for handle in self._begun.values():
            self.group.abandon(handle)
        self._begun.clear()

    def gathered(self) -> _Gathered:
        """A context around a call of the module: inside, its parameters are whole."""
        return _Gathered(self)

    def whole_arrays(self) -> list[Any]:
        """The arrays of all whole parameters, in the order of `parameters`."""
        with no_grad():
            return [whole_of(p)._array for p in self.parameters]

    # -- local gradients -------------------------------------------------------------------------

    def keeps(self) -> bool:
        """Whether this unit or one inside it has local gradients, which are not reduced yet."""
        units = (self, *self.within)
        return any(b.total.grad is not None for unit in units for b in unit.bundles)

    def _kept(self, total: Tensor) -> None:
        """Hook: backward has added to a bundle's `total`; reduce that if `syncs` is on by now."""
        if self.syncs:
            for bundle in self.bundles:
                if bundle.total is total:
                    bundle.send_total()
            queue_callback(prefetch.root_of(self)._send_rest)

    def _send_rest(self) -> None:
        """At the end of backward, reduce the local gradients left in units, used in it or not."""
        if self.is_last:
            for unit in (*self.within, self):
                if unit.syncs:
                    for bundle in unit.bundles:
                        bundle.send_total()

    # -- backward --------------------------------------------------------------------------------

    def _hooks(self, outer: Any, call: prefetch.UnitCall | None) -> tuple[Any, Any]:
        """The pack and unpack hooks of saved values that lie in whole parameters.

        Other values go to the hooks around this call, if there are any.
        """

        def pack(tensor: Tensor) -> Any:
            part = self._part(tensor._array, call)
            if part is not None:
                return part
            return tensor if outer is None else outer[0](tensor)

        def unpack(packed: Any) -> Tensor:
            if isinstance(packed, _SavedPart):
                return self._found(packed)
            found: Tensor = packed if outer is None else outer[1](packed)
            return found

        return pack, unpack

    def _part(self, array: Any, call: prefetch.UnitCall | None) -> _SavedPart | None:
        """The position of an array in a gathered array; None if it lies elsewhere."""
        owner, index = self._owners.get(id(owner_of(array)), (None, 0))
        if owner is None:
            return None
        offset = _address(array) - _address(owner)
        size = array.itemsize
        strides = tuple(s // size for s in array.strides)
        if call is not None:
            call.saves(index)
        return _SavedPart(call, index, offset // size, tuple(array.shape), strides)

    def _found(self, part: _SavedPart) -> Tensor:
        """The same part of the parameters, in the array that backward gathers."""
        flat, wholes = self._gather_again(part.bundle, part.call)
        bundle = self.bundles[part.bundle]
        with no_grad():
            if part.offset in bundle.offsets:
                at = bundle.offsets.index(part.offset)
                while at + 1 < len(bundle.offsets) and not math.prod(bundle.shapes[at]):
                    at += 1  # an empty parameter has the offset of the next one
                order = _permutation(bundle.shapes[at], part)
                if order is not None:
                    whole: Tensor = wholes[at]
                    return whole if order == [*range(whole.ndim)] else whole.permute(*order)
            found: Tensor = as_strided(flat, part.shape, part.strides, part.offset)
            return found

    def gathered_again(self) -> dict[int, tuple[Any, list[Any]]]:
        """What the backward pass of this thread has gathered, by bundle index."""
        if self._backward is not STATE.endings:  # left over from a pass that failed
            self._again, self._backward = {}, STATE.endings
        return self._again

    def _gather_again(self, index: int, call: prefetch.UnitCall | None) -> tuple[Any, list[Any]]:
        in_backward = STATE.endings is not None
        if in_backward and index in self.gathered_again():
            return self._again[index]
        begun = prefetch.backward_ahead().take(self, index) if in_backward else None
        with no_grad():
            bundle = self.bundles[index]
            flat = bundle.flat(begun)
            found = flat, bundle.wholes(flat)
        if in_backward:
            self._again[index] = found
            queue_callback(self._again.clear)
            if call is not None:
                prefetch.begin_before(call)
        return found

    def _drop_again(self, g: Any) -> None:
        """Hook: the gradient of the flat array is final; backward needs the parameters no more."""
        self._again.clear()


class _Gathered:
    """The context of a module's call. A class, since operations name the line that calls them."""

    def __init__(self, unit: Unit) -> None:
        self._unit = unit

    def __enter__(self) -> None:
        unit, recorded = self._unit, bool(STATE.mode & GRAD)
        self._is_inner = unit.is_gathered  # a nested call, or after `unshard()`
        self._hooks: saved_tensors_hooks | None = None
        self._outer = prefetch.current()
        forward = prefetch.ForwardPass(unit) if self._outer is None else self._outer
        prefetch.set_current(forward)
        try:
            forward.enter(unit)
            if not self._is_inner:
                unit.gather(recorded)
            forward.begin_next()
        except BaseException:
            self._leave(False)
            raise
        if recorded and unit.reshards and not unit.stays:
            outer = STATE.saved_hooks[-1] if STATE.saved_hooks else None
            call = None if STATE.mode & LISTENING else forward.call(unit)
            self._hooks = saved_tensors_hooks(*unit._hooks(outer, call))
            self._hooks.__enter__()

    def __exit__(self, kind: Any, *exc: Any) -> None:
        if self._hooks is not None:
            self._hooks.__exit__(kind, *exc)
        self._leave(kind is None)

    def _leave(self, is_complete: bool) -> None:
        if not self._is_inner and not self._unit.stays:
            self._unit.drop()
        forward = prefetch.current()
        prefetch.set_current(self._outer)
        if self._outer is None and forward is not None:
            forward.end(is_complete)


def _address(array: Any) -> int:
    return int(array.__array_interface__["data"][0])


def _permutation(shape: tuple[int, ...], part: _SavedPart) -> list[int] | None:
    """The permutation that turns a contiguous array of a shape into a part; None if none does."""
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
