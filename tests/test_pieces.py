"""Windows, repeats, order statistics, reductions by index: what the sweeps do not reach."""

from __future__ import annotations

from typing import Any

import pytest
from replaying import callbacks, close, randn, same_as_eager

import tapegrad as tg


def test_windows_that_do_not_overlap_are_views() -> None:
    x = tg.arange(12.0).reshape(2, 6)
    windows = x.unfold(1, 2, 2)
    assert windows.shape == (2, 3, 2)
    windows[0, 0, 0] = 50.0
    assert float(x[0, 0]) == 50
    assert x.unfold(1, 3, 2).tolist()[0] == [[50, 1, 2], [2, 3, 4]]


def test_compiled() -> None:
    for function in (
        lambda x: x.unfold(1, 3, 1).sum(-1),
        lambda x: x.unfold(0, 2, 2) * 2,
        lambda x: x.repeat_interleave(3, 1) - 1,
        lambda x: tg.cat(x.tensor_split(3, 1)[::-1], 1),
        lambda x: x.diff(dim=1).rot90(),
    ):
        compiled = same_as_eager(function, (4, 6))
        assert callbacks(compiled) == []


def test_shapes_that_depend_on_data_are_refused() -> None:
    labels = tg.tensor([1, 2, 1])
    for function in (
        lambda x: tg.bincount(x),
        lambda x: tg.unique(x),
        lambda x: tg.ones(3).repeat_interleave(x),
    ):
        with pytest.raises(RuntimeError, match="inside a compiled function"):
            tg.compile(function, fullgraph=True)(labels)


def test_reductions_by_index_compiled() -> None:
    index = tg.tensor([0, 1, 0, 2])

    for how in ("sum", "mean", "amax", "amin"):

        def function(x: Any, how: str = how) -> Any:
            return tg.zeros(3).scatter_reduce(0, index, x, reduce=how, include_self=False)

        compiled = tg.compile(function)
        for i in range(4):
            x = randn(4, seed=i)
            close(compiled(x), function(x))


def test_equal_extremes_share_the_gradient() -> None:
    src = tg.tensor([2.0, 2.0, 1.0], requires_grad=True)
    out = tg.zeros(2).scatter_reduce(0, tg.tensor([0, 0, 1]), src, "amax")
    assert out.tolist() == [2, 1]
    out.sum().backward()
    assert src.grad.tolist() == [0.5, 0.5, 1]


def test_counts_with_weights() -> None:
    labels = tg.tensor([0, 2, 2])
    weights = tg.tensor([0.5, 1.0, 2.0])
    counts = tg.bincount(labels, weights, 4)
    assert counts.tolist() == [0.5, 0, 3, 0]
    assert counts.dtype is tg.float32
    assert tg.bincount(labels, weights.double()).dtype is tg.float64


def test_nan_in_order_statistics() -> None:
    x = tg.tensor([[1.0, float("nan"), 2.0], [3.0, 1.0, 2.0]])
    assert x.median().isnan()
    values, indices = x.median(1)
    assert values[0].isnan()
    assert float(values[1]) == 2
    assert int(indices[1]) == 2
    assert x.quantile(0.5, dim=1).isnan().tolist() == [True, False]
    assert tg.tensor([3, 1, 2, 4]).median() == 2


def test_modes_of_quantiles() -> None:
    x = tg.tensor([0.0, 10.0, 20.0])
    found = {
        mode: float(x.quantile(0.3, interpolation=mode))
        for mode in ("linear", "lower", "higher", "midpoint", "nearest")
    }
    assert found["linear"] == pytest.approx(6)
    assert (found["lower"], found["higher"]) == (0, 10)
    assert (found["midpoint"], found["nearest"]) == (5, 10)


def test_errors() -> None:
    x, y = tg.ones(3, 4), tg.tensor([0, 1])
    for call, error, text in (
        (lambda: x.unfold(1, 5, 1), RuntimeError, "do not fit"),
        (lambda: x.unfold(1, 2, 0), RuntimeError, "step"),
        (lambda: x.repeat_interleave(-1), RuntimeError, "negative"),
        (lambda: x.repeat_interleave(y, 0), RuntimeError, "2 repeats do not fit"),
        (lambda: x.repeat_interleave(tg.ones(3), 0), RuntimeError, "integers"),
        (lambda: x.repeat_interleave(2, 0, output_size=5), RuntimeError, "gives 6"),
        (lambda: x.tensor_split(0), RuntimeError, "positive"),
        (lambda: x.rot90(1, [0, 0]), RuntimeError, "different"),
        (lambda: x.rot90(1, [0]), RuntimeError, "two dimensions"),
        (lambda: x.diff(-1), RuntimeError, "negative"),
        (lambda: tg.tensor(1.0).diff(), RuntimeError, "one dimension"),
        (lambda: x.take(tg.ones(2)), RuntimeError, "integer"),
        (lambda: x.take(tg.tensor([12])), IndexError, "out of range"),
        (lambda: x.kthvalue(5), RuntimeError, "k = 5"),
        (lambda: x.quantile(0.5, interpolation="cubic"), RuntimeError, "interpolation"),
        (lambda: x.long().quantile(0.5), RuntimeError, "floating"),
        (lambda: tg.zeros(0).quantile(0.5), RuntimeError, "empty"),
        (lambda: tg.bincount(tg.tensor([-1])), RuntimeError, "non-negative"),
        (lambda: tg.bincount(x), RuntimeError, "non-negative integers"),
        (lambda: tg.searchsorted(x, tg.ones(2, 2)), RuntimeError, "leading"),
        (lambda: tg.searchsorted(x[0], x, right=True, side="left"), RuntimeError, "side"),
        (lambda: tg.bucketize(x, x), RuntimeError, "one dimension"),
        (lambda: x[0].scatter_reduce(0, y, tg.ones(2), "max"), RuntimeError, "supports"),
        (lambda: x[0].scatter_reduce(0, y, y, "sum"), RuntimeError, "source is"),
        (lambda: x[0].scatter_reduce(0, y, tg.ones(1), "sum"), RuntimeError, "smaller"),
        (lambda: x[0].scatter_reduce(0, y + 4, tg.ones(2), "amax"), RuntimeError, "out of"),
    ):
        with pytest.raises(error, match=text):
            call()


