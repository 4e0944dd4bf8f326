"""What operations take and refuse, as PyTorch does: numbers, dtypes, names, empty operands."""

from __future__ import annotations

import math
import os
from pathlib import Path

import pytest

import tapegrad


def test_bool_is_no_number_in_differences() -> None:
    mask, x, n = tapegrad.tensor([True, False]), tapegrad.ones(2), tapegrad.ones(2).long()
    for call in (
        lambda: mask - mask,
        lambda: 1 - mask,
        lambda: mask - 1,
        lambda: x - mask,
        lambda: n - True,
        lambda: tapegrad.rsub(mask, 1),
        lambda: -mask,
    ):
        with pytest.raises(RuntimeError, match="bool"):
            call()
    for function in (tapegrad.add, tapegrad.sub):
        with pytest.raises(RuntimeError, match="alpha = True needs bool"):
            function(n, n, alpha=True)
        with pytest.raises(RuntimeError, match=r"alpha = 1\.0 needs floating"):
            function(n, n, alpha=1.0)
    assert tapegrad.add(mask, mask, alpha=2).dtype is tapegrad.bool
    assert tapegrad.add(x, x, alpha=1.0).tolist() == [2, 2]


def test_functions_of_numbers() -> None:
    assert tapegrad.add(True, True).dtype is tapegrad.bool
    assert tapegrad.mul(2, 3).item() == 6
    assert tapegrad.div(1, 2).dtype is tapegrad.float32
    assert tapegrad.floor_divide(7, 2).item() == 3
    assert tapegrad.sub(2, tapegrad.tensor(1, dtype=tapegrad.int8)).dtype is tapegrad.int8
    assert tapegrad.add(2.5, tapegrad.tensor([1.0]), alpha=2).tolist() == [4.5]
    assert tapegrad.add(x1=tapegrad.ones(1), x2=tapegrad.ones(1)).tolist() == [2]
    assert tapegrad.exp(x=tapegrad.zeros(1)).tolist() == [1]
    with pytest.raises(TypeError, match="keyword"):
        tapegrad.exp(x=tapegrad.zeros(1), x1=tapegrad.zeros(1))
    for call in (
        lambda: tapegrad.eq(1, 1),
        lambda: tapegrad.dot(tapegrad.ones(2), 1),
        lambda: tapegrad.kron(tapegrad.ones(2), 1),
    ):
        with pytest.raises(TypeError, match="expected a Tensor"):
            call()


def test_lerp_of_half_precision_and_of_mixed_dtypes() -> None:
    x = tapegrad.full((4,), -30000.0, dtype=tapegrad.float16)
    y = tapegrad.full((4,), -20000.0, dtype=tapegrad.float16)
    assert tapegrad.lerp(x, y, tapegrad.full_like(x, 8)).tolist() == [49984.0] * 4
    wide = tapegrad.ones(4, dtype=tapegrad.float64)
    for call in (
        lambda: tapegrad.lerp(wide, tapegrad.ones(4), 1),
        lambda: tapegrad.lerp(wide, wide, tapegrad.ones(4)),
    ):
        with pytest.raises(RuntimeError, match="one dtype"):
            call()
    assert wide.lerp(wide * 3, tapegrad.tensor(0.5)).tolist() == [2] * 4


def test_joins_with_empty_vectors() -> None:
    empty = tapegrad.empty(0, dtype=tapegrad.float64)
    assert tapegrad.cat([empty, empty], dim=1).shape == (0,)
    joined = tapegrad.cat([empty, tapegrad.ones(2, 3)], dim=1)
    assert joined.shape == (2, 3)
    assert joined.dtype is tapegrad.float64


def test_index_tensors_need_values_of_the_same_dtype() -> None:
    x = tapegrad.zeros(3, 2, dtype=tapegrad.float64)
    for key, value in (
        ([0], tapegrad.ones(2)),
        (x == 0, tapegrad.ones(6)),
        ([1], tapegrad.tensor(1)),
    ):
        with pytest.raises(RuntimeError, match="needs a value of dtype"):
            x[key] = value
    x[0] = tapegrad.tensor([1, 2])
    x[x == 0] = tapegrad.tensor(7)
    assert x.tolist() == [[1, 2], [7, 7], [7, 7]]


def test_searching_numbers_among_integers() -> None:
    edges = tapegrad.tensor([1, 2, 3])
    assert tapegrad.bucketize(1.5, edges).item() == 1
    assert tapegrad.searchsorted(edges, 1.5, right=True).item() == 1
    assert tapegrad.special.xlog1py(tapegrad.ones(2), 5).dtype is tapegrad.float32
    with pytest.raises(RuntimeError, match="minlength"):
        tapegrad.bincount(edges, minlength=-1)
    with pytest.raises(RuntimeError, match="weight for each"):
        tapegrad.bincount(edges, tapegrad.ones(2))


