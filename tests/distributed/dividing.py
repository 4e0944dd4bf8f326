"""Programs for ranks: divided models, each trained beside the same model in one process.

`tests/ranks.py` calls them in every rank. Each returns the losses of both, over 20 steps in
float64.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

import tapegrad as tg
import tapegrad.distributed as dist
from tapegrad import nn, optim
from tapegrad.distributed.algorithms.ddp_comm_hooks import default_hooks
from tapegrad.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import (
    PowerSGDState,
    powerSGD_hook,
)
from tapegrad.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe
from tapegrad.distributed.tensor import Replicate
from tapegrad.distributed.tensor.parallel import (
    ColumnParallelLinear,
    ColwiseParallel,
    ParallelEmbedding,
    ParallelTransformerBlock,
    RowwiseParallel,
    parallel_cross_entropy,
    parallelize_module,
)
from tapegrad.nn import functional as F
from tapegrad.nn.parallel import DistributedDataParallel
from tapegrad.parallel.sequence_parallel import all_to_all_attention, ring_attention

STEPS = 20
RANK, RANKS = dist.get_rank(), dist.get_world_size()
LAST = RANKS - 1
WORDS, FEATURES, HEADS, HIDDEN = 16, 8, 4, 12


def trained(
    loss_of: Callable[..., Any], parameters: Any, batches: list[Any], compiled: bool
) -> Any:
    """The losses of 20 steps of SGD."""
    optimizer = optim.SGD(list(parameters), lr=0.1, momentum=0.9)

    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = loss_of(x, y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    run = tg.compile(step, fullgraph=True) if compiled else step
    return [float(run(x, y)) for x, y in batches]


# -- tensor parallel -------------------------------------------------------------------------------


class Plain(nn.Module):
    """A small language model, in one process."""

    def __init__(self) -> None:
        super().__init__()
        options = {"dtype": tg.float64}
        self.embed = nn.Embedding(WORDS, FEATURES, padding_idx=1, **options)
        self.norm1 = nn.LayerNorm(FEATURES, **options)
        self.query = nn.Linear(FEATURES, FEATURES, **options)
        self.key = nn.Linear(FEATURES, FEATURES, **options)
        self.value = nn.Linear(FEATURES, FEATURES, **options)
        self.out = nn.Linear(FEATURES, FEATURES, **options)
        self.norm2 = nn.LayerNorm(FEATURES, **options)
        self.up = nn.Linear(FEATURES, HIDDEN, **options)
        self.down = nn.Linear(HIDDEN, FEATURES, **options)
        self.head = nn.Linear(FEATURES, WORDS, bias=False, **options)

    def forward(self, numbers: Any) -> Any:
        x = self.embed(numbers)
        h = self.norm1(x)
        width = FEATURES // HEADS
        q, k, v = (
            f(h).unflatten(-1, (-1, width)).transpose(1, 2)
            for f in (self.query, self.key, self.value)
        )
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).flatten(-2))
        x = x + self.down(F.gelu(self.up(self.norm2(x))))
        return self.head(x)


class Divided(nn.Module):
    """The same model, made of divided layers."""

    def __init__(self, group: Any = None) -> None:
        super().__init__()
        options = {"dtype": tg.float64, "group": group}
        self.embed = ParallelEmbedding(WORDS, FEATURES, padding_idx=1, **options)
        self.block = ParallelTransformerBlock(FEATURES, HEADS, HIDDEN, is_causal=True, **options)
        self.head = ColumnParallelLinear(FEATURES, WORDS, bias=False, **options)

    def forward(self, numbers: Any) -> Any:
        return self.head(self.block(self.embed(numbers)))


def language_batches() -> list[Any]:
    tg.manual_seed(5)
    batches = []
    for _ in range(STEPS):
        numbers = tg.randint(0, WORDS, (3, 6))
        target = tg.randint(0, WORDS, (3, 6))
        target[0, :2] = -100
        batches.append((numbers, target))
    return batches


def plain_loss(model: Any) -> Callable[..., Any]:
    return lambda x, y: F.cross_entropy(model(x).flatten(0, 1), y.flatten())


def tensor_parallel_of(compiled: bool) -> Any:
    batches = language_batches()
    tg.manual_seed(7)
    plain = Plain()
    tg.manual_seed(7)
    divided = Divided()
    tg.manual_seed(7)
    plan = {
        "embed": RowwiseParallel(input_layouts=Replicate()),
        **dict.fromkeys(("query", "key", "value", "up"), ColwiseParallel()),
        **dict.fromkeys(("out", "down"), RowwiseParallel()),
        "head": ColwiseParallel(output_layouts=Replicate()),
    }
    converted = parallelize_module(Plain(), None, plan)
    expected = trained(plain_loss(plain), plain.parameters(), batches, compiled)
    found = trained(
        lambda x, y: parallel_cross_entropy(divided(x), y),
        divided.parameters(),
        batches,
        compiled,
    )
    also = trained(plain_loss(converted), converted.parameters(), batches, compiled)
    row = divided.embed.weight.shape[0]
    piece = plain.embed.weight[RANK * row : (RANK + 1) * row]
    return {
        "expected": expected,
        "divided": found,
        "converted": also,
        "weight": float((divided.embed.weight - piece).abs().max()),
        "rows": [divided.embed.weight.shape[0], divided.block.mlp.up.weight.shape[0]],
    }


def tensor_parallel() -> Any:
    return tensor_parallel_of(False)


def tensor_parallel_compiled() -> Any:
    return tensor_parallel_of(True)


def two_dimensions() -> Any:
    """Pairs of ranks divide the model, and the pairs divide the data: eager and compiled."""
    pairs = RANKS // 2
    tensor_group = data_group = None
    for i in range(pairs):
        made = dist.new_group([2 * i, 2 * i + 1])
        tensor_group = made if i == RANK // 2 else tensor_group
    for i in range(2):
        made = dist.new_group(list(range(i, RANKS, 2)))
        data_group = made if i == RANK % 2 else data_group
    tg.manual_seed(9)
    numbers = tg.randint(0, WORDS, (STEPS, 4, 6))
    targets = tg.randint(0, WORDS, (STEPS, 4, 6))
    batches = list(zip(numbers, targets, strict=True))
    size = 4 // pairs
    here = slice(RANK // 2 * size, (RANK // 2 + 1) * size)
    mine = [(x[here], y[here]) for x, y in batches]
    results = {}
    for compiled in (False, True):
        tg.manual_seed(7)
        plain = Plain()
        tg.manual_seed(7)
        divided = Divided(tensor_group)
        wrapped = DistributedDataParallel(divided, process_group=data_group)
        expected = trained(plain_loss(plain), plain.parameters(), batches, compiled)
        losses = tg.tensor(
            trained(
                lambda x, y, w=wrapped: parallel_cross_entropy(w(x), y, tensor_group),
                divided.parameters(),
                mine,
                compiled,
            ),
            dtype=tg.float64,
        )
        dist.all_reduce(losses, dist.ReduceOp.AVG, data_group)
        results[str(compiled)] = {"expected": expected, "divided": losses.tolist()}
    return results


def cross_entropy_options() -> Any:
    """Every reduction and label smoothing, with gradients, against the whole logits."""
    tg.manual_seed(3)
    logits = tg.randn(5, WORDS, dtype=tg.float64) * 30
    target = tg.tensor([0, 3, -100, WORDS - 1, 7])
    size = WORDS // RANKS
    worst = 0.0
    for reduction in ("mean", "sum", "none"):
        for smoothing in (0.0, 0.2):
            whole = logits.clone().requires_grad_()
            options = {"reduction": reduction, "label_smoothing": smoothing}
            expected = F.cross_entropy(whole, target, **options)
            expected.sum().backward()
            piece = logits[:, RANK * size : (RANK + 1) * size].clone().requires_grad_()
            found = parallel_cross_entropy(piece, target, **options)
            found.sum().backward()
            mine = whole.grad[:, RANK * size : (RANK + 1) * size]
            worst = max(worst, float((found - expected).abs().max()))
            worst = max(worst, float((piece.grad - mine).abs().max()))
    return worst


# -- sequence parallel -----------------------------------------------------------------------------


class Attention(nn.Module):
    """Projections around an attention function."""

    def __init__(self, attend: Callable[..., Any]) -> None:
        super().__init__()
        self.attend = attend
        self.project = nn.Linear(FEATURES, 3 * FEATURES, dtype=tg.float64)
        self.out = nn.Linear(FEATURES, FEATURES, dtype=tg.float64)

    def forward(self, x: Any) -> Any:
        q, k, v = (
            part.unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in self.project(x).chunk(3, -1)
        )
        return self.out(self.attend(q, k, v).transpose(1, 2).flatten(-2))


def sequence_parallel_of(compiled: bool) -> Any:
    length = 2 * RANKS
    tg.manual_seed(11)
    batches = [
        (
            tg.randn(2, length, FEATURES, dtype=tg.float64),
            tg.randn(2, length, FEATURES, dtype=tg.float64),
        )
        for _ in range(STEPS)
    ]
    mine = [(x[:, 2 * RANK : 2 * RANK + 2], y[:, 2 * RANK : 2 * RANK + 2]) for x, y in batches]
    results = {}
    for causal in (False, True):
        attentions = {
            "expected": partial(F.scaled_dot_product_attention, is_causal=causal),
            "ring": partial(ring_attention, is_causal=causal),
            "all_to_all": partial(all_to_all_attention, is_causal=causal),
        }
        for name, attend in attentions.items():
            tg.manual_seed(13)
            model = Attention(attend)
            used = model if name == "expected" else DistributedDataParallel(model)
            losses = trained(
                lambda x, y, used=used: F.mse_loss(used(x), y),
                model.parameters(),
                batches if name == "expected" else mine,
                compiled,
            )
            if name != "expected":
                # The loss of the whole sequence is the mean of the ranks' losses.
                total = tg.tensor(losses, dtype=tg.float64)
                dist.all_reduce(total, dist.ReduceOp.AVG)
                losses = total.tolist()
            results[f"{name} {causal}"] = losses
    return results


def sequence_parallel() -> Any:
    return sequence_parallel_of(False)


def sequence_parallel_compiled() -> Any:
    return sequence_parallel_of(True)


def ring_second_order() -> Any:
    """Second derivatives of ring attention against those of the whole attention."""
    length, worst = 2 * RANKS, 0.0
    here = slice(2 * RANK, 2 * RANK + 2)
    for causal in (False, True):
        tg.manual_seed(17)
        whole = [tg.randn(2, length, 3, dtype=tg.float64).requires_grad_() for _ in range(3)]
        pieces = [x.detach()[:, here].clone().requires_grad_() for x in whole]
        out = F.scaled_dot_product_attention(*whole, is_causal=causal)
        expected = second(out, whole)
        found = second(ring_attention(*pieces, causal), pieces)
        for a, b in zip(expected, found, strict=True):
            worst = max(worst, float((a[:, here] - b).abs().max()))
    return worst


def half_precision() -> Any:
    """Divided layers in bfloat16 give bfloat16, near the results of float64."""
    length, here = 2 * RANKS, slice(2 * RANK, 2 * RANK + 2)
    tg.manual_seed(71)
    q, k, v = (tg.randn(2, RANKS, length, 3, dtype=tg.float64) for _ in range(3))
    expected = F.scaled_dot_product_attention(q, k, v, is_causal=True)[:, :, here]
    pieces = [x[:, :, here].to(tg.bfloat16) for x in (q, k, v)]
    worst = 0.0
    for attend in (ring_attention, all_to_all_attention):
        found = attend(*pieces, is_causal=True)
        assert found.dtype is tg.bfloat16
        worst = max(worst, float((found.double() - expected).abs().max()))
    norm = nn.SyncBatchNorm(3).to(tg.bfloat16)
    x = tg.randn(4 * RANKS, 3, dtype=tg.float64)
    found = norm(x[4 * RANK : 4 * RANK + 4].to(tg.bfloat16))
    assert found.dtype is tg.bfloat16
    expected = nn.BatchNorm1d(3, dtype=tg.float64)(x)[4 * RANK : 4 * RANK + 4]
    return max(worst, float((found.double() - expected).abs().max()))


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


def second(out: Any, inputs: list[Any]) -> Any:
    first = tg.autograd.grad((out**3).sum(), inputs, create_graph=True)
    return tg.autograd.grad(sum((g**2).sum() for g in first), inputs)


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
        for count in (1, 4, 8):
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


def bad_data() -> Any:
    """Numbers and targets out of range raise on all ranks, as in one process."""
    raised = []
    table = ParallelEmbedding(WORDS, 4)
    logits = tg.randn(2, WORDS // RANKS)
    for call in (
        lambda: table(tg.tensor([0, WORDS])),
        lambda: table(tg.tensor([-1])),
        lambda: parallel_cross_entropy(logits, tg.tensor([0, WORDS])),
        lambda: ColumnParallelLinear(4, RANKS + 1),
        lambda: parallelize_module(Plain(), None, {"nothing": ColwiseParallel()}),
        lambda: parallelize_module(Plain(), None, {"norm1": ColwiseParallel()}),
        lambda: PipelineStage(nn.Linear(1, 1), (RANK + 1) % RANKS, RANKS),
    ):
        try:
            call()
        except (IndexError, ValueError, TypeError) as error:
            raised.append(type(error).__name__)
        else:
            raised.append("nothing")
    return raised
