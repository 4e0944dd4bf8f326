"""Threads: modes and tapes belong to one, gradients of shared leaves add up."""

import threading

import numpy as np

import tapegrad as tg


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