def test_sizes_that_no_memory_holds() -> None:
    for refused in (
        lambda: tapegrad.empty(2, 4, 2**29, 2**29, dtype=tapegrad.float64),
        lambda: tapegrad.empty(0, 4, 2**61),
        lambda: tapegrad.empty_strided((8, 8), (2**61, 1)),
    ):
        with pytest.raises(RuntimeError, match="too large"):
            refused()
    with pytest.raises(RuntimeError, match="elements"):
        tapegrad.arange(0, 2**70)
    with pytest.raises(RuntimeError, match="elements"):
        tapegrad.arange(-1e308, 1e308)
    with pytest.raises(RuntimeError, match="does not hold all numbers below 257"):
        tapegrad.randperm(257, dtype=tapegrad.uint8)
    assert tapegrad.randperm(256, dtype=tapegrad.uint8).sort().values.tolist() == list(range(256))
    assert tapegrad.randint(5, (2, 3), layout=tapegrad.strided, pin_memory=False).shape == (2, 3)
    with pytest.raises(RuntimeError, match="too wide"):
        tapegrad.empty(3).uniform_(-3e38, 3e38)
    with pytest.raises(RuntimeError, match="floating"):
        tapegrad.ones(3, dtype=tapegrad.int64).uniform_()


def test_tensors_of_files(tmp_path: Path) -> None:
    file = tmp_path / "numbers"
    tapegrad.arange(4.0).numpy().tofile(file)
    private = tapegrad.from_file(str(file), size=4)
    private[0] = 5
    shared = tapegrad.from_file(str(file), shared=True, size=6, dtype=tapegrad.float32)
    assert shared.tolist() == [0, 1, 2, 3, 0, 0]
    shared[1] = 7
    assert tapegrad.from_file(str(file), size=4).tolist() == [0, 7, 2, 3]
    assert private.tolist()[0] == 5
    assert private.untyped_storage().filename is None
    assert shared.untyped_storage().filename == str(file)


def test_a_tensor_becomes_a_strided_view_of_itself() -> None:
    x = tapegrad.arange(6.0, requires_grad=True)
    y = x * 2
    assert y.as_strided_((2, 2), (2, 1), 1) is y
    assert y.tolist() == [[2, 4], [6, 8]]
    y.sum().backward()
    assert x.grad.tolist() == [0, 2, 2, 2, 2, 0]
    with pytest.raises(RuntimeError, match="sizes, but"):
        y.detach().as_strided_((1,), ())


def test_default_types_by_name() -> None:
    try:
        tapegrad.set_default_tensor_type("torch.DoubleTensor")
        assert tapegrad.ones(1).dtype is tapegrad.float64
        tapegrad.set_default_tensor_type(tapegrad.FloatTensor)
        assert tapegrad.ones(1).dtype is tapegrad.float32
        for wrong in ("torch.IntTensor", "FloatTensors"):
            with pytest.raises(TypeError):
                tapegrad.set_default_tensor_type(wrong)
    finally:
        tapegrad.set_default_dtype(tapegrad.float32)


def test_bounds_and_sorters_that_do_not_fit() -> None:
    x = tapegrad.tensor([3.0, 1.0, 2.0])
    for refused in (
        lambda: tapegrad.histogram(x, x.double()),
        lambda: tapegrad.histogram(x, x[:0]),
        lambda: tapegrad.histogram(x, x.reshape(1, 3)),
        lambda: tapegrad.searchsorted(x, x, sorter=tapegrad.tensor([1, 2])),
        lambda: tapegrad.searchsorted(x, x, sorter=x),
        lambda: tapegrad.take_along_dim(x, tapegrad.tensor([0], dtype=tapegrad.int32), 0),
        lambda: tapegrad.cumulative_trapezoid(x, dx=1j),
    ):
        with pytest.raises(RuntimeError, match="need"):
            refused()
    with pytest.raises(TypeError, match="either"):
        tapegrad.histogram(x, x, range=(0, 1))
    with pytest.raises(TypeError, match="either"):
        tapegrad.cumulative_trapezoid(x, x, dx=2)
    assert tapegrad.ones(1, 2).expand(0, 2).add_(1).shape == (0, 2)
    assert tapegrad.geqrf(tapegrad.rand(3, 3))[0].mT.is_contiguous()


