"""Process groups: ranks that call collectives together, connected by MPI.

A `ProcessGroup` has three communicators: one for checks and for messages of users, one for
collectives of the calling thread, and one for collectives in the background. So a check is never
taken for a collective. Methods work on raw arrays; `ops/collective/` makes primitives of them,
`collectives.py` functions that change tensors. `init_process_group` makes the group of all ranks.
"""

from __future__ import annotations

import itertools
import os
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import Any

import numpy as np

from ..core import locks, source
from ..core.modes import STATE
from ..ops.collective.group import Group
from . import checks, quorum, spans, transport
from .background import Background, Requested, Work
from .job import HOW_TO_START, Job, job, start
from .receipts import ANNOUNCED, Receipts, message

#: the default timeout of collectives
TIMEOUT = timedelta(minutes=10)


class ProcessGroup(Group):
    """Some of the ranks of a job."""

    def __init__(self, job: Job, comm: Any, ranks: tuple[int, ...], name: str, index: int) -> None:
        self.job = job
        #: how many groups of the job were made before this one
        self.index = index
        self.mpi = job.mpi
        self.comm = comm
        self.name = name
        self.ranks = ranks
        self.rank: int = comm.rank
        self.size: int = comm.size
        self.collective_comm = comm.Dup()
        self.background_comm = comm.Dup()
        self._order = job.watch.order(f"group {index}")
        self._receipts = Receipts(self)
        #: held by a thread while it calls a collective
        self._turn = locks.new()

    # -- torch.distributed's names ---------------------------------------------------------------

    def __len__(self) -> int:
        return self.size

    # -- running ---------------------------------------------------------------------------------

    def _call(
        self, kind: str, what: Callable[[], str], function: Callable[..., Any], *args: Any
    ) -> Any:
        """Run a collective in the calling thread: watched, and checked if checks are on."""
        inside = self._tell()
        background().run_pending()
        return self._next(kind, source.here(), inside, checks.wanted() and what, function, *args)

    def _next(
        self, kind: str, location: Any, inside: Any, what: Any, function: Any, *args: Any
    ) -> Any:
        """Give a collective the next number of this group, and run it."""
        watch, thread = self.job.watch, threading.get_ident()
        if thread != watch.caller:
            watch.called_by(thread)
        if not self._turn.acquire(blocking=False):
            raise RuntimeError(self._overlapping(kind, location))
        order = self._order
        watch.running[thread] = (
            f"{kind} of {self.name}", location, time.monotonic(), self.ranks,
            order, order.enter(kind, location), True, inside,
        )  # fmt: skip
        try:
            if what:
                words = what() + checks.inside(inside)
                checks.compare(self.mpi, self.comm, self.ranks, words, location)
            return self._run(kind, self.collective_comm, function, *args)
        finally:
            watch.running.pop(thread, None)
            self._turn.release()

    def _overlapping(self, kind: str, location: Any) -> str:
        """The error for two threads in collectives of one group: their order may differ by rank."""
        there = [o for o in list(self.job.watch.running.values()) if o[4:5] == (self._order,)]
        other = "".join(f"{o[0]} at {source.describe(o[1])}; " for o in there[:1])
        return (
            f"two threads call collectives of {self.name} at the same time: {other}"
            f"{kind} at {source.describe(location)}; give each thread a group of its own, made "
            "with new_group()"
        )

    def meet(self, what: str) -> None:
        """Wait for all members before a common task `what`; raise unless all begin the same."""
        background().run_pending()
        self._next(what, source.here(), None, lambda: what, lambda mpi, comm: None)

    def _tell(self) -> tuple[str, int] | None:
        """Tell tapes of a collective; returns the compiled function that it is in, and the call."""
        inside = checks.LOCAL.inside
        for tape in STATE.tapes:
            found = tape.will_communicate(self)
            inside = inside or found
        return inside

    def connected(self, groups: list[Any]) -> Any:
        """The quorum of ranks that collectives of these groups connect; all members call this."""
        return quorum.connected(self.job, groups, _made + 1, source.here())

    def _watched(
        self, kind: str, location: Any, ranks: Any, comm: Any, function: Any, *args: Any
    ) -> Any:
        """Run a message, which waits for `ranks` and has no number, under the watch."""
        with self.job.watch.during(f"{kind} of {self.name}", location, ranks):
            return self._run(kind, comm, function, *args)

    def _run(self, kind: str, comm: Any, function: Any, *args: Any) -> Any:
        """Call MPI, and note the times if a timeline is being taken."""
        if not spans.is_taken():
            return function(self.mpi, comm, *args)
        began = spans.clock()
        try:
            return function(self.mpi, comm, *args)
        finally:
            size = args[0].nbytes if args and isinstance(args[0], np.ndarray) else 0
            spans.note(kind, size, began, background().is_beside())

    def start(
        self,
        kind: str,
        x: Any,
        function: Callable[..., Any],
        *args: Any,
        finish: Any = None,
        alone: bool = False,
    ) -> Work:
        """Start a collective in the background; nothing else may use its memory until it is done.

        With `alone` it does not wake the background thread, and runs when it is waited for.
        """
        inside = self._tell()
        location, words = source.here(), f"{kind} in the background"
        if checks.wanted():
            # Check now, in the calling thread, so that all checks run in the order of the calls.
            background().run_pending()
            self._next(
                words, location, inside,
                lambda: f"{_shown(kind, x, *args)} in the background", lambda mpi, comm: None,
            )  # fmt: skip
            number = self._order.count
        else:
            number = self._order.enter(words, location)

        def run() -> Any:
            running, thread = self.job.watch.running, threading.get_ident()
            before = running.get(thread)
            running[thread] = (
                f"{kind} of {self.name}", location, time.monotonic(), self.ranks,
                self._order, number, False, inside,
            )  # fmt: skip
            try:
                return self._run(kind, self.background_comm, function, x, *args)
            finally:
                if before is None:
                    running.pop(thread, None)
                else:
                    running[thread] = before

        return background().submit(Work(run, finish), wakes=not alone)

    # -- collectives on arrays -------------------------------------------------------------------

    def all_reduce(self, x: Any, op: str) -> Any:
        return self._call(
            "all_reduce", lambda: _shown("all_reduce", x, op), transport.all_reduce, x, op
        )

    def all_reduce_in_place(self, x: Any, op: str) -> None:
        """Reduce a contiguous array in place."""
        self._call(
            "all_reduce", lambda: _shown("all_reduce", x, op), transport.all_reduce_in_place, x, op
        )

    def reduce_memory(self, x: Any, op: str) -> Work:
        """Start to reduce a contiguous array in place, in the background."""
        return self.start("all_reduce", x, transport.all_reduce_in_place, op)

    def begin(
        self, kind: str, x: Any, *args: Any, in_place: bool = False, alone: bool = False
    ) -> int:
        memory, function = transport.IN_BACKGROUND[kind]
        given = memory(self.background_comm, x, in_place)
        handle = next(_handles)
        _started[handle] = self.start(kind, given, function, *args, alone=alone)
        return handle

    def end(self, handle: int) -> Any:
        return _started.pop(handle).result()

    def abandon(self, handle: int, memory: Any = None) -> None:
        _started.pop(handle).keep(memory)

    def all_gather(self, x: Any) -> Any:
        return self._call("all_gather", lambda: _shown("all_gather", x), transport.all_gather, x)

    def reduce_scatter(self, x: Any, op: str) -> Any:
        return self._call(
            "reduce_scatter",
            lambda: _shown("reduce_scatter", x, op),
            transport.reduce_scatter,
            x,
            op,
        )

    def broadcast(self, x: Any, source: int) -> Any:
        return self._call(
            "broadcast", lambda: _shown("broadcast", x, source), transport.broadcast, x, source
        )

    def broadcast_in_place(self, x: Any, source: int) -> None:
        """Fill a contiguous array with that of the member `source`."""
        self._call(
            "broadcast",
            lambda: _shown("broadcast", x, source),
            transport.broadcast_in_place,
            x,
            source,
        )

    def reduce(self, x: Any, op: str, target: int) -> Any:
        return self._call(
            "reduce", lambda: _shown("reduce", x, op, target), transport.reduce, x, op, target
        )

    def gather(self, x: Any, target: int) -> Any:
        return self._call(
            "gather", lambda: _shown("gather", x, target), transport.gather, x, target
        )

    def scatter(self, x: Any, source: int) -> Any:
        return self._call(
            "scatter", lambda: _shown("scatter", x, source), transport.scatter, x, source
        )

    def all_to_all(self, x: Any, sent: Sequence[int], received: Sequence[int]) -> Any:
        return self._call(
            "all_to_all",
            lambda: f"all_to_all({x.dtype.name}[*{''.join(f',{n}' for n in x.shape[1:])}])",
            transport.all_to_all,
            x,
            sent,
            received,
        )

    def permute(self, x: Any, targets: Sequence[int]) -> Any:
        return self._call(
            "permute_ranks",
            lambda: _shown("permute_ranks", x, tuple(targets)),
            transport.permute,
            x,
            targets,
        )

    def barrier(self, timeout: float | None = None) -> None:
        self._call("barrier", lambda: "barrier()", transport.barrier, timeout)

    # -- messages --------------------------------------------------------------------------------

    def send(self, x: Any, target: int, tag: int) -> None:
        self._tell()
        background().run_pending()
        location = source.here()
        self._announce(x, target, tag, location)
        peer = self._ranks_of(target)
        self._watched("send", location, peer, self.comm, transport.send, x, target, tag)

    def receive(self, shape: tuple[int, ...], dtype: Any, source: int, tag: int) -> Any:
        out = np.empty(shape, dtype)
        self.receive_into(out, source, tag)
        return out

    def receive_into(self, out: Any, source_rank: int, tag: int) -> int:
        """Receive a message into a contiguous array; -1 is any member. Returns the sender."""
        self._tell()
        background().run_pending()
        location = source.here()
        peer = self._ranks_of(source_rank)
        found: int = self._watched(
            "receive", location, peer, self.comm, self._receive, out, source_rank, tag, location
        )
        return found

    def _receive(
        self, mpi: Any, comm: Any, out: Any, source_rank: int, tag: int, location: Any
    ) -> int:
        if checks.wanted():
            receipt = self._receipts.ask(out, source_rank, tag, location)
            receipt.Wait()
            return receipt.finish()
        return transport.receive(mpi, comm, out, source_rank, tag)

    def _announce(self, x: Any, target: int, tag: int, location: Any) -> None:
        if checks.wanted():
            checks.announce(self.comm, target, message(x, tag), location, ANNOUNCED + tag)

    def start_send(self, x: Any, target: int, tag: int) -> Work:
        x, location = transport.whole(x), source.here()
        self._announce(x, target, tag, location)
        request = self.comm.Isend(transport.as_bytes(x), target, tag)
        watched = self._waiting("isend", location, target)
        return Requested(request, self.mpi.Status(), watched, keeps=x)

    def start_receive(self, out: Any, source_rank: int, tag: int, finish: Any = None) -> Work:
        location, status = source.here(), self.mpi.Status()
        watched = self._waiting("irecv", location, source_rank)
        if checks.wanted():
            # The request waits for the announcement; then the message is received at once.
            receipt = self._receipts.ask(out, source_rank, tag, location)

            def complete_announced(status: Any) -> None:
                receipt.finish()
                if finish is not None:
                    finish(None)

            return Requested(receipt, receipt.status, watched, complete_announced)
        sender = self.mpi.ANY_SOURCE if source_rank < 0 else source_rank
        request = self.comm.Irecv(transport.as_bytes(out), sender, tag)

        def complete(status: Any) -> None:
            transport.check_size(self.mpi, out, status)
            if finish is not None:
                finish(None)

        return Requested(request, status, watched, complete)

    def _ranks_of(self, member: int) -> tuple[int, ...]:
        """The ranks for which a message to or from a member waits; -1 is any member."""
        return self.ranks if member < 0 else (self.ranks[member],)

    def _waiting(
        self, kind: str, location: Any, member: int
    ) -> Callable[[], AbstractContextManager[None]]:
        what, ranks = f"{kind} of {self.name}", self._ranks_of(member)
        return lambda: self.job.watch.during(what, location, ranks)


