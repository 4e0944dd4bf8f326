"""Threads: modes and tapes belong to one, gradients of shared leaves add up."""

import threading

import numpy as np
import pytest

import tapegrad as tg
from tapegrad.nn import functional as F


def in_threads(count, work):
    errors, results = [], [None] * count
    barrier = threading.Barrier(count)

    def run(i):
        try:
            barrier.wait()
            results[i] = work(i)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(count)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    if errors:
        raise errors[0]
    return results


def test_eight_threads_record_and_differentiate():
    def work(i):
        rng = np.random.default_rng(i)
        for _ in range(30):
            a = rng.standard_normal((4, 4))
            x = tg.tensor(a, requires_grad=True)
            y = ((x @ x).tanh() * x).sum()
            y.backward()
            t = np.tanh(a @ a)
            d = (1 - t**2) * a
            np.testing.assert_allclose(x.grad.numpy(), t + d @ a.T + a.T @ d, rtol=1e-10)
            with tg.Tape() as tape:
                z = (x * 2).sum()
            assert len(tape) == 2
            assert tape.backward(z)[x].tolist() == np.full((4, 4), 2.0).tolist()
        return True

    assert all(in_threads(8, work))


def test_no_grad_does_not_leak():
    entered, done = threading.Event(), threading.Event()

    def quiet():
        with tg.no_grad():
            entered.set()
            done.wait(5)

    t = threading.Thread(target=quiet)
    t.start()
    entered.wait(5)
    x = tg.ones(1, requires_grad=True)
    try:
        assert tg.is_grad_enabled()
        assert (x * 2).requires_grad
    finally:
        done.set()
        t.join()


def test_a_tape_records_only_its_thread():
    with tg.Tape() as tape:
        in_threads(4, lambda i: (tg.ones(3) * i).sum())
        tg.ones(3) * 2
    assert len(tape) == 1


def test_shared_leaf_accumulates_every_gradient():
    x = tg.zeros(100, requires_grad=True)

    def work(i):
        for _ in range(50):
            (x * float(i + 1)).sum().backward()

    in_threads(8, work)
    assert x.grad.tolist() == [50.0 * 36] * 100


def test_numbers_are_unique_across_threads():
    ids = in_threads(8, lambda i: [tg.zeros(1).id for _ in range(500)])
    flat = [n for part in ids for n in part]
    assert len(set(flat)) == len(flat)
    assert all(part == sorted(part) for part in ids)


def test_warnings_are_off_in_every_thread():
    import warnings

    def work(i):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            return (tg.ones(2) / tg.zeros(2)).tolist()

    # catch_warnings is not thread-safe, so one thread at a time
    for _ in range(3):
        assert in_threads(1, work) == [[float("inf")] * 2]


def _last_written(x, places, values):
    """x[places] = values, one after another."""
    out = x.copy()
    for place, value in zip(places, values, strict=True):
        out[place] = value
    return out


@pytest.mark.parametrize("threads", [2, 3, 4])
def test_of_equal_indices_the_last_one_counts(threads):
    rng = np.random.default_rng(threads)
    x = rng.standard_normal((200, 300)).astype(np.float32)
    rows = rng.integers(-200, 200, 900)
    values = rng.standard_normal((900, 300)).astype(np.float32)
    line, many = x.reshape(-1), rng.integers(0, 50, 90_000)
    numbers = rng.standard_normal(90_000).astype(np.float32)
    down = rng.integers(0, 200, (500, 300))
    across = rng.integers(0, 300, (200, 900)).astype(np.int64)
    columns = np.arange(300)
    expected = [
        _last_written(x, rows, values),
        _last_written(line, many, numbers),
        _last_written(x, [(row, columns) for row in down], values[:500]),
        _last_written(x.T, [(place, np.arange(200)) for place in across.T], values[:, :200]).T,
    ]

    def put(x, rows, values, line, many, numbers, down, across):
        first, second = x.clone(), line.clone()
        first[rows] = values
        second[many] = numbers
        third = x.scatter(0, down, values[:500])
        return first, second, third, x.scatter(1, across, values[:, :200].T)

    given = [tg.tensor(a) for a in (x, rows, values, line, many, numbers, down, across)]
    compiled = tg.compile(put)
    before = tg.get_num_threads()
    tg.set_num_threads(threads)
    try:
        for _ in range(20):
            for function in (put, compiled):
                for got, wanted in zip(function(*given), expected, strict=True):
                    np.testing.assert_array_equal(got.numpy(), wanted)
    finally:
        tg.set_num_threads(before)


@pytest.mark.parametrize("threads", [2, 3, 4])
def test_sums_at_equal_indices_repeat_bit_for_bit(threads):
    rng = np.random.default_rng(threads)
    x = tg.tensor(rng.standard_normal((200, 64)).astype(np.float32), requires_grad=True)
    rows = tg.tensor(rng.integers(0, 20, 900))
    values = tg.tensor(rng.standard_normal((900, 64)).astype(np.float32))
    down = tg.tensor(rng.integers(0, 200, (900, 64)))

    def summed(x, rows, values, down):
        lost = (F.embedding(rows, x) * values).sum()
        return (
            x.index_add(0, rows, values),
            x.scatter_add(0, down, values),
            x.scatter_reduce(0, down, values, "mean"),
            x.scatter_reduce(0, down, values, "amax"),
            x.index_put((rows,), values, accumulate=True),
            tg.autograd.grad(lost, x)[0],
        )

    def counted():
        return (tg.bincount(rows, values[:, 0].contiguous()),)

    compiled = tg.compile(summed)
    before = tg.get_num_threads()
    tg.set_num_threads(threads)
    try:
        for function in (summed, compiled):
            first = [
                t.detach().numpy().copy() for t in (*function(x, rows, values, down), *counted())
            ]
            for _ in range(20):
                now = (*function(x, rows, values, down), *counted())
                for a, b in zip(first, now, strict=True):
                    np.testing.assert_array_equal(a, b.detach().numpy())
    finally:
        tg.set_num_threads(before)