def test_pieces_of_nothing() -> None:
    assert [tuple(p.shape) for p in tg.ones(0, 2).split(0)] == [(0, 2)]
    with pytest.raises(RuntimeError, match="positive size"):
        tg.ones(3).split(0)
    with pytest.raises(RuntimeError, match="0 or more"):
        tg.ones(3).split([4, -1])


def test_attention_to_nothing_and_to_one_key() -> None:
    attend = tg.nn.functional.scaled_dot_product_attention
    q, k, v = (tg.ones(1, n, 4, requires_grad=True) for n in (2, 0, 0))
    out = attend(q, k, v)
    out.sum().backward()
    assert out.tolist() == [[[0] * 4] * 2]
    assert q.grad.tolist() == [[[0] * 4] * 2]
    q, k, v = (30 * randn(2, 5, 1, 16, seed=i) for i in range(3))
    q.requires_grad_()
    close(attend(q, k, v), v)
    (attend(q, k, v) ** 2).sum().backward()
    assert float(q.grad.abs().max()) == 0  # there is nothing to choose


def test_as_strided_is_a_view_by_steps() -> None:
    x = tg.arange(12.0)
    windows = x.as_strided((4, 3), (2, 1), 1)
    assert windows.tolist() == [[1, 2, 3], [3, 4, 5], [5, 6, 7], [7, 8, 9]]
    x[3] = 30
    assert windows[0, 2] == windows[1, 0] == 30
    part = x[2:8]
    assert part.storage_offset() == 2
    assert part.as_strided((2,), (3,)).tolist() == [2, 5]  # without an offset from where it begins
    assert part.as_strided((2,), (3,), 3).tolist() == [30, 6]
    turned = x.reshape(3, 4).t()
    assert turned.as_strided((3,), (1,)).tolist() == [0, 1, 2]  # in the order of memory
    leaf = tg.ones(5, requires_grad=True)
    leaf.as_strided((3, 3), (1, 1)).sum().backward()
    assert leaf.grad.tolist() == [1, 2, 3, 2, 1]


@pytest.mark.parametrize(
    ("shape", "strides", "offset", "message"),
    [
        ((2, 2), (1,), 0, "2 sizes, but 1 strides"),
        ((2,), (-1,), 3, "not be negative"),
        ((3,), (3,), 0, "elements 0 to 6 are wanted of a tensor that has 6"),
        ((1,), (1,), 6, "elements 6 to 6"),
    ],
)
def test_as_strided_stays_within_the_tensor(shape, strides, offset, message) -> None:
    with pytest.raises(RuntimeError, match=message):
        tg.arange(6.0).as_strided(shape, strides, offset)


def test_as_strided_needs_memory_without_gaps() -> None:
    with pytest.raises(RuntimeError, match="has gaps"):
        tg.arange(6.0)[::2].as_strided((2,), (1,))


def test_a_view_that_would_be_a_copy_is_refused() -> None:
    turned = tg.arange(6.0).reshape(2, 3).t()
    with pytest.raises(RuntimeError, match="does not allow the shape"):
        turned.view(6)
    assert turned.reshape(6).tolist() == [0, 3, 1, 4, 2, 5]
    assert turned.view(3, 2).tolist() == turned.tolist()


def test_bits_of_another_size_need_whole_rows() -> None:
    assert tg.ones(2, 3).view(tg.int16).shape == (2, 6)
    assert tg.ones(2, 3).t().view(tg.int32).shape == (3, 2)
    for x in (tg.ones(2, 3).t(), tg.ones(2, 3)[:, ::2], tg.ones(2, 3), tg.ones(())):
        with pytest.raises(RuntimeError, match="view"):
            x.view(tg.int64)


def test_tensor_split_takes_the_names_of_all_its_forms():
    x = tg.arange(5)
    assert [p.tolist() for p in x.tensor_split(indices=(1, 4))] == [[0], [1, 2, 3], [4]]
    assert [p.tolist() for p in tg.tensor_split(x, sections=2, dim=0)] == [[0, 1, 2], [3, 4]]
    cuts = tg.tensor([2])
    assert [p.tolist() for p in x.tensor_split(tensor_indices_or_sections=cuts)] == [
        [0, 1],
        [2, 3, 4],
    ]
    for given in ({}, {"indices": (1,), "sections": 2}):
        with pytest.raises(TypeError, match="once"):
            x.tensor_split(**given)
