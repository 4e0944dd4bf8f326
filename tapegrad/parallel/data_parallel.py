"""DistributedDataParallel: the same model in every process, each with its own part of the data.

Gradients are averaged over the ranks, bucket by bucket, while backward runs: as soon as all
gradients of a bucket are final, its reduction starts in the background. Reductions start in the
same order on all ranks. The end of the backward pass waits for all of them and writes the averages
to `.grad`.

In a compiled function the same steps are operations of the program.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from ..autograd.api import queue_callback
from ..core import storage
from ..core.modes import GRAD, LISTENING, STATE, no_grad
from ..core.tape import node_of
from ..core.tensor import Tensor, own, wrap
from ..core.tree import map_leaves
from ..distributed.process_group import resolved
from ..futures import Future
from ..nn.module import Module
from ..ops.collective.group import AVG, MAX, SUM
from ..ops.collective.moving import broadcast_
from ..ops.collective.reducing import all_reduce_start_, all_reduce_wait_
from ..ops.shape.joining import cat
from .buckets import BUCKET, Bucket, GradBucket, divided, view_of
from .join import Joinable


class DistributedDataParallel(Module, Joinable):
    """A module whose gradients are averaged over all ranks.

    Parameters and buffers start with the values of rank 0. `bucket_cap_mb` is the size of a bucket
    in MiB (4 by default). With `find_unused_parameters`, parameters that a forward pass does not
    use count as ready; one that no rank uses keeps its `.grad`. With `gradient_as_bucket_view`,
    gradients are views of the buckets, which saves a copy of them. The ranks are those of
    `process_group` or of a 1-D mesh.
    """

    def __init__(
        self,
        module: Module,
        device_ids: Any = None,
        output_device: Any = None,
        dim: int = 0,
        broadcast_buffers: bool = True,
        init_sync: bool = True,
        process_group: Any = None,
        bucket_cap_mb: float | None = None,
        find_unused_parameters: bool = False,
        check_reduction: bool = False,
        gradient_as_bucket_view: bool = False,
        static_graph: bool = False,
        *,
        device_mesh: Any = None,
    ) -> None:
        super().__init__()
        if device_mesh is not None:
            if process_group is not None:
                raise ValueError("give the ranks as device_mesh or as process_group, not as both")
            process_group = device_mesh.get_group()
        self.process_group = resolved(process_group)
        self.module = module
        self.broadcast_buffers = broadcast_buffers
        self.find_unused_parameters = find_unused_parameters
        self.gradient_as_bucket_view = gradient_as_bucket_view
        self.static_graph = static_graph
        self.require_backward_grad_sync = True
        ignored = set(getattr(module, "_ddp_params_and_buffers_to_ignore", ()))
        named = [
            (n, p) for n, p in module.named_parameters() if p.requires_grad and n not in ignored
        ]
        if not named:
            raise RuntimeError(
                "DistributedDataParallel needs a module with parameters that require gradients"
            )
        limit = BUCKET if bucket_cap_mb is None else int(bucket_cap_mb * (1 << 20))
        self._ignored = ignored
        self._check_same()
        if init_sync:
            self._send_states()
        self._reducer = Reducer(self, named, limit)

    def _check_same(self) -> None:
        """Raise unless all ranks have the same parameters and buffers."""
        state = {**dict(self.module.named_parameters()), **dict(self.module.named_buffers())}
        shown = "; ".join(f"{n}: {t.dtype} {tuple(t.shape)}" for n, t in state.items())
        group = self.process_group
        if group.size > 1:
            group.meet(f"DistributedDataParallel of a module with {shown}")

    def _send_states(self, source: int = 0) -> None:
        tensors = [
            t
            for n, t in (*self.module.named_parameters(), *self.module.named_buffers())
            if n not in self._ignored
        ]
        _broadcast(tensors, self.process_group, source)

    # -- calling -----------------------------------------------------------------------------------

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Call the module; the backward pass of its result averages gradients."""
        recording = bool(STATE.mode & GRAD)
        if recording:
            self._reducer.armed = self.require_backward_grad_sync
            if self.require_backward_grad_sync:
                self._notify_join()
                if self.broadcast_buffers:
                    self._send_buffers()
        result = self.module(*args, **kwargs)
        if recording and self.require_backward_grad_sync and self.find_unused_parameters:
            self._reducer.unused = self._reducer.unreached(result)
        return result

    def _send_buffers(self) -> None:
        buffers = [b for n, b in self.module.named_buffers() if n not in self._ignored]
        _broadcast(buffers, self.process_group, 0 if self._join is None else self._join.last)

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Inside, backward passes add to `.grad` without averaging; the next one outside does."""
        before, self.require_backward_grad_sync = self.require_backward_grad_sync, False
        try:
            yield
        finally:
            self.require_backward_grad_sync = before

    def register_comm_hook(self, state: Any, hook: Any) -> None:
        """Average gradients with `hook(state, bucket)`, which returns a future of the buffer."""
        if not callable(hook):
            raise TypeError(f"a communication hook must be a function, got {type(hook).__name__}")
        if self._reducer.hook is not None:
            raise RuntimeError("a communication hook is registered already")
        self._reducer.hook = (state, hook)

    def train(self, mode: bool = True) -> Any:
        super().train(mode)
        return self

    # -- uneven inputs -----------------------------------------------------------------------------

    def _shadow(self) -> None:
        """Take part in the others' collectives of one step, with zeros."""
        if self.broadcast_buffers:
            self._send_buffers()
        self._reducer.shadow()

    def _take_over(self, member: int) -> None:
        self._send_states(member)

    def join(
        self,
        divide_by_initial_world_size: bool = True,
        enable: bool = True,
        throw_on_early_termination: bool = False,
    ) -> Any:
        """A context for ranks with different numbers of batches: see `Join`."""
        from .join import Join

        return Join(
            [self],
            enable,
            throw_on_early_termination,
            divide_by_initial_world_size=divide_by_initial_world_size,
        )


