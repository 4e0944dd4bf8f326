"""Programs for ranks: names of torch.distributed around collectives, each against its meaning.

A program returns nothing, or what the ranks must agree on; it asserts what this rank can know.
"""

from __future__ import annotations

import os
import tempfile
from typing import Any

import numpy as np

import tapegrad as tg
import tapegrad.distributed as dist
from tapegrad import nn
from tapegrad.distributed import checkpoint
from tapegrad.distributed.algorithms.join import Join, Joinable, JoinHook
from tapegrad.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_state_dict,
    set_state_dict,
)
from tapegrad.distributed.checkpoint.stateful import Stateful
from tapegrad.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from tapegrad.distributed.optim import ZeroRedundancyOptimizer
from tapegrad.nn.parallel import DistributedDataParallel

RANK, RANKS = dist.get_rank(), dist.get_world_size()


def meshes() -> Any:
    mesh = dist.init_device_mesh("cpu", (RANKS, 1), mesh_dim_names=("rows", "columns"))
    assert mesh.shape == (RANKS, 1)
    assert mesh.size() == RANKS
    assert mesh.get_coordinate() == [RANK, 0]
    assert mesh["rows"].get_local_rank() == RANK
    assert dist.get_process_group_ranks(mesh.get_group("rows")) == list(range(RANKS))
    assert dist.get_process_group_ranks(mesh["columns"].get_group()) == [RANK]
    assert mesh["columns", "rows"].shape == (1, RANKS)
    assert mesh._flatten().mesh.tolist() == list(range(RANKS))
    x = tg.tensor([RANK + 1.0])
    dist.all_reduce(x, group=mesh["rows"].get_group())
    return x.item()


def groups_and_objects() -> Any:
    mine, everybody = dist.new_subgroups(1)
    assert dist.get_process_group_ranks(mine) == [RANK]
    assert len(everybody) == RANKS
    assert dist.group.WORLD is dist.GroupMember.WORLD
    assert dist.get_node_local_rank() == RANK
    received = [None, None]
    if RANK == 0:
        dist.send_object_list(["word", {"n": 12}], dst=1)
    elif RANK == 1:
        assert dist.recv_object_list(received) == 0
        assert received == ["word", {"n": 12}]
    dist.monitored_barrier(timeout=30)
    x = tg.ones(2)
    future = dist.all_reduce(x, async_op=True).get_future()
    return future.then(lambda done: done.value()[0].tolist()).wait()


def late_rank() -> Any:
    """A barrier that one rank comes to later than the others wait."""
    error = ""
    if RANK == 0:
        try:
            dist.monitored_barrier(timeout=0.2)
        except RuntimeError as caught:
            error = str(caught)
        assert "has waited for 0.2 s at a barrier" in error
    x = tg.zeros(1)
    if RANK == 0:
        dist.send(x, 1)
    elif RANK == 1:
        dist.recv(x, 0)
        dist.monitored_barrier(timeout=30)  # the others have begun theirs


def stores() -> Any:
    sent = [dist.TCPStore("127.0.0.1", 0, is_master=True) if RANK == 0 else None]
    port = [sent[0].port if sent[0] is not None else 0]
    dist.broadcast_object_list(port, src=0)
    tcp = sent[0] or dist.TCPStore("127.0.0.1", port[0])
    folder = [tempfile.mkdtemp() if RANK == 0 else ""]
    dist.broadcast_object_list(folder, src=0)
    file = dist.FileStore(os.path.join(folder[0], "store"), RANKS)
    for store in (tcp, file, dist.PrefixStore("a", tcp)):
        store.set(f"key{RANK}", f"value{RANK}")
        store.wait([f"key{i}" for i in range(RANKS)], 30)
        assert store.multi_get(["key0", "key1"]) == [b"value0", b"value1"]
        store.add("count", RANK + 1)
        dist.barrier()
        assert store.add("count", 0) == RANKS * (RANKS + 1) // 2
        assert store.get("key0") == b"value0"
        assert not store.check(["nothing"])
        dist.barrier()
        if RANK == 0:
            assert store.compare_set("key0", "other", "new") == b"value0"
            assert store.compare_set("key0", "value0", b"\xff\n") == b"\xff\n"
            assert store.delete_key("key1")
        dist.barrier()
        assert store.get("key0") == b"\xff\n"
        assert not store.check(["key1"])
    count = tcp.num_keys()
    dist.barrier()
    return count


