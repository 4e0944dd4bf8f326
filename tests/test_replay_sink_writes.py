"""Passes over memory that a program does without: sunk writes, inlining, loops of other shapes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from replaying import randn, same_as_eager

import tapegrad as tg
from tapegrad.core.tape import Value
from tapegrad.replay import Compiled
from tapegrad.replay.ir.program import (
    Access,
    Attention,
    Compute,
    Literal,
    Loop,
    Origin,
    Product,
    Store,
)
from tapegrad.replay.ir.shapes import common, divided, simplest
from tapegrad.replay.passes.builder import COPY
from tapegrad.replay.passes.sink_writes import WriteSinker

pytest.importorskip("llvmlite")


def instructions(function: Compiled) -> list[Any]:
    return list(function.replays[-1].executable.program.instructions)


def loops(function: Compiled) -> list[Loop]:
    return [i for i in instructions(function) if isinstance(i, Loop)]


def fills(function: Compiled) -> int:
    """How many loops do nothing but write a number."""
    return sum(
        len(loop.nodes) == 1 and isinstance(loop.nodes[0], Compute) for loop in loops(function)
    )


def gradient(function: Any) -> Any:
    def step(x: Any) -> Any:
        x = x.detach().requires_grad_()
        return tg.autograd.grad(function(x).sum(), x)[0]

    return step


def test_the_parts_of_a_gradient_are_written_to_one_place() -> None:
    """Three slices that cover a tensor: no zeros, no sums of whole tensors."""

    def split(x: Any) -> Any:
        q, k, v = x.reshape(4, 6, 3, 8).permute(2, 0, 1, 3).unbind(0)
        return q.exp() * 2 + k.tanh() * v

    fast = same_as_eager(gradient(split), (4, 6, 24))
    assert fills(fast) == 0
    assert len(loops(fast)) <= 3


@pytest.mark.parametrize("dtype", [tg.float16, tg.bfloat16])
def test_parts_of_half_precision_are_written_to_one_place(dtype: Any) -> None:
    def split(x: Any) -> Any:
        q, k, v = x.to(dtype).reshape(4, 6, 3, 8).permute(2, 0, 1, 3).unbind(0)
        return (q.sin() + k * v).float()

    def overlapping(x: Any) -> Any:
        x = x.to(dtype)
        return (x[:, 1:] * x[:, :-1] + x[:, 1:]).float()

    assert fills(same_as_eager(gradient(split), (4, 6, 24))) == 0
    # Each of four gradients of an element is added and rounded, in the order of the eager engine.
    same_as_eager(gradient(overlapping), (5, 9))


def test_gradients_of_attention_are_written_to_one_place() -> None:
    """Queries, keys and values are parts of one tensor, and so are their gradients."""

    def attend(x: Any) -> Any:
        q, k, v = x.reshape(1, 2048, 3, 2, 8).permute(2, 0, 3, 1, 4).unbind(0)
        return tg.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True).sin()

    compiled = tg.compile(gradient(attend))
    x = randn(1, 2048, 48)
    given = [compiled(x) for _ in range(3)]
    found = instructions(compiled)
    assert sum(isinstance(i, Attention) for i in found) == 2
    assert fills(compiled) == 0
    (backward,) = [i for i in found if isinstance(i, Attention) and i.backward]
    assert len({result.value.number for result in backward.results}) == 1
    np.testing.assert_allclose(given[-1].numpy(), gradient(attend)(x).numpy(), atol=1e-5)


def test_parts_of_large_values_are_counted_in_blocks() -> None:
    """So that a value of many elements is no harder to tell than a small one."""
    value = Value(0, (6, 1 << 22), np.dtype(np.float32))
    origins = (Origin("test", None),)

    def part(offset: int, strides: tuple[int, ...], shape: tuple[int, ...]) -> Loop:
        node = Compute(COPY, {}, (Literal(0.0),), value.dtype)
        return Loop(shape, (node,), (Store(Access(value, offset, strides), 0),), (), origins)

    half = 1 << 21
    rows = [part(i * 2 * half, (1,), (2 * half,)) for i in range(3)]
    columns = [part(3 * 2 * half + i * half, (2 * half, 1), (3, half)) for i in range(2)]
    assert (WriteSinker._counts(value, [*rows, *columns]) == 1).all()
    assert len(WriteSinker._counts(value, [*rows, *columns])) == 12
    assert WriteSinker._counts(value, [*rows, columns[0]]).tolist() == [1] * 6 + [1, 0] * 3
    assert WriteSinker._counts(value, [*rows, rows[1]]).tolist() == [1, 2, 1, 0, 0, 0]
    assert WriteSinker._counts(value, [rows[0]] * 257 + rows[1:]).tolist() == [2, 1, 1, 0, 0, 0]
    odd = part(1, (2,), (half,))
    assert WriteSinker._counts(value, [*rows, odd]) is None  # too many blocks of one element


def test_parts_that_overlap_are_added() -> None:
    def neighbours(x: Any) -> Any:
        return (x[:, 1:] * x[:, :-1]).sin()

    fast = same_as_eager(gradient(neighbours), (5, 9))
    assert fills(fast) == 1


def test_a_part_that_is_written_hundreds_of_times_is_added() -> None:
    """One byte counts the writers of each element: 257 of them must not look like one."""

    weights = randn(257)

    def often(x: Any) -> Any:
        total = x[2:] * weights[0]
        for i in range(257):
            total = total + x[:2] * weights[i]
        return total

    same_as_eager(gradient(often), (4,))


def test_a_part_of_a_gradient_is_added_to_the_rest() -> None:
    same_as_eager(gradient(lambda x: (x * x).sum() + x[1:3].exp().sum()), (5, 4))
    same_as_eager(gradient(lambda x: x[::2].exp().sum() + x[::3].sin().sum()), (11, 4))


def test_a_gradient_that_is_also_returned_stays() -> None:
    """The sum of two parts is what both are added to; neither may be lost."""

    def both(x: Any) -> Any:
        x = x.detach().requires_grad_()
        head, tail = x[:2] * 3, x[2:] * 5
        g = tg.autograd.grad((head.sum(), tail.sum()), x)[0]
        return g, g + x.detach(), head

    same_as_eager(both, (6, 3))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.exp().transpose(0, 1).reshape(-1),
        lambda x: tg.cat([x.exp(), x.sin(), x[:1].tanh()]),
        lambda x: tg.cat([x.exp(), x.exp()], 1),
        lambda x: tg.stack([x.sum(1), x.mean(1)], 1),
        lambda x: (x @ x.T).reshape(3, 2, 6).transpose(1, 2).contiguous(),
        lambda x: tg.cat([x @ x.T, x.cumsum(1)], 1),
        lambda x: x.exp().reshape(2, 3, 2, 2).permute(2, 0, 3, 1).reshape(4, 6) * 2,
        lambda x: x.exp().flip(0).contiguous(),
        lambda x: tg.nn.functional.pad(x.exp(), (1, 2)),
    ],
)
def test_copies_of_values_that_nobody_else_reads(function: Any) -> None:
    same_as_eager(function, (6, 4))


def test_a_concatenation_is_written_by_its_parts() -> None:
    fast = same_as_eager(lambda x: tg.cat([x.exp(), x @ x.T], 1), (8, 8))
    kinds = [type(i) for i in instructions(fast)]
    assert sorted(kinds, key=str) == [Loop, Product]


def test_a_value_that_is_read_again_is_copied() -> None:
    def function(x: Any) -> Any:
        y = x.exp()
        return tg.cat([y, y * 2]), y

    same_as_eager(function, (3, 4))


def products(function: Compiled) -> list[Product]:
    return [i for i in instructions(function) if isinstance(i, Product)]


def test_products_add_to_each_other() -> None:
    """The gradient of a weight that is used again and again is one value."""
    x = randn(6, 40)

    def recurrence(w: Any) -> Any:
        h = x
        for _ in range(4):
            h = (h @ w * 0.1).tanh()
        return h

    fast = same_as_eager(gradient(recurrence), (40, 40))
    assert sum(p.adds for p in products(fast)) == 3
    assert not any(
        len(loop.nodes) == 3 and loop.shape in ((40, 40), (2048,)) for loop in loops(fast)
    )


def test_a_product_that_is_read_again_is_not_added_to() -> None:
    def twice(x: Any) -> Any:
        x = x * 0.2  # a + b may be small where both are large, and roundings differ
        a, b = x @ x, x @ x.T
        return (a + b) * a

    fast = same_as_eager(twice, (24, 24))
    assert not any(p.adds for p in products(fast))


def test_a_product_that_adds_to_itself_or_to_what_is_no_product() -> None:
    fast = same_as_eager(lambda x: (x @ x) + (x @ x), (24, 24))
    assert not any(p.adds for p in products(fast))
    fast = same_as_eager(lambda x: (x @ x) + x.exp(), (24, 24))
    assert not any(p.adds for p in products(fast))


def test_gradients_accumulate_in_their_memory() -> None:
    """A second backward pass adds to .grad without a loop, and without a copy."""
    w, x = randn(40, 40).requires_grad_(), randn(30, 40)

    def step(x: Any) -> Any:
        (x @ w).tanh().sum().backward()

    fast = tg.compile(step)
    w.grad = tg.ones(40, 40)
    memory = w.grad.numpy()
    for _ in range(4):
        fast(x)
    assert [p.adds for p in products(fast)] == [False, True]
    assert not any(loop.shape in ((40, 40), (2048,)) for loop in loops(fast))
    replayed = w.grad.clone()
    assert np.shares_memory(memory, w.grad.numpy())
    w.grad = tg.ones(40, 40)
    for _ in range(4):
        step(x)
    np.testing.assert_allclose(replayed.numpy(), w.grad.numpy(), rtol=1e-4, atol=1e-4)


def test_a_bias_goes_into_the_loop_behind_it() -> None:
    """The product has two dimensions, what follows three: the same elements in the same order."""
    layer, x = tg.nn.Linear(6, 8), randn(2, 5, 6)
    fast = tg.compile(lambda x: tg.nn.functional.gelu(layer(x)) * 2)
    for _ in range(3):
        found = fast(x)
    assert np.allclose(found.detach(), (tg.nn.functional.gelu(layer(x)) * 2).detach(), atol=1e-6)
    assert len(loops(fast)) == 1


def test_a_small_value_is_kept_rather_than_what_it_is_made_of() -> None:
    """A mask takes a byte for an element, what it compares four; backward reads the mask."""

    def step(x: Any) -> Any:
        x = x.detach().requires_grad_()
        h = x * 3
        y = (tg.relu(h) @ tg.ones(64, 64)).exp()
        return tg.autograd.grad(y.sum(), x)[0]

    same_as_eager(step, (64, 64))


@pytest.mark.parametrize(
    ("x", "y", "expected"),
    [
        ((4, 6), (24,), (4, 6)),
        ((24,), (2, 12), (2, 12)),
        ((4, 6), (8, 3), (4, 2, 3)),
        ((4, 6), (6, 4), None),
        ((4, 6), (4, 5), None),
        ((1, 5), (5,), (5,)),
        ((0, 3), (3, 0), None),
    ],
)
def test_the_shape_that_two_loops_have_in_common(x: Any, y: Any, expected: Any) -> None:
    assert common(x, y) == expected


def test_a_loop_of_another_shape_does_the_same() -> None:
    fast = same_as_eager(lambda x: (x * 2 + 1).sum(-1), (3, 4, 6))
    (loop,) = loops(fast)
    assert simplest(loop).shape == (12, 6)
    again = divided(simplest(loop), (3, 4, 2, 3))
    assert again.folds[0].dims == (2, 3)
    assert simplest(again) == simplest(loop)


@pytest.mark.parametrize(
    ("write", "arguments"),
    [
        (lambda c, i, v: c.__setitem__(i, v), (tg.tensor(3), tg.ones(8, 100))),
        (lambda c, i, v: c.__setitem__(i, v), (tg.tensor([3, -1]), tg.ones(2, 8, 100))),
        (lambda c, i, v: c.__setitem__((slice(None), i), v), (tg.tensor(3), tg.ones(500, 100))),
        (lambda c, v: c.__setitem__((slice(None), 3), v), (tg.ones(500, 100),)),
        (lambda c, v: c.__setitem__((slice(None), slice(2, 4)), v), (tg.ones(500, 2, 100),)),
        (lambda c, i, v: c.index_copy_(0, i, v), (tg.tensor([3]), tg.ones(1, 8, 100))),
        (lambda c, i, v: c.index_put_((i,), v), (tg.tensor([3]), tg.ones(1, 8, 100))),
        (lambda c, i: c.index_fill_(0, i, 2.0), (tg.tensor([3]),)),
        (lambda c, i, v: c.scatter_(0, i, v), (tg.zeros(1, 8, 9).long(), tg.ones(1, 8, 9))),
    ],
)
def test_a_small_write_into_a_large_tensor_is_done_in_place(write, arguments):
    """A cache of keys and values is not copied for each new row."""
    cache, expected = (tg.zeros(500, 8, 100) for _ in range(2))

    def step(*given):
        write(cache, *given)

    compiled = tg.compile(step)
    for k in range(4):
        given = [a if a.dtype is tg.int64 else a + k for a in arguments]
        compiled(*given)
        write(expected, *given)
        np.testing.assert_array_equal(cache.numpy(), expected.numpy())
    (replay,) = compiled.replays
    assert replay.count >= 2
    assert replay.executable.plan.arena < 10_000


def stored(function: Compiled) -> set[tuple[Any, tuple[int, ...]]]:
    """The dtypes and shapes of all values that loops write."""
    written = [value for loop in loops(function) for value in loop.writes()]
    return {(value.dtype.name, value.shape) for value in written}


def test_logits_of_half_precision_are_not_kept_in_float32() -> None:
    """Nor for the loop that picks one of each row by its label."""
    labels, weight = tg.tensor([3, 0, 39, 2]), randn(8, 40).to(tg.bfloat16)

    def loss(x: Any) -> Any:
        x = x.detach().requires_grad_()
        logits = x.to(tg.bfloat16) @ weight
        found = tg.nn.functional.cross_entropy(logits.float(), labels)
        return found, tg.autograd.grad(found, x)[0]

    assert ("float32", (4, 40)) not in stored(same_as_eager(loss, (4, 8)))


def test_a_value_that_is_picked_from_is_computed_from_its_operand() -> None:
    index = tg.tensor([[4, 0], [1, 1], [2, 3]])

    def pick(x: Any) -> Any:
        y = -x
        return y.gather(1, index).exp(), (y * 3).sum(1), y.cumsum(0)

    assert ("float32", (3, 5)) in stored(same_as_eager(pick, (3, 5)))  # of cumsum alone

    def transposed(x: Any) -> Any:
        y = -x
        return y.gather(1, index), y.T.contiguous().amax(0)

    assert ("float32", (3, 5)) not in stored(same_as_eager(transposed, (3, 5)))


def test_a_value_that_is_picked_from_often_is_kept() -> None:
    """Each of its elements is computed once, not once for each time that it is picked."""
    index = tg.arange(40).remainder(3)

    def pick(x: Any) -> Any:
        y = -x
        return y[index], (y * 3).sum(1)

    assert ("float32", (3, 5)) in stored(same_as_eager(pick, (3, 5)))


def test_recomputed_products_have_the_same_bits() -> None:
    """What a machine multiplies and adds at once would not be what the maximum was taken of."""

    def below(x: Any, w: Any) -> Any:
        y = x * w
        top = y.amax(1, keepdim=True)
        return (y - top).amax(), ((y - top) == 0).sum()

    fast = same_as_eager(below, (64, 40), (40,))
    assert ("float32", (64, 40)) not in stored(fast)
    for seed in range(20):
        given = randn(64, 40, seed=seed), randn(40, seed=seed + 100)
        distance, count = fast(*given)
        assert distance.item() == 0
        assert count.item() >= 64


def test_a_gradient_of_layer_norm_is_not_kept_before_its_sums() -> None:
    weight = randn(48)

    def norm(x: Any, g: Any) -> Any:
        x = x.detach().requires_grad_()
        y = tg.nn.functional.layer_norm(x, (48,), weight)
        return tg.autograd.grad(y, x, g * 3)[0]

    fast = same_as_eager(norm, (16, 48), (16, 48))
    whole = [v for loop in loops(fast) for v in loop.writes() if v.shape == (16, 48)]
    assert len(whole) == 1
