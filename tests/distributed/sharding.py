"""Programs of ranks with sharded models and optimizers; `test_distributed_sharding.py` runs them.

Every function runs in all ranks and returns what JSON can hold. Without a process group,
`losses_of(...)` trains in one process.
"""

from __future__ import annotations

import copy
import tracemalloc
from typing import Any

import numpy as np
import pytest

import tapegrad as tg
import tapegrad.distributed as dist
from tapegrad.distributed.fsdp import (
    FSDPModule,
    full_state_dict,
    fully_shard,
    load_full_state_dict,
    summon_full_params,
)
from tapegrad.distributed.optim import ZeroRedundancyOptimizer
from tapegrad.distributed.shards import shard_of
from tapegrad.nn.parallel import DistributedDataParallel

STEPS = 20
BATCH = 8
OPTIMIZERS: dict[str, Any] = {
    "adam": (tg.optim.Adam, {"lr": 0.01, "weight_decay": 0.01}),
    "sgd": (tg.optim.SGD, {"lr": 0.05, "momentum": 0.9}),
}
MODELS = ("mlp", "transformer")
WAYS = ("zero", "zero views", "sharded", "kept")


class Block(tg.nn.Module):
    """A layer of a transformer with a weight of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = tg.nn.TransformerEncoderLayer(8, 2, 11, dropout=0.0, batch_first=True)
        self.scale = tg.nn.Parameter(tg.ones(8))

    def forward(self, x: Any) -> Any:
        return self.layer(x) * self.scale


def model_of(kind: str) -> Any:
    tg.manual_seed(0)
    nn = tg.nn
    if kind == "mlp":
        layers = [nn.Linear(6, 13), nn.Tanh(), nn.Linear(13, 7), nn.Tanh(), nn.Linear(7, 3)]
    else:
        layers = [nn.Linear(6, 8), Block(), Block(), nn.Linear(8, 3)]
    return nn.Sequential(*layers).double()


def data() -> tuple[Any, Any]:
    x = np.random.default_rng(1).normal(size=(STEPS, BATCH, 5, 6))
    return x, np.sin(x[..., :3] + x[..., 3:])


def divided(kind: str, optimizer: str, way: str) -> tuple[Any, Any]:
    """A model and its optimizer, divided in a way among the ranks."""
    model = model_of(kind)
    make, options = OPTIMIZERS[optimizer]
    if way.startswith("zero"):
        wrapped = DistributedDataParallel(model)
        views = way == "zero views"
        zero = ZeroRedundancyOptimizer(
            wrapped.parameters(), make, parameters_as_bucket_view=views, **options
        )
        return wrapped, zero
    if way in ("sharded", "kept"):
        for layer in model:
            if list(layer.parameters()) and layer is not model[0]:
                fully_shard(layer, reshard_after_forward=way == "sharded")
        fully_shard(model, reshard_after_forward=way == "sharded")
    return model, make(model.parameters(), **options)


def step_of(model: Any, optimizer: Any) -> Any:
    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = ((model(x) - y) ** 2).mean()
        loss.backward()
        optimizer.step()
        return loss

    return step


def mine(batch: Any) -> Any:
    """This rank's rows of a batch."""
    if not dist.is_initialized():
        return tg.tensor(batch)
    size = len(batch) // dist.get_world_size()
    return tg.tensor(batch[dist.get_rank() * size :][:size])


def mean(loss: Any) -> float:
    """The loss of the whole batch."""
    loss = loss.detach()
    return float(dist.functional.all_reduce(loss, "avg") if dist.is_initialized() else loss)


def losses_of(kind: str, optimizer: str, way: str, compiled: bool) -> list[float]:
    """The losses of a training."""
    step = step_of(*divided(kind, optimizer, way))
    run = tg.compile(step) if compiled else step
    losses = [mean(run(mine(x), mine(y))) for x, y in zip(*data(), strict=True)]
    if compiled:
        assert len(run.replays) == 1, run.explain()
    return losses


def training() -> dict[str, list[float]]:
    """Losses of all ways to divide a training."""
    return {
        f"{kind}, {optimizer}, {way}, {compiled}": losses_of(kind, optimizer, way, compiled)
        for kind in MODELS
        for optimizer in OPTIMIZERS
        for way in (WAYS if kind == "mlp" else ("zero", "sharded"))
        for compiled in (False, True)
    }