def _broadcast(tensors: list[Tensor], group: Any, source: int = 0) -> None:
    """Copy a member's tensors to all ranks, with one message per dtype."""
    if group.size == 1:
        return
    kinds: dict[Any, list[Tensor]] = {}
    for tensor in tensors:
        kinds.setdefault(tensor._array.dtype, []).append(tensor)
    with no_grad():
        for alike in kinds.values():
            flat = cat([t.detach().reshape(-1) for t in alike])
            flat = broadcast_(flat, source=source, group=group)
            if group.rank == source and not STATE.mode & LISTENING:
                continue
            at = 0
            for tensor in alike:
                tensor.detach().copy_(flat[at : at + tensor.numel()].view(tensor.shape))
                at += tensor.numel()


class Pass:
    """The state of one backward pass: the gradients that are ready, and the started reductions."""

    def __init__(self, reducer: Reducer) -> None:
        self.left = [len(b.parameters) for b in reducer.buckets]
        self.ready: set[int] = set()
        self.next = 0
        #: for each started reduction, a function that returns the flat tensor of averages or sums
        self.sent: list[Any] = []


class Reducer:
    """Averages the gradients of a module's parameters."""

    #: state of one pass, and what never changes: replays need not compare it
    _unguarded = ("names", "parameters", "buckets", "where", "armed", "unused", "current")

    def __init__(self, owner: Any, named: Sequence[tuple[str, Tensor]], limit: int) -> None:
        self.owner = owner
        self.group = owner.process_group
        self.names = {id(p): n for n, p in named}
        self.parameters = [p for _, p in named]
        self.buckets = divided(self.parameters, limit)
        self.where = {id(p): (b.index, i) for b in self.buckets for i, p in enumerate(b.parameters)}
        self.hook: Any = None
        #: whether to average the gradients of the latest forward pass
        self.armed = True
        #: indices of the parameters that it did not use
        self.unused: tuple[int, ...] = ()
        #: the number of ranks by which sums are divided; None for all
        self.divisor: int | None = None
        self.current: Pass | None = None
        for p in self.parameters:
            p.register_post_accumulate_grad_hook(self.arrived)

    def unreached(self, result: Any) -> tuple[int, ...]:
        """Indices of the parameters that no path reaches from the tensors in a result."""
        outputs: list[Tensor] = []
        map_leaves(lambda x: outputs.append(x) if isinstance(x, Tensor) else None, result)
        stack = [node_of(t._edge) if t._edge is not None else t for t in outputs]
        seen: set[int] = set()
        while stack:
            node = stack.pop()
            if node is None or id(node) in seen:
                continue
            seen.add(id(node))
            if not isinstance(node, Tensor):
                stack += [node_of(edge) for edge in node.edges]
        return tuple(i for i, p in enumerate(self.parameters) if id(p) not in seen)

    # -- during backward -----------------------------------------------------------------------

    def arrived(self, parameter: Tensor) -> None:
        """Hook: the gradient of a parameter is final."""
        if not self.armed:
            return
        if self.current is None:
            self.current = Pass(self)
            queue_callback(self.finish)
            for i in self.unused:
                self._mark(self.parameters[i])
        self._mark(parameter)

    def _mark(self, parameter: Tensor) -> None:
        run, (bucket, at) = self.current, self.where[id(parameter)]
        assert run is not None
        if id(parameter) in run.ready:
            raise RuntimeError(
                f"parameter {self.names[id(parameter)]} got its gradient twice in one backward "
                "pass; a module that runs several times needs one backward pass for all of them"
            )
        run.ready.add(id(parameter))
        if parameter._grad is not None and parameter._grad.is_sparse:
            parameter._grad = parameter._grad.to_dense()  # the ranks' rows differ: average all
        if not STATE.mode & LISTENING:
            self._fill(self.buckets[bucket], at, parameter)
        run.left[bucket] -= 1
        while run.next < len(self.buckets) and run.left[run.next] == 0:
            run.sent.append(self._send(self.buckets[run.next]))
            run.next += 1

    def _fill(self, bucket: Bucket, at: int, parameter: Tensor) -> None:
        part = bucket.part(at)
        grad = parameter._grad
        if grad is None:
            part[...] = 0
        elif grad._array is not part and not np.may_share_memory(grad._array, part):
            part[...] = grad._array

    def _send(self, bucket: Bucket) -> Any:
        """Start to reduce a bucket; returns a function that waits and returns the flat tensor.

        It has averages; on a tape, without a hook, sums.
        """
        listening = bool(STATE.mode & LISTENING)
        if self.hook is not None:
            flat = self._flat(bucket) if listening else wrap(bucket.array)
            state, hook = self.hook
            last = bucket.index == len(self.buckets) - 1
            future = hook(state, GradBucket(bucket, flat, last))
            if not isinstance(future, Future):
                raise TypeError(
                    f"a communication hook must return a Future, got {type(future).__name__}"
                )
            return lambda: future.wait()
        if listening:
            flat = self._flat(bucket)
            handle = all_reduce_start_(flat, op=SUM, group=self.group)
            return lambda: all_reduce_wait_(handle, flat, group=self.group)
        work = self.group.reduce_memory(bucket.array, AVG if self.divisor is None else SUM)

        def finished() -> Any:
            work.wait()
            return self._divided(wrap(bucket.array))

        return finished

    def _divided(self, flat: Any) -> Any:
        return flat if self.divisor is None else flat / self.divisor

    def _flat(self, bucket: Bucket) -> Any:
        """The gradients of a bucket as one recorded tensor."""
        parts = [
            wrap(np.zeros(p._array.size, p._array.dtype))
            if p._grad is None
            else p._grad.detach().reshape(-1)
            for p in bucket.parameters
        ]
        return cat(parts) if len(parts) > 1 else parts[0]

    # -- at the end of backward ----------------------------------------------------------------

    def finish(self) -> None:
        """Wait for all reductions and write the averages to `.grad`."""
        run, self.current = self.current, None
        assert run is not None
        if run.next < len(self.buckets):
            missing = [self.names[id(p)] for p in self.parameters if id(p) not in run.ready]
            raise RuntimeError(
                "these parameters got no gradient in this backward pass, so that the ranks cannot "
                f"average them: {', '.join(missing[:10])}{' …' if len(missing) > 10 else ''}; if "
                "a forward pass may leave parameters out, say find_unused_parameters=True"
            )
        skipped = self._unused_everywhere() if self.owner.find_unused_parameters else ()
        listening = bool(STATE.mode & LISTENING)
        with no_grad():
            for bucket, result in zip(self.buckets, run.sent, strict=True):
                flat = result()
                for at, p in enumerate(bucket.parameters):
                    if id(p) not in skipped:
                        self._put(bucket, at, p, flat, listening)

    def _put(self, bucket: Bucket, at: int, p: Tensor, flat: Any, listening: bool) -> None:
        start, size = bucket.offsets[at], bucket.sizes[at]
        if not listening and self.owner.gradient_as_bucket_view:
            if flat._array is not bucket.array:
                bucket.part(at)[...] = flat._array[start : start + size].reshape(p._array.shape)
            if p._grad is None or not np.may_share_memory(p._grad._array, bucket.array):
                p._grad = view_of(bucket, at)
            storage.note(bucket.array)
            return
        if listening:
            value = flat[start : start + size].view(p.shape)
            if self.hook is None:
                # Native code fuses this division with the reader of the gradient.
                value = value / (self.divisor or self.group.size)
            if p._grad is None:
                p._grad = value.clone()
            else:
                p._grad.copy_(value)
            return
        values = flat._array[start : start + size].reshape(p._array.shape)
        if p._grad is None:
            p._grad = wrap(values.copy())
        else:
            own(p._grad)
            p._grad._array[...] = values
            storage.note(p._grad._array)

    def _unused_everywhere(self) -> set[int]:
        """id() of the parameters that no rank has used; their gradients do not change."""
        used = np.ones(len(self.parameters), np.int32)
        used[list(self.unused)] = 0
        used = self.group.all_reduce(used, MAX)
        return {id(p) for p, n in zip(self.parameters, used, strict=True) if not n}

    def shadow(self) -> None:
        """Contribute zeros to the reductions of one pass; `.grad` gets the averages."""
        run = self.current = Pass(self)
        for bucket in self.buckets:
            bucket.array[...] = 0
        run.sent = [self._send(bucket) for bucket in self.buckets]
        run.next = len(self.buckets)
        before, self.unused = self.unused, tuple(range(len(self.parameters)))
        self.finish()
        self.unused = before
