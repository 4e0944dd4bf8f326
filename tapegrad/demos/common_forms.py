"""Small training steps that compile the kernels of most models.

Goes out: `GROUPS`, functions by the name of what they cover. Each trains common layers in float32,
eagerly and compiled, forward and backward. Sizes do not matter, because kernels read them from
tables, except on which side of a threshold they are: see `tuning.py`. Called by `warmup.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from .. import cat, nn, no_grad, optim, randint, randn
from ..core.tensor import Tensor
from ..replay import compile
from . import gpt

functional = nn.functional

#: calls of a compiled step until one is only replayed
CALLS = 4
#: batch sizes below and above the limits from which threads share the rows of a sum
FEW, MANY = 10, 96

Loss = Callable[..., Tensor]
Batch = tuple[Tensor, ...]
MakeOptimizer = Callable[[Iterable[nn.Parameter]], optim.Optimizer]

ACTIVATIONS: tuple[Callable[[], nn.Module], ...] = (
    *(nn.ReLU, nn.GELU, nn.Tanh, nn.SiLU, nn.Sigmoid, nn.LeakyReLU, nn.ELU, nn.Softplus),
    lambda: nn.GELU(approximate="tanh"),
)

OPTIMIZERS: tuple[MakeOptimizer, ...] = (
    lambda p: optim.SGD(p, lr=1e-3),
    lambda p: optim.SGD(p, lr=1e-3, momentum=0.9),
    lambda p: optim.SGD(p, lr=1e-3, momentum=0.9, weight_decay=1e-4),
    lambda p: optim.SGD(p, lr=1e-3, momentum=0.9, nesterov=True, weight_decay=1e-4),
    lambda p: optim.Adam(p, lr=1e-3),
    lambda p: optim.Adam(p, lr=1e-3, weight_decay=1e-4),
    lambda p: optim.AdamW(p, lr=1e-3),
    lambda p: optim.RMSprop(p, lr=1e-3),
    lambda p: optim.Adagrad(p, lr=1e-3),
)


def train(
    model: nn.Module,
    loss: Loss,
    batches: Iterable[Batch],
    make: MakeOptimizer = OPTIMIZERS[6],
    clip: bool = False,
) -> None:
    """Take steps on each batch, eagerly and compiled, and evaluate the model compiled."""
    optimizer = make(model.parameters())

    def step(*batch: Tensor) -> Tensor:
        optimizer.zero_grad()
        value = loss(*batch)
        value.backward()
        if clip:
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return value

    def evaluate(*batch: Tensor) -> Tensor:
        with no_grad():
            return loss(*batch)

    compiled, evaluated = compile(step), compile(evaluate)
    for batch in batches:
        step(*batch)
        for _ in range(CALLS):
            compiled(*batch)
    model.eval()
    for _ in range(CALLS):
        evaluated(*batch)


def classes(*shape: int, count: int = 10) -> tuple[Batch, Batch]:
    """Batches of two sizes with class labels."""
    few = (randn(FEW, *shape), randint(0, count, (FEW,)))
    return few, (randn(MANY, *shape), randint(0, count, (MANY,)))


def heads() -> None:
    """Few classes: short last dimensions are unrolled, so each number of classes has kernels."""
    for count in range(2, 10):
        model = nn.Sequential(nn.Linear(20, 48), nn.ReLU(), nn.Linear(48, count))
        train(
            model,
            lambda x, y, m=model: functional.cross_entropy(m(x), y),
            classes(20, count=count),
        )


def linear_layers() -> None:
    for activation in ACTIVATIONS:
        for rate in (0.0, 0.1, 0.2, 0.5) if activation in (nn.ReLU, nn.GELU) else (0.0, 0.1):
            layers = [nn.Linear(20, 48), activation(), nn.Linear(48, 48), activation()]
            if rate:
                layers = [part for layer in layers for part in (layer, nn.Dropout(rate))][:-1]
            model = nn.Sequential(*layers, nn.Linear(48, 10))
            train(model, lambda x, y, m=model: functional.cross_entropy(m(x), y), classes(20))


def norms() -> None:
    for norm in (nn.LayerNorm, nn.BatchNorm1d, nn.RMSNorm):
        for activation in (nn.ReLU, nn.GELU):
            model = nn.Sequential(
                *(nn.Linear(20, 48), norm(48), activation(), nn.Dropout(0.1)),
                *(nn.Linear(48, 48), norm(48), activation(), nn.Linear(48, 10)),
            )
            train(model, lambda x, y, m=model: functional.cross_entropy(m(x), y), classes(20))


def losses() -> None:
    def targets(kind: str, size: int) -> Tensor:
        wide = randn(size, 24)
        return (wide > 0).float() if kind == "binary" else wide

    cases: dict[Loss, str] = {
        functional.mse_loss: "real",
        functional.l1_loss: "real",
        functional.smooth_l1_loss: "real",
        functional.huber_loss: "real",
        functional.binary_cross_entropy_with_logits: "binary",
        lambda x, y: functional.binary_cross_entropy(x.sigmoid(), y): "binary",
        lambda x, y: ((x - y) ** 2).mean(): "real",
        lambda x, y: ((x - y) ** 2).sum(): "real",
        lambda x, y: functional.kl_div(x.log_softmax(-1), y.softmax(-1), reduction="batchmean"): (
            "real"
        ),
    }
    for loss, kind in cases.items():
        model = nn.Sequential(nn.Linear(20, 48), nn.ReLU(), nn.Linear(48, 24))
        batches = [(randn(size, 20), targets(kind, size)) for size in (FEW, MANY)]
        train(model, lambda x, y, m=model, f=loss: f(m(x), y), batches)
    model = nn.Sequential(nn.Linear(20, 48), nn.Tanh(), nn.Linear(48, 1))
    batches = [(randn(size, 20), randn(size, 1)) for size in (FEW, MANY)]
    train(model, lambda x, y, m=model: functional.mse_loss(m(x), y), batches)
    for smoothing in (0.0, 0.1):
        model = nn.Sequential(nn.Linear(20, 24))
        train(
            model,
            lambda x, y, m=model, s=smoothing: functional.cross_entropy(m(x), y, label_smoothing=s),
            classes(20, count=24),
        )


def optimizers() -> None:
    for make in OPTIMIZERS:
        for clip in (False, True):
            model = nn.Sequential(nn.Linear(20, 160), nn.ReLU(), nn.Linear(160, 24))
            loss: Loss = lambda x, y, m=model: functional.cross_entropy(m(x), y)  # noqa: E731
            train(model, loss, classes(20, count=24), make, clip)


class _ResidualBlock(nn.Module):
    """Two convolutions with batch norm, and a residual connection."""

    def __init__(self, inside: int, outside: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(inside, outside, 3, stride, padding=1, bias=False)
        self.second = nn.Conv2d(outside, outside, 3, padding=1, bias=False)
        self.norms = nn.ModuleList([nn.BatchNorm2d(outside), nn.BatchNorm2d(outside)])
        self.past: nn.Module = nn.Identity()
        if stride > 1 or inside != outside:
            self.past = nn.Sequential(
                nn.Conv2d(inside, outside, 1, stride, bias=False), nn.BatchNorm2d(outside)
            )

    def forward(self, x: Tensor) -> Tensor:
        y = self.norms[0](self.first(x)).relu()
        out: Tensor = (self.norms[1](self.second(y)) + self.past(x)).relu()
        return out


def convolutions() -> None:
    def head(channels: int) -> list[nn.Module]:
        return [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.2), nn.Linear(channels, 10)]

    def stage(inside: int, outside: int, pool: nn.Module, norm: bool) -> list[nn.Module]:
        between = [nn.BatchNorm2d(outside)] if norm else []
        return [nn.Conv2d(inside, outside, 3, padding=1), *between, nn.ReLU(), pool]

    for channels, size in ((1, 28), (3, 32)):
        for norm in (False, True):
            for pool in (nn.MaxPool2d(2), nn.AvgPool2d(2)):
                flat = [nn.Flatten(), nn.Linear(32 * (size // 4) ** 2, 10)]
                model = nn.Sequential(
                    *stage(channels, 16, pool, norm), *stage(16, 32, pool, norm), *flat
                )
                train(
                    model,
                    lambda x, y, m=model: functional.cross_entropy(m(x), y),
                    classes(channels, size, size),
                )
    for channels in (1, 3):
        model = nn.Sequential(
            nn.Conv2d(channels, 16, 3, padding=1, bias=False),
            *(nn.BatchNorm2d(16), nn.ReLU()),
            *(_ResidualBlock(16, 16, 1), _ResidualBlock(16, 32, 2), _ResidualBlock(32, 32, 1)),
            *head(32),
        )
        train(
            model,
            lambda x, y, m=model: functional.cross_entropy(m(x), y),
            classes(channels, 16, 16)[:1],
            OPTIMIZERS[2],
        )


def images() -> None:
    """Autoencoders and generators: strided and transposed convolutions."""
    for last in (nn.Sigmoid(), nn.Tanh()):
        model = nn.Sequential(
            *(nn.Conv2d(1, 16, 3, stride=2, padding=1), nn.ReLU()),
            *(nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.LeakyReLU(0.2)),
            *(nn.ConvTranspose2d(32, 16, 4, stride=2, padding=1), nn.BatchNorm2d(16), nn.ReLU()),
            *(nn.ConvTranspose2d(16, 1, 4, stride=2, padding=1), last),
        )
        x = randn(FEW, 1, 28, 28)
        train(model, lambda x, m=model: functional.mse_loss(m(x), x), [(x,)], OPTIMIZERS[4])


class _PreNormBlock(nn.Module):
    """A pre-norm block of a transformer, with heads made by `chunk` and `view`."""

    def __init__(self, width: int, heads: int, rate: float, causal: bool) -> None:
        super().__init__()
        self.heads, self.causal, self.rate = heads, causal, rate
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.ahead = nn.Sequential(
            *(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.Dropout(rate))
        )

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        parts = self.qkv(self.before(x)).chunk(3, dim=-1)
        q, k, v = (p.view(batch, length, self.heads, -1).transpose(1, 2) for p in parts)
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        y = self.out(y.transpose(1, 2).reshape(batch, length, width))
        x = x + functional.dropout(y, self.rate, self.training)
        out: Tensor = x + self.ahead(self.between(x))
        return out


class _Tokens(nn.Module):
    """Embeddings of tokens and positions, a body, and a head."""

    def __init__(self, words: int, width: int, body: nn.Module, rate: float, tied: bool) -> None:
        super().__init__()
        self.words, self.positions = nn.Embedding(words, width), nn.Embedding(512, width)
        self.dropout, self.body, self.norm = nn.Dropout(rate), body, nn.LayerNorm(width)
        self.head = nn.Linear(width, words, bias=not tied)
        if tied:
            self.head.weight = self.words.weight

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.words(tokens) + self.positions.weight[: tokens.shape[1]]
        logits: Tensor = self.head(self.norm(self.body(self.dropout(x))))
        return logits


def _next_token(model: Callable[[Tensor], Tensor]) -> Loss:
    def loss(x: Tensor, y: Tensor) -> Tensor:
        logits = model(x)
        return functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), y.reshape(-1))

    return loss


def _texts(*shapes: tuple[int, int], words: int = 60) -> list[Batch]:
    return [(randint(0, words, shape), randint(0, words, shape)) for shape in shapes]


def transformers() -> None:
    for rate in (0.0, 0.1):
        for tied in (False, True):
            blocks = nn.Sequential(*(_PreNormBlock(48, 4, rate, causal=not tied) for _ in range(2)))
            model = _Tokens(60, 48, blocks, rate, tied)
            train(model, _next_token(model), _texts((4, 20), (8, 64)), clip=tied)
    demo = gpt.Gpt(60)
    train(demo, lambda x, y: gpt.loss_of(demo, x, y), [gpt.batch_of(randint(0, 60, (1000,)))])
    for first in (False, True):
        layer = nn.TransformerEncoderLayer(48, 4, 96, batch_first=True, norm_first=first)
        encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        classifier = nn.ModuleDict({"words": nn.Embedding(60, 48), "body": encoder})
        classifier["head"] = nn.Linear(48, 10)

        def loss(x: Tensor, y: Tensor, m: Any = classifier) -> Tensor:
            return functional.cross_entropy(m["head"](m["body"](m["words"](x)).mean(1)), y)

        train(classifier, loss, [(randint(0, 60, (FEW, 24)), randint(0, 10, (FEW,)))])


def recurrences() -> None:
    for kind in (nn.LSTM, nn.GRU, nn.RNN):
        for layers in (1, 2):
            model = nn.ModuleDict({"words": nn.Embedding(60, 32)})
            model["body"] = kind(32, 48, layers, batch_first=True)
            model["head"] = nn.Linear(48, 60)

            def logits(x: Tensor, m: Any = model) -> Tensor:
                found: Tensor = m["head"](m["body"](m["words"](x))[0])
                return found

            train(model, _next_token(logits), _texts((FEW, 12)), OPTIMIZERS[4], clip=True)

            def last(x: Tensor, y: Tensor, m: Any = model) -> Tensor:
                return functional.cross_entropy(m["head"](m["body"](m["words"](x))[0][:, -1]), y)

            train(model, last, [(randint(0, 60, (FEW, 12)), randint(0, 60, (FEW,)))])


def large_eager_operations() -> None:
    """Eager operations on enough elements to run as native code."""
    for activation in ACTIVATIONS:
        model = nn.Sequential(nn.Linear(256, 512), activation(), nn.LayerNorm(512), nn.Dropout(0.1))
        x = randn(128, 256, requires_grad=True)
        y = model(x)
        (y * y + y - 2 * y).mean().backward()
    a, b = randn(256, 300, requires_grad=True), randn(256, 300, requires_grad=True)
    joined = cat([a, b], 1)
    total = (a @ b.T).softmax(-1).sum() + joined.exp().log1p().sum() + (a / (b * b + 1)).mean()
    total = total + joined.max() + a.std() + (a - b).abs().sum(0).sqrt().sum()
    total.backward()


GROUPS: dict[str, Callable[[], None]] = {
    "linear layers": linear_layers,
    "heads of few classes": heads,
    "norms": norms,
    "losses": losses,
    "optimizers": optimizers,
    "convolutions": convolutions,
    "images": images,
    "transformers": transformers,
    "recurrences": recurrences,
    "large eager operations": large_eager_operations,
}
