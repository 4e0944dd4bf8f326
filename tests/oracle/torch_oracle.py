"""Calls of PyTorch with tapegrad's arguments, and comparison of what comes out."""

from __future__ import annotations

import functools
import warnings
from typing import Any

import numpy as np
import torch
from sweep import Arguments, flat, tensors

import tapegrad
from tapegrad import Tensor
from tapegrad.core.dtypes import ALL, DType
from tapegrad.ops.table import Op

DTYPES = {d: getattr(torch, d.name) for d in ALL}


def to_torch(value: Any) -> Any:
    """A tensor, dtype, list or number of tapegrad as PyTorch's; tensors become leaves."""
    if isinstance(value, Tensor):
        array = value._array
        if value.dtype is tapegrad.bfloat16:
            out = torch.tensor(np.ascontiguousarray(array).view(np.int16)).view(torch.bfloat16)
        else:
            out = torch.tensor(np.array(array))
        return out.reshape(array.shape).requires_grad_(value.requires_grad)
    if isinstance(value, DType):
        return DTYPES[value]
    if isinstance(value, list):
        return [to_torch(item) for item in value]
    return value


def arguments_for_torch(arguments: Arguments) -> Arguments:
    return tuple(map(to_torch, arguments[0])), {k: to_torch(v) for k, v in arguments[1].items()}


def leaves_of(arguments: Arguments) -> list[Any]:
    """PyTorch's tensors that require gradients among the arguments, in order."""
    everything = flat([*arguments[0], *arguments[1].values()])
    return [x for x in everything if isinstance(x, torch.Tensor) and x.requires_grad]


def torch_function(op: Op) -> Any:
    """The function of PyTorch that an op names, or None."""
    if op.torch is None:
        return None
    found: Any = {"torch": torch, "Tensor": torch.Tensor}[op.torch.split(".")[0]]
    for part in op.torch.split(".")[1:]:
        found = getattr(found, part)

    @functools.wraps(found)
    def quiet(*args: Any, **kwargs: Any) -> Any:
        with warnings.catch_warnings(action="ignore"):
            return found(*args, **kwargs)

    return quiet


def torch_gradients(result: Any, inputs: list[Any], seed: int = 0) -> list[Any]:
    """Gradients of the same weighted sum that `sweep.gradients` takes."""
    rng = np.random.default_rng(seed)
    total = None
    for y in (y for y in flat(result) if isinstance(y, torch.Tensor)):
        shape = tuple(y.shape)
        weights = rng.uniform(0.5, 1.5, shape) * rng.choice([-1.0, 1.0], shape)
        if y.dtype.is_complex:
            weights = weights + 1j * rng.uniform(0.5, 1.5, shape)
        if (y.dtype.is_floating_point or y.dtype.is_complex) and y.requires_grad:
            term = (y * torch.tensor(weights).to(y.dtype)).sum().real
            total = term if total is None else total + term
    if total is None or not inputs:
        return [None] * len(inputs)
    return list(torch.autograd.grad(total, inputs, allow_unused=True))


TOLERANCES = {
    tapegrad.float64: (1e-10, 1e-11),
    tapegrad.float32: (3e-5, 3e-6),
    tapegrad.float16: (4e-3, 2e-3),
    tapegrad.bfloat16: (3e-2, 1e-2),
    tapegrad.complex128: (1e-10, 1e-11),
    tapegrad.complex64: (3e-5, 3e-6),
}


def assert_same(got: Any, expected: Any, what: str, scale: float = 1.0) -> None:
    """One result: dtype and shape equal, values equal (integers, bools) or close.

    `scale` multiplies the absolute tolerance.
    """
    if not isinstance(expected, torch.Tensor):
        assert got == expected, f"{what}: {got}, PyTorch says {expected}"
        return
    assert isinstance(got, Tensor), what
    assert DTYPES[got.dtype] is expected.dtype, f"{what}: {got.dtype}, not {expected.dtype}"
    assert tuple(got.shape) == tuple(expected.shape), f"{what}: {got.shape}, not {expected.shape}"
    if expected.layout is torch.sparse_coo:
        assert got.is_sparse, f"{what}: dense, PyTorch's is sparse"
        got, expected = got.to_dense(), expected.to_dense()
    theirs = expected.detach().resolve_conj().resolve_neg()
    if got.dtype.is_complex:
        rtol, atol = TOLERANCES[got.dtype]
        np.testing.assert_allclose(got._array, theirs.numpy(), rtol, scale * atol, err_msg=what)
    elif got.dtype.is_floating_point:
        rtol, atol = TOLERANCES[got.dtype]
        ours = got._array.astype(np.float64)
        np.testing.assert_allclose(
            ours, theirs.double().numpy(force=True), rtol, scale * atol, err_msg=what
        )
    else:
        np.testing.assert_array_equal(got._array, theirs.numpy(), err_msg=what)


def assert_all_same(got: Any, expected: Any, what: str, scale: float = 1.0) -> None:
    """All results of two calls."""
    ours, theirs = flat(got), flat(expected)
    assert len(ours) == len(theirs), f"{what}: {len(ours)} results, not {len(theirs)}"
    for a, b in zip(ours, theirs, strict=True):
        assert_same(a, b, what, scale)


def assert_same_gradients(
    ours: list[Any], theirs: list[Any], what: str, scale: float = 1.0
) -> None:
    for a, b in zip(ours, theirs, strict=True):
        empty = b is None or not b.numel()
        assert (a is None or not a.any()) if empty else a is not None, what
        if a is not None and b is not None:
            size = max(1.0, float(b.abs().max())) if b.numel() else 1.0
            assert_same(a, b, f"gradient of {what}", scale * size)


__all__ = [
    "DTYPES",
    "arguments_for_torch",
    "assert_all_same",
    "assert_same",
    "assert_same_gradients",
    "leaves_of",
    "tensors",
    "to_torch",
    "torch_function",
    "torch_gradients",
]
