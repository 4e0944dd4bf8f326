"""The models of `grow_models.py` in JAX: a loss of parameters and inputs for each.

Parameters have their PyTorch names. Batch norm keeps no running statistics here, which saves JAX a
little work. Attention computes all scores at once: XLA has no other implementation on a CPU.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
from jax import lax
from jax import numpy as jnp

from . import peers
from .grow_models import heads
from .peers import Absent, Step, block, cross_entropy, layer_norm, linear
from .problems import Problem


def gpt(p: Any, tokens: Any, labels: Any) -> Any:
    return peers.gpt(p, tokens, labels, heads(p["words.weight"].shape[1]))


def vit(p: Any, x: Any, y: Any) -> Any:
    x = convolved(p, "patches", x, 4, "VALID") + p["patches.bias"][:, None, None]
    x = x.reshape(*x.shape[:2], -1).swapaxes(1, 2) + p["positions.weight"]
    layers = sum(name.endswith(".qkv.weight") for name in p)
    for i in range(layers):
        x = block(p, f"blocks.{i}", x, heads(x.shape[-1]), causal=False)
    return cross_entropy(linear(p, "head", layer_norm(p, "norm", x).mean(1)), y)


def convolved(p: Any, name: str, x: Any, stride: int = 1, padding: Any = None) -> Any:
    """A convolution without bias, by default padded by half of its window."""
    weight = p[f"{name}.weight"]
    edge = weight.shape[-1] // 2
    return lax.conv_general_dilated(
        x, weight, (stride, stride), padding or [(edge, edge), (edge, edge)]
    )


def batch_norm(p: Any, name: str, x: Any) -> Any:
    centred = x - x.mean((0, 2, 3), keepdims=True)
    scale = lax.rsqrt((centred * centred).mean((0, 2, 3), keepdims=True) + 1e-5)
    weight, bias = p[f"{name}.weight"][:, None, None], p[f"{name}.bias"][:, None, None]
    return centred * scale * weight + bias


def pooled(x: Any, size: int, edge: int) -> Any:
    """Max pooling with stride 2."""
    padding = ((0, 0), (0, 0), (edge, edge), (edge, edge))
    return lax.reduce_window(x, -jnp.inf, lax.max, (1, 1, size, size), (1, 1, 2, 2), padding)


def resnet(p: Any, x: Any, y: Any) -> Any:
    x = pooled(jax.nn.relu(batch_norm(p, "norm", convolved(p, "conv", x, 2))), 3, 1)
    for i in range(8):
        name = f"layers.{i}"
        stride = 2 if f"{name}.shortcut.weight" in p else 1
        found = convolved(p, f"{name}.conv1", x, stride)
        found = convolved(p, f"{name}.conv2", jax.nn.relu(batch_norm(p, f"{name}.norm1", found)))
        if stride > 1:
            x = convolved(p, f"{name}.shortcut", x, stride)
            x = batch_norm(p, f"{name}.shortcut_norm", x)
        x = jax.nn.relu(batch_norm(p, f"{name}.norm2", found) + x)
    return cross_entropy(linear(p, "head", x.mean((2, 3))), y)


def lstm(p: Any, x: Any, y: Any) -> Any:
    layers = sum(".weight_hh_l" in name for name in p)
    x = x.swapaxes(0, 1)
    for i in range(layers):
        x = recurrent(p, f"l{i}", x)
    return cross_entropy(linear(p, "head", x[-1]), y)


def recurrent(p: Any, layer: str, x: Any) -> Any:
    """One layer of an LSTM over all steps; one product handles the inputs of all steps."""
    bias = p[f"lstm.bias_ih_{layer}"] + p[f"lstm.bias_hh_{layer}"]
    inputs = x @ p[f"lstm.weight_ih_{layer}"].T + bias
    weight = p[f"lstm.weight_hh_{layer}"].T

    def cell(state: Any, given: Any) -> Any:
        h, c = state
        i, f, g, o = jnp.split(given + h @ weight, 4, -1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    zeros = jnp.zeros((x.shape[1], weight.shape[0]))
    return lax.scan(cell, (zeros, zeros), inputs)[1]


def unet(p: Any, x: Any, y: Any) -> Any:
    def twice(name: str, x: Any) -> Any:
        for convolution, norm in (("0", "1"), ("3", "4")):
            x = convolved(p, f"{name}.{convolution}", x) + bias(f"{name}.{convolution}")
            x = jax.nn.relu(batch_norm(p, f"{name}.{norm}", x))
        return x

    def up(name: str, x: Any) -> Any:
        b, _, height, width = x.shape
        x = jnp.einsum("bcij,couv->boiujv", x, p[f"{name}.weight"])
        return x.reshape(b, -1, 2 * height, 2 * width) + bias(name)

    def bias(name: str) -> Any:
        return p[f"{name}.bias"][:, None, None]

    first = twice("down1", x)
    second = twice("down2", pooled(first, 2, 0))
    below = twice("bottom", pooled(second, 2, 0))
    second = twice("join2", jnp.concatenate([up("up2", below), second], 1))
    first = twice("join1", jnp.concatenate([up("up1", second), first], 1))
    logits = convolved(p, "head", first) + bias("head")
    return (jax.nn.softplus(logits) - logits * y).mean()


def attention(p: Any) -> Any:
    y = peers.attention(p["q"], p["k"], p["v"])
    return (y * y).mean()


#: the loss and the optimizer of a model, by its name up to the comma
LOSSES: dict[str, tuple[Callable[..., Any], str]] = {
    "GPT": (gpt, "AdamW"),
    "ViT": (vit, "AdamW"),
    "ResNet-18": (resnet, "SGD"),
    "LSTM": (lstm, "Adam"),
    "U-Net": (unet, "Adam"),
    "attention": (attention, "none"),
}


def step(name: str, problem: Problem) -> Step:
    """The step of a model under jax.jit, from the state of a PyTorch problem."""
    kind = name.partition(",")[0]
    if kind == "attention":
        _need_memory_for_scores(problem.parameters["q"].shape)
    return peers.jitted(problem, *LOSSES[kind])


def _need_memory_for_scores(shape: Any) -> None:
    """Forward and backward hold about five arrays of all scores."""
    needed = 5 * 4 * functools.reduce(int.__mul__, shape[:-2], 1) * shape[-2] ** 2
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:") and int(line.split()[1]) * 1024 < needed:
            raise Absent(f"it needs about {needed / 2**30:.0f} GiB for the scores")
