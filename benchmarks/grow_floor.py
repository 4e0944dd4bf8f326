"""The floor under a training step: its products and convolutions alone, and one pass over memory.

Comes in: the name of a model. Goes out: seconds. The PyTorch step runs once while its products and
convolutions are listed. Each distinct one is then timed alone with PyTorch, on random operands of
the same shapes and strides, and counts as often as it ran. The products inside of attention (two
forward, five backward; half of each if it is causal) count at the measured rate of products of
blocks. Added is the time to copy as many bytes as the parameters and the optimizer's state have.
"""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

from .grow_models import made
from .measure import alone
from .problems import Problem

aten = torch.ops.aten
PRODUCTS = {
    aten.mm.default,
    aten.addmm.default,
    aten.bmm.default,
    aten.baddbmm.default,
    aten.convolution.default,
    aten.convolution_backward.default,
}
#: the number of products of length x length x width in each
ATTENTION = {
    aten._scaled_dot_product_flash_attention_for_cpu.default: 2,
    aten._scaled_dot_product_flash_attention_for_cpu_backward.default: 5,
}
#: rows and columns of a block of scores
BLOCK = 256

Call = tuple[Any, tuple[Any, ...], dict[str, Any]]


class Operand:
    """The shape, strides and dtype of a tensor."""

    def __init__(self, x: torch.Tensor) -> None:
        self.shape, self.strides, self.dtype = tuple(x.shape), x.stride(), x.dtype

    def __repr__(self) -> str:
        return f"{self.dtype}{self.shape}{self.strides}"

    def tensor(self) -> torch.Tensor:
        return torch.empty_strided(self.shape, self.strides, dtype=self.dtype).normal_()


class Listed(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts how often each product and convolution ran, and the products in attention."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls: dict[str, Call] = {}
        self.counts: collections.Counter[str] = collections.Counter()
        self.attention: collections.Counter[tuple[int, ...]] = collections.Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in PRODUCTS:
            call = (func, *tree_map(_without_numbers, (args, kwargs)))
            self.calls[repr(call)] = call
            self.counts[repr(call)] += 1
        elif func in ATTENTION:
            self.attention[_attention_size(func, args, kwargs)] += ATTENTION[func]
        return func(*args, **kwargs)


def _without_numbers(x: Any) -> Any:
    return Operand(x) if isinstance(x, torch.Tensor) else x


def _attention_size(func: Any, args: Any, kwargs: Any) -> tuple[int, ...]:
    """Sequences, queries, keys, width, and 1 if attention is causal."""
    names = [argument.name for argument in func._schema.arguments]
    given = {**dict(zip(names, args, strict=False)), **kwargs}
    *many, queries, width = given["query"].shape
    sequences = int(torch.Size(many).numel())
    return sequences, queries, given["key"].shape[-2], width, int(given.get("is_causal", False))


def listed(problem: Problem) -> Listed:
    """The products, convolutions and attention of one step."""
    # Without oneDNN an LSTM is a loop of products; with it, one operation.
    found = Listed()
    with torch.backends.mkldnn.flags(enabled=False, allow_tf32=None), found:
        problem()
    return found


def floor(model: str, small: bool, seconds: float) -> dict[str, Any]:
    """Seconds of the products (including attention's) and of one pass over the state."""
    problem = made(torch, model, small)
    found = listed(problem)
    products = sum(
        alone(prepared(found.calls[key]), seconds) * n for key, n in found.counts.items()
    )
    for (sequences, queries, keys, width, causal), n in found.attention.items():
        flops = 2 * sequences * queries * keys * width / (2 if causal else 1)
        products += n * flops / block_rate(sequences, min(queries, BLOCK), width, seconds)
    return {"products": products, "memory": copied(state_bytes(problem), seconds)}


def prepared(call: Call) -> Callable[[], Any]:
    """A call of a listed operation on random operands."""
    func, args, kwargs = call
    args, kwargs = tree_map(lambda x: x.tensor() if isinstance(x, Operand) else x, (args, kwargs))
    return lambda: func(*args, **kwargs)


def block_rate(sequences: int, block: int, width: int, seconds: float) -> float:
    """FLOP/s of the products of a block of queries with a block of keys, as in attention."""
    x, y = torch.randn(sequences, block, width), torch.randn(sequences, block, width)
    out = torch.empty(sequences, block, block)
    spent = alone(lambda: torch.bmm(x, y.transpose(1, 2), out=out), seconds)
    return 2 * sequences * block * block * width / spent


def state_bytes(problem: Problem) -> int:
    """Bytes of the parameters and of the optimizer's state; 0 without an optimizer."""
    if problem.optimizer is None:
        return 0
    tensors = list(problem.parameters.values())
    for kept in problem.optimizer.state.values():
        tensors += [value for value in kept.values() if isinstance(value, torch.Tensor)]
    return sum(x.numel() * x.element_size() for x in tensors)


def copied(count: int, seconds: float) -> float:
    """Seconds to copy `count` bytes."""
    if not count:
        return 0.0
    x = torch.ones(count, dtype=torch.uint8)
    out = torch.empty_like(x)
    return alone(lambda: out.copy_(x), seconds)
