"""Names of torch.distributed around the collectives: meshes, stores, Join, states, processes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from ranks import environment, launch, needs_mpi, run_ranks

import tapegrad as tg
from tapegrad import multiprocessing
from tapegrad.distributed import HashStore, functional
from tapegrad.futures import Future, collect_all

NAMES = [
    "meshes",
    "groups_and_objects",
    "stores",
    "uneven_steps",
    "states",
    "norms_and_precision",
    "late_rank",
]


@needs_mpi
def test_names() -> None:
    first, second = run_ranks("distributed/names.py", 2, NAMES)
    assert first == second
    assert first["meshes"] == 3
    assert first["groups_and_objects"] == [2, 2]
    # Both ranks count in two steps, one of them in a third. The gradient of each step is 1.
    assert first["uneven_steps"] == [5, -0.5, -0.5]


@pytest.mark.parametrize("name", ["reduce", "gather", "broadcast"])
def test_members_that_are_not_there(name: str) -> None:
    for member in (1, -1, None):
        with pytest.raises(ValueError, match="there is no member"):
            getattr(functional, name)(tg.ones(2), member)


def test_futures() -> None:
    future: Future[int] = Future()
    seen: list[int] = []
    future.add_done_callback(lambda done: seen.append(done.value()))
    after = collect_all([future, future.then(lambda done: done.value() + 1)])
    with pytest.raises(RuntimeError, match="nobody has set"):
        after.wait()
    other: Future[int] = Future()
    other.set_result(3)
    with pytest.raises(RuntimeError, match="set already"):
        other.set_result(4)
    future.set_result(1)
    assert seen == [1]
    failed: Future[int] = Future()
    failed.set_exception(ValueError("no"))
    with pytest.raises(ValueError, match="no"):
        failed.then(lambda done: done.value()).wait()


def test_a_store_of_this_process() -> None:
    store = HashStore()
    store.set_timeout(0.05)
    store.append("a", "b")
    store.append("a", b"c")
    assert store.get("a") == b"bc"
    assert store.compare_set("new", "", "first") == b"first"
    with pytest.raises(RuntimeError, match="were not set within"):
        store.get("nothing")
    with pytest.raises(TypeError, match="strings and bytes"):
        store.set("a", 1)


def _double(index: int, queue: object) -> None:
    if index == 1 and queue is None:
        raise ValueError("number one")
    if queue is not None:
        queue.put((index, tg.tensor([index]).mul(2).item()))  # type: ignore[attr-defined]


def test_spawn() -> None:
    queue = multiprocessing.get_context("fork").SimpleQueue()
    multiprocessing.spawn(_double, (queue,), 2, start_method="fork")
    assert sorted([queue.get(), queue.get()]) == [(0, 0), (1, 2)]
    with pytest.raises(multiprocessing.ProcessRaisedException, match="number one"):
        multiprocessing.spawn(_double, (None,), 2, start_method="fork")


SPAWNS = """
import tapegrad.distributed as dist
import tapegrad.multiprocessing as mp

def run(rank, size):
    dist.init_process_group("mpi", rank=rank, world_size=size)

if __name__ == "__main__":
    mp.spawn(run, args=(2,), nprocs=2)
"""


@needs_mpi
def test_spawned_processes_say_how_to_start_ranks(tmp_path: Path) -> None:
    script = tmp_path / "spawns.py"
    script.write_text(SPAWNS)
    command = [sys.executable, str(script)]
    alone = subprocess.run(
        command, capture_output=True, text=True, env=environment(), check=False, timeout=60
    )
    assert "tapegrad launch -n 4" in alone.stderr
    ranks = launch(1, command)
    assert "a process that a rank has started is no rank itself" in ranks.stderr