def _shown(kind: str, x: Any, *details: Any) -> str:
    shown = "".join(f", {d}" for d in details)
    return f"{kind}({x.dtype.name}{list(x.shape)}{shown})"


_handles = itertools.count(1)
#: collectives that were started and not ended yet, by handle
_started: dict[int, Work] = {}


# -- the process's groups ------------------------------------------------------------------------

_world: ProcessGroup | Group | None = None
_groups: list[Any] = []
_background: Background | None = None
_made = 0


def background() -> Background:
    """The `Background` that runs the background collectives of this process."""
    assert _background is not None
    return _background


def init_process_group(
    backend: str | None = None,
    init_method: str | None = None,
    timeout: timedelta | float | None = None,
    world_size: int = -1,
    rank: int = -1,
    store: Any = None,
    group_name: str = "",
    pg_options: Any = None,
    device_id: Any = None,
) -> None:
    """Connect this process to the others of its job, which MPI has started.

    `backend` is "mpi". A collective that takes longer than `timeout` (a timedelta, or seconds; 10
    minutes by default) ends the job, with the rank, the collective and the line. `rank` and
    `world_size` come from MPI; if they are given, they must agree with it. Threads of native code
    are divided among the ranks of a machine, unless OMP_NUM_THREADS sets their number.
    """
    global _world, _background
    if backend not in (None, "mpi", "cpu:mpi"):
        raise ValueError(f'backend must be "mpi", got {backend!r}: ranks are connected by MPI')
    if _world is not None:
        raise RuntimeError("init_process_group was called twice; call destroy_process_group first")
    seconds = timeout if timeout is not None else _default_timeout()
    seconds = seconds.total_seconds() if isinstance(seconds, timedelta) else float(seconds)
    if not seconds > 0:
        raise ValueError(f"timeout must be positive, got {timeout!r}")
    connected = start(seconds)
    for name, given, found in (
        ("world_size", world_size, connected.size),
        ("rank", rank, connected.rank),
    ):
        if given not in (-1, None, found):
            raise ValueError(
                f"{name}={given} was given, but MPI says {found}; leave it out, or {HOW_TO_START}"
            )
    ranks = tuple(range(connected.size))
    with connected.watch.during("init_process_group", source.here(), ranks):
        cores, threads = _divide_cores(connected)
        _background = Background(threaded=connected.local_size * (threads + 1) <= cores)
        connected.before_leaving = _background.drain
        _world = ProcessGroup(connected, connected.world.Dup(), ranks, "world", 0)
    _groups.append(_world)


