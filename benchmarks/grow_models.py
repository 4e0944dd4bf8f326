"""The models of `python -m benchmarks grow`, written once for PyTorch and tapegrad.

Each function takes the library and sizes and returns a `Problem`. `MODELS` are timed as compiled
steps, `EAGER` as eager ones; `SMALL` has sizes with which everything runs in seconds. `grow_jax.py`
has `MODELS` in JAX.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any

from . import models, others
from .firstcall import unet
from .models import blocks
from .problems import Problem, generator, leaf, normal, training


def heads(width: int) -> int:
    """The number of attention heads for a width: one for each 64."""
    return max(1, width // 64)


def gpt(lib: ModuleType, width: int, length: int = 128, batch: int = 4) -> Problem:
    """Two blocks of a GPT with AdamW."""
    return models.gpt(lib, 2, width, heads(width), length, batch)


def vit(
    lib: ModuleType, batch: int = 16, size: int = 32, width: int = 192, layers: int = 6
) -> Problem:
    """A vision transformer over patches of 4 x 4, with learned positions and AdamW."""
    nn, block = lib.nn, blocks(lib)[0]
    model = nn.ModuleDict(
        {
            "patches": nn.Conv2d(3, width, 4, stride=4),
            "positions": nn.Embedding((size // 4) ** 2, width),
            "blocks": nn.ModuleList([block(width, heads(width), False) for _ in range(layers)]),
            "norm": nn.LayerNorm(width),
            "head": nn.Linear(width, 10),
        }
    )

    def loss(x: Any, y: Any) -> Any:
        x = model["patches"](x).flatten(2).transpose(1, 2) + model["positions"].weight
        for layer in model["blocks"]:
            x = layer(x)
        return nn.functional.cross_entropy(model["head"](model["norm"](x).mean(1)), y)

    inputs = (normal(lib, batch, 3, size, size), lib.tensor(generator().integers(0, 10, batch)))
    return training(lib, model, inputs, loss, "AdamW", lr=1e-3)


@functools.cache
def residual(lib: ModuleType) -> tuple[type, type]:
    """The classes of a ResNet-18 for one library: a basic block and the whole network."""
    nn, relu = lib.nn, lib.nn.functional.relu

    def convolution(inside: int, outside: int, size: int, stride: int) -> Any:
        return nn.Conv2d(inside, outside, size, stride, padding=size // 2, bias=False)

    class BasicBlock(nn.Module):  # type: ignore[name-defined,misc]
        def __init__(self, inside: int, outside: int, stride: int) -> None:
            super().__init__()
            self.conv1 = convolution(inside, outside, 3, stride)
            self.norm1 = nn.BatchNorm2d(outside)
            self.conv2 = convolution(outside, outside, 3, 1)
            self.norm2 = nn.BatchNorm2d(outside)
            self.shortcut = None
            if stride > 1:
                self.shortcut = convolution(inside, outside, 1, stride)
                self.shortcut_norm = nn.BatchNorm2d(outside)

        def forward(self, x: Any) -> Any:
            y = relu(self.norm1(self.conv1(x)))
            y = self.norm2(self.conv2(y))
            if self.shortcut is not None:
                x = self.shortcut_norm(self.shortcut(x))
            return relu(y + x)

    class ResNet18(nn.Module):  # type: ignore[name-defined,misc]
        def __init__(self, width: int, classes: int) -> None:
            super().__init__()
            self.conv = convolution(3, width, 7, 2)
            self.norm = nn.BatchNorm2d(width)
            self.pool = nn.MaxPool2d(3, 2, padding=1)
            layers = []
            for stage in range(4):
                outside = width << stage
                inside = outside // 2 if stage else width
                layers += [BasicBlock(inside, outside, 2 if stage else 1)]
                layers += [BasicBlock(outside, outside, 1)]
            self.layers = nn.ModuleList(layers)
            self.head = nn.Linear(8 * width, classes)

        def forward(self, x: Any) -> Any:
            x = self.pool(relu(self.norm(self.conv(x))))
            for layer in self.layers:
                x = layer(x)
            return self.head(x.mean((2, 3)))

    return BasicBlock, ResNet18


def resnet(
    lib: ModuleType, size: int, batch: int = 8, width: int = 64, classes: int = 1000
) -> Problem:
    """ResNet-18: eight basic blocks with batch norm, with SGD."""
    model = residual(lib)[1](width, classes)
    labels = lib.tensor(generator().integers(0, classes, batch))

    def loss(x: Any, y: Any) -> Any:
        return lib.nn.functional.cross_entropy(model(x), y)

    return training(lib, model, (normal(lib, batch, 3, size, size), labels), loss, lr=0.01)


def lstm(
    lib: ModuleType, steps: int = 32, batch: int = 16, width: int = 512, layers: int = 4
) -> Problem:
    """nn.LSTM of several layers and a linear layer after its last step, with Adam."""
    nn = lib.nn
    model = nn.ModuleDict(
        {
            "lstm": nn.LSTM(width, width, num_layers=layers, batch_first=True),
            "head": nn.Linear(width, 10),
        }
    )

    def loss(x: Any, y: Any) -> Any:
        seen, _ = model["lstm"](x)
        return nn.functional.cross_entropy(model["head"](seen[:, -1]), y)

    labels = lib.tensor(generator().integers(0, 10, batch))
    return training(lib, model, (normal(lib, batch, steps, width), labels), loss, "Adam", lr=1e-3)


def attention(lib: ModuleType, length: int, sequences: int = 8, width: int = 64) -> Problem:
    """Causal attention alone: its mean square, forward and backward to q, k and v."""
    parameters = {
        name: leaf(lib, 1, sequences, length, width, seed=seed) for seed, name in enumerate("qkv")
    }

    def loss() -> Any:
        q, k, v = parameters.values()
        y = lib.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return (y * y).mean()

    return Problem(loss, (), parameters)


def logistic(lib: ModuleType, batch: int = 256, width: int = 32) -> Problem:
    """Logistic regression with SGD."""
    functional, model = lib.nn.functional, lib.nn.Linear(width, 1)

    def loss(x: Any, y: Any) -> Any:
        return functional.binary_cross_entropy_with_logits(model(x), y)

    inputs = (normal(lib, batch, width), (normal(lib, batch, 1, seed=2) > 0).float())
    return training(lib, model, inputs, loss, lr=0.1)


Maker = Callable[..., Problem]

MODELS: dict[str, Maker] = {
    **{f"GPT, width {w}": functools.partial(gpt, width=w) for w in (128, 256, 512, 768, 1024)},
    "ViT": vit,
    **{f"ResNet-18, {s}x{s}": functools.partial(resnet, size=s) for s in (64, 224)},
    "LSTM, 4 layers of 512": lstm,
    "U-Net, 128x128": functools.partial(unet, batch=2, size=128),
    **{
        f"attention, T={t}": functools.partial(attention, length=t)
        for t in (512, 1024, 2048, 4096, 8192)
    },
}

EAGER: dict[str, Maker] = {
    **models.MODELS,
    "logistic regression": logistic,
    "PINN, second derivatives": others.pinn,
    "GRU cell, 20 steps": others.gru,
    "Adam, 100 small tensors": others.many_small,
}

SMALL: dict[str, dict[str, int]] = {
    **{name: {"width": 64, "length": 8, "batch": 2} for name in MODELS if "GPT" in name},
    "ViT": {"batch": 2, "size": 8, "width": 64, "layers": 2},
    **{name: {"size": 64, "width": 4, "batch": 4} for name in MODELS if "ResNet" in name},
    "LSTM, 4 layers of 512": {"steps": 4, "batch": 2, "width": 8},
    "U-Net, 128x128": {"batch": 1, "size": 16},
    **{name: {"length": 32, "sequences": 2} for name in MODELS if "attention" in name},
    "GPT": {"layers": 1, "width": 32, "length": 8, "batch": 2},
    "gelu": {"count": 1000},
}


def made(lib: ModuleType, name: str, small: bool = False) -> Problem:
    """The problem of a model by name, in full or small size."""
    make = MODELS.get(name) or EAGER[name]
    return make(lib, **(SMALL.get(name, {}) if small else {}))
