"""The peers: the steps of `models.py` under torch.compile and, rewritten in JAX, under jax.jit.

Comes in: a problem, or for JAX the name of a model. Goes out: a function without arguments that
runs one step; `Absent` says why there is none. JAX starts from the parameters and inputs of the
PyTorch problem, and its first loss must equal PyTorch's, so that both time the same step.
"""

from __future__ import annotations

import importlib.util
import logging
import warnings
from collections.abc import Callable
from typing import Any

from .models import MODELS
from .problems import Problem

Step = Callable[[], Any]


class Absent(Exception):
    """A peer cannot run a model here; the message says why."""


def compiled_by_torch(problem: Problem) -> Step:
    """The step under torch.compile, called twice."""
    return started_by_torch(problem)[0]


def started_by_torch(problem: Problem) -> tuple[Step, Any]:
    """The step under torch.compile, called twice, and the loss of its first call."""
    import torch

    torch._logging.set_logs(all=logging.ERROR)
    step = torch.compile(problem.step)

    def run() -> Any:
        return step(*problem.inputs)

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            first = run().item()
            run()
    except Exception as error:
        raise Absent(f"torch.compile: {type(error).__name__}: {str(error)[:120]}") from error
    return run, first


# -- JAX ------------------------------------------------------------------------------------------


def compiled_by_jax(name: str) -> Step:
    """A step of the main table under jax.jit, checked against PyTorch's first loss."""
    import torch

    problem = MODELS[name](torch)
    run = jitted(problem, LOSSES[name], UPDATES[name])
    first, expected = float(run()), problem().item()
    if abs(first - expected) > 1e-3 * abs(expected):
        raise AssertionError(f"{name} in JAX has loss {first}, PyTorch has {expected}")
    return run


def jitted(
    problem: Problem,
    loss: Callable[..., Any],
    update: str,
    platform: str = "cpu",
    waits: bool = True,
) -> Step:
    """A step under jax.jit, which starts from the parameters and inputs of a problem.

    `update` is SGD with a rate of 0.01, Adam or AdamW with 0.001, or none. Unless it `waits`, a
    step returns before its result is computed.
    """
    if importlib.util.find_spec("jax") is None:
        raise Absent("jax is not installed")
    import jax

    jax.config.update("jax_platforms", platform)  # by default it would run on a GPU, if any

    parameters = {key: jax.numpy.asarray(value) for key, value in problem.arrays().items()}
    inputs = [jax.numpy.asarray(x.numpy()) for x in problem.inputs]
    step, state = _stepper(loss, update, parameters)

    def run() -> Any:
        nonlocal state
        state, value = step(state, *inputs)
        if waits:
            jax.block_until_ready((state, value))
        return value

    return run


def _stepper(loss: Callable[..., Any], update: str, parameters: Any) -> tuple[Any, Any]:
    """A compiled step and its initial state: parameters and optimizer state."""
    import jax
    from jax import numpy as jnp

    gradients = jax.value_and_grad(loss)
    decay = 1e-5 if update == "AdamW" else 0.0

    def sgd(state: Any, *inputs: Any) -> Any:
        value, grads = gradients(state, *inputs)
        return jax.tree.map(lambda p, g: p - 0.01 * g, state, grads), value

    def adam(state: Any, *inputs: Any) -> Any:
        p, m, v, count = state
        value, grads = gradients(p, *inputs)
        count = count + 1
        m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, m, grads)
        v = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, v, grads)
        first, second = 1 - 0.9**count, 1 - 0.999**count

        def change(p: Any, m: Any, v: Any) -> Any:
            return p * (1 - decay) - 1e-3 * (m / first) / (jnp.sqrt(v / second) + 1e-8)

        return (jax.tree.map(change, p, m, v), m, v, count), value

    zeros = jax.tree.map(jnp.zeros_like, parameters)
    if update == "SGD":
        return jax.jit(sgd, donate_argnums=0), parameters
    if update in ("Adam", "AdamW"):
        state = (parameters, zeros, jax.tree.map(jnp.zeros_like, parameters), jnp.float32(0))
        return jax.jit(adam, donate_argnums=0), state
    compiled = jax.jit(gradients)

    def without_update(state: Any, *inputs: Any) -> Any:
        value, grads = compiled(parameters, *inputs)
        return grads, value

    return without_update, None