def _default_timeout() -> timedelta | float:
    """The timeout given to `tapegrad launch`, or 10 minutes."""
    given = os.environ.get("TAPEGRAD_TIMEOUT")
    return TIMEOUT if given is None else float(given)


def _divide_cores(connected: Job) -> tuple[int, int]:
    """Divide cores among ranks; returns the cores of this machine and the threads of this rank."""
    from ..replay.cpu import pool, progress

    progress.is_quiet = connected.rank > 0
    mine = tuple(sorted(os.sched_getaffinity(0))) if hasattr(os, "sched_getaffinity") else ()
    everybody = connected.node.allgather(mine)
    cores = pool.usable_cores()
    shared = len(set(everybody)) == 1
    if "OMP_NUM_THREADS" not in os.environ and shared:
        pool.set_num_threads(max(1, cores // connected.local_size))
    threads = pool.get_num_threads()
    return (cores if shared else cores * connected.local_size), threads


def destroy_process_group(group: Any = None) -> None:
    """Leave a group, or all groups for None. The connection to other ranks stays until exit."""
    global _world
    if group is not None and group is not _world:
        _groups.remove(group)
        return
    if _world is None:
        raise RuntimeError("there is no process group to destroy")
    background().drain()
    _groups.clear()
    _world = None


def is_initialized() -> bool:
    """Whether `init_process_group` was called."""
    return _world is not None


def is_available() -> bool:
    """Whether mpi4py is installed."""
    from importlib.util import find_spec

    return find_spec("mpi4py") is not None


def resolved(group: Any) -> Any:
    """The given group; for None, the group of all ranks."""
    if group is None:
        if _world is None:
            raise RuntimeError(
                "the default process group does not exist; call "
                "tapegrad.distributed.init_process_group() first"
            )
        return _world
    if not isinstance(group, Group):
        raise TypeError(f"expected a process group, got {type(group).__name__}")
    return group


def new_group(
    ranks: Sequence[int] | None = None,
    timeout: Any = None,
    backend: str | None = None,
    pg_options: Any = None,
    use_local_synchronization: bool = False,
    group_desc: str | None = None,
) -> Any:
    """Make a group of some ranks. All ranks of the job call this.

    Ranks outside the group get `GroupMember.NON_GROUP_MEMBER` instead.
    """
    global _made
    world = resolved(None)
    members = tuple(range(world.size)) if ranks is None else tuple(sorted(ranks))
    if len(set(members)) != len(members) or not all(0 <= r < world.size for r in members):
        raise ValueError(f"ranks must be different ones of 0 to {world.size - 1}, got {ranks}")
    _made += 1
    name = group_desc or f"group {_made} (ranks {', '.join(map(str, members))})"
    color = 0 if world.rank in members else world.mpi.UNDEFINED
    location = source.here()
    what = checks.wanted() and (lambda: f"new_group({list(members)})")
    comm = world._next(
        "new_group", location, None, what, lambda mpi, comm: comm.Split(color, world.rank)
    )
    if world.rank not in members:
        return NON_GROUP_MEMBER
    with world.job.watch.during("new_group", location, members):
        made = ProcessGroup(world.job, comm, members, name, _made)
    _groups.append(made)
    return made


class _NonMember:
    """What a rank gets in place of a group that it is not in."""

    def __repr__(self) -> str:
        return "<no member of the group>"


NON_GROUP_MEMBER = _NonMember()


def get_rank(group: Any = None) -> int:
    """This process's rank in a group; -1 if it is not a member."""
    if isinstance(group, _NonMember):
        return -1
    rank: int = resolved(group).rank
    return rank


def get_world_size(group: Any = None) -> int:
    """The number of ranks in a group; -1 if this process is not a member."""
    if isinstance(group, _NonMember):
        return -1
    size: int = resolved(group).size
    return size


def get_global_rank(group: Any, group_rank: int) -> int:
    """A member's rank in the whole job, from its rank in a group."""
    rank: int = resolved(group).ranks[group_rank]
    return rank


def get_group_rank(group: Any, global_rank: int) -> int:
    """A member's rank in a group, from its rank in the whole job."""
    ranks = resolved(group).ranks
    if global_rank not in ranks:
        raise ValueError(f"rank {global_rank} is not one of {resolved(group)!r}")
    index: int = ranks.index(global_rank)
    return index


def get_process_group_ranks(group: Any) -> list[int]:
    """The ranks of a group's members in the whole job."""
    return list(resolved(group).ranks)


def get_backend(group: Any = None) -> str:
    resolved(group)
    return "mpi"


def describe() -> str:
    """What `tapegrad info` prints about the job."""
    from ..replay.cpu import pool

    mine, threads = job(), pool.get_num_threads()
    machines = mine.world.allreduce(int(mine.local_rank == 0))
    vendor, version = mine.mpi.get_vendor()
    how = (
        "in a thread of their own"
        if background().threaded
        else "where they are waited for, since all cores compute"
    )
    return (
        f"{mine.size} on {machines} machine{'s' * (machines > 1)}, with {threads} "
        f"thread{'s' * (threads > 1)} each; {vendor} {'.'.join(map(str, version))}; "
        f"collectives in the background run {how}"
    )
