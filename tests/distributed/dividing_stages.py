"""Programs for ranks: models in stages, batch norm over all ranks, and communication hooks.

As `dividing.py`: each is trained beside the same model in one process.
"""

from __future__ import annotations

import copy
from typing import Any

from distributed.training import STEPS, trained

import tapegrad as tg
import tapegrad.distributed as dist
from tapegrad import nn, optim
from tapegrad.distributed.algorithms.ddp_comm_hooks import default_hooks
from tapegrad.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import (
    PowerSGDState,
    powerSGD_hook,
)
from tapegrad.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe
from tapegrad.nn import functional as F
from tapegrad.nn.parallel import DistributedDataParallel

RANK, RANKS = dist.get_rank(), dist.get_world_size()
LAST = RANKS - 1


# -- pipeline --------------------------------------------------------------------------------------


def layers() -> list[Any]:
    tg.manual_seed(19)
    options = {"dtype": tg.float64}
    widths = [6, 10, 8, 12, 5]
    made = []
    for i in range(4):
        tail = [nn.Tanh()] if i < 3 else []
        made.append(nn.Sequential(nn.Linear(widths[i], widths[i + 1], **options), *tail))
    return made


def pipeline_of(compiled: bool) -> Any:
    tg.manual_seed(23)
    batches = [
        (tg.randn(16, 6, dtype=tg.float64), tg.randn(16, 5, dtype=tg.float64)) for _ in range(STEPS)
    ]
    plain = nn.Sequential(*layers())
    expected = trained(lambda x, y: F.mse_loss(plain(x), y), plain.parameters(), batches, compiled)
    with tg.no_grad():
        outputs = plain(batches[0][0])
    results: dict[str, Any] = {"expected": expected}
    per = 4 // RANKS
    for kind in (Schedule1F1B, ScheduleGPipe):
        for count in (1, 8) if compiled else (1, 4, 8):
            module = nn.Sequential(*layers()[RANK * per : (RANK + 1) * per])
            stage = PipelineStage(module, RANK, RANKS)
            schedule = kind(stage, count, F.mse_loss)
            optimizer = optim.SGD(module.parameters(), lr=0.1, momentum=0.9)

            def step(x: Any, y: Any, schedule: Any = schedule, optimizer: Any = optimizer) -> Any:
                optimizer.zero_grad()
                found: list[Any] = []
                if RANK == 0:
                    schedule.step(x)
                elif RANK == LAST:
                    schedule.step(target=y, losses=found)
                else:
                    schedule.step()
                optimizer.step()
                return sum(found) / len(found) if found else tg.zeros(())

            run = tg.compile(step, fullgraph=True) if compiled else step
            losses = [float(run(x, y)) for x, y in batches]
            results[f"{kind.__name__} {count}"] = losses if RANK == LAST else expected
            if RANK == 0:
                given: tuple[Any, ...] = (batches[0][0],)
            else:
                given = ()
            merged = schedule.eval(*given)
            if RANK == LAST:
                results[f"eval {kind.__name__} {count}"] = float((merged - outputs).abs().max())
    return results


def pipeline() -> Any:
    return pipeline_of(False)


def pipeline_compiled() -> Any:
    return pipeline_of(True)


