"""The steps of `gpu_steps.py` in JAX on a GPU.

Comes in: the name of a step and the PyTorch problem that it starts from. Goes out: a function that
enqueues a step, and one that waits for the last of them. On a GPU, GPT-2 uses cuDNN's attention if
heads have width 64.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
from jax import numpy as jnp

from . import peers
from .peers import Step, cross_entropy, layer_norm, linear
from .problems import Problem


def step(model: str, problem: Problem) -> tuple[Step, Callable[[], Any]]:
    """A step under jax.jit, and a function that waits for it."""
    jax.config.update("jax_default_matmul_precision", "tensorfloat32")
    loss = _gpt2 if model == "GPT-2" else peers.LOSSES[model]
    update = "AdamW" if model == "GPT-2" else peers.UPDATES[model]
    run = peers.jitted(problem, loss, update, platform="cuda,cpu", waits=False)
    last: list[Any] = []

    def asked() -> Any:
        last[:] = [run()]
        return last[0]

    return asked, lambda: jax.block_until_ready(last)


def _gpt2(p: Any, tokens: Any, labels: Any) -> Any:
    """Products and attention in bfloat16; norms, residual sums and the loss in float32."""
    low = {name: x.astype(jnp.bfloat16) for name, x in p.items()}
    x = p["words.weight"][tokens] + p["places.weight"][: tokens.shape[1]]
    layers = sum(name.endswith(".qkv.weight") for name in p)
    for i in range(layers):
        name = f"blocks.{i}"
        x = x + _attend(low, name, _norm(p, f"{name}.norm1", x))
        hidden = linear(low, f"{name}.up", _norm(p, f"{name}.norm2", x))
        x = x + linear(low, f"{name}.down", jax.nn.gelu(hidden, approximate=True))
    logits = _norm(p, "norm", x) @ low["words.weight"].T
    logits = logits.reshape(-1, logits.shape[-1]).astype(jnp.float32)
    return cross_entropy(logits, labels.reshape(-1))


def _norm(p: Any, name: str, x: Any) -> Any:
    return layer_norm(p, name, x.astype(jnp.float32)).astype(jnp.bfloat16)


def _attend(p: Any, name: str, x: Any) -> Any:
    batch, length, width = x.shape
    heads = max(width // 64, 2)
    split = linear(p, f"{name}.qkv", x).reshape(batch, length, 3, heads, width // heads)
    q, k, v = (split[:, :, i] for i in range(3))
    how = "cudnn" if jax.default_backend() == "gpu" and width // heads == 64 else "xla"
    y = jax.nn.dot_product_attention(q, k, v, is_causal=True, implementation=how)
    return linear(p, f"{name}.out", y.reshape(batch, length, width))