# -- memory --------------------------------------------------------------------------------------


def _bytes(tensors: Any) -> int:
    return sum(t._array.nbytes for t in tensors if isinstance(t, tg.Tensor))


def _state_bytes(state: Any) -> int:
    return sum(_bytes(values.values()) for values in state.values())


def memory() -> dict[str, Any]:
    """Bytes that this rank has, and bytes of the whole, after a step of Adam."""
    found: dict[str, Any] = {}
    width = 128
    layers = [tg.nn.Linear(width, width) for _ in range(8)]
    x = tg.ones(2, width)
    whole = sum(_bytes(layer.parameters()) for layer in layers)

    model = tg.nn.Sequential(*layers)
    zero = ZeroRedundancyOptimizer(model.parameters(), tg.optim.Adam, lr=0.01)
    model(x).sum().backward()
    zero.step()
    found["zero"] = {"state": _state_bytes(zero.state), "whole": 2 * whole}

    for layer in layers:
        fully_shard(layer)
    fully_shard(model)
    optimizer = tg.optim.Adam(model.parameters(), lr=0.01)
    model(x).sum().backward()
    optimizer.step()
    parameters = list(model.parameters())
    found["sharded"] = {
        "parameters": _bytes(parameters),
        "gradients": _bytes(p.grad for p in parameters),
        "state": _state_bytes(optimizer.state),
        "whole": whole,
    }
    for reshards in (True, False):
        model.set_reshard_after_forward(reshards)
        optimizer.zero_grad()
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        loss = model(x).sum()
        held = tracemalloc.get_traced_memory()[0] - before
        tracemalloc.reset_peak()
        loss.backward()
        peak = tracemalloc.get_traced_memory()[1] - before
        tracemalloc.stop()
        found[f"reshards {reshards}"] = {"held": held, "peak": peak}
    return found


# -- what ZeRO has besides ---------------------------------------------------------------------


def zero_interface() -> list[Any]:
    """Schedules, closures, groups, consolidated state, errors."""
    size, rank = dist.get_world_size(), dist.get_rank()
    model = model_of("mlp")
    parameters = list(model.parameters())
    zero = ZeroRedundancyOptimizer(
        [{"params": parameters[:2]}, {"params": parameters[2:], "lr": 0.5}], tg.optim.Adam, lr=0.1
    )
    owned = [sum(p.numel() for p in parameters if zero._owners[p.id] == r) for r in range(size)]
    assert sum(owned) == sum(p.numel() for p in parameters)
    assert max(owned) - min(owned) <= max(p.numel() for p in parameters)
    assert [group["lr"] for group in zero.param_groups] == [0.1, 0.5]
    assert zero.param_groups[0]["betas"] == (0.9, 0.999)
    assert [group["lr"] for group in zero.optim.param_groups] == [0.1, 0.5]

    schedule = tg.optim.lr_scheduler.StepLR(zero, 1, 0.5)
    plain_model = model_of("mlp")
    plain = tg.optim.Adam(
        [
            {"params": list(plain_model.parameters())[:2]},
            {"params": list(plain_model.parameters())[2:], "lr": 0.5},
        ],
        lr=0.1,
    )
    plain_schedule = tg.optim.lr_scheduler.StepLR(plain, 1, 0.5)
    x = tg.ones(4, 6, dtype=tg.float64)
    fast = tg.compile(lambda x: _closure(model, zero, x))
    for _ in range(6):
        loss, other = fast(x), _closure(plain_model, plain, x)
        np.testing.assert_allclose(float(loss), float(other), rtol=1e-12)
        schedule.step()
        plain_schedule.step()
    assert len(fast.replays) == 1
    for p, q in zip(model.parameters(), plain_model.parameters(), strict=True):
        np.testing.assert_allclose(p.detach().numpy(), q.detach().numpy(), rtol=1e-10)

    with pytest.raises(RuntimeError, match="consolidate_state_dict"):
        zero.state_dict()
    zero.consolidate_state_dict(to=size - 1)
    states: list[Any] = [zero.state_dict() if rank == size - 1 else None]
    dist.broadcast_object_list(states, src=size - 1)
    assert sorted(states[0]["state"]) == list(range(6))
    plain.load_state_dict(states[0])
    again = ZeroRedundancyOptimizer(
        [{"params": parameters[:2]}, {"params": parameters[2:], "lr": 0.5}], tg.optim.Adam, lr=0.1
    )
    again.load_state_dict(states[0])
    assert again.param_groups[1]["lr"] == zero.param_groups[1]["lr"]
    assert _state_bytes(again.state) == _state_bytes(zero.state)
    _closure(model, again, x)
    _closure(plain_model, plain, x)
    for p, q in zip(model.parameters(), plain_model.parameters(), strict=True):
        np.testing.assert_allclose(p.detach().numpy(), q.detach().numpy(), rtol=1e-10)

    with pytest.raises(ValueError, match="overlap_with_ddp"):
        ZeroRedundancyOptimizer(parameters, tg.optim.SGD, overlap_with_ddp=True, lr=0.1)
    with pytest.raises(ValueError, match="groups of"):
        again.load_state_dict({"state": {}, "param_groups": [{"params": [0]}]})
    one = ZeroRedundancyOptimizer([parameters[0]], tg.optim.SGD, lr=0.1)
    one.add_param_group({"params": [parameters[1]], "lr": 0.2})
    assert one.param_groups[1]["lr"] == 0.2
    parameters[0].grad = tg.ones_like(parameters[0])
    parameters[1].grad = tg.ones_like(parameters[1])
    expected = [
        (p - rate).detach().numpy() for p, rate in zip(parameters, (0.1, 0.2), strict=False)
    ]
    one.step()
    for p, value in zip(parameters, expected, strict=False):
        np.testing.assert_allclose(p.detach().numpy(), value, rtol=1e-12)
    return owned