class Two(nn.Module):
    """A stage that hands on a tensor and integers."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4, dtype=tg.float64)

    def forward(self, x: Any, numbers: Any) -> Any:
        return self.layer(x) * numbers.to(x.dtype).unsqueeze(-1), numbers


class First(nn.Module):
    """The last stage: takes both, returns one."""

    def forward(self, x: Any, numbers: Any) -> Any:
        return x.sum(-1) + numbers


def pipeline_several() -> Any:
    """Stages with several results, one of which has no gradient."""
    tg.manual_seed(29)
    stages = [Two() for _ in range(RANKS - 1)]
    x, numbers = tg.randn(8, 4, dtype=tg.float64), tg.arange(8)
    target = tg.randn(8, dtype=tg.float64)
    whole = copy.deepcopy(stages)
    value: Any = (x, numbers)
    for stage in whole:
        value = stage(*value)
    loss = F.mse_loss(First()(*value), target)
    loss.backward()
    module = stages[RANK] if RANK < LAST else First()
    schedule = Schedule1F1B(PipelineStage(module, RANK, RANKS), 4, F.mse_loss)
    losses: list[Any] = []
    args = (x, numbers) if RANK == 0 else ()
    schedule.step(*args, target=target if RANK == LAST else None, losses=losses)
    if RANK == LAST:
        return float((sum(losses) / 4 - loss).abs())
    return float((module.layer.weight.grad - whole[RANK].layer.weight.grad).abs().max())


# -- batch norm ------------------------------------------------------------------------------------


class Normed(nn.Module):
    """Convolutions with batch norm."""

    def __init__(self) -> None:
        super().__init__()
        options = {"dtype": tg.float64}
        self.first = nn.Conv2d(2, 4, 3, padding=1, **options)
        self.norm1 = nn.BatchNorm2d(4, **options)
        self.second = nn.Conv2d(4, 3, 3, **options)
        self.norm2 = nn.BatchNorm2d(3, momentum=None, affine=False, **options)

    def forward(self, x: Any) -> Any:
        return self.norm2(self.second(self.norm1(self.first(x)).relu())).flatten(1)


def batch_norm_of(compiled: bool) -> Any:
    size = 4 * RANKS
    tg.manual_seed(31)
    batches = [
        (100 + tg.randn(size, 2, 5, 5, dtype=tg.float64), tg.randn(size, 27, dtype=tg.float64))
        for _ in range(STEPS)
    ]
    here = slice(4 * RANK, 4 * RANK + 4)
    tg.manual_seed(37)
    plain = Normed()
    divided = nn.SyncBatchNorm.convert_sync_batchnorm(copy.deepcopy(plain))
    assert isinstance(divided.norm1, nn.SyncBatchNorm)
    wrapped = DistributedDataParallel(divided)
    expected = trained(lambda x, y: F.mse_loss(plain(x), y), plain.parameters(), batches, compiled)
    mine = [(x[here], y[here]) for x, y in batches]
    losses = trained(lambda x, y: F.mse_loss(wrapped(x), y), divided.parameters(), mine, compiled)
    total = tg.tensor(losses, dtype=tg.float64)
    dist.all_reduce(total, dist.ReduceOp.AVG)
    states = [
        float((a.double() - b.double()).abs().max())
        for a, b in zip(plain.buffers(), divided.buffers(), strict=True)
    ]
    x = batches[0][0]
    evaluated = float((plain.eval()(x) - divided.eval()(x)).abs().max())
    return {"expected": expected, "divided": total.tolist(), "state": [*states, evaluated]}


def batch_norm() -> Any:
    return batch_norm_of(False)


def batch_norm_compiled() -> Any:
    return batch_norm_of(True)


def batch_norm_uneven() -> Any:
    """Ranks with 1, 2, 3, ... samples (none on one of four): gradients and statistics."""
    sizes = [1, 2, 0, 3][:RANKS] if RANKS > 2 else [1, 2]
    tg.manual_seed(41)
    x = tg.randn(sum(sizes), 3, 4, dtype=tg.float64) + 1000
    weight = tg.randn(sum(sizes), 3, 4, dtype=tg.float64)
    start = sum(sizes[:RANK])
    here = slice(start, start + sizes[RANK])
    plain, divided = nn.BatchNorm1d(3, dtype=tg.float64), nn.SyncBatchNorm(3, dtype=tg.float64)
    whole, mine = x.clone().requires_grad_(), x[here].clone().requires_grad_()
    (plain(whole) * weight).sum().backward()
    (divided(mine) * weight[here]).sum().backward()
    grads = [p.grad.clone() for p in divided.parameters()]
    for g in grads:
        dist.all_reduce(g)
    pairs = [
        (whole.grad[here], mine.grad),
        *zip([p.grad for p in plain.parameters()], grads, strict=True),
        (plain.running_mean, divided.running_mean),
        (plain.running_var, divided.running_var),
    ]
    return max(float((a - b).abs().max()) for a, b in pairs if a.numel())


# -- hooks -----------------------------------------------------------------------------------------


def hooks() -> Any:
    """Losses with each communication hook, and how much PowerSGD sends."""
    tg.manual_seed(43)
    x, w = tg.randn(64, 32), tg.randn(32, 16)
    y = tg.tanh(x @ w)
    here = slice(RANK * 64 // RANKS, (RANK + 1) * 64 // RANKS)
    results: dict[str, Any] = {}
    state = PowerSGDState(matrix_approximation_rank=2, start_powerSGD_iter=3)
    chosen = {
        "plain": None,
        "allreduce": (None, default_hooks.allreduce_hook),
        "fp16": (None, default_hooks.fp16_compress_hook),
        "bf16": (None, default_hooks.bf16_compress_hook),
        "wrapped": (None, default_hooks.fp16_compress_wrapper(default_hooks.allreduce_hook)),
        "power": (state, powerSGD_hook),
    }
    for name, hook in chosen.items():
        tg.manual_seed(47)
        model = nn.Sequential(nn.Linear(32, 48), nn.Tanh(), nn.Linear(48, 16))
        wrapped = DistributedDataParallel(model)
        if hook is not None:
            wrapped.register_comm_hook(*hook)
        losses = trained(
            lambda x, y, wrapped=wrapped: F.mse_loss(wrapped(x), y),
            model.parameters(),
            [(x[here], y[here])] * 60,
            False,
        )
        with tg.no_grad():
            results[name] = [losses[0], float(F.mse_loss(model(x), y))]
        flat = tg.cat([p.detach().flatten() for p in model.parameters()])
        top, low = flat.clone(), flat.clone()
        dist.all_reduce(top, dist.ReduceOp.MAX)
        dist.all_reduce(low, dist.ReduceOp.MIN)
        results[f"{name} spread"] = float((top - low).max())
    results["stats"] = list(state.compression_stats())
    return results


def power_sgd_is_exact_at_full_rank() -> Any:
    """With as many columns as the matrix has, the product is the average."""
    tg.manual_seed(53)
    model = nn.Linear(3, 40, dtype=tg.float64)
    state = PowerSGDState(
        matrix_approximation_rank=3, start_powerSGD_iter=2, min_compression_rate=0.5
    )
    state.iter = 2
    wrapped = DistributedDataParallel(model)
    wrapped.register_comm_hook(state, powerSGD_hook)
    tg.manual_seed(59 + RANK)
    x = tg.randn(8, 3, dtype=tg.float64)
    own = copy.deepcopy(model)
    own(x).square().mean().backward()
    expected = own.weight.grad.clone()
    dist.all_reduce(expected, dist.ReduceOp.AVG)
    wrapped(x).square().mean().backward()
    # Each rank keeps the difference from its own gradient; nothing is left out of their average.
    left_out = tg.tensor(state.error_dict[0])
    dist.all_reduce(left_out, dist.ReduceOp.AVG)
    return {
        "error": float((model.weight.grad - expected).abs().max()),
        "left out": float(left_out.abs().max()),
        "own error": float((own.weight.grad - expected).abs().max()),
    }


def large_messages() -> Any:
    """Activations of 2 MB, which only leave a rank when the other one receives them."""
    tg.manual_seed(61)
    module = nn.Sequential(nn.Linear(256, 256), nn.Tanh())
    schedule = Schedule1F1B(PipelineStage(module, RANK, RANKS), 4, F.mse_loss)
    x = tg.randn(8192, 256)
    first = (x,) if RANK == 0 else ()
    target = x if RANK == LAST else None

    def step() -> Any:
        module.zero_grad()
        schedule.step(*first, target=target)
        return module[0].weight.grad.clone()

    eager = step()
    run = tg.compile(step, fullgraph=True)
    replayed = [run() for _ in range(3)]
    return max(float((g - eager).abs().max() / eager.abs().max()) for g in replayed)


def compiled_steps_are_replayed() -> Any:
    """How many of ten calls of a compiled pipeline step ran the program of a recording."""
    tg.manual_seed(67)
    module = nn.Linear(4, 4)
    schedule = Schedule1F1B(PipelineStage(module, RANK, RANKS), 2, F.mse_loss)

    def step(x: Any) -> Any:
        schedule.step(*([x] if RANK == 0 else []), target=x if RANK == LAST else None)
        return module.weight.grad.clone()

    run = tg.compile(step, fullgraph=True)
    x = tg.randn(4, 4)
    for _ in range(10):
        module.zero_grad()
        run(x)
    return sum(replay.count for replay in run.replays)


def power_sgd_is_not_replayed() -> Any:
    """A compiled step with PowerSGD runs eagerly, and says why."""
    model = nn.Linear(16, 16)
    wrapped = DistributedDataParallel(model)
    wrapped.register_comm_hook(PowerSGDState(start_powerSGD_iter=2), powerSGD_hook)

    def step(x: Any) -> None:
        wrapped(x).sum().backward()

    try:
        tg.compile(step, fullgraph=True)(tg.ones(2, 16))
    except RuntimeError as error:
        return str(error)
    return "nothing"
