"""ZeroRedundancyOptimizer: an optimizer whose state is divided among the ranks.

Every rank has all parameters and their averaged gradients, as with `DistributedDataParallel`. Each
parameter belongs to one rank; only that rank keeps its optimizer state and updates it. After a step
the ranks exchange the updated parameters, with one message per dtype. Public as
`distributed.optim.ZeroRedundancyOptimizer`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..autograd.gradients import Gradients
from ..core.modes import LISTENING, STATE, enable_grad, no_grad
from ..core.tensor import Tensor, wrap
from ..distributed.objects import gather_object
from ..distributed.process_group import resolved
from ..ops.collective.moving import all_gather_
from ..ops.shape.joining import cat
from ..optim.groups import Group, States, as_groups
from ..optim.optimizer import Optimizer
from ..optim.saving import packed
from .join import Joinable


class _WholeGroup(Group):
    """A group of parameters of all ranks; options set here are also set in the local group.

    Schedules write here; the local optimizer reads its own group, also in replays.
    """

    local: Group

    def __setitem__(self, key: str, value: Any) -> None:
        super().__setitem__(key, value)
        if key not in ("params", "param_names"):
            self.local[key] = value

    def update(self, *args: Any, **kwargs: Any) -> None:
        for key, value in dict(*args, **kwargs).items():
            self[key] = value

    def setdefault(self, key: str, default: Any = None) -> Any:
        if key not in self:
            self[key] = default
        return self[key]

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (dict(self),)


class ZeroRedundancyOptimizer(Optimizer, Joinable):
    """An optimizer of `optimizer_class` whose state is divided among the ranks.

    `params` are all parameters, in the same order on all ranks; gradients must already be averaged.
    `defaults` are the options of `optimizer_class`. With `parameters_as_bucket_view`, parameters
    are views of the memory for messages, which saves two copies of them in each step.
    `consolidate_state_dict()` sends all state to one rank, where `state_dict()` then returns it.
    """

    optim: Optimizer

    def __init__(
        self,
        params: Any,
        optimizer_class: Any,
        process_group: Any = None,
        parameters_as_bucket_view: bool = False,
        overlap_with_ddp: bool = False,
        **defaults: Any,
    ) -> None:
        if overlap_with_ddp:
            raise ValueError(
                "overlap_with_ddp=True is not there: DistributedDataParallel averages gradients "
                "while backward runs, and step() updates after it; leave the option out"
            )
        self.process_group = resolved(process_group)
        self.parameters_as_bucket_view = parameters_as_bucket_view
        self._class = optimizer_class
        self._options = defaults
        self._consolidated: dict[str, Any] | None = None
        self._views: dict[Any, Tensor] = {}
        groups = as_groups(params)
        #: by parameter id: the rank that owns it
        self._owners: dict[int, int] = {}
        #: number of elements that each rank owns
        self._loads = [0] * self.process_group.size
        super().__init__(groups, dict(defaults))

    def _shadow(self) -> None:
        """Update this rank's parameters without data, with the averaged gradients."""
        self._update(None)

    # -- dividing --------------------------------------------------------------------------------

    def add_param_group(self, param_group: Group) -> None:
        """Add a group of parameters, and divide them among the ranks like the others."""
        super().add_param_group(param_group)
        group = self.param_groups.pop()
        self._divide(group["params"])
        mine = [p for p in group["params"] if self.owns(p)]
        options = {k: v for k, v in group.items() if k not in ("params", "param_names")}
        if hasattr(self, "optim"):
            self.optim.add_param_group({**options, "params": mine})
        else:
            self.optim = self._class([{**options, "params": mine}], **self._options)
            self.defaults = self.optim.defaults
            self.state = self.optim.state
        local = self.optim.param_groups[-1]
        whole = _WholeGroup()
        whole.local = local
        whole.update({**local, **group})
        self.param_groups.append(whole)
        self._consolidated = None
        self._parts = self._divided()
        if self.parameters_as_bucket_view:
            self._move_into_views()

    def _divide(self, parameters: list[Tensor]) -> None:
        """Assign each parameter, the largest first, to the rank with the fewest elements."""
        for p in sorted(parameters, key=lambda p: -p.numel()):
            rank = min(range(len(self._loads)), key=self._loads.__getitem__)
            self._owners[p.id] = rank
            self._loads[rank] += p.numel()

    def owns(self, parameter: Tensor) -> bool:
        """Whether this rank updates a parameter and keeps its state."""
        rank: int = self.process_group.rank
        return self._owners[parameter.id] == rank

    def _divided(self) -> dict[Any, list[list[Tensor]]]:
        """By dtype, the parameters of each rank."""
        parts: dict[Any, list[list[Tensor]]] = {}
        for group in self.param_groups:
            for p in group["params"]:
                empty: list[list[Tensor]] = [[] for _ in self._loads]
                parts.setdefault(p._array.dtype, empty)[self._owners[p.id]].append(p)
        return parts

    def _move_into_views(self) -> None:
        """Move the parameters into one array per dtype, with one row per rank."""
        self._views = {}
        for dtype, ranks in self._parts.items():
            size = max(sum(p.numel() for p in part) for part in ranks)
            whole = wrap(np.zeros((len(ranks), size), dtype))
            for row, part in enumerate(ranks):
                at = 0
                for p in part:
                    place = whole[row, at : at + p.numel()].view(p.shape)
                    place.copy_(p.detach())
                    p.data = place
                    at += p.numel()
            self._views[dtype] = whole

    # -- stepping --------------------------------------------------------------------------------

    def step(self, closure: Any = None, **kwargs: Any) -> Any:
        """Update this rank's parameters and send them to the others; all ranks call it."""
        loss = None
        self._notify_join()
        if callable(closure):
            with enable_grad():
                loss = closure()
            closure = None
        self._update(closure, **kwargs)
        return loss

    def _update(self, closure: Any, **kwargs: Any) -> None:
        if isinstance(closure, Mapping) and not isinstance(closure, Gradients):
            closure = Gradients(closure)
        if any(group["params"] for group in self.optim.param_groups):
            self.optim.step(closure, **kwargs)
        if self.process_group.size > 1:
            with no_grad():
                for dtype, ranks in self._parts.items():
                    self._exchange(dtype, ranks)

    def _exchange(self, dtype: Any, ranks: list[list[Tensor]]) -> None:
        """Send this rank's parameters of a dtype, and receive those of the other ranks."""
        group = self.process_group
        if dtype in self._views and not STATE.mode & LISTENING:
            whole = self._views[dtype]
            whole.copy_(wrap(group.all_gather(whole._array[group.rank])))
            return
        sizes = [sum(p.numel() for p in part) for part in ranks]
        parts = [p.detach().reshape(-1) for p in ranks[group.rank]]
        missing = max(sizes) - sizes[group.rank]
        if missing:  # pad to the size of the largest part
            parts.append(wrap(np.zeros(missing, dtype)))
        rows = all_gather_(cat(parts), group=group)
        for row, part in enumerate(ranks):
            at = 0
            for p in part if row != group.rank else ():
                p.detach().copy_(rows[row, at : at + p.numel()].view(p.shape))
                at += p.numel()

    # -- saving and loading ----------------------------------------------------------------------

    def local_state_dict(self) -> dict[str, Any]:
        """The state of this rank's parameters and all options, in the format of `state_dict()`."""
        return packed(self.param_groups, self.optim.state)

    def consolidate_state_dict(self, to: int = 0) -> None:
        """Send the state of all ranks to rank `to`; all ranks call it."""
        group = self.process_group
        found: list[Any] = [None] * group.size
        gather_object(self.local_state_dict()["state"], found, group=group, group_dst=to)
        self._consolidated = None
        if group.rank == to:
            state = {key: value for part in found for key, value in part.items()}
            self._consolidated = {key: state[key] for key in sorted(state)}

    def state_dict(self) -> dict[str, Any]:
        """The state of all parameters, on the rank where it was consolidated."""
        if self._consolidated is None:
            raise RuntimeError(
                "the state is divided among the ranks: call consolidate_state_dict(to=rank) on all "
                "ranks and then state_dict() on that one, or save with Checkpoint or "
                "distributed.checkpoint, which need no rank that has everything"
            )
        options = packed(self.param_groups, States())["param_groups"]
        return {"state": dict(self._consolidated), "param_groups": options}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Load all options, and the state of this rank's parameters."""
        theirs = [list(group["params"]) for group in state_dict["param_groups"]]
        ours = [group["params"] for group in self.param_groups]
        if [len(g) for g in theirs] != [len(g) for g in ours]:
            raise ValueError(
                f"the loaded state has groups of {[len(g) for g in theirs]} parameters, this "
                f"optimizer has groups of {[len(g) for g in ours]}"
            )
        mine = [
            [key for key, p in zip(keys, parameters, strict=True) if self.owns(p)]
            for keys, parameters in zip(theirs, ours, strict=True)
        ]
        kept = {key for keys in mine for key in keys}
        options = [
            {**{k: v for k, v in group.items() if k != "param_names"}, "params": keys}
            for group, keys in zip(state_dict["param_groups"], mine, strict=True)
        ]
        state = {key: value for key, value in state_dict["state"].items() if key in kept}
        self.optim.load_state_dict({"state": state, "param_groups": options})
        self.state = self.optim.state
        self._consolidated = None
        for whole, local in zip(self.param_groups, self.optim.param_groups, strict=True):
            whole.update({k: v for k, v in local.items() if k not in ("params", "param_names")})
