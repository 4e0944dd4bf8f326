"""The five steps of the main table, written once for PyTorch and tapegrad.

Each function takes the library (and sizes, which the tests reduce) and returns a `Problem`.
`peers.py` has the same steps in JAX.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any

from .problems import Problem, generator, leaf, normal, training


def mlp(lib: ModuleType, batch: int = 64, width: int = 784, hidden: int = 256) -> Problem:
    """A two-layer network with SGD."""
    nn, functional = lib.nn, lib.nn.functional
    model = nn.Sequential(nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, 10))
    inputs = (normal(lib, batch, width), lib.tensor(generator().integers(0, 10, batch)))
    return training(lib, model, inputs, lambda x, y: functional.cross_entropy(model(x), y), lr=0.01)


def cnn(lib: ModuleType, batch: int = 64, size: int = 28) -> Problem:
    """Two convolutions, each with ReLU and max pooling, and a linear layer, with SGD."""
    nn, functional = lib.nn, lib.nn.functional
    model = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(32 * (size // 4) ** 2, 10),
    )
    inputs = (normal(lib, batch, 1, size, size), lib.tensor(generator().integers(0, 10, batch)))
    return training(lib, model, inputs, lambda x, y: functional.cross_entropy(model(x), y), lr=0.01)


@functools.cache
def blocks(lib: ModuleType) -> tuple[type, type, type]:
    """The classes of a GPT for one library: a pre-norm block, the whole model, and GPT-2."""
    nn, functional = lib.nn, lib.nn.functional

    class Block(nn.Module):  # type: ignore[name-defined,misc]
        def __init__(self, width: int, heads: int, causal: bool = True, gelu: str = "none") -> None:
            super().__init__()
            self.heads, self.causal, self.gelu = heads, causal, gelu
            self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def attend(self, x: Any) -> Any:
            batch, length, width = x.shape
            split = self.qkv(x).reshape(batch, length, 3, self.heads, width // self.heads)
            q, k, v = split.permute(2, 0, 3, 1, 4).unbind(0)
            y = functional.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
            return self.out(y.transpose(1, 2).reshape(batch, length, width))

        def forward(self, x: Any) -> Any:
            x = x + self.attend(self.norm1(x))
            hidden = functional.gelu(self.up(self.norm2(x)), approximate=self.gelu)
            return x + self.down(hidden)

    class Gpt(nn.Module):  # type: ignore[name-defined,misc]
        def __init__(self, words: int, width: int, heads: int, layers: int, length: int) -> None:
            super().__init__()
            self.words, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
            self.blocks = nn.ModuleList([Block(width, heads) for _ in range(layers)])
            self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words)

        def forward(self, tokens: Any) -> Any:
            x = self.words(tokens) + self.places.weight[: tokens.shape[1]]
            for block in self.blocks:
                x = block(x)
            return self.head(self.norm(x))

    class Gpt2(nn.Module):  # type: ignore[name-defined,misc]
        def __init__(self, words: int, width: int, heads: int, layers: int, length: int) -> None:
            super().__init__()
            self.words, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
            made = [Block(width, heads, gelu="tanh") for _ in range(layers)]
            self.blocks, self.norm = nn.ModuleList(made), nn.LayerNorm(width)

        def forward(self, tokens: Any) -> Any:
            x = self.words(tokens) + self.places.weight[: tokens.shape[1]]
            for block in self.blocks:
                x = block(x)
            return functional.linear(self.norm(x), self.words.weight)

    return Block, Gpt, Gpt2


def gpt(
    lib: ModuleType,
    layers: int = 4,
    width: int = 128,
    heads: int = 4,
    length: int = 64,
    batch: int = 8,
    words: int = 256,
) -> Problem:
    """A small GPT with AdamW: learned positions, causal attention, an untied head."""
    model = blocks(lib)[1](words, width, heads, layers, length)
    tokens = generator().integers(0, words, (batch, length + 1))

    def loss(x: Any, y: Any) -> Any:
        return lib.nn.functional.cross_entropy(model(x).reshape(-1, words), y.reshape(-1))

    inputs = (lib.tensor(tokens[:, :-1].copy()), lib.tensor(tokens[:, 1:].copy()))
    return training(lib, model, inputs, loss, "AdamW", lr=1e-3)


def gelu(lib: ModuleType, count: int = 4_000_000) -> Problem:
    """gelu(x * w + x).sum() of two long vectors, forward and backward to both."""
    x, w = leaf(lib, count, seed=1), leaf(lib, count, seed=2)
    return Problem(lambda: lib.nn.functional.gelu(x * w + x).sum(), (), {"x": x, "w": w})


def rnn(lib: ModuleType, steps: int = 50, batch: int = 32, width: int = 128) -> Problem:
    """A tanh recurrence, forward and backward."""
    parameters = {
        "input": leaf(lib, width, width, seed=2, scale=width**-0.5),
        "hidden": leaf(lib, width, width, seed=3, scale=width**-0.5),
        "bias": leaf(lib, width, seed=4, scale=0.1),
    }

    def loss(x: Any) -> Any:
        h = lib.zeros(batch, width)
        for t in range(steps):
            h = lib.tanh(x[t] @ parameters["input"] + h @ parameters["hidden"] + parameters["bias"])
        return (h * h).mean()

    return Problem(loss, (normal(lib, steps, batch, width),), parameters)


def tiny_chain(lib: ModuleType) -> Callable[[Any], Any]:
    """50 operations on 10 elements, without gradients: the overhead of calls."""
    a, b = normal(lib, 10, seed=1) * 0.1, normal(lib, 10, seed=2)

    def run(x: Any) -> Any:
        for _ in range(25):
            x = x * a
            x = x + b
        return x

    return run


def tiny_step(lib: ModuleType) -> Problem:
    """A training step of about 50 operations on 10 elements: 12 forward, backward, SGD."""
    parameters = {"w": leaf(lib, 10, seed=1), "b": leaf(lib, 10, seed=2)}

    def loss(x: Any) -> Any:
        for _ in range(6):
            x = x * parameters["w"]
            x = x + parameters["b"]
        return x.mean()

    updates = lib.optim.SGD(parameters.values(), lr=0.01)
    return Problem(loss, (normal(lib, 10),), parameters, updates)


MODELS: dict[str, Callable[..., Problem]] = {
    "MLP": mlp,
    "CNN": cnn,
    "GPT": gpt,
    "gelu": gelu,
    "RNN": rnn,
}