NEGATIVE = {
    "gather": lambda x, i: tapegrad.gather(x, 0, i),
    "scatter": lambda x, i: x.scatter(0, i, 1.0),
    "scatter_add": lambda x, i: x.scatter_add(0, i, tapegrad.ones(2)),
    "scatter_reduce": lambda x, i: x.scatter_reduce(0, i, tapegrad.ones(2), "sum"),
    "index_select": lambda x, i: x.index_select(0, i),
    "index_add": lambda x, i: x.index_add(0, i, tapegrad.ones(2)),
    "index_copy": lambda x, i: x.index_copy(0, i, tapegrad.ones(2)),
    "index_reduce": lambda x, i: x.index_reduce(0, i, tapegrad.ones(2), "prod"),
}


@pytest.mark.parametrize("name", NEGATIVE)
def test_positions_count_from_zero(name: str) -> None:
    call, x = NEGATIVE[name], tapegrad.arange(3.0)
    good, bad = tapegrad.tensor([0, 2]), tapegrad.tensor([0, -1])
    expected = call(x, good).tolist()
    compiled = tapegrad.compile(call)
    for _ in range(3):
        assert compiled(x, good).tolist() == expected
    for function in (call, compiled):
        for wrong in (bad, tapegrad.tensor([0, 3])):
            with pytest.raises((IndexError, RuntimeError), match="out of range"):
                function(x, wrong)


def test_one_value_for_elements_that_share_memory() -> None:
    x = tapegrad.empty_strided((2, 3), (1, 0))
    assert x.fill_(2.0).tolist() == [[2, 2, 2], [2, 2, 2]]
    assert x.zero_().sum().item() == 0
    with pytest.raises(RuntimeError, match="share memory"):
        x.add_(1)


REDUCTIONS = "sum mean prod std var amax amin all any logsumexp nansum count_nonzero squeeze flip"


@pytest.mark.parametrize("name", REDUCTIONS.split())
def test_dims_of_tensors_without_any(name: str) -> None:
    x, function = tapegrad.tensor(3.0), getattr(tapegrad, name)
    for dim in (1, -2):
        with pytest.raises(IndexError, match="out of range"):
            function(x, dim)
    if name not in ("std", "var"):
        assert function(x, 0).shape == function(x, -1).shape == ()


def test_pieces_that_cannot_be() -> None:
    x = tapegrad.tensor(3.0)
    for refused in (
        lambda: x.split(1),
        lambda: x.chunk(1),
        lambda: tapegrad.ones(3).expand(-1, 2, 3),
        lambda: tapegrad.zeros(3).masked_scatter(tapegrad.ones(3) > 0, tapegrad.ones(2)),
        lambda: tapegrad.zeros(3).scatter(0, tapegrad.tensor([0]), 1.0, reduce="mean"),
    ):
        with pytest.raises(RuntimeError):
            refused()
    n = tapegrad.arange(1, 5)
    assert n.scatter(0, tapegrad.tensor([1, 1]), 3, reduce="multiply").tolist() == [1, 18, 3, 4]
    assert n.is_same_size(n + 1)
    assert not n.is_same_size(x)
    found = tapegrad.nonzero(n.reshape(2, 2))
    assert found.stride() == (1, 4)
    assert all(i.is_contiguous() for i in tapegrad.where(n.reshape(2, 2) > 1))


def test_memory_shared_with_forked_processes() -> None:
    x = tapegrad.nn.Parameter(tapegrad.arange(3.0))
    assert not x.is_shared()
    assert x.share_memory_() is x
    assert x.is_shared()
    assert x.requires_grad
    child = os.fork()
    if not child:
        x.detach()[1] = 7
        os._exit(0)
    os.waitpid(child, 0)
    assert x.tolist() == [0, 7, 2]
    pointer = x.data_ptr()
    assert x.share_memory_().data_ptr() == pointer


def test_functions_that_change_their_tensor() -> None:
    x = tapegrad.tensor([-1.0, 2.5])
    assert tapegrad.fix_(x) is x
    assert tapegrad.threshold_(x, 0.0, 5.0).tolist() == [5, 2]
    assert tapegrad.as_strided_(x, (1,), (1,), 1).tolist() == [2]


