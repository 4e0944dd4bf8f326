"""The parts of native programs: how many there are, and who does them."""

import os
import time

import numpy as np
import pytest

import tapegrad as tg
from tapegrad.core.primitive import PRIMITIVES
from tapegrad.parallel.buckets import ALONE, divided
from tapegrad.replay.cpu import driver_layout, pool

PROCESSORS = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1


@pytest.fixture(autouse=True)
def as_before():
    before = pool.pool.threads
    yield
    pool.pool.threads = before


def compiled(function, *arguments):
    """A compiled function that was replayed, and its program."""
    made = tg.compile(function)
    for _ in range(3):
        made(*arguments)
    return made, made.replays[0].executable


@pytest.mark.parametrize(
    ("size", "least", "most"), [(100, 1, 1), (105_000, 2, 15), (4_000_000, 16, 16)]
)
def test_work_decides_how_many_threads_have_a_part(size, least, most):
    tg.set_num_threads(16)
    _, program = compiled(lambda x: x * x + 1, tg.randn(size))
    assert least <= program.emitted.threads <= most


def test_a_large_product_has_parts_for_all_and_a_small_one_for_few():
    tg.set_num_threads(16)
    _, large = compiled(lambda x: x @ x, tg.randn(300, 300))
    _, small = compiled(lambda x: x @ x, tg.randn(80, 80))
    assert large.emitted.threads == 16
    assert 1 < small.emitted.threads < 8


@pytest.mark.parametrize("threads", [2, 3, 16, 64])
def test_more_threads_than_processors_give_the_same_bits(threads):
    x, y = tg.randn(6, 130, 257), tg.randn(6, 257, 90)

    def function(x, y):
        z = (x @ y).tanh()
        return z, z.transpose(1, 2) @ z, z.softmax(2) * 3

    tg.set_num_threads(1)
    made, _ = compiled(function, x, y)
    wanted = [out.numpy().copy() for out in made(x, y)]
    tg.set_num_threads(threads)
    for _ in range(20):
        for out, array in zip(made(x, y), wanted, strict=True):
            assert np.array_equal(out.numpy(), array)


def test_no_more_workers_than_processors():
    tg.set_num_threads(driver_layout.MAX_THREADS)
    made, program = compiled(lambda x: x @ x, tg.randn(400, 400))
    made(tg.randn(400, 400))
    assert program.emitted.threads == driver_layout.MAX_THREADS
    assert pool.pool._cell(driver_layout.WORKERS) < max(PROCESSORS, 16)


@pytest.mark.parametrize("threads", [2, 16])
def test_a_reduction_adds_what_all_parts_have_left(threads):
    x = tg.arange(300_000, dtype=tg.float64).reshape(3000, 100)
    tg.set_num_threads(threads)
    made, _ = compiled(lambda x: (x.sum(0), x.sum(), x.amax(0)), x)
    for _ in range(5):
        columns, total, most = made(x)
    array = x.numpy()
    assert np.array_equal(columns.numpy(), array.sum(0))
    assert total.item() == array.sum()
    assert np.array_equal(most.numpy(), array.max(0))


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="processors cannot be chosen")
def test_nobody_stays_bound_to_a_processor():
    def masks():
        return [os.sched_getaffinity(int(t)) for t in os.listdir("/proc/self/task")]

    before = os.sched_getaffinity(0)
    tg.set_num_threads(16)
    made, _ = compiled(lambda x: (x @ x).exp(), tg.randn(300, 300))
    for pause in (0.0, 0.02, 0.0, 0.05):  # workers sleep, and are woken
        for _ in range(20):
            made(tg.randn(300, 300))
        assert os.sched_getaffinity(0) == before
        time.sleep(pause)
    assert all(mask <= before for mask in masks())


def test_what_a_result_is_computed_from_lies_where_the_result_will():
    x = tg.randn(300, 300)
    _, program = compiled(lambda x: (x @ x).exp(), x)
    assert program.plan.arena == 0
    kinds = {allocation.kind for allocation in program.plan.allocations.values()}
    assert kinds == {"input", "result"}


def test_a_recording_leaves_the_threads_of_numpy_alone(monkeypatch):
    matmul = PRIMITIVES["matmul"]
    kernel = matmul.kernel

    def small(x, y):
        assert x.size < 100, "NumPy multiplies large matrices"
        return kernel(x, y)

    x = tg.randn(200, 200)
    monkeypatch.setattr(matmul, "kernel", small)
    made = tg.compile(lambda x: (x @ x).sum())
    assert made(x).item() == pytest.approx((x.numpy() @ x.numpy()).sum(), rel=1e-3)


@pytest.mark.parametrize("name", ["dot", "outer", "thin", "mv", "mm", "linear"])
def test_eager_products_leave_the_threads_of_numpy_alone(name):
    """They would spin for 100 ms: a process that sleeps takes no time of a processor."""
    long, short = tg.randn(20_000), tg.randn(3_000)
    call = {
        "dot": lambda: long.dot(long),
        "outer": lambda: tg.outer(short, short),
        "thin": lambda: tg.ones(2_000, 1) @ tg.ones(1, 2_000),
        "mv": lambda: tg.ones(100, 3_000) @ short,
        "mm": lambda: tg.ones(100, 3_000) @ tg.ones(3_000, 100),
        "linear": lambda: tg.nn.functional.linear(tg.ones(100, 3_000), tg.ones(50, 3_000)),
    }[name]
    call()
    time.sleep(0.4)
    call()
    time.sleep(0.01)  # our own threads sleep after 2 ms
    began = time.process_time()
    time.sleep(0.05)
    assert time.process_time() - began < 0.03


def test_buckets_of_gradients_are_sent_in_the_order_in_which_they_are_full():
    sizes = [10, ALONE // 4, 20, 2 * ALONE // 4, 30]
    parameters = [tg.zeros(n) for n in sizes]
    found = [[p.numel() for p in b.parameters] for b in divided(parameters, 4 << 20)]
    assert found == [[2 * ALONE // 4], [ALONE // 4], [30, 20, 10]]