class Counter(Joinable):
    """Counts the steps of all ranks."""

    def __init__(self) -> None:
        self.process_group = dist.group.WORLD
        self.count = tg.zeros(1)

    def __call__(self) -> None:
        Join.notify_join_context(self)
        one = tg.ones(1)
        dist.all_reduce(one)
        self.count += one

    def join_hook(self, **kwargs: Any) -> JoinHook:
        counter = self

        class Hook(JoinHook):
            def main_hook(self) -> None:
                dist.all_reduce(tg.zeros(1))

            def post_hook(self, is_last_joiner: bool) -> None:
                assert is_last_joiner == (RANK == RANKS - 1)
                dist.broadcast(counter.count, src=RANKS - 1)

        return Hook()


def uneven_steps() -> Any:
    counter = Counter()
    with Join([counter]):
        for _ in range(2 + RANK):
            counter()
    model = DistributedDataParallel(nn.Linear(1, 1), find_unused_parameters=True)
    with tg.no_grad():
        for p in model.parameters():
            p.fill_(1.0)
    optimizer = ZeroRedundancyOptimizer(model.parameters(), tg.optim.SGD, lr=0.5)
    with Join([model, optimizer], divide_by_initial_world_size=False):
        for _ in range(2 + RANK):
            model.zero_grad()
            model(tg.ones(1, 1)).sum().backward()
            optimizer.step()
    return [counter.count.item(), *(p.item() for p in model.parameters())]


class App(Stateful):
    """A model and its optimizer, as one state."""

    def __init__(self, model: Any, optimizer: Any) -> None:
        self.model, self.optimizer = model, optimizer

    def state_dict(self) -> dict[str, Any]:
        model, optimizer = get_state_dict(self.model, self.optimizer)
        return {"model": model, "optimizer": optimizer}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        states = {
            "model_state_dict": state_dict["model"],
            "optim_state_dict": state_dict["optimizer"],
        }
        set_state_dict(self.model, self.optimizer, **states)


def _trained(seed: int, steps: int) -> Any:
    tg.manual_seed(seed)
    model = nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3))
    fully_shard(model)
    optimizer = tg.optim.Adam(model.parameters(), lr=0.1)
    for _ in range(steps):
        optimizer.zero_grad()
        model(tg.ones(2, 5)).square().sum().backward()
        optimizer.step()
    return model, optimizer


def states() -> Any:
    folder = [tempfile.mkdtemp() if RANK == 0 else ""]
    dist.broadcast_object_list(folder, src=0)
    model, optimizer = _trained(0, 2)
    checkpoint.save({"app": App(model, optimizer)}, folder[0])
    others = _trained(1, 0), _trained(2, 1)
    checkpoint.load({"app": App(*others[0])}, folder[0])
    full = StateDictOptions(full_state_dict=True)
    whole = get_state_dict(model, optimizer, options=full)
    assert tuple(whole[0]["0.weight"].shape) == (7, 5)
    assert tuple(whole[1]["state"]["0.weight"]["exp_avg"].shape) == (7, 5)
    given = {"model_state_dict": whole[0], "optim_state_dict": whole[1]}
    if RANK:
        given = {name: {} for name in given}
    sent = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
    set_state_dict(*others[1], options=sent, **given)
    for other, its_optimizer in others:
        for p, q in zip(model.parameters(), other.parameters(), strict=True):
            assert tg.equal(p, q)
            assert tg.equal(optimizer.state[p]["exp_avg"], its_optimizer.state[q]["exp_avg"])
            assert optimizer.state[p]["step"] == its_optimizer.state[q]["step"]
    return whole[0]["0.weight"].tolist()


def norms_and_precision() -> Any:
    """The norm of sharded gradients, and a unit that computes in half precision."""
    found = []
    for policy in (MixedPrecisionPolicy(), MixedPrecisionPolicy(tg.bfloat16, tg.float32)):
        tg.manual_seed(0)
        model, whole = nn.Linear(4, 3), nn.Linear(4, 3)
        whole.load_state_dict(model.state_dict())
        fully_shard(model, mesh=dist.init_device_mesh("cpu", (RANKS,)), mp_policy=policy)
        x = tg.linspace(-1.0, 1.0, 8).reshape(2, 4)
        out = model(x)
        assert out.dtype is (policy.param_dtype or tg.float32)
        out.float().square().sum().backward()
        whole(x).square().sum().backward()
        parameters, expected = list(model.parameters()), list(whole.parameters())
        assert all(p.dtype is p.grad.dtype is tg.float32 for p in parameters)
        for kind in (2.0, float("inf")):
            norm = nn.utils.clip_grad_norm_(parameters, 1e9, kind).item()
            alone = nn.utils.clip_grad_norm_(expected, 1e9, kind).item()
            assert np.isclose(norm, alone, rtol=1e-5 if policy.param_dtype is None else 2e-2)
            found.append(norm)
    return found
