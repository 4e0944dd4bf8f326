"""Programs that differ between two ranks; run by `test_distributed_mismatch.py` through `ranks.py`.

`PROGRAMS` has a pair of functions for each name: what rank 0 does, and what rank 1 does. Both must
raise `CollectiveMismatch` with both lines, and the connection must work afterwards; of messages,
the receiver alone raises. `ENDING` has pairs that only a timeout can end.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tapegrad as tg
import tapegrad.distributed as dist
from tapegrad.distributed import checkpoint as states
from tapegrad.distributed import watch
from tapegrad.nn.parallel import DistributedDataParallel

#: where nothing will be saved
FOLDER = Path(tempfile.gettempdir()) / f"tapegrad-mismatches-{os.getuid()}"

Pair = tuple[Callable[[], Any], Callable[[], Any]]


def reduced(size: int = 3, dtype: Any = tg.float32, op: str = "sum", **more: Any) -> Any:
    """An all_reduce, waited for."""
    x = tg.ones(size, dtype=dtype)
    work = dist.all_reduce(x, op, **more)
    if work is not None:
        work.wait()
    return x


# One operation of each kind. All of them can be called by one rank while the other calls another.
KINDS: dict[str, Callable[[], Any]] = {
    "all_reduce": lambda: reduced(),
    "broadcast": lambda: dist.broadcast(tg.ones(3), 0),
    "barrier": lambda: dist.barrier(),
    "reduce": lambda: dist.reduce(tg.ones(3), 0),
    "all_gather": lambda: dist.all_gather([tg.ones(3), tg.ones(3)], tg.ones(3)),
    "reduce_scatter": lambda: dist.reduce_scatter(tg.ones(3), [tg.ones(3), tg.ones(3)]),
    "all_to_all": lambda: dist.all_to_all_single(tg.ones(4), tg.ones(4)),
    "gather": lambda: dist.gather(
        tg.ones(3), [tg.ones(3), tg.ones(3)] if dist.get_rank() == 0 else None
    ),
    "scatter": lambda: dist.scatter(
        tg.ones(3), [tg.ones(3), tg.ones(3)] if dist.get_rank() == 0 else None
    ),
    "object": lambda: dist.broadcast_object_list([1], 0),
    "background": lambda: reduced(async_op=True),
    "new_group": lambda: dist.new_group([0, 1]),
    "save": lambda: checkpoint().save(1),
    "restore": lambda: checkpoint().restore(),
    "save of states": lambda: states.save({"x": 1}, FOLDER),
}


def checkpoint() -> tg.Checkpoint:
    return tg.Checkpoint(FOLDER, model=tg.nn.Linear(2, 1))


def kinds() -> dict[str, Pair]:
    """Every kind against the two after it."""
    names = list(KINDS)
    pairs = [(names[i], names[(i + k) % len(names)]) for k in (1, 2) for i in range(len(names))]
    return {f"kind {a} against {b}": (KINDS[a], KINDS[b]) for a, b in pairs}


def both(function: Callable[[int], Any]) -> Pair:
    """Both ranks call the same function with their rank."""
    return (lambda: function(0)), (lambda: function(1))


def swapped(rank: int) -> None:
    order = [lambda: reduced(3), lambda: reduced(5)]
    for call in order if rank == 0 else reversed(order):
        call()


def other_group(rank: int) -> None:
    reduced(group=GROUPS[rank])
    reduced(group=GROUPS[1 - rank])


def details() -> dict[str, Pair]:
    """The same kind with other details."""
    return {
        "shape": both(lambda rank: reduced(3 + rank)),
        "dimensions": both(lambda rank: dist.all_reduce(tg.ones((1,) * (1 + rank)))),
        "dtype": both(lambda rank: reduced(dtype=(tg.float32, tg.float64)[rank])),
        "dtype of one size": both(lambda rank: reduced(dtype=(tg.int32, tg.float32)[rank])),
        "half": both(lambda rank: reduced(dtype=(tg.float16, tg.bfloat16)[rank])),
        "operation": both(lambda rank: reduced(op=("sum", "max")[rank])),
        "average": both(lambda rank: reduced(op=("avg", "sum")[rank])),
        "saved step": both(lambda rank: checkpoint().save(1 + rank)),
        "source": both(lambda rank: dist.broadcast(tg.ones(2), rank)),
        "target": both(lambda rank: dist.reduce(tg.ones(2), rank)),
        "gathered shape": both(
            lambda rank: dist.all_gather([tg.ones(2 + rank)] * 2, tg.ones(2 + rank))
        ),
        "order": both(swapped),
        "shape in the background": both(lambda rank: reduced(3 + rank, async_op=True)),
        "groups with other members": both(lambda rank: dist.new_group([[0, 1], [0]][rank])),
        "shape of a group": both(lambda rank: reduced(3 + rank, group=GROUPS[0])),
        "one more at the end": both(lambda rank: [reduced() for _ in range(2 + rank)] + [again()]),
        "parameters of a model": both(
            lambda rank: DistributedDataParallel(tg.nn.Linear(2 + rank, 1))
        ),
    }


def again() -> None:
    dist.barrier()


# -- compiled functions --------------------------------------------------------------------------


def compiled(function: Callable[..., Any], calls: int = 6) -> Callable[[int], None]:
    """Calls of a compiled function with the rank and the number of the call."""

    def run(rank: int) -> None:
        step = tg.compile(function)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for i in range(calls):
                step(tg.ones(4), rank, i >= 4)

    return run


def different_from_the_start(x: Any, rank: int, late: bool) -> Any:
    return (dist.functional.all_reduce(x) if rank else dist.functional.all_gather(x)).sum()


def branch_by_rank(x: Any, rank: int, late: bool) -> Any:
    if late and rank == 1:
        return dist.functional.all_reduce(x * 2, "max")
    return dist.functional.all_reduce(x)


def one_more(x: Any, rank: int, late: bool) -> Any:
    y = dist.functional.all_reduce(x)
    if late and rank == 1:
        y = dist.functional.all_reduce(y)
    return y


def missing_at_the_start(x: Any, rank: int, late: bool) -> Any:
    y = dist.functional.all_reduce(x)
    if rank == 0:
        y = dist.functional.all_reduce(y)
    return y


def other_shape_later(x: Any, rank: int, late: bool) -> Any:
    x = x[:2] if late and rank else x
    return dist.functional.all_reduce(x)


def in_place(x: Any, rank: int, late: bool) -> Any:
    y = x * 2
    dist.all_reduce(y, "max" if rank else "sum")
    return y


def other_dtype(x: Any, rank: int, late: bool) -> Any:
    return dist.functional.all_reduce(x.double() if rank else x)


def silent_later(x: Any, rank: int, late: bool) -> Any:
    if late and rank == 1:
        return x * 2
    return dist.functional.all_reduce(x)


def silent_later_in_backward(x: Any, rank: int, late: bool) -> Any:
    y = x.detach().requires_grad_()
    (y * y).sum().backward()
    if not (late and rank == 0):
        dist.all_reduce(y.grad)
    return y.grad


def silent_later_by_data(x: Any, rank: int, late: bool) -> Any:
    if (x.sum() * rank * late).item() > 0:
        return x
    return dist.functional.all_reduce(x)


def silent_once(rank: int) -> None:
    """One call of many without a collective: all later ones would meet the wrong call."""

    @tg.compile
    def step(x: Any, is_silent: bool) -> Any:
        return x * 2 if is_silent else dist.functional.all_reduce(x)

    for i in range(9):
        step(tg.ones(3), rank == 1 and i == 4)


def other_function_first(rank: int) -> None:
    @tg.compile
    def first(x: Any) -> Any:
        return dist.functional.all_reduce(x)

    @tg.compile
    def second(x: Any) -> Any:
        return dist.functional.all_reduce(x) * 2

    for step in (first, second) if rank == 0 else (second, first):
        step(tg.ones(3))


def other_function_later(rank: int) -> None:
    @tg.compile
    def first(x: Any) -> Any:
        return dist.functional.all_reduce(x)

    @tg.compile
    def second(x: Any) -> Any:
        return dist.functional.all_reduce(x) * 2

    for _ in range(4):
        first(tg.ones(3))
        second(tg.ones(3))
    for step in (first, second) if rank == 0 else (second, first):
        step(tg.ones(3))


def one_call_more(rank: int) -> None:
    @tg.compile
    def first(x: Any) -> Any:
        return dist.functional.all_reduce(x)

    @tg.compile
    def second(x: Any) -> Any:
        return dist.functional.all_reduce(x)

    for _ in range(4):
        second(tg.ones(3))
    for _ in range(5 + rank):
        first(tg.ones(3))
    second(tg.ones(3))


def silent_first_call(rank: int) -> None:
    """The first call has a collective on one rank alone, the second on both."""

    @tg.compile
    def step(x: Any, is_silent: bool) -> Any:
        return x * 2 if is_silent else dist.functional.all_reduce(x)

    for i in range(3):
        step(tg.ones(3), rank == 1 and i == 0)


def save_and_record(rank: int) -> None:
    """The first rank saves alone, while the other records a function with a collective."""
    if rank == 0:
        checkpoint().save(1)
    tg.compile(dist.functional.all_reduce)(tg.ones(3))


def programs_of_compiled() -> dict[str, Pair]:
    programs = (
        *(silent_once, other_function_first, other_function_later),
        *(one_call_more, silent_first_call, save_and_record),
    )
    return {f"compiled {f.__name__}": both(f) for f in programs}


def compiled_functions() -> dict[str, Pair]:
    functions = (
        *(different_from_the_start, branch_by_rank, one_more, missing_at_the_start),
        *(other_shape_later, in_place, other_dtype),
        *(silent_later, silent_later_in_backward, silent_later_by_data),
    )
    return {f"compiled {f.__name__}": both(compiled(f)) for f in functions}


# -- messages ------------------------------------------------------------------------------------


def messages() -> dict[str, Pair]:
    return {
        "message shape": (lambda: dist.send(tg.ones(3), 1), lambda: dist.recv(tg.ones(4), 0)),
        "message shorter": (lambda: dist.send(tg.ones(5), 1), lambda: dist.recv(tg.ones(4), 0)),
        "message dtype": (
            lambda: dist.send(tg.ones(3), 1),
            lambda: dist.recv(tg.ones(3, dtype=tg.int32), 0),
        ),
        "message of anybody": (lambda: dist.send(tg.ones(3), 1), lambda: dist.recv(tg.ones(2))),
        "message in the background": (
            lambda: dist.isend(tg.ones(3), 1).wait(),
            lambda: dist.irecv(tg.ones(4), 0).wait(),
        ),
        "message in the background of send": (
            lambda: dist.send(tg.ones(3), 1),
            lambda: dist.irecv(tg.ones(3, dtype=tg.float64), 0).wait(),
        ),
    }


#: programs of which both ranks raise, those of compiled functions, and those of which rank 1 does
EAGER = {**kinds(), **details()}
COMPILED = {**compiled_functions(), **programs_of_compiled()}
MESSAGES = messages()

#: programs that end by the timeout, which names both lines
ENDING: dict[str, Pair] = {
    "nothing": (lambda: reduced(), lambda: wait_for_end()),
    "receive against all_reduce": (lambda: reduced(), lambda: dist.recv(tg.ones(3), 0)),
    "other group": both(other_group),
    "tag": (lambda: dist.recv(tg.ones(1), 1, tag=1), lambda: dist.recv(tg.ones(1), 0, tag=2)),
    "compiled against eager": (
        lambda: [step(tg.ones(3)) for step in [tg.compile(dist.functional.all_reduce)] * 6],
        lambda: (
            [step(tg.ones(3)) for step in [tg.compile(dist.functional.all_reduce)] * 4]
            + [dist.recv(tg.ones(1), 0)]
        ),
    ),
    "leaves": (lambda: reduced(), lambda: None),
}


def wait_for_end() -> None:
    import time

    time.sleep(30)


def run(programs: dict[str, Pair]) -> dict[str, str]:
    """The error of each program in this rank, or an empty text."""
    rank = dist.get_rank()
    found = {}
    for name, pair in programs.items():
        try:
            pair[rank]()
            found[name] = ""
        except dist.CollectiveMismatch as error:
            found[name] = str(error)
        x = tg.ones(1)
        dist.all_reduce(x)  # the connection still works
        assert x.item() == 2
    return found


GROUPS: list[Any] = []


def make_groups() -> None:
    GROUPS.extend(dist.new_group([0, 1]) for _ in range(2))


def run_eager() -> dict[str, str]:
    make_groups()
    found = run(EAGER)
    assert not list(FOLDER.iterdir())  # nothing was saved
    dist.barrier()
    shutil.rmtree(FOLDER, ignore_errors=True)
    return found


def run_compiled() -> dict[str, str]:
    return run(COMPILED)


def run_messages() -> dict[str, str]:
    return run(MESSAGES)


if __name__ == "__main__":
    import sys

    watch.PATIENCE, watch.INTERVAL = 0.3, 0.05  # long enough for these programs
    dist.init_process_group("mpi", timeout=float(sys.argv[2]))
    make_groups()
    ENDING[sys.argv[1]][dist.get_rank()]()
