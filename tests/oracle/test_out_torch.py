"""`out=` against PyTorch: which dtypes and sizes are taken, and what is in the output then."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import tapegrad

CALLS: dict[str, Callable[..., Any]] = {
    "add": lambda t, x, out: t.add(x, x, out=out),
    "add number": lambda t, x, out: t.add(x, 1, out=out),
    "div": lambda t, x, out: t.div(x, 2, out=out),
    "lt": lambda t, x, out: t.lt(x, 1, out=out),
    "sqrt": lambda t, x, out: t.sqrt(x, out=out),
    "sum": lambda t, x, out: t.sum(x, 0, out=out),
    "cumsum": lambda t, x, out: t.cumsum(x, 0, out=out),
    "cumprod": lambda t, x, out: t.cumprod(x, 0, out=out),
    "prod": lambda t, x, out: t.prod(x, 0, out=out),
    "amax": lambda t, x, out: t.amax(x, 0, out=out) if out.dtype == x.dtype else out,
    "cat": lambda t, x, out: t.cat([x, x], out=out),
    "zeros": lambda t, x, out: t.zeros(3, out=out),
    "arange": lambda t, x, out: t.arange(3, out=out),
    "full": lambda t, x, out: t.full((2,), 1, out=out),
    "eye": lambda t, x, out: t.eye(2, out=out),
    "clamp": lambda t, x, out: t.clamp(x, 0, 1, out=out),
    "logical_and": lambda t, x, out: t.logical_and(x, x, out=out),
    "neg": lambda t, x, out: t.neg(x, out=out),
    "where": lambda t, x, out: t.where(x > 0, x, x, out=out),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("dtype", ["float32", "int64", "uint8"])
@pytest.mark.parametrize("into", ["float64", "float32", "int64", "int32", "bool"])
@pytest.mark.parametrize("shape", [(3,), (0,), (), (2, 3)])
def test_the_same_outputs_are_taken(name: str, dtype: str, into: str, shape: Any) -> None:
    def attempt(t: Any) -> Any:
        x = t.tensor([0, 1, 2], dtype=getattr(t, dtype))
        out = t.ones(shape, dtype=getattr(t, into))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                made = CALLS[name](t, x, out)
            except (RuntimeError, TypeError) as error:
                return str(error)
        assert made is out
        resized = any("resized" in str(w.message) for w in caught)
        return made.shape, resized, np.asarray(made)

    theirs, ours = attempt(torch), attempt(tapegrad)
    if isinstance(theirs, str):
        # PyTorch's kernels for one dtype refuse outputs that others take: that need not be so here.
        assert isinstance(ours, str) or "can't be cast" not in theirs, f"{theirs}; here {ours}"
        return
    assert isinstance(ours, tuple), "PyTorch takes this"
    assert tuple(ours[0]) == tuple(theirs[0])
    if name != "arange":
        assert ours[1] == theirs[1], "a warning"
    np.testing.assert_allclose(ours[2].astype(float), theirs[2].astype(float), rtol=1e-6)
