"""Operations on small tensors, written once for PyTorch and tapegrad, and their timing.

Comes in: a library, a family and a number of elements. Goes out: seconds of each operation, forward
alone and forward with backward, and of whole training steps. `grow_child.py` calls `measured` and
`measured_steps` in a process of its own; `small.py` prints the ratios.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import Any, NamedTuple

from .grow_models import made
from .problems import generator, normal

SIZES = (10, 100, 1000)

#: the number of rows of a matrix, by its number of elements
ROWS = {10: 2, 100: 10, 1000: 20}

#: training steps of `grow_models.py` that spend their time between operations
STEPS = (
    "logistic regression",
    "PINN, second derivatives",
    "GRU cell, 20 steps",
    "RNN",
    "MLP",
    "Adam, 100 small tensors",
)

FORWARD, BACKWARD = "forward", "forward+backward"


class Case(NamedTuple):
    """One operation: the call, its inputs (floating ones are differentiated), its parameters."""

    call: Callable[..., Any]
    inputs: tuple[Any, ...]
    parameters: tuple[Any, ...] = ()


Cases = dict[str, Case]


def _positive(lib: ModuleType, *shape: int) -> Any:
    return normal(lib, *shape).abs() + 0.5


def unary(lib: ModuleType, n: int) -> Cases:
    names = ("exp", "tanh", "sigmoid", "relu", "neg", "sin", "abs", "square")
    cases = {name: Case(getattr(lib, name), (normal(lib, n),)) for name in names}
    for name in ("log", "sqrt", "reciprocal"):
        cases[name] = Case(getattr(lib, name), (_positive(lib, n),))
    functional = lib.nn.functional
    for name in ("gelu", "silu", "softplus", "leaky_relu", "elu"):
        cases[name] = Case(getattr(functional, name), (normal(lib, n),))
    cases["x.clamp(-1, 1)"] = Case(lambda x: x.clamp(-1.0, 1.0), (normal(lib, n),))
    return cases


def binary(lib: ModuleType, n: int) -> Cases:
    x, y, positive = normal(lib, n, seed=1), normal(lib, n, seed=2), _positive(lib, n)
    rows = ROWS[n]
    matrix, column = normal(lib, rows, n // rows), normal(lib, rows, 1)
    row = normal(lib, n // rows)
    return {
        "x + y": Case(lambda x, y: x + y, (x, y)),
        "x - y": Case(lambda x, y: x - y, (x, y)),
        "x * y": Case(lambda x, y: x * y, (x, y)),
        "x / y": Case(lambda x, y: x / y, (x, positive)),
        "x ** 2": Case(lambda x: x**2, (x,)),
        "x * 2": Case(lambda x: x * 2.0, (x,)),
        "1 - x": Case(lambda x: 1.0 - x, (x,)),
        "x / 3": Case(lambda x: x / 3.0, (x,)),
        "matrix + row": Case(lambda x, y: x + y, (matrix, row)),
        "matrix * column": Case(lambda x, y: x * y, (matrix, column)),
        "maximum": Case(lib.maximum, (x, y)),
        "where": Case(lambda c, x, y: lib.where(c, x, y), (x > 0, x, y)),
        "lerp": Case(lambda x, y: lib.lerp(x, y, 0.3), (x, y)),
        "addcmul": Case(lib.addcmul, (x, y, positive)),
        "pow": Case(lib.pow, (positive, y)),
    }


def reductions(lib: ModuleType, n: int) -> Cases:
    rows = ROWS[n]
    x, m = normal(lib, n), normal(lib, rows, n // rows)
    return {
        "sum": Case(lambda x: x.sum(), (x,)),
        "mean": Case(lambda x: x.mean(), (x,)),
        "sum of dim": Case(lambda x: x.sum(1), (m,)),
        "mean of dim, kept": Case(lambda x: x.mean(1, keepdim=True), (m,)),
        "max": Case(lambda x: x.max(), (x,)),
        "amax of dim": Case(lambda x: x.amax(1), (m,)),
        "max of dim": Case(lambda x: x.max(1)[0], (m,)),
        "var": Case(lambda x: x.var(1), (m,)),
        "std": Case(lambda x: x.std(), (x,)),
        "norm": Case(lambda x: x.norm(), (x,)),
        "logsumexp": Case(lambda x: x.logsumexp(1), (m,)),
        "softmax": Case(lambda x: x.softmax(1), (m,)),
        "log_softmax": Case(lambda x: x.log_softmax(1), (m,)),
        "cumsum": Case(lambda x: x.cumsum(1), (m,)),
        "prod": Case(lambda x: x.prod(), (x,)),
    }


def shapes(lib: ModuleType, n: int) -> Cases:
    rows = ROWS[n]
    x, m = normal(lib, n), normal(lib, rows, n // rows)
    return {
        "reshape": Case(lambda x: x.reshape(rows, -1), (x,)),
        "view": Case(lambda x: x.view(rows, n // rows), (x,)),
        "transpose": Case(lambda x: x.transpose(0, 1), (m,)),
        "x.T": Case(lambda x: x.T, (m,)),
        "permute": Case(lambda x: x.permute(1, 0), (m,)),
        "unsqueeze": Case(lambda x: x.unsqueeze(1), (x,)),
        "squeeze": Case(lambda x: x.squeeze(0), (normal(lib, 1, n),)),
        "flatten": Case(lambda x: x.flatten(), (m,)),
        "expand": Case(lambda x: x.expand(4, n), (x,)),
        "cat": Case(lambda x, y: lib.cat([x, y]), (x, normal(lib, n, seed=2))),
        "stack": Case(lambda x, y: lib.stack([x, y]), (x, normal(lib, n, seed=2))),
        "chunk": Case(lambda x: x.chunk(2, 1)[0], (m,)),
        "split": Case(lambda x: x.split(rows // 2)[1], (m,)),
        "clone": Case(lambda x: x.clone(), (x,)),
        "contiguous of x.T": Case(lambda x: x.T.contiguous(), (m,)),
    }


def indexing(lib: ModuleType, n: int) -> Cases:
    rows = ROWS[n]
    x, m = normal(lib, n), normal(lib, rows, n // rows)
    picks = lib.tensor(generator().integers(0, rows, rows))
    columns = lib.tensor(generator().integers(0, n // rows, (rows, 1)))
    return {
        "x[3]": Case(lambda x: x[3], (x,)),
        "x[1:5]": Case(lambda x: x[1:5], (x,)),
        "m[1]": Case(lambda x: x[1], (m,)),
        "m[:, 1]": Case(lambda x: x[:, 1], (m,)),
        "m[:, :2]": Case(lambda x: x[:, :2], (m,)),
        "m[index]": Case(lambda x, i: x[i], (m, picks)),
        "index_select": Case(lambda x, i: x.index_select(0, i), (m, picks)),
        "gather": Case(lambda x, i: x.gather(1, i), (m, columns)),
        "m[mask]": Case(lambda x, c: x[c], (m, m > 0)),
        "masked_fill": Case(lambda x, c: x.masked_fill(c, 0.0), (m, m > 0)),
    }


def products(lib: ModuleType, n: int) -> Cases:
    rows = ROWS[n]
    x, m = normal(lib, n), normal(lib, rows, n // rows)
    other = normal(lib, n // rows, rows, seed=2)
    v = normal(lib, n // rows, seed=3)
    batch = normal(lib, 2, n // 10, 5)
    return {
        "m @ n": Case(lambda x, y: x @ y, (m, other)),
        "m @ v": Case(lambda x, y: x @ y, (m, v)),
        "v @ v": Case(lambda x, y: x @ y, (x, normal(lib, n, seed=2))),
        "m @ n.T": Case(lambda x, y: x @ y.T, (m, normal(lib, rows, n // rows, seed=2))),
        "mm": Case(lib.mm, (m, other)),
        "bmm": Case(lib.bmm, (batch, normal(lib, 2, 5, n // 10, seed=2))),
        "addmm": Case(lib.addmm, (normal(lib, rows, rows, seed=4), m, other)),
        "dot": Case(lib.dot, (x, normal(lib, n, seed=2))),
        "outer": Case(lib.outer, (v, normal(lib, rows, seed=5))),
        "linear": Case(lib.nn.functional.linear, (m, normal(lib, 8, n // rows), normal(lib, 8))),
    }


def layers(lib: ModuleType, n: int) -> Cases:
    nn, rows = lib.nn, ROWS[n]
    width = n // rows
    m = normal(lib, rows, width)
    hidden = normal(lib, rows, width, seed=2)
    image = normal(lib, 1, 2, rows, width) if n > 10 else normal(lib, 1, 2, 3, 3)
    tokens = lib.tensor(generator().integers(0, 20, rows))
    named = {
        "Linear": (nn.Linear(width, 8), (m,)),
        "ReLU": (nn.ReLU(), (m,)),
        "Tanh": (nn.Tanh(), (m,)),
        "GELU": (nn.GELU(), (m,)),
        "Softmax": (nn.Softmax(1), (m,)),
        "Sequential": (nn.Sequential(nn.Linear(width, 8), nn.Tanh(), nn.Linear(8, 4)), (m,)),
        "LayerNorm": (nn.LayerNorm(width), (m,)),
        "BatchNorm1d": (nn.BatchNorm1d(width), (m,)),
        "Embedding": (nn.Embedding(20, width), (tokens,)),
        "Dropout": (nn.Dropout(0.5), (m,)),
        "Conv2d": (nn.Conv2d(2, 2, 3, padding=1), (image,)),
        "RNNCell": (nn.RNNCell(width, width), (m, hidden)),
        "GRUCell": (nn.GRUCell(width, width), (m, hidden)),
        "Flatten": (nn.Flatten(), (m,)),
    }
    return {
        name: Case(layer, inputs, tuple(layer.parameters()))
        for name, (layer, inputs) in named.items()
    }


def losses(lib: ModuleType, n: int) -> Cases:
    functional, rows = lib.nn.functional, ROWS[n]
    x, y = normal(lib, n, seed=1), normal(lib, n, seed=2)
    m = normal(lib, rows, n // rows)
    labels = lib.tensor(generator().integers(0, n // rows, rows))
    halves = (y > 0).float()
    bce = functional.binary_cross_entropy_with_logits
    kl = {"reduction": "batchmean"}
    return {
        "mse_loss": Case(lambda x: functional.mse_loss(x, y), (x,)),
        "l1_loss": Case(lambda x: functional.l1_loss(x, y), (x,)),
        "smooth_l1_loss": Case(lambda x: functional.smooth_l1_loss(x, y), (x,)),
        "huber_loss": Case(lambda x: functional.huber_loss(x, y), (x,)),
        "cross_entropy": Case(lambda x: functional.cross_entropy(x, labels), (m,)),
        "nll_loss": Case(lambda x: functional.nll_loss(x, labels), (m,)),
        "bce_with_logits": Case(lambda x: bce(x, halves), (x,)),
        "bce": Case(lambda x: functional.binary_cross_entropy(x, halves), (x.sigmoid(),)),
        "kl_div": Case(lambda x: functional.kl_div(x, m.softmax(1), **kl), (m.log_softmax(1),)),
    }


FAMILIES: dict[str, Callable[[ModuleType, int], Cases]] = {
    "elementwise unary": unary,
    "elementwise binary": binary,
    "reductions": reductions,
    "shape ops": shapes,
    "indexing": indexing,
    "products": products,
    "nn layers": layers,
    "losses": losses,
}


def _forward(case: Case) -> Callable[[], Any]:
    call, inputs = case.call, case.inputs
    for p in case.parameters:
        p.requires_grad_(False)
    return lambda: call(*inputs)


def _backward(lib: ModuleType, case: Case) -> Callable[[], Any]:
    call = case.call
    inputs = [
        x.detach().clone().requires_grad_() if x.is_floating_point() else x for x in case.inputs
    ]
    leaves = [*(x for x in inputs if x.requires_grad), *case.parameters]
    for p in case.parameters:
        p.requires_grad_(True)
    gradient = lib.ones_like(call(*inputs).detach())

    def run() -> None:
        for leaf in leaves:
            leaf.grad = None
        call(*inputs).backward(gradient)

    return run


def _fastest(run: Callable[[], Any], seconds: float) -> float:
    """Seconds of a call in the fastest of many blocks of about a millisecond each."""
    for _ in range(5):
        run()
    start = time.perf_counter()
    for _ in range(5):
        run()
    count = range(max(5, int(5e-3 / (time.perf_counter() - start + 1e-9))))
    best, end = float("inf"), time.perf_counter() + seconds
    while time.perf_counter() < end:
        start = time.perf_counter()
        for _ in count:
            run()
        best = min(best, (time.perf_counter() - start) / len(count))
    return best


def measured(
    library: str, family: str, seconds: float, only: str, threads: int
) -> dict[str, float]:
    """Seconds of each operation of a family, by "operation|size|direction"."""
    lib = import_module(library)
    lib.set_num_threads(threads)
    times: dict[str, float] = {}
    gc.collect()
    for size in SIZES:
        for name, case in FAMILIES[family](lib, size).items():
            if only and only not in name:
                continue
            for direction in (FORWARD, BACKWARD):
                run = _forward(case) if direction == FORWARD else _backward(lib, case)
                times[f"{name}|{size}|{direction}"] = _fastest(run, seconds)
    return times


def measured_steps(library: str, seconds: float, only: str, threads: int) -> dict[str, float]:
    """Seconds of each training step."""
    lib = import_module(library)
    lib.set_num_threads(threads)
    return {name: _fastest(made(lib, name), seconds) for name in STEPS if only in name}