def linear(p: Any, name: str, x: Any) -> Any:
    return x @ p[f"{name}.weight"].T + p[f"{name}.bias"]


def cross_entropy(logits: Any, labels: Any) -> Any:
    import jax
    from jax import numpy as jnp

    chosen = jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], 1)
    return -chosen.mean()


def _mlp(p: Any, x: Any, y: Any) -> Any:
    import jax

    return cross_entropy(linear(p, "2", jax.nn.relu(linear(p, "0", x))), y)


def _cnn(p: Any, x: Any, y: Any) -> Any:
    import jax
    from jax import lax

    for name in ("0", "3"):
        x = lax.conv_general_dilated(x, p[f"{name}.weight"], (1, 1), "SAME")
        x = jax.nn.relu(x + p[f"{name}.bias"][:, None, None])
        x = lax.reduce_window(x, -float("inf"), lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID")
    return cross_entropy(linear(p, "7", x.reshape(x.shape[0], -1)), y)


def layer_norm(p: Any, name: str, x: Any) -> Any:
    from jax import lax

    centred = x - x.mean(-1, keepdims=True)
    scale = lax.rsqrt((centred * centred).mean(-1, keepdims=True) + 1e-5)
    return centred * scale * p[f"{name}.weight"] + p[f"{name}.bias"]


def attention(q: Any, k: Any, v: Any, causal: bool = True) -> Any:
    import jax
    from jax import numpy as jnp

    scores = q @ k.swapaxes(-1, -2) * q.shape[-1] ** -0.5
    if causal:
        seen = jnp.tril(jnp.ones(scores.shape[-2:], bool))
        scores = jnp.where(seen, scores, -jnp.inf)
    return jax.nn.softmax(scores) @ v


def block(p: Any, name: str, x: Any, heads: int, causal: bool = True) -> Any:
    """A pre-norm block of attention and two linear layers."""
    import jax

    x = x + attend(p, name, layer_norm(p, f"{name}.norm1", x), heads, causal)
    hidden = linear(p, f"{name}.up", layer_norm(p, f"{name}.norm2", x))
    return x + linear(p, f"{name}.down", jax.nn.gelu(hidden, approximate=False))


def attend(p: Any, name: str, x: Any, heads: int, causal: bool) -> Any:
    from jax import numpy as jnp

    batch, length, width = x.shape
    split = linear(p, f"{name}.qkv", x).reshape(batch, length, 3, heads, width // heads)
    q, k, v = jnp.moveaxis(split, (2, 3), (0, 2))
    y = attention(q, k, v, causal)
    return linear(p, f"{name}.out", y.swapaxes(1, 2).reshape(batch, length, width))


def gpt(p: Any, tokens: Any, labels: Any, heads: int = 4) -> Any:
    x = p["words.weight"][tokens] + p["places.weight"][: tokens.shape[1]]
    layers = sum(name.endswith(".qkv.weight") for name in p)
    for i in range(layers):
        x = block(p, f"blocks.{i}", x, heads)
    logits = linear(p, "head", layer_norm(p, "norm", x))
    return cross_entropy(logits.reshape(-1, logits.shape[-1]), labels.reshape(-1))


def _gelu(p: Any) -> Any:
    import jax

    return jax.nn.gelu(p["x"] * p["w"] + p["x"], approximate=False).sum()


def _rnn(p: Any, x: Any) -> Any:
    import jax
    from jax import numpy as jnp

    def cell(h: Any, x: Any) -> Any:
        return jnp.tanh(x @ p["input"] + h @ p["hidden"] + p["bias"]), None

    h, _ = jax.lax.scan(cell, jnp.zeros(x.shape[1:]), x)
    return (h * h).mean()


LOSSES: dict[str, Callable[..., Any]] = {
    "MLP": _mlp,
    "CNN": _cnn,
    "GPT": gpt,
    "gelu": _gelu,
    "RNN": _rnn,
}
UPDATES = {"MLP": "SGD", "CNN": "SGD", "GPT": "AdamW", "gelu": "none", "RNN": "none"}
