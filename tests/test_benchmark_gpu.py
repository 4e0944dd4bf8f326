"""The steps that are timed on a GPU: tiny ones run, eager and replayed, with the same loss."""

import math

import pytest

from benchmarks import gpu_steps

pytestmark = pytest.mark.usefixtures("gpu")


@pytest.fixture(autouse=True)
def short_blocks(monkeypatch):
    monkeypatch.setattr(gpu_steps, "BLOCK_SECONDS", 0.001)
    monkeypatch.setattr(gpu_steps, "BLOCKS", 1)


@pytest.mark.parametrize("model", gpu_steps.STEPS)
def test_steps_run(model):
    eager, replay = (gpu_steps.measured(how, model, small=True) for how in ("eager", "replay"))
    assert math.isclose(eager["loss"], replay["loss"], rel_tol=1e-2)
    assert replay["seconds"] > 0
    assert replay["callbacks"] == 0, replay["explained"]
