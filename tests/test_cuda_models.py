"""Whole models on a GPU: twenty steps of training, eager and compiled, as on the CPU."""

from __future__ import annotations

import numpy as np
import pytest
from test_replay_models import EVERY, SMALLER, run

import tapegrad as tg
from tapegrad.replay.cuda.target import CUDA

pytestmark = pytest.mark.usefixtures("gpu")

STEPS = 20


def trained(name: str, device: str, compiles: bool) -> list[float]:
    """The losses of all steps.

    They depend on all parameters that matter. Others, such as the bias of keys, have a gradient of
    nothing but rounding, and Adam makes steps of that which are as long as any.
    """
    tg.manual_seed(0)
    with tg.device(device):
        problem = EVERY[name](tg, **SMALLER.get(name, {}))
        step = tg.compile(problem.step) if compiles else problem.step
        inputs = [x.to(device) if isinstance(x, tg.Tensor) else x for x in problem.inputs]
        losses = [run(step, i, *inputs) for i in range(STEPS)]
    assert all(p.device.type == device for p in problem.parameters.values())
    return losses


@pytest.mark.sweep(keep=1 / 2)
@pytest.mark.parametrize("compiles", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("name", EVERY)
def test_twenty_steps(name: str, compiles: bool) -> None:
    if CUDA().missing() is not None:
        pytest.skip("CuPy computes each operation as the CPU does")
    expected = trained(name, "cpu", False)
    found = trained(name, "cuda", compiles)
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4)