def _closure(model: Any, optimizer: Any, x: Any) -> Any:
    def closure() -> Any:
        optimizer.zero_grad()
        loss = (model(x) ** 2).mean()
        loss.backward()
        return loss

    return optimizer.step(closure)


# -- what fully_shard has besides ----------------------------------------------------------------


class Tied(tg.nn.Module):
    """One weight under two names, one that is not trained, and one of another dtype."""

    def __init__(self) -> None:
        super().__init__()
        self.first = tg.nn.Linear(5, 5, bias=False)
        self.second = tg.nn.Linear(5, 5, bias=False)
        self.second.weight = self.first.weight
        self.fixed = tg.nn.Parameter(tg.arange(5.0), requires_grad=False)
        self.single = tg.nn.Parameter(tg.tensor(2.0, dtype=tg.float64))

    def forward(self, x: Any) -> Any:
        x = self.second(self.first(x) + self.fixed)
        return (x.transpose(0, 1) * self.single).relu()


def sharded_interface() -> int:
    """Whole states, attributes, tied weights, clipping, checkpointed units, errors."""
    rank = dist.get_rank()
    tg.manual_seed(rank)  # the values of the first rank count
    tied = Tied()
    with pytest.raises(TypeError, match="divides a Module"):
        fully_shard(3)
    assert fully_shard(tied) is tied
    assert isinstance(tied, FSDPModule)
    assert isinstance(tied, Tied)
    assert type(tied).__name__ == "FSDPTied"
    with pytest.raises(ValueError, match="already"):
        fully_shard(tied)
    with pytest.raises(ValueError, match="another unit"):
        fully_shard(tg.nn.ModuleList([tied.first]))
    shard = shard_of(tied.first.weight)
    assert shard is not None
    assert shard.shape == (5, 5)
    assert tied.first.weight.shape == (shard.stop - shard.start,)
    assert tied.second.weight is tied.first.weight
    assert tied.single.dtype == tg.float64

    tg.manual_seed(0)
    plain = Tied()
    state = full_state_dict(tied)
    for name, value in plain.state_dict().items():
        np.testing.assert_array_equal(state[name].numpy(), value.numpy())
    x = tg.ones(3, 5) * (rank + 1)
    with tg.no_grad():
        np.testing.assert_array_equal(tied(x).numpy(), plain(x).numpy())
    tied.unshard()
    assert tied.first.weight.shape == (5, 5)
    assert [p.ndim for p in tied.parameters()] == [1, 1, 1]
    tied(x).sum().backward()
    tied.reshard()
    assert tied.first.weight.shape == (shard.stop - shard.start,)
    with summon_full_params(tied):
        assert tied.single.shape == ()

    # gradients are averages; their norm is that of all ranks
    plain(x).sum().backward()
    for p in plain.parameters():
        if p.requires_grad:
            dist.all_reduce(p.grad, dist.ReduceOp.AVG)
    norm = tg.nn.utils.clip_grad_norm_(plain.parameters(), 0.5)
    np.testing.assert_allclose(float(tied.clip_grad_norm_(0.5)), float(norm), rtol=1e-5)
    part = plain.first.weight.grad.reshape(-1)[shard.start : shard.stop]
    np.testing.assert_allclose(tied.first.weight.grad.numpy(), part.numpy(), rtol=1e-4)
    assert tied.fixed.grad is None

    # a unit that is recomputed in backward
    tied.zero_grad()
    plain.zero_grad()
    tg.checkpoint(tied, x).sum().backward()
    plain(x).sum().backward()
    dist.all_reduce(plain.first.weight.grad, dist.ReduceOp.AVG)
    part = plain.first.weight.grad.reshape(-1)[shard.start : shard.stop]
    np.testing.assert_allclose(tied.first.weight.grad.numpy(), part.numpy(), rtol=1e-5)

    changed = {name: value + 1 for name, value in state.items()}
    load_full_state_dict(tied, changed)
    np.testing.assert_array_equal(
        full_state_dict(tied)["first.weight"].numpy(), changed["first.weight"].numpy()
    )
    with pytest.raises(RuntimeError, match="shape"):
        load_full_state_dict(tied, {**changed, "first.weight": tg.ones(2, 5)})
    return int(tied.first.weight.numel())


