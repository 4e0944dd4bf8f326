"""Published model code gives the same losses with tapegrad as with PyTorch, from the same state."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from published import CASES, batches, load
from test_published_models import named

import tapegrad


class Numbers:
    """Random functions that draw the same numbers in both libraries."""

    def __init__(self, library: Any) -> None:
        self.library = library
        self.rng = np.random.default_rng(9)

    def randn(self, *shape: Any, **_: Any) -> Any:
        sizes = shape[0] if shape and not isinstance(shape[0], int) else shape
        return self.library.tensor(self.rng.standard_normal(tuple(sizes)).astype("float32"))

    def randn_like(self, x: Any, **_: Any) -> Any:
        return self.randn(*tuple(x.shape))

    def randint(self, low: int, high: int, size: Any, **_: Any) -> Any:
        return self.library.tensor(self.rng.integers(low, high, tuple(size)))


@pytest.mark.parametrize("case", CASES, ids=named)
def test_losses_and_states(case: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    name, options = case
    ours, theirs = load(name, "tapegrad"), load(name, "torch")
    torch.manual_seed(0)
    mine, other = ours.Trainer(**options), theirs.Trainer(**options)
    assert list(mine.model.state_dict()) == list(other.model.state_dict())
    state = {k: tapegrad.tensor(v.numpy()) for k, v in other.model.state_dict().items()}
    mine.model.load_state_dict(state)
    for library in (tapegrad, torch):
        numbers = Numbers(library)
        for function in ("randn", "randn_like", "randint"):
            monkeypatch.setattr(library, function, getattr(numbers, function))
    for x, y in zip(batches(ours, tapegrad, 4), batches(theirs, torch, 4), strict=True):
        got, expected = mine.step(*x).item(), other.step(*y).item()
        np.testing.assert_allclose(got, expected, rtol=2e-4, atol=1e-5)
    for (key, a), b in zip(
        mine.model.state_dict().items(), other.model.state_dict().values(), strict=True
    ):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=5e-3, atol=2e-3, err_msg=key)