def test_numbers_that_a_dtype_does_not_hold() -> None:
    for refused in (
        lambda: tapegrad.tensor(300, dtype=tapegrad.uint8),
        lambda: tapegrad.tensor([1, 2**40], dtype=tapegrad.int32),
        lambda: tapegrad.tensor(math.nan, dtype=tapegrad.int64),
        lambda: tapegrad.randint(0, 257, (2,), dtype=tapegrad.uint8),
        lambda: tapegrad.randint(-32769, 0, (2,), dtype=tapegrad.int16),
        lambda: tapegrad.randint(0, 3, (2,), dtype=tapegrad.bool),
    ):
        with pytest.raises(RuntimeError, match="does not hold"):
            refused()
    with pytest.raises(ValueError, match="below 2"):
        tapegrad.tensor(2**63)
    with pytest.raises(TypeError, match="whole numbers"):
        tapegrad.randint(0.5, size=(2,))
    with pytest.raises(TypeError, match="needs a number"):
        tapegrad.full((2,), None)
    assert tapegrad.tensor(-1, dtype=tapegrad.uint8).item() == 255
    assert tapegrad.tensor(1.5, dtype=tapegrad.int64).item() == 1
    assert tapegrad.tensor([1e300, math.inf], dtype=tapegrad.float32).tolist() == [math.inf] * 2
    assert tapegrad.randint(0, 2, (5,), dtype=tapegrad.bool).dtype is tapegrad.bool
    assert tapegrad.randint(0, 256, (5,), dtype=tapegrad.uint8).dtype is tapegrad.uint8
    assert tapegrad.Tensor(tapegrad.ones(2, 3).shape).shape == (2, 3)
    assert tapegrad.full((2,), 1, layout=tapegrad.strided, pin_memory=False).tolist() == [1, 1]
    with pytest.raises(TypeError, match="unexpected keyword"):
        tapegrad.full((2,), 1, colour=3)


def test_constants_that_would_lose_their_gradient_are_refused() -> None:
    """A tensor that requires gradients is no constant, where an operation has no rule for it."""
    functional, x = tapegrad.nn.functional, tapegrad.tensor([[-1.0, 2.0], [3.0, -4.0]])
    heads = tapegrad.ones(1, 2, 2)
    calls = {
        "negative_slope": lambda v: functional.leaky_relu(x, v),
        "elu: alpha": lambda v: functional.elu(x, v),
        "celu: alpha": lambda v: functional.celu(x, v),
        "hardtanh: min_val": lambda v: functional.hardtanh(x, v, 5.0),
        "hardtanh: max_val": lambda v: functional.hardtanh(x, 0.0, v),
        "threshold: value": lambda v: functional.threshold(x, 0.0, v),
        "threshold: threshold": lambda v: functional.threshold(x, v, 0.0),
        "softplus: beta": lambda v: functional.softplus(x, v),
        "hardshrink": lambda v: functional.hardshrink(x, v),
        "softshrink": lambda v: functional.softshrink(x, v),
        "rrelu: upper": lambda v: functional.rrelu(x, 0.1, v),
        "dropout: p": lambda v: functional.dropout(x, v),
        "smooth_l1_loss": lambda v: functional.smooth_l1_loss(x, x + 1, beta=v),
        "huber_loss": lambda v: functional.huber_loss(x, x + 1, delta=v),
        "norm: p": lambda v: x.norm(v),
        "cdist: p": lambda v: tapegrad.cdist(x, x, v),
        "attention: scale": lambda v: functional.scaled_dot_product_attention(
            heads, heads, heads, scale=v
        ),
        "full": lambda v: tapegrad.full((2,), v),
        "layer_norm: eps": lambda v: functional.layer_norm(x, (2,), eps=v),
        "rms_norm: eps": lambda v: functional.rms_norm(x, (2,), eps=v),
        "group_norm: eps": lambda v: functional.group_norm(x, 1, eps=v),
        "batch_norm: eps": lambda v: functional.batch_norm(x, None, None, training=True, eps=v),
        "instance_norm: eps": lambda v: functional.instance_norm(heads, eps=v),
        "normalize: eps": lambda v: functional.normalize(x, eps=v),
        "cosine_similarity: eps": lambda v: functional.cosine_similarity(x, x, eps=v),
        "gaussian_nll_loss: eps": lambda v: functional.gaussian_nll_loss(x, x, x.abs(), eps=v),
    }
    learned = tapegrad.tensor(0.5, requires_grad=True)
    for told, call in calls.items():
        with pytest.raises(TypeError, match=f"{told}.* is a constant and gets no gradient"):
            call(learned)
        call(learned.detach())
        with tapegrad.no_grad():
            call(learned)


def test_a_list_that_contains_itself_is_no_tensor() -> None:
    alone: list[object] = []
    alone.append(alone)
    twice: list[object] = []
    twice += [twice, twice]
    beside: list[object] = [0]
    beside.append(beside)
    for data in (alone, twice, beside, [[1, 2], beside], [tapegrad.ones(1), beside]):
        for make in (tapegrad.tensor, tapegrad.as_tensor, tapegrad.Tensor):
            with pytest.raises(TypeError, match="list that contains itself"):
                make(data)
    row = [1, 2]
    for _ in range(7):
        row = [row, row]  # type: ignore[list-item]
    assert tapegrad.tensor(row).shape == (2,) * 8
