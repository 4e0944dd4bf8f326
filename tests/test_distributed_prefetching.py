"""Units of `fully_shard`: what is gathered when, in any order; gradients that are accumulated."""

import importlib.util

import numpy as np
import pytest
from ranks import HERE, MISSING, run_ranks
from thinning import some

pytestmark = pytest.mark.skipif(MISSING, reason="needs the mpi extra: pip install '.[mpi]'")

FILE = "distributed/prefetching.py"
NAMES = [
    "eager_order", "compiled_order", "hostile_orders", "compiled_failure", "accumulation",
    "accumulation_sends_once", "accumulation_of_some", "two_steps", "memory", "whole_state",
]  # fmt: skip


@pytest.fixture(scope="module", params=some((2, 4), 1 / 2, of="prefetching in ranks"))
def job(request):
    """What each rank of one job returns."""
    return request.param, run_ranks(FILE, request.param, NAMES)


@pytest.fixture(scope="module")
def one_process():
    """Losses of one process that accumulates gradients of the whole batches."""
    spec = importlib.util.spec_from_file_location("programs", HERE / FILE)
    programs = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(programs)
    return programs.accumulated("eager")


def test_gathers_begin_one_unit_early(job):
    _, ranks = job
    for found in ranks:
        assert found["eager_order"] == ranks[0]["eager_order"]
        assert found["compiled_order"] == ranks[0]["compiled_order"]


def test_gradients_are_right_in_any_order(job):
    _, ranks = job
    for found in ranks:
        assert len(found["hostile_orders"]) == 17
        assert all(n >= 56 for n in found["hostile_orders"].values())
        assert found["compiled_failure"] == 126
        assert found["whole_state"] == 9


def test_accumulated_gradients_are_those_of_the_larger_batch(job, one_process):
    _, ranks = job
    assert one_process[-1] < one_process[0]
    for found in ranks:
        assert found["accumulation_sends_once"] == 9
        assert found["accumulation_of_some"] == 45
        assert len(found["accumulation"]) == 5
        for way, losses in found["accumulation"].items():
            assert len(losses) == 20
            np.testing.assert_allclose(losses, one_process, rtol=1e-12, err_msg=way)


def test_two_steps_in_one_program(job):
    _, ranks = job
    for found in ranks:
        assert len(found["two_steps"]) == 20


def test_memory_is_that_of_two_units(job):
    size, ranks = job
    for found in ranks:
        memory = found["memory"]
        layer, count = memory["layer"], memory["layers"]
        # Two units, and this rank's part of the one that is sent.
        assert memory["forward"] == pytest.approx((2 + 1 / size) * layer, rel=0.05)
        # Two units, the gradient of one, and this rank's part of the gradients before it. The
        # peak is where the third layer computes and the second one is gathered: the first one's
        # weight is not needed in backward.
        gradients = (count - 3) * layer / size
        assert memory["backward"] == pytest.approx(3 * layer + gradients, rel=0.05)
        # A compiled step has copies of what it gathers and reduces in its scratch memory.
        gradients = count * layer / size
        assert memory["compiled"] + memory["scratch"] < gradients + 5 * layer
