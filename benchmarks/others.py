"""Models for which tapegrad was not tuned, against PyTorch: the second table.

Recurrent, convolutional with batch norm, attention with dropout, generative, second-order, tiny.
Written once for both libraries, as in `models.py`. `python -m benchmarks others --compile` times
torch.compile too. At the end, the replay that is slowest relative to its peer is explained.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from .measure import Columns, Report, callbacks, duration, interleaved
from .models import blocks
from .problems import Problem, generator, leaf, normal, training


def lstm(lib: ModuleType, steps: int = 20, batch: int = 16, width: int = 64) -> Problem:
    """An LSTM cell in a loop, its four gates from one product, with Adam."""
    nn = lib.nn
    model = nn.ModuleDict({"gates": nn.Linear(2 * width, 4 * width), "head": nn.Linear(width, 1)})

    def loss(x: Any, y: Any) -> Any:
        h = c = lib.zeros(batch, width)
        for t in range(steps):
            i, f, g, o = model["gates"](lib.cat([x[:, t], h], 1)).chunk(4, 1)
            c = lib.sigmoid(f) * c + lib.sigmoid(i) * lib.tanh(g)
            h = lib.sigmoid(o) * lib.tanh(c)
        return nn.functional.mse_loss(model["head"](h), y)

    inputs = (normal(lib, batch, steps, width), normal(lib, batch, 1, seed=2))
    return training(lib, model, inputs, loss, "Adam", lr=1e-3)


def gru(lib: ModuleType, steps: int = 20, batch: int = 16, width: int = 64) -> Problem:
    """A GRU cell in a loop, with a loss over all steps."""
    nn = lib.nn
    model = nn.ModuleDict(
        {
            "input": nn.Linear(width, 3 * width),
            "hidden": nn.Linear(width, 3 * width),
            "head": nn.Linear(width, 10),
        }
    )

    def loss(x: Any, y: Any) -> Any:
        h = lib.zeros(batch, width)
        seen: list[Any] = []
        for t in range(steps):
            a, b, c = model["input"](x[:, t]).chunk(3, 1)
            d, e, f = model["hidden"](h).chunk(3, 1)
            z, n = lib.sigmoid(a + d), lib.tanh(c + lib.sigmoid(b + e) * f)
            h = (1 - z) * n + z * h
            seen.append(h)
        logits = model["head"](lib.stack(seen, 1))
        return nn.functional.cross_entropy(logits.reshape(-1, 10), y.reshape(-1))

    labels = lib.tensor(generator().integers(0, 10, (batch, steps)))
    return training(lib, model, (normal(lib, batch, steps, width), labels), loss, lr=0.1)


def batch_norm_cnn(lib: ModuleType, batch: int = 32, size: int = 32, width: int = 16) -> Problem:
    """Strided and residual convolutions, batch norm, global average pooling; SGD with momentum."""
    nn, functional = lib.nn, lib.nn.functional
    model = nn.ModuleDict(
        {
            "first": nn.Conv2d(3, width, 3, stride=2, padding=1, bias=False),
            "norm1": nn.BatchNorm2d(width),
            "second": nn.Conv2d(width, 2 * width, 3, stride=2, padding=1, bias=False),
            "norm2": nn.BatchNorm2d(2 * width),
            "third": nn.Conv2d(2 * width, 2 * width, 3, padding=1, bias=False),
            "norm3": nn.BatchNorm2d(2 * width),
            "head": nn.Linear(2 * width, 10),
        }
    )

    def loss(x: Any, y: Any) -> Any:
        x = functional.relu(model["norm1"](model["first"](x)))
        x = functional.relu(model["norm2"](model["second"](x)))
        x = functional.relu(model["norm3"](model["third"](x)) + x)
        return functional.cross_entropy(model["head"](x.mean((2, 3))), y)

    inputs = (normal(lib, batch, 3, size, size), lib.tensor(generator().integers(0, 10, batch)))
    return training(lib, model, inputs, loss, lr=0.01, momentum=0.9, weight_decay=1e-4)


def encoder(lib: ModuleType, batch: int = 8, length: int = 32, width: int = 64) -> Problem:
    """Two non-causal attention blocks with dropout and a padding mask, with Adam."""
    nn, functional = lib.nn, lib.nn.functional
    heads, layers = 4, 2
    block = blocks(lib)[0]
    model = nn.ModuleDict(
        {"blocks": nn.ModuleList([block(width, heads) for _ in range(layers)]),
         "drop": nn.Dropout(0.1), "head": nn.Linear(width, 5)}
    )  # fmt: skip

    def attend(layer: Any, x: Any, keep: Any) -> Any:
        split = layer.qkv(x).reshape(batch, length, 3, heads, width // heads)
        q, k, v = split.permute(2, 0, 3, 1, 4).unbind(0)
        scores = (q @ k.transpose(-2, -1)) * (width // heads) ** -0.5
        scores = scores.masked_fill(~keep, float("-inf"))
        y = model["drop"](lib.softmax(scores, -1)) @ v
        return layer.out(y.transpose(1, 2).reshape(batch, length, width))

    def loss(x: Any, keep: Any, y: Any) -> Any:
        for layer in model["blocks"]:
            x = x + model["drop"](attend(layer, layer.norm1(x), keep))
            x = x + model["drop"](layer.down(functional.gelu(layer.up(layer.norm2(x)))))
        return functional.cross_entropy(model["head"](x.mean(1)), y)

    lengths = generator().integers(length // 2, length, batch)
    keep = lib.arange(length) < lib.tensor(lengths)[:, None, None, None]
    inputs = (
        normal(lib, batch, length, width),
        keep,
        lib.tensor(generator().integers(0, 5, batch)),
    )
    return training(lib, model, inputs, loss, "Adam", lr=1e-3)


def vae(lib: ModuleType, batch: int = 64, width: int = 256, hidden: int = 128) -> Problem:
    """A variational autoencoder; its noise is an input, so that libraries can be compared."""
    nn, functional = lib.nn, lib.nn.functional
    code = 16
    encode = nn.Sequential(nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, 2 * code))
    decode = nn.Sequential(nn.Linear(code, hidden), nn.ReLU(), nn.Linear(hidden, width))

    def loss(x: Any, noise: Any) -> Any:
        mean, spread = encode(x).chunk(2, 1)
        found = decode(mean + noise * (0.5 * spread).exp())
        kept = functional.binary_cross_entropy_with_logits(found, x, reduction="sum")
        return (kept - 0.5 * (1 + spread - mean**2 - spread.exp()).sum()) / batch

    inputs = (lib.sigmoid(normal(lib, batch, width)), normal(lib, batch, code, seed=2))
    model = nn.ModuleDict({"encode": encode, "decode": decode})
    return training(lib, model, inputs, loss, "Adam", lr=1e-3)


def pinn(lib: ModuleType, points: int = 256, width: int = 32) -> Problem:
    """A physics-informed network for the heat equation: second derivatives inside the loss."""
    nn, grad = lib.nn, lib.autograd.grad
    model = nn.Sequential(
        nn.Linear(2, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 1)
    )

    def loss(x: Any, t: Any) -> Any:
        x, t = x.clone().requires_grad_(True), t.clone().requires_grad_(True)
        u = model(lib.cat([x, t], 1))
        ux, ut = grad(u.sum(), (x, t), create_graph=True)
        (uxx,) = grad(ux.sum(), x, create_graph=True)
        start = model(lib.cat([x, lib.zeros_like(t)], 1)) - lib.sin(3.14159 * x)
        return ((ut - 0.1 * uxx) ** 2).mean() + (start**2).mean()

    inputs = (normal(lib, points, 1), normal(lib, points, 1, seed=2))
    return training(lib, model, inputs, loss, "Adam", lr=1e-3)


def tiny_mlp(lib: ModuleType) -> Problem:
    """One sample through a network of a few hundred weights: the overhead of calls."""
    nn = lib.nn
    model = nn.Sequential(
        nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 2)
    )
    inputs = (normal(lib, 1, 8), normal(lib, 1, 2, seed=2))
    return training(lib, model, inputs, lambda x, y: ((model(x) - y) ** 2).mean(), lr=0.01)


def many_small(lib: ModuleType, count: int = 100) -> Problem:
    """Adam on many tensors of ten elements."""
    parameters = {str(i): leaf(lib, 10, seed=i) for i in range(count)}

    def loss(x: Any) -> Any:
        total = x
        for p in parameters.values():
            total = total + p * p
        return total.sum()

    updates = lib.optim.Adam(parameters.values(), lr=1e-3)
    return Problem(loss, (normal(lib, 10),), parameters, updates)


def wgan(lib: ModuleType, batch: int = 64, width: int = 32, hidden: int = 64) -> Problem:
    """The critic's step of a WGAN with gradient penalty: a gradient of a gradient's norm."""
    nn = lib.nn
    critic = nn.Sequential(
        nn.Linear(width, hidden), nn.LeakyReLU(0.2), nn.Linear(hidden, hidden), nn.LeakyReLU(0.2),
        nn.Linear(hidden, 1),
    )  # fmt: skip
    made = nn.Sequential(nn.Linear(8, hidden), nn.ReLU(), nn.Linear(hidden, width))

    def loss(real: Any, noise: Any, mix: Any) -> Any:
        fake = made(noise).detach()
        between = (mix * real + (1 - mix) * fake).requires_grad_(True)
        (slope,) = lib.autograd.grad(critic(between).sum(), between, create_graph=True)
        penalty = (((slope**2).sum(1) + 1e-12).sqrt() - 1) ** 2
        return critic(fake).mean() - critic(real).mean() + 10 * penalty.mean()

    inputs = (
        normal(lib, batch, width),
        normal(lib, batch, 8, seed=2),
        lib.sigmoid(normal(lib, batch, 1, seed=3)),
    )
    problem = training(lib, nn.ModuleDict({"critic": critic, "made": made}), inputs, loss, lr=1e-3)
    trained = {k: v for k, v in problem.parameters.items() if k.startswith("critic")}
    updates = lib.optim.Adam(trained.values(), lr=1e-4, betas=(0.0, 0.9))
    return Problem(loss, inputs, trained, updates)


def deep_norm(lib: ModuleType, batch: int = 32, width: int = 64, layers: int = 12) -> Problem:
    """A deep residual network with layer norm, RMSprop and clipped gradients."""
    nn, functional = lib.nn, lib.nn.functional
    model = nn.ModuleDict(
        {
            "norms": nn.ModuleList([nn.LayerNorm(width) for _ in range(layers)]),
            "layers": nn.ModuleList([nn.Linear(width, width) for _ in range(layers)]),
        }
    )

    def loss(x: Any, y: Any) -> Any:
        for norm, layer in zip(model["norms"], model["layers"], strict=True):
            x = x + functional.silu(layer(norm(x)))
        return functional.smooth_l1_loss(x, y)

    inputs = (normal(lib, batch, width), normal(lib, batch, width, seed=2))
    problem = training(lib, model, inputs, loss, "RMSprop", lr=1e-4)
    problem.change = lambda parameters: nn.utils.clip_grad_norm_(parameters.values(), 1.0)
    return problem


OTHERS: dict[str, Callable[..., Problem]] = {
    "LSTM cell, 20 steps": lstm,
    "GRU cell, 20 steps": gru,
    "CNN, batch norm, strides": batch_norm_cnn,
    "encoder with dropout": encoder,
    "VAE": vae,
    "PINN, second derivatives": pinn,
    "tiny MLP, batch 1": tiny_mlp,
    "Adam, 100 small tensors": many_small,
    "WGAN-GP critic": wgan,
    "deep MLP, layer norm": deep_norm,
}


def run(report: Report, rounds: int = 6) -> None:
    import torch

    import tapegrad

    from .peers import Absent, compiled_by_torch
    from .replay import compiled

    with_compile = "--compile" in sys.argv
    names = ["torch eager", *(["torch.compile"] if with_compile else []), "eager", "replay"]
    table = Columns("step", *names, "replay/peer", "eager/torch", "callbacks", width=15)
    ratios: dict[str, tuple[float, Any]] = {}
    for name, make in OTHERS.items():
        step, replay = compiled(make(tapegrad))
        found: dict[str, Callable[[], Any]] = {"torch eager": make(torch)}
        if with_compile:
            try:
                found["torch.compile"] = compiled_by_torch(make(torch))
            except Absent as reason:
                print(f"{name}: torch.compile is left out: {reason}", flush=True)
        found |= {"eager": make(tapegrad), "replay": replay}
        times = interleaved(found, rounds)
        best = min(seconds for key, seconds in times.items() if key.startswith("torch"))
        ratios[name] = (times["replay"] / best, step)
        table.row(
            name,
            *(duration(times.get(column)) for column in names),
            f"{ratios[name][0]:.2f}",
            f"{times['eager'] / times['torch eager']:.2f}",
            str(callbacks(step)),
        )
    worst = max(ratios, key=lambda name: ratios[name][0])
    report.say("\nthe slowest beside its peer", f"{worst}\n{ratios[worst][1].explain(full=True)}")
