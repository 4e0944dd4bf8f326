"""Worlds of arrays as arguments: layouts, read-only and foreign memory, dtypes, gradients."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
from worlds import attempt, case, mat, vec

import tapegrad as tg

# -- layouts -------------------------------------------------------------------------------------


def with_arrays(compile, make, writes=False):
    """Calls with what an array of NumPy gives."""

    def f(x):
        if writes:
            x.add_(1)
        return x * 2 + 1

    f = compile(f)
    for i in range(6):
        a = make(i)
        yield attempt(f, tg.from_numpy(a)), np.array(a, a.dtype.newbyteorder("="))


def numbers(i, *shape):
    return (np.arange(int(np.prod(shape))) + i).astype(np.float32).reshape(shape)


def frozen(a):
    a.flags.writeable = False
    return a


@case(replays=True)
def array_in_fortran_order(compile):
    return with_arrays(compile, lambda i: np.asfortranarray(numbers(i, 4, 3)))


@case
def array_in_fortran_order_written_to(compile):
    return with_arrays(compile, lambda i: np.asfortranarray(numbers(i, 4, 3)), True)


@case
def array_backwards(compile):
    return with_arrays(compile, lambda i: numbers(i, 4)[::-1])


@case
def array_backwards_written_to(compile):
    return with_arrays(compile, lambda i: numbers(i, 4)[::-1], True)


@case
def array_with_gaps_written_to(compile):
    return with_arrays(compile, lambda i: numbers(i, 4, 4)[::2, 1::2], True)


@case(replays=True)
def array_without_dimensions(compile):
    return with_arrays(compile, lambda i: np.array(i, np.float32))


@case
def array_without_elements(compile):
    return with_arrays(compile, lambda i: np.zeros((0, 4), np.float32), True)


@case
def array_misaligned(compile):
    def make(i):
        a = np.zeros(4, [("tag", "i1"), ("value", "f4")])
        a["value"] = numbers(i, 4)
        return a["value"]

    return with_arrays(compile, make, True)


@case
def array_big_endian(compile):
    return with_arrays(compile, lambda i: numbers(i, 4).astype(">f4"))


@case
def array_of_bytes(compile):
    return with_arrays(compile, lambda i: np.frombuffer(numbers(i, 4).tobytes(), np.float32))


@case
def array_of_bytes_written_to(compile):
    return with_arrays(compile, lambda i: np.frombuffer(numbers(i, 4).tobytes(), np.float32), True)


@case
def array_broadcast(compile):
    return with_arrays(compile, lambda i: np.broadcast_to(numbers(i, 1), (4,)))


@case
def array_broadcast_written_to(compile):
    return with_arrays(compile, lambda i: np.broadcast_to(numbers(i, 1), (4,)), True)


@case
def array_read_only(compile):
    return with_arrays(compile, lambda i: frozen(numbers(i, 4)))


@case
def array_read_only_written_to(compile):
    return with_arrays(compile, lambda i: frozen(numbers(i, 4)), True)


@case
def array_read_only_after_some_calls(compile):
    def make(i):
        return frozen(numbers(i, 4)) if i in (3, 5) else numbers(i, 4)

    return with_arrays(compile, make, True)


@case
def array_in_a_file(compile):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "numbers"
        numbers(0, 6, 4).tofile(path)
        data = np.memmap(path, np.float32, "r", shape=(6, 4))
        for seen in with_arrays(compile, lambda i: data[i]):
            yield seen[0]


@case
def array_in_a_file_written_to(compile):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "numbers"
        numbers(0, 6, 4).tofile(path)
        data = np.memmap(path, np.float32, "r+", shape=(6, 4))
        for seen in with_arrays(compile, lambda i: data[i], True):
            yield seen[0], np.array(data)


@case
def array_of_a_subclass(compile):
    class Tagged(np.ndarray):
        pass

    return with_arrays(compile, lambda i: numbers(i, 4).view(Tagged), True)


@case
def array_of_a_list_of_integers(compile):
    return with_arrays(compile, lambda i: np.array([i, 2, 3, 4]))


@case
def array_shared_with_the_argument(compile):
    f = compile(lambda x: x * 2 + 1)
    a = numbers(0, 4)
    x = tg.from_numpy(a)
    for _ in range(8):
        a += 1
        yield f(x), x


@case
def array_of_the_argument_seen_after_a_write(compile):
    @compile
    def f(x):
        x.mul_(2)
        return x + 1

    for i in range(8):
        x = vec(i)
        a = x.numpy()
        yield f(x), a, x


@case
def array_of_a_captured_tensor(compile):
    w = vec()
    a = w.numpy()
    f = compile(lambda x: x * w + 1)
    for i in range(8):
        a[i % 4] += 1
        yield f(vec(i))


@case
def array_of_a_result_written_to(compile):
    f = compile(lambda x: x * 2 + 1)
    kept = []
    for i in range(8):
        y = f(vec())
        y.numpy()[:] += i
        kept.append(y)
        yield kept


# -- kinds of arguments --------------------------------------------------------------------------


@case(replays=True)
def dtypes_in_turn(compile):
    f = compile(lambda x: x * 2 + 1)
    for i in range(12):
        yield f(vec(i).to((tg.float32, tg.float64, tg.int64)[i % 3]))


@case
def shapes_in_turn(compile):
    f = compile(lambda x: x * 2 + 1)
    for i in range(12):
        yield f((vec(i), mat(i), tg.tensor(float(i)), tg.zeros(0))[i % 4])


@case(replays=True)
def requires_grad_of_arguments_in_turn(compile):
    f = compile(lambda x, y: (x * y + 1).sum())
    for i in range(12):
        x, y = vec(i, requires_grad=i % 2 == 0), vec(1, requires_grad=i % 3 == 0)
        z = f(x, y)
        if z.requires_grad:
            z.backward()
        yield z, x.grad, y.grad


@case
def requires_grad_switched_on_one_tensor(compile):
    f, x = compile(lambda x: (x * x + 1).sum()), vec()
    for i in range(10):
        x.requires_grad_(i % 4 > 1)
        x.grad = None
        y = f(x)
        if y.requires_grad:
            y.backward()
        yield y, x.grad


@case
def leaves_and_others_in_turn(compile):
    f, w = compile(lambda x: (x * x + 1).sum()), vec(requires_grad=True)
    for i in range(10):
        w.grad = None
        f(w * 2 if i % 2 else w).backward()
        yield w.grad


@case
def argument_with_a_gradient(compile):
    @compile
    def f(x):
        (x * x).sum().backward()
        return x.grad * 2

    x = vec(requires_grad=True)
    for i in range(10):
        if i in (4, 8):
            x.grad = None
        yield f(x), x.grad


@case
def gradients_of_fresh_arguments(compile):
    @compile
    def f(x):
        (x * x).sum().backward()

    for i in range(8):
        x = vec(i, requires_grad=True)
        if i % 2:
            x.grad = tg.ones(4)
        f(x)
        yield x.grad


@case
def argument_that_begins_to_require_gradients(compile):
    @compile
    def f(x):
        x.requires_grad_()
        (g,) = tg.autograd.grad((x * x).sum(), x)
        return g

    for i in range(8):
        x = vec(i)
        yield f(x), x.requires_grad


@case
def argument_replaced_in_place_by_data(compile):
    @compile
    def f(x):
        x.data = x.data * 2
        return x + 1

    for i in range(8):
        x = vec(i)
        other = x.detach()
        yield f(x), x, other