# -- many kinds of layers ------------------------------------------------------------------------


def _square(y: Any) -> Any:
    y = y[0] if isinstance(y, tuple) else y
    return y.float().square().sum()


def _plainly(model: Any, x: Any) -> None:
    _square(model(x)).backward()


def _compiled(model: Any, x: Any) -> None:
    fast = tg.compile(model)
    for _ in range(4):
        model.zero_grad()
        _square(fast(x)).backward()


def _in_half(model: Any, x: Any) -> None:
    with tg.autocast("cpu", dtype=tg.bfloat16):
        y = model(x)
    _square(y).backward()


def _twice(model: Any, x: Any) -> None:
    first, second = model(x), model(2 * x)
    (_square(first) + _square(second)).backward(retain_graph=True)
    first.sum().backward()


def _through_gradients(model: Any, x: Any) -> None:
    x = x.clone().requires_grad_()
    (g,) = tg.autograd.grad(_square(model(x)), x, create_graph=True)
    _square(g).backward()


def sharded_layers() -> int:
    """Gradients of models of many kinds, in many ways of training, are those of plain ones."""
    nn = tg.nn

    def mlp() -> Any:
        return nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 3))

    def image() -> Any:
        layers = nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten(), nn.Linear(27, 2)
        return nn.Sequential(*layers)

    tg.manual_seed(dist.get_rank())
    rows = tg.randn(4, 6)
    cases: list[tuple[Any, Any, Any]] = [
        (mlp, rows, _plainly),
        (mlp, rows, _compiled),
        (mlp, rows, _in_half),
        (mlp, rows, _twice),
        (mlp, rows, _through_gradients),
        (lambda: nn.LSTM(5, 6, batch_first=True), tg.randn(2, 3, 5), _plainly),
        (image, tg.randn(2, 2, 5, 5), _plainly),
        (lambda: nn.Embedding(7, 4), tg.tensor([1, 2, 6]), _plainly),
    ]
    compared = 0
    for make, x, train in cases:
        for copies in (False, True):
            tg.manual_seed(0)
            plain = make()
            model = copy.deepcopy(plain)
            for layer in model.children():
                if list(layer.parameters()):
                    fully_shard(layer)
            fully_shard(model)
            model = copy.deepcopy(model) if copies else model
            train(plain, x)
            train(model, x)
            for p, q in zip(model.parameters(), plain.parameters(), strict=True):
                shard = shard_of(p)
                assert shard is not None
                if q.grad is None:
                    continue
                dist.all_reduce(q.grad, dist.ReduceOp.AVG)
                part = q.grad.reshape(-1)[shard.start : shard.stop].numpy()
                if p.grad is None:
                    assert not part.any()
                    continue
                np.testing.assert_allclose(p.grad.numpy(), part, rtol=1e-4, atol=1e-5)
                compared += 1
    return compared
