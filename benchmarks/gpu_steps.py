"""Training steps on a GPU, in a process of one library.

Comes in: the names of a library and a step, and whether sizes are small. Goes out: seconds of a
step, its first loss, seconds until the first step (of a compiled tapegrad step, the first replay)
and, except for JAX, the peak GPU memory of later steps in bytes. Steps are enqueued without
waiting, as in training; one wait ends a block of them. Called by `grow_child.py`.
"""

from __future__ import annotations

import functools
import statistics
import time
import warnings
from collections.abc import Callable
from types import ModuleType
from typing import Any

from . import models
from .measure import callbacks
from .peers import Absent
from .problems import Problem, generator, training

#: the number of timed blocks, and the intended seconds of each
BLOCKS, BLOCK_SECONDS = 7, 0.1


def gpt2(
    lib: ModuleType,
    layers: int = 12,
    width: int = 768,
    heads: int = 12,
    length: int = 1024,
    batch: int = 8,
    words: int = 50257,
) -> Problem:
    """GPT-2 with 124 million parameters in bfloat16 autocast; its head is the word embedding."""
    model = models.blocks(lib)[2](words, width, heads, layers, length)
    tokens = generator().integers(0, words, (batch, length + 1))

    def loss(x: Any, y: Any) -> Any:
        with lib.autocast("cuda", dtype=lib.bfloat16):
            return lib.nn.functional.cross_entropy(model(x).reshape(-1, words), y.reshape(-1))

    inputs = (lib.tensor(tokens[:, :-1].copy()), lib.tensor(tokens[:, 1:].copy()))
    return training(lib, model, inputs, loss, "AdamW", lr=1e-4)


STEPS: dict[str, Callable[..., Problem]] = {
    "MLP": models.mlp,
    "CNN": models.cnn,
    "GPT": models.gpt,
    "gelu": functools.partial(models.gelu, count=64_000_000),
    "GPT-2": gpt2,
}
#: sizes that only check that a step runs, also without a GPU
SMALL: dict[str, dict[str, int]] = {
    "MLP": {"batch": 2, "width": 4, "hidden": 4},
    "CNN": {"batch": 2, "size": 8},
    "GPT": {"layers": 1, "width": 8, "heads": 2, "length": 4, "batch": 2, "words": 11},
    "gelu": {"count": 100},
    "GPT-2": {"layers": 1, "width": 16, "heads": 2, "length": 8, "batch": 2, "words": 33},
}


def measured(library: str, model: str, small: bool) -> dict[str, Any]:
    """Time a step; see the top of this file."""
    sizes = SMALL[model] if small else {}
    return LIBRARIES[library](model, sizes)


def _seconds(run: Callable[[], Any], wait: Callable[[], Any]) -> float:
    """Median seconds of a step over blocks of steps, with one wait at the end of each block."""
    run()
    wait()
    count, spent = 1, 0.0
    while spent < BLOCK_SECONDS:
        start = time.perf_counter()
        for _ in range(count):
            run()
        wait()
        spent = time.perf_counter() - start
        if spent < BLOCK_SECONDS:
            count = max(count + 1, int(1.2 * count * BLOCK_SECONDS / max(spent, 1e-6)))
    times = []
    for _ in range(BLOCKS):
        start = time.perf_counter()
        for _ in range(count):
            run()
        wait()
        times.append((time.perf_counter() - start) / count)
    return statistics.median(times)


# -- libraries ------------------------------------------------------------------------------------


def _problem(lib: ModuleType, model: str, sizes: dict[str, int]) -> Problem:
    """A problem whose tensors are on the GPU."""
    lib.set_float32_matmul_precision("high")
    lib.set_default_device("cuda")
    try:
        return STEPS[model](lib, **sizes)
    finally:
        lib.set_default_device("cpu")


def _torch(mode: str | None, model: str, sizes: dict[str, int]) -> dict[str, Any]:
    import torch

    torch.cuda.empty_cache()
    problem = _problem(torch, model, sizes)
    run: Callable[[], Any] = problem
    start = time.perf_counter()
    if mode is not None:
        torch._dynamo.reset()
        options = {} if mode == "default" else {"mode": mode}
        step = torch.compile(problem.step, **options)
        run = functools.partial(step, *problem.inputs)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            loss = run().item()
            first = time.perf_counter() - start
            for _ in range(3):
                run()
            torch.cuda.reset_peak_memory_stats()
            seconds = _seconds(run, torch.cuda.synchronize)
    except Exception as error:
        what = "torch eager" if mode is None else "torch.compile"
        raise Absent(f"{what}: {type(error).__name__}: {str(error)[:120]}") from error
    peak = torch.cuda.max_memory_allocated()
    return {"seconds": seconds, "loss": loss, "first": first, "peak": peak}


def _tapegrad(compiles: bool, model: str, sizes: dict[str, int]) -> dict[str, Any]:
    import tapegrad
    from tapegrad.core.device import cupy

    problem = _problem(tapegrad, model, sizes)
    run: Callable[[], Any] = problem
    start = time.perf_counter()
    step = None
    if compiles:
        step = tapegrad.compile(problem.step)
        run = functools.partial(step, *problem.inputs)
    loss = run().item()
    if step is not None:
        for _ in range(6):
            run()
            if any(replay.count for replay in step.replays):
                break
        else:
            raise Absent(f"it was not replayed: {step.explain()}")
    first = time.perf_counter() - start
    found = {"loss": loss, "first": first}
    tapegrad.cuda.synchronize()
    tapegrad.cuda.empty_cache()
    found["seconds"] = _seconds(run, tapegrad.cuda.synchronize)
    found["peak"] = cupy().get_default_memory_pool().total_bytes()
    if step is not None:
        found["callbacks"] = callbacks(step)
        found["explained"] = step.explain()
    return found


def _jax(model: str, sizes: dict[str, int]) -> dict[str, Any]:
    import torch

    from . import gpu_jax

    run, wait = gpu_jax.step(model, STEPS[model](torch, **sizes))
    start = time.perf_counter()
    loss = float(run())
    first = time.perf_counter() - start
    return {"seconds": _seconds(run, wait), "loss": loss, "first": first}


LIBRARIES: dict[str, Callable[[str, dict[str, int]], dict[str, Any]]] = {
    "torch eager": functools.partial(_torch, None),
    "torch.compile": functools.partial(_torch, "default"),
    "torch with graphs": functools.partial(_torch, "reduce-overhead"),
    "jax.jit": _jax,
    "eager": functools.partial(_tapegrad, False),
    "replay": functools.partial(_tapegrad, True),
}
