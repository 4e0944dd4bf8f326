"""Programs for ranks: divided models, each trained beside the same model in one process.

`tests/ranks.py` calls them in every rank. Each returns the losses of both, over 20 steps in
float64.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from distributed.training import STEPS, trained

import tapegrad as tg
import tapegrad.distributed as dist
from tapegrad import nn
from tapegrad.distributed.pipelining import PipelineStage
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

RANK, RANKS = dist.get_rank(), dist.get_world_size()
WORDS, FEATURES, HEADS, HIDDEN = 16, 8, 4, 12


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


def second(out: Any, inputs: list[Any]) -> Any:
    first = tg.autograd.grad((out**3).sum(), inputs, create_graph=True)
    return tg.autograd.grad(sum((g**2).sum() for g in first), inputs)


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
