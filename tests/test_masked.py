"""`masked`: elements that do not count change nothing, and have no gradient."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import tapegrad as tg
from tapegrad import masked

REDUCED = ["sum", "prod", "mean", "amax", "amin", "median", "logsumexp", "norm", "var", "std"]


def call(name: str, x: tg.Tensor, mask: Any) -> Any:
    options = {"ord": 2.0} if name == "norm" else {}
    return getattr(masked, name)(x, dim=1, mask=mask, **options)


@pytest.mark.parametrize("name", REDUCED)
def test_elements_that_do_not_count(name: str) -> None:
    rng = np.random.default_rng(0)
    array = rng.standard_normal((3, 6))
    keep = rng.integers(0, 2, (3, 6)).astype(bool)
    keep[:, :2] = True
    x = tg.tensor(array, requires_grad=True)
    got = call(name, x, tg.tensor(keep))
    for i in range(3):
        row = tg.tensor(array[i][keep[i]][None])
        np.testing.assert_allclose(got[i].item(), call(name, row, None)[0].item())
    got.sum().backward()
    assert x.grad is not None
    assert not x.grad.numpy()[~keep].any()
    other = tg.tensor(np.where(keep, array, 1e6))
    np.testing.assert_allclose(call(name, other, tg.tensor(keep)).numpy(), got.detach().numpy())


def test_nothing_counts() -> None:
    x, none = tg.ones(2, 3), tg.zeros(2, 3, dtype=tg.bool)
    assert masked.sum(x, 1, mask=none).tolist() == [0.0, 0.0]
    assert masked.prod(x, 1, mask=none).tolist() == [1.0, 1.0]
    assert masked.amax(x, 1, mask=none).tolist() == [-math.inf] * 2
    assert masked.mean(x, 1, mask=none).isnan().all()


def test_there_are_no_masked_tensors() -> None:
    assert not masked.is_masked_tensor(tg.ones(2))
    for name in ("MaskedTensor", "masked_tensor", "as_masked_tensor"):
        with pytest.raises(AttributeError, match="mask="):
            getattr(masked, name)


def test_bad_masks() -> None:
    with pytest.raises(RuntimeError):
        masked.sum(tg.ones(2, 3), mask=tg.ones(2, 2, dtype=tg.bool))
    with pytest.raises(IndexError):
        masked.sum(tg.ones(3), mask=tg.ones(2, 3, dtype=tg.bool))
    with pytest.raises(ValueError, match="floating"):
        masked.mean(tg.ones(3).long(), mask=tg.ones(3, dtype=tg.bool))
