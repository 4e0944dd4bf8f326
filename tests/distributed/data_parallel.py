"""Programs of ranks: training with DistributedDataParallel, against one process on all the data."""

from __future__ import annotations

import time
import warnings
from typing import Any
from xml.etree import ElementTree

import tapegrad as tg
import tapegrad.distributed as dist
from tapegrad import nn
from tapegrad.distributed import functional
from tapegrad.distributed.process_group import background
from tapegrad.nn.parallel import DistributedDataParallel
from tapegrad.parallel import hooks
from tapegrad.parallel.join import Join

STEPS = 20
ROWS = 16


def rank() -> int:
    return dist.get_rank()


def size() -> int:
    return dist.get_world_size()


class Mlp(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(6, 12), nn.Linear(12, 3)

    def forward(self, x: Any) -> Any:
        return self.last(self.first(x).tanh())


class Conv(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4)
        self.last = nn.Linear(4, 3)
        self.norm.eval()  # statistics of a part of the batch are others than those of all of it

    def forward(self, x: Any) -> Any:
        image = x.reshape(len(x), 1, 2, 3).repeat(1, 1, 2, 2)
        return self.last(self.norm(self.conv(image)).relu().mean((2, 3)))


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(1, 8)
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
        self.last = nn.Linear(8, 3)

    def forward(self, x: Any) -> Any:
        return self.last(self.layer(self.up(x[..., None])).mean(1))


def data() -> tuple[Any, Any]:
    tg.manual_seed(7)
    return tg.randn(ROWS, 6, dtype=tg.float64), tg.randn(ROWS, 3, dtype=tg.float64)


def mine(x: Any) -> Any:
    share = len(x) // size()
    return x[rank() * share : (rank() + 1) * share].clone()


def train(
    kind: type, parallel: bool, compiled: bool, optimizer: str = "Adam", **options: Any
) -> list[float]:
    """The losses of all the data, step by step."""
    tg.manual_seed(3)
    model = kind().double()
    x, y = data()
    hook = options.pop("hook", None)
    net: Any = model
    if parallel:
        net = DistributedDataParallel(model, bucket_cap_mb=0.0005, **options)
        x, y = mine(x), mine(y)
        if hook is not None:
            net.register_comm_hook(None, hook)
    settings = {"momentum": 0.9} if optimizer == "SGD" else {}
    updates = getattr(tg.optim, optimizer)(net.parameters(), lr=0.02, **settings)

    def step(x: Any, y: Any) -> Any:
        updates.zero_grad()
        loss = ((net(x) - y) ** 2).mean()
        loss.backward()
        updates.step()
        return loss

    run = tg.compile(step) if compiled else step
    losses = []
    for _ in range(STEPS):
        loss = run(x, y).detach().clone()
        if parallel:
            dist.all_reduce(loss, op=dist.ReduceOp.AVG)
        losses.append(loss.item())
    if compiled and parallel:
        replays = sum(r.count for r in run.replays)
        assert replays >= STEPS - 4, run.explain()
    return losses


def _worst(kind: type, optimizer: str, compiled: bool, **options: Any) -> float:
    expected = train(kind, False, False, optimizer)
    found = train(kind, True, compiled, optimizer, **options)
    return max(abs(a - b) / abs(a) for a, b in zip(expected, found, strict=True))


def eager() -> dict[str, float]:
    return {
        f"{kind.__name__} {name}": _worst(kind, name, False)
        for kind in (Mlp, Conv, Attention)
        for name in ("Adam", "SGD")
    }


def compiled() -> dict[str, float]:
    return {
        f"{kind.__name__} {name}": _worst(kind, name, True)
        for kind, name in ((Mlp, "Adam"), (Conv, "SGD"), (Attention, "AdamW"))
    }


def bucket_views() -> dict[str, float]:
    return {"Mlp": _worst(Mlp, "Adam", False, gradient_as_bucket_view=True)}


def sparse_gradients() -> list[Any]:
    """The gradient of a table after three steps: ranks have looked up other rows."""
    layer = tg.nn.Embedding(5, 2, sparse=True)
    model = DistributedDataParallel(layer)
    optimizer = tg.optim.SGD(model.parameters(), lr=1.0)
    for _ in range(3):
        optimizer.zero_grad()
        model(tg.tensor([rank(), 3])).sum().backward()
        optimizer.step()
    assert layer.weight.grad is not None
    return [layer.weight.grad.is_sparse, layer.weight.grad[:, 0].tolist()]


def compressed() -> dict[str, float]:
    return {
        "none": _worst(Mlp, "SGD", False, hook=hooks.allreduce_hook),
        "bf16": _worst(Mlp, "SGD", False, hook=hooks.bf16_compress_hook),
        "fp16": _worst(Mlp, "SGD", True, hook=hooks.fp16_compress_hook),
    }


def accumulation() -> float:
    """Two half batches, the first without synchronization, are one batch."""
    x, y = data()

    def gradients(parallel: bool) -> list[float]:
        tg.manual_seed(3)
        model = Mlp().double()
        net: Any = DistributedDataParallel(model) if parallel else model
        if not parallel:
            ((net(x) - y) ** 2).mean().backward()
        else:
            parts = [t.chunk(2) for t in (mine(x), mine(y))]
            with net.no_sync():
                (((net(parts[0][0]) - parts[1][0]) ** 2).mean() / 2).backward()
            (((net(parts[0][1]) - parts[1][1]) ** 2).mean() / 2).backward()
        return [v for p in model.parameters() for v in p.grad.reshape(-1).tolist()]

    return max(abs(a - b) for a, b in zip(gradients(False), gradients(True), strict=True))


class Branches(nn.Module):
    """Each rank uses another layer, and nobody the last one."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(6, 3) for _ in range(3)])

    def forward(self, x: Any, which: int) -> Any:
        return self.layers[which](x)


def unused_parameters() -> list[Any]:
    tg.manual_seed(3)
    net = DistributedDataParallel(Branches().double(), find_unused_parameters=True)
    x = tg.ones(2, 6, dtype=tg.float64)
    net(x, rank() % 2).sum().backward()
    weights = [layer.weight.grad for layer in net.module.layers]
    return [None if g is None else g[0, 0].item() for g in weights]


def forgotten_parameters() -> str:
    tg.manual_seed(3)
    net = DistributedDataParallel(Branches().double())
    try:
        net(tg.ones(2, 6, dtype=tg.float64), 0).sum().backward()
    except RuntimeError as error:
        return str(error)
    return "no error"


def uneven_batches() -> list[float]:
    """Rank r has r + 2 batches; all ranks end with the same weights."""
    tg.manual_seed(3)
    net = DistributedDataParallel(Mlp().double())
    updates = tg.optim.SGD(net.parameters(), lr=0.05)
    with net.join():
        for i in range(rank() + 2):
            updates.zero_grad()
            net(tg.ones(4, 6, dtype=tg.float64) * (i + 1)).square().mean().backward()
            updates.step()
    return [net.module.first.weight.sum().item(), float(rank() + 2)]


def uneven_accumulation() -> list[float]:
    """Rank r has r + 2 batches, each in two halves, the first of them without synchronization."""
    tg.manual_seed(3)
    net = DistributedDataParallel(Mlp().double())
    updates = tg.optim.SGD(net.parameters(), lr=0.05)
    x = tg.ones(2, 6, dtype=tg.float64)
    with net.join():
        for i in range(rank() + 2):
            updates.zero_grad()
            with net.no_sync():
                net(x * (i + 1)).square().mean().backward()
            net(x * (i + 2)).square().mean().backward()
            updates.step()
    return [net.module.first.weight.sum().item()]


def uneven_buffers() -> list[float]:
    """The last rank, which has most data, gives its statistics to all."""
    net = DistributedDataParallel(nn.BatchNorm1d(4, momentum=1.0))
    with net.join():
        for i in range(1 + 2 * rank()):
            net(tg.ones(3, 4) * (10 * rank() + i)).sum().backward()
    return [net.module.running_mean[0].item()]


def uneven_compiled() -> list[Any]:
    """A compiled step says that it cannot be joined, also after it was replayed outside."""
    tg.manual_seed(3)
    net = DistributedDataParallel(Mlp().double())

    @tg.compile
    def step(x: Any) -> None:
        net(x).square().mean().backward()

    x = tg.ones(4, 6, dtype=tg.float64)
    for _ in range(5):
        step(x)
    texts = []
    for _ in range(2):
        net._join = Join([net])
        try:
            step(x)
        except RuntimeError as error:
            texts.append(str(error))
        net._join = None
    step(x)
    return [sum(r.count for r in step.replays), texts]


def buffers_follow_the_first_rank() -> float:
    module = nn.BatchNorm1d(4)
    net = DistributedDataParallel(module)
    module.running_mean.fill_(float(rank()))
    net(tg.ones(3, 4) * (rank() + 1)).sum().backward()
    return float(module.running_mean[0])


def starts_alike() -> list[float]:
    tg.manual_seed(rank())
    net = DistributedDataParallel(Mlp())
    total = tg.cat([p.detach().reshape(-1) for p in net.parameters()]).sum()
    return [total.item()]


def different_models() -> str:
    layer = nn.Linear(4, 3 + (rank() == 1))
    try:
        DistributedDataParallel(layer)
    except RuntimeError as error:
        return str(error)
    return "no error"


def another_size_on_one_rank() -> list[Any]:
    """One rank meets a new shape: all record that call, then all replay both kinds."""
    tg.manual_seed(3)
    net = DistributedDataParallel(Mlp().double())
    updates = tg.optim.SGD(net.parameters(), lr=0.01)

    @tg.compile
    def step(x: Any) -> Any:
        updates.zero_grad()
        loss = net(x).square().mean()
        loss.backward()
        updates.step()
        return loss

    for i in range(24):
        rows = 3 if rank() == 0 and i % 6 == 5 else 4
        step(tg.ones(rows, 6, dtype=tg.float64))
    total = sum(p.detach().sum().item() for p in net.parameters())
    return [sum(r.count for r in step.replays), total]


def eval_on_one_rank() -> int:
    """A compiled function without collectives is called by one rank alone."""
    net = Mlp().double()

    @tg.compile
    def score(x: Any) -> Any:
        return net(x).sum()

    if rank() == 0:
        for _ in range(4):
            score(tg.ones(4, 6, dtype=tg.float64))
        return sum(r.count for r in score.replays)
    return 0


def functional_in_a_compiled_function() -> list[float]:
    """A collective in the middle of a function, forward and backward, twice differentiable."""
    w = tg.full((3,), float(rank() + 1), dtype=tg.float64, requires_grad=True)

    def f(x: Any) -> Any:
        total = dist.functional.all_reduce(w * x)
        return (total * total * w).sum()

    fast = tg.compile(f)
    worst = 0.0
    for i in range(5):
        x = tg.ones(3, dtype=tg.float64) * (i + 1)
        found = []
        for g in (f, fast):
            w.grad = None
            value = g(x)
            value.backward()
            found.append((value.item(), w.grad.tolist()))
        (a, ga), (b, gb) = found
        worst = max([worst, abs(a - b), *(abs(p - q) for p, q in zip(ga, gb, strict=True))])
    return [worst, float(sum(r.count for r in fast.replays))]


def checked_replays() -> float:
    """Every third replay is compared with an eager run, whose collectives all ranks run."""
    tg.manual_seed(3)
    net = DistributedDataParallel(Mlp().double())
    updates = tg.optim.SGD(net.parameters(), lr=0.01)

    @tg.compile(check=3)
    def step(x: Any) -> Any:
        updates.zero_grad()
        loss = net(x).square().mean()
        loss.backward()
        updates.step()
        return loss

    for i in range(15):
        step(tg.ones(3 if rank() == 0 and i % 5 == 4 else 4, 6, dtype=tg.float64))
    return sum(p.detach().sum().item() for p in net.parameters())


def predictions() -> list[float]:
    """What a step would cost on more ranks."""
    net = DistributedDataParallel(Mlp().double())
    updates = tg.optim.SGD(net.parameters(), lr=0.01)

    @tg.compile
    def step(x: Any) -> Any:
        updates.zero_grad()
        loss = net(x).square().mean()
        loss.backward()
        updates.step()
        return loss

    for _ in range(4):
        step(tg.ones(4, 6, dtype=tg.float64))
    found = step.scale([1, 2, 64], latency=1e-3, bandwidth=1e9)
    assert "efficiency" in repr(found)
    plain = step.scale([64], latency=1e-3, bandwidth=1e9, overlap=False)[0]
    assert plain.waiting == plain.communication == found[2].communication
    return [x for p in found for x in (p.communication, p.waiting, p.efficiency)]


def timelines() -> list[Any]:
    """When collectives run, in a thread of their own and where they are waited for."""
    net = DistributedDataParallel(Mlp().double(), bucket_cap_mb=0.0003)
    updates = tg.optim.SGD(net.parameters(), lr=0.01)

    @tg.compile
    def step(x: Any) -> Any:
        updates.zero_grad()
        loss = net(x).square().mean()
        loss.backward()
        updates.step()
        return loss

    found = []
    for threaded in (True, False):
        background().threaded = threaded
        time.sleep(0.2)  # the thread hears of what others have done
        for _ in range(4):
            with dist.timeline() as taken:
                step(tg.ones(4, 6, dtype=tg.float64))
        reduced = [s for s in taken.collectives if s.what == "all_reduce"]
        assert sum(s.bytes for s in reduced) == sum(8 * p.numel() for p in net.parameters())
        for span in taken.collectives + taken.waits:
            assert taken.began <= span.began <= span.ended <= taken.ended
        assert 0 <= taken.hidden <= 1
        picture = ElementTree.fromstring(taken.picture(taken))
        bars = picture.findall(".//{*}rect/{*}title")
        caller = sum(not s.background for s in taken.collectives)
        assert len(bars) == 2 * (1 + len(taken.collectives) + caller + len(taken.waits))
        assert f"rank {rank()}: " in repr(taken)
        with dist.timeline() as later:
            work = dist.all_reduce(tg.ones(3), async_op=True)
            until = time.monotonic() + (10 if threaded else 0.05)
            while not work.is_completed() and time.monotonic() < until:
                time.sleep(0.001)
            assert work.is_completed() == threaded
            work.wait()
        assert [s.background for s in later.collectives] == [threaded]
        found.append([len(reduced), any(s.background for s in reduced), taken.hidden])
    with dist.timeline() as taken:
        pass
    assert not taken.collectives
    return found


def eager_on_one_rank() -> list[float]:
    """A call that one rank can only run eagerly: the others do so too, and replay other calls."""
    group = dist.group.WORLD

    @tg.compile
    def step(x: Any) -> Any:
        if rank() == 1 and len(x) == 3:
            time.time()
        total = functional.all_reduce(x * 2, group=group)
        return total.sum() + functional.all_gather(x + 1, group=group).sum()

    found = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for i in range(12):
            found.append(step(tg.ones(3 + i % 2) * (rank() + 1)).item())
    assert sum(r.count for r in step.replays) > 0
    return found
