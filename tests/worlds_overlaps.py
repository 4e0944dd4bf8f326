"""Tensors that overlap in memory, where some are written to; bad data where nobody looks."""

from __future__ import annotations

from worlds import Config, attempt, case, mat, vec

import tapegrad as tg
from tapegrad import nn


def overlapping(name, write, *, offsets=(0, 1, 2), size=12, length=6, replays=True):
    """Two slices of one tensor at changing distances, and a function that writes to some."""

    def program(compile):
        f = compile(write)
        for i in range(14):
            data = tg.arange(float(size)) + i
            k = offsets[i // 5 % len(offsets)]
            yield attempt(f, data[:length], data[k : k + length]), data

    program.__name__ = f"overlap_{name}"
    case(program, replays=replays)


def write_first(x, y):
    x.add_(1)
    return y * 2


def write_second(x, y):
    y.mul_(3)
    return x.sum() + y


def write_both(x, y):
    x.add_(y)
    y.sub_(x)
    return x * y


def write_in_turns(x, y):
    for i in range(3):
        x[i] += 1
        y[i + 1] *= 2
    return x + y


def write_by_index(x, y):
    x[tg.tensor([0, 3])] = 7.0
    return y.flip(0)


def write_by_mask(x, y):
    x[x > 3] = 0
    return y


def write_scattered(x, y):
    x.scatter_(0, tg.tensor([1, 2]), 9.0)
    return y.cumsum(0)


def copy_over(x, y):
    x.copy_(y)
    return y + x


def swap(x, y):
    t = x.clone()
    x.copy_(y)
    y.copy_(t)
    return x - y


def draw(x, y):
    tg.manual_seed(3)
    x.normal_()
    return y * 2


def detach_and_write(x, y):
    x.detach().add_(1)
    return y


def write_a_view_of_a_view(x, y):
    x[1:][1:].fill_(5)
    return y[::2]


def write_after_a_view_was_taken(x, y):
    part = y[1:4]
    x.add_(10)
    return part * 1


def write_without_gradients(x, y):
    with tg.no_grad():
        x.add_(1)
    return y * 2


def nothing_but_a_write(x, y):
    x.zero_()


def write_what_is_not_read(x, y):
    y.fill_(1)
    return x


for name, write in {
    "write_first": write_first,
    "write_second": write_second,
    "write_both": write_both,
    "write_in_turns": write_in_turns,
    "write_by_index": write_by_index,
    "write_scattered": write_scattered,
    "copy_over": copy_over,
    "swap": swap,
    "detach_and_write": detach_and_write,
    "write_after_a_view_was_taken": write_after_a_view_was_taken,
    "write_without_gradients": write_without_gradients,
    "nothing_but_a_write": nothing_but_a_write,
    "write_what_is_not_read": write_what_is_not_read,
}.items():
    overlapping(name, write)
overlapping("write_by_mask", write_by_mask)
overlapping("draw", draw, replays=False)
overlapping("returns_a_view", write_a_view_of_a_view, replays=False)
overlapping("large", write_both, size=300_000, length=200_000)
overlapping("neighbours", write_both, offsets=(6,))
overlapping("the_very_same", write_both, offsets=(0,))


@case(replays=True)
def overlap_of_rows_and_columns(compile):
    @compile
    def f(row, column):
        row.add_(1)
        column.mul_(2)
        return row @ column

    for i in range(10):
        a = mat(i)
        yield f(a[1], a[:, 2]), a


@case(replays=True)
def overlap_of_a_diagonal(compile):
    @compile
    def f(a, d):
        d.add_(1)
        return a @ a

    for i in range(10):
        a = mat(i)
        yield f(a, a.diagonal()), a


@case(replays=True)
def overlap_of_a_row_that_advances(compile):
    """A cache whose next row is given too, as generation of text does."""

    @compile
    def f(cache, row, x):
        row.copy_(x)
        return cache.sum(0)

    cache = tg.zeros(2, 4)
    for i in range(14):
        yield f(cache, cache[i % 2], vec(i)), cache


@case(replays=True)
def overlap_of_three(compile):
    @compile
    def f(a, b, c):
        b.add_(a.sum())
        c.add_(b.sum())
        return a * 2

    for i in range(10):
        data = tg.arange(12.0) + i
        yield f(data[:5], data[3:9], data[7:]), data


@case(replays=True)
def overlap_with_a_gap_that_is_written_too(compile):
    @compile
    def f(a, b, c):
        a.add_(1)
        c.mul_(2)
        return b + c.sum()

    for i in range(10):
        data = (tg.arange(12.0) + i).reshape(4, 3)
        yield f(data[:, 0], data[:, 0], data[:, 1]), data


@case(replays=True)
def overlap_in_a_list_and_a_dict(compile):
    @compile
    def f(parts, named):
        parts[0].add_(1)
        return named["x"] * 2

    for i in range(10):
        data = tg.arange(8.0) + i
        yield f([data[:5]], {"x": data[2:]}), data


@case(replays=True)
def overlap_of_captured_tensors(compile):
    data = tg.arange(8.0)
    c = Config(data[:5])
    other = tg.from_numpy(data.numpy()[3:])

    @compile
    def f(x):
        c.rate.add_(x)
        return other * 2

    for i in range(10):
        yield f(float(i % 2)), data


@case(replays=True)
def overlap_of_an_argument_and_a_captured_one(compile):
    w = mat()

    @compile
    def f(row):
        row.mul_(0.5)
        return w.sum(0)

    for _ in range(12):
        yield f(w[2]), w


@case(replays=True)
def overlap_of_a_captured_view_and_its_base(compile):
    w = mat()
    top = w[:2]

    @compile
    def f(row):
        row.mul_(0.5)
        top.add_(1)
        return w.sum(0) + top.sum()

    for _ in range(12):
        yield f(w[1]), w


@case
def overlap_with_gradients(compile):
    w = nn.Parameter(vec())

    @compile
    def f(x, y):
        x.mul_(w)
        return (y * 2).sum()

    for i in range(10):
        w.grad = None
        data = tg.arange(6.0) + i
        f(data[:4], data[2:]).backward()
        yield w.grad, data


@case
def overlap_with_gradients_inside(compile):
    w = nn.Parameter(vec())

    @compile
    def f(x, y):
        h = x.clone()
        h.mul_(w)
        x.copy_(h.detach())
        loss = (y * w).sum()
        loss.backward()
        return loss

    for i in range(10):
        w.grad = None
        data = tg.arange(6.0) + i
        yield f(data[:4], data[2:]), w.grad, data


@case
def overlap_of_parts_of_a_tensor_with_a_history(compile):
    @compile
    def f(x, y):
        x.mul_(2)
        return (y * 3).sum()

    for i in range(10):
        leaf = vec(i, requires_grad=True)
        whole = leaf * 1
        f(whole[:3], whole[1:]).backward()
        yield leaf.grad


@case
def overlap_of_a_part_that_is_returned_and_changed(compile):
    @compile
    def f(x, y):
        x.add_(1)
        return y[1:]

    w = nn.Parameter(vec())
    for i in range(10):
        w.grad = None
        data = tg.arange(8.0) + i
        part = f(data[:5], data[3:])
        part.mul_(w)
        data.sum().backward()
        yield w.grad, data


@case
def overlap_of_other_dtypes(compile):
    @compile
    def f(x, bits):
        x.mul_(2)
        return bits + 1

    for i in range(10):
        x = vec(i)
        yield f(x, x.view(tg.int32)), x


@case
def overlap_of_what_is_read_only(compile):
    @compile
    def f(x, y):
        x.add_(1)
        return y * 2

    for i in range(10):
        data = tg.arange(8.0) + i
        array = data.numpy()[2:]
        array.flags.writeable = False
        yield attempt(f, data[:5], tg.from_numpy(array.copy())), data


@case
def overlap_of_expanded_arguments(compile):
    @compile
    def f(x, y):
        x.add_(1)
        return y * 2

    for i in range(10):
        data = tg.arange(4.0) + i
        yield attempt(f, data[:2], data[:1].expand(3)), data


@case(replays=True)
def overlap_of_flipped_memory(compile):
    @compile
    def f(x, y):
        x.mul_(2)
        return x - y

    for i in range(10):
        data = tg.arange(6.0) + i
        turned = tg.from_numpy(data.numpy()[::-1])
        yield f(data, turned), data


@case
def overlap_that_fails_midway(compile):
    @compile
    def f(x, y, labels):
        x.add_(1)
        nn.functional.nll_loss(mat(), labels)
        return y * 2

    for i in range(10):
        data = tg.arange(6.0) + i
        labels = tg.tensor([0, 1, 2, 9 if i in (5, 7) else 3])
        yield attempt(f, data[:4], data[2:], labels), data


@case(replays=True)
def overlap_of_a_moving_state(compile):
    c = Config(tg.zeros(4))

    @compile
    def f(x, part):
        part.add_(1)
        c.rate = c.rate * 2 + x
        return c.rate.sum()

    for i in range(14):
        yield f(vec(i), c.rate[1:3]), c.rate


# -- bad data where nobody reads what is made of it ----------------------------------------------


def dropped(name, use):
    """An operation that refuses some data, whose result is thrown away."""

    def program(compile):
        def f(x, index):
            use(x, index)
            return x * 2

        g = compile(f)
        for i in range(10):
            x = mat(i)
            yield attempt(g, x, tg.tensor([0, 9 if i in (4, 6) else 2])), x

    program.__name__ = f"dropped_{name}"
    case(program, replays=True)


dropped("index", lambda x, i: x[i])
dropped("gather", lambda x, i: x.gather(1, i[None]))
dropped("embedding", lambda x, i: nn.functional.embedding(i, x))
dropped("cross_entropy", lambda x, i: nn.functional.cross_entropy(x[:2], i).exp())
dropped("write_to_a_copy", lambda x, i: x.clone().index_fill_(0, i, 1.0))
dropped("scattered", lambda x, i: x.scatter_add(1, i[None], x))
dropped("division", lambda x, i: tg.tensor([5, 6]) // (9 - i))
dropped("within_a_sum", lambda x, i: (x[i] * 2).sum() + 1)
