"""Details of PyTorch's behaviour, stated in numbers: orders, types, kinks, empty input."""

from __future__ import annotations

import math
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import tapegrad as tg
from tapegrad import nn
from tapegrad.nn import functional as F

nan, inf = math.nan, math.inf


def same(a: Any, b: Any) -> bool:
    return bool(
        np.array_equal(np.asarray(a, np.float64), np.asarray(b, np.float64), equal_nan=True)
    )


def gradient(function: Callable[..., Any], *x: float, dtype: Any = tg.float32) -> list[float]:
    """The gradient of the sum of a function."""
    leaf = tg.tensor(list(x), dtype=dtype, requires_grad=True)
    function(leaf).sum().backward()
    assert leaf.grad is not None
    return leaf.grad.tolist()


# -- values and orders -------------------------------------------------------------------------


def test_flip_of_no_dimensions_reverses_nothing() -> None:
    x = tg.arange(4).reshape(2, 2)
    assert x.flip(()).tolist() == x.flip([]).tolist() == [[0, 1], [2, 3]]


@pytest.mark.parametrize("dtype", [tg.bfloat16, tg.float16, tg.float32])
def test_nan_is_the_largest(dtype: Any) -> None:
    x = tg.tensor([2.0, nan, 1.0, -inf, inf], dtype=dtype)
    assert same(x.sort().values.tolist(), [-inf, 1, 2, inf, nan])
    assert same(x.sort(descending=True).values.tolist(), [nan, inf, 2, 1, -inf])
    assert x.argsort().tolist() == [3, 2, 0, 4, 1]
    assert same(x.topk(2).values.tolist(), [nan, inf])
    assert math.isnan(x.median().item())
    assert x.kthvalue(2).values.item() == 1
    assert same(x.unique().tolist(), [-inf, 1, 2, inf, nan])


def test_unique_keeps_every_nan() -> None:
    x = tg.tensor([nan, 1.0, nan, 1.0])
    values, inverse, counts = x.unique(return_inverse=True, return_counts=True)
    assert same(values.tolist(), [1, nan, nan])
    assert inverse.tolist() == [1, 0, 2, 0]
    assert counts.tolist() == [2, 1, 1]


def test_an_index_may_be_a_tuple_in_a_tuple() -> None:
    x = tg.arange(9).reshape(3, 3)
    assert x[(0, 2),].tolist() == [[0, 1, 2], [6, 7, 8]]
    assert x[:, (0, 2)].tolist() == [[0, 2], [3, 5], [6, 8]]
    x[(0, 2),] = 5
    assert x.tolist() == [[5, 5, 5], [3, 4, 5], [5, 5, 5]]


def test_empty_tensors_have_the_pieces_that_were_asked_for() -> None:
    assert [tuple(p.shape) for p in tg.zeros(0, 3).chunk(3, 0)] == [(0, 3)] * 3
    assert [tuple(p.shape) for p in tg.zeros(0, 3).chunk(2, 1)] == [(0, 2), (0, 1)]
    assert tuple(tg.combinations(tg.arange(3), r=0).shape) == (0,)
    assert tg.zeros(0, 3).logsumexp(0).tolist() == [-inf] * 3
    assert tuple(tg.zeros(0, 3).logsumexp(1).shape) == (0,)
    assert tuple(F.glu(tg.zeros(0), 0).shape) == (0,)
    assert tuple(F.glu(tg.zeros(3, 0)).shape) == (3, 0)
    assert math.isnan(F.cross_entropy(tg.zeros(0, 3), tg.zeros(0, dtype=tg.int64)).item())
    assert tuple(F.adaptive_avg_pool2d(tg.zeros(1, 1, 4, 4), 0).shape) == (1, 1, 0, 0)


def test_logsumexp_of_nothing_has_a_gradient() -> None:
    x = tg.zeros(0, 3, requires_grad=True)
    x.logsumexp(0).sum().backward()
    assert x.grad is not None
    assert tuple(x.grad.shape) == (0, 3)


@pytest.mark.parametrize(
    ("shape", "strides"),
    [((0,), (1,)), ((0, 3), (3, 1)), ((3, 0), (1, 1)), ((2, 0, 3), (3, 3, 1)), ((0, 0), (1, 1))],
)
def test_strides_of_empty_tensors(shape: tuple[int, ...], strides: tuple[int, ...]) -> None:
    assert tg.zeros(shape).stride() == strides
    assert [tg.zeros(shape).stride(d) for d in range(len(shape))] == list(strides)


# -- types -------------------------------------------------------------------------------------


def test_pythons_float_means_float64() -> None:
    assert tg.ones(2, dtype=float).dtype is tg.float64
    assert tg.ones(2).to(float).dtype is tg.float64
    assert tg.ones(2, dtype=tg.int32).sum(dtype=float).dtype is tg.float64
    assert tg.ones(2, dtype=int).dtype is tg.int64
    assert tg.ones(2, dtype=bool).dtype is tg.bool


def test_a_tensor_of_tensors_has_a_type_that_holds_them() -> None:
    def one(value: float, dtype: Any) -> Any:
        return tg.tensor(value, dtype=dtype)

    assert tg.tensor([one(1, tg.int32), one(2, tg.int32)]).dtype is tg.int32
    assert tg.tensor([one(1, tg.float64)]).dtype is tg.float64
    assert tg.tensor([1.0, one(1, tg.float64)]).dtype is tg.float64
    assert tg.tensor([1, one(1, tg.float16)]).dtype is tg.float16
    assert tg.tensor([one(1, tg.int8), 2]).dtype is tg.int64
    assert tg.tensor([[one(3, tg.uint8)]]).tolist() == [[3]]
    assert tg.tensor([[one(3, tg.uint8)]]).dtype is tg.uint8
    assert tg.tensor([tg.tensor([1])]).tolist() == [1]
    with pytest.raises(RuntimeError, match="one element"):
        tg.tensor([tg.tensor([1, 2])])


def test_any_of_bytes_is_a_byte() -> None:
    x = tg.tensor([[0, 2]], dtype=tg.uint8)
    for found, value in ((x.any(), 1), (x.all(), 0), (x.any((0, 1)), 1)):
        assert found.dtype is tg.uint8
        assert found.item() == value
    assert x.all(dim=0, keepdim=True).tolist() == [[0, 1]]
    assert x.to(tg.int8).any().dtype is tg.bool


def test_padding_of_packed_sequences_keeps_the_type() -> None:
    packed = nn.utils.rnn.pack_sequence([tg.tensor([1, 2, 3]), tg.tensor([4])])
    padded, _ = nn.utils.rnn.pad_packed_sequence(packed)
    assert padded.dtype is tg.int64
    assert padded.tolist() == [[1, 4], [2, 0], [3, 0]]
    padded, _ = nn.utils.rnn.pad_packed_sequence(packed, padding_value=-1)
    assert padded.tolist() == [[1, 4], [2, -1], [3, -1]]


# -- half precision ----------------------------------------------------------------------------


def test_a_number_that_half_precision_cannot_hold() -> None:
    x = tg.tensor([100.0], dtype=tg.float16)
    expected = float(np.float16(100 / 1e5))
    assert (x / 1e5).item() == tg.tensor(100.0, dtype=tg.float16).div(1e5).item() == expected
    assert x.clone().div_(1e5).item() == expected
    assert (x / tg.tensor(1e5)).item() == expected
    assert (x / 1e5).dtype is tg.float16
    assert (x * 1e-6).item() == (1e-6 * x).item() == float(np.float16(1e-4))
    assert (tg.tensor([1e-4], dtype=tg.float16) * 1e5).item() == 10
    assert (tg.tensor([100.0], dtype=tg.bfloat16) * 1.00390625).item() == 100.5
    scaled = tg.compile(lambda x: x / 1e5)
    for _ in range(3):
        assert scaled(x).item() == expected


def test_a_number_that_half_precision_cannot_hold_has_a_gradient() -> None:
    for function, factor in (
        (lambda x: x / 1e5, 1e-5),
        (lambda x: x * 1e-6, 1e-6),
        (lambda x: x * tg.tensor(1e-6), 1e-6),
    ):
        x = tg.tensor([100.0], dtype=tg.float16, requires_grad=True)
        function(x).backward(tg.tensor([1000.0], dtype=tg.float16))
        assert x.grad is not None
        assert x.grad.dtype is tg.float16
        assert x.grad.item() == float(np.float16(1000 * factor))
    scale = tg.tensor(1e5, requires_grad=True)
    (tg.tensor([0.5], dtype=tg.float16) * scale).backward(tg.tensor([2.0], dtype=tg.float16))
    assert scale.grad is not None
    assert scale.grad.item() == 1
    assert scale.grad.dtype is tg.float32


def test_hardshrink_compares_with_the_rounded_threshold() -> None:
    x = tg.tensor([0.3, 0.3007, -0.3, 0.5], dtype=tg.bfloat16)
    assert F.hardshrink(x, 0.3).tolist() == [0, 0, 0, 0.5]
    assert gradient(lambda x: F.hardshrink(x, 0.3), 0.3, 0.5, dtype=tg.bfloat16) == [0, 1]
    assert gradient(lambda x: F.softshrink(x, 0.3), 0.3, 0.5, dtype=tg.bfloat16) == [0, 1]
    assert gradient(lambda x: F.threshold(x, 0.3, 9.0), 0.3, 0.2, dtype=tg.bfloat16) == [1, 0]


ACTIVATIONS = [
    *("mish", "silu", "gelu", "softplus", "elu", "selu", "celu", "logsigmoid", "softsign"),
    *("hardswish", "hardsigmoid"),
]


@pytest.mark.parametrize("dtype", [tg.float16, tg.bfloat16])
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_gradients_of_half_precision_round_once(name: str, dtype: Any) -> None:
    function = getattr(F, name)
    x = tg.linspace(-8, 8, 33).to(dtype)
    half, wide = (x.clone().to(d).requires_grad_() for d in (dtype, tg.float32))
    function(half).sum().backward()
    function(wide).sum().backward()
    assert half.grad is not None
    assert wide.grad is not None
    assert half.grad.tolist() == wide.grad.to(dtype).tolist()
    big = x.repeat(100).requires_grad_()  # native code
    function(big).sum().backward()
    assert big.grad is not None
    np.testing.assert_allclose(big.grad[:33].float(), half.grad.float(), rtol=2e-2, atol=1e-6)


# -- gradients ---------------------------------------------------------------------------------


def test_gradients_at_kinks() -> None:
    assert gradient(F.hardswish, -3.0, 3.0, -4.0, 4.0) == [0, 1, 0, 1]
    assert gradient(F.hardsigmoid, -3.0, 3.0) == [0, 0]
    assert gradient(F.relu6, 0.0, 6.0) == [0, 0]


def test_the_row_of_padding_gets_no_gradient_of_nan() -> None:
    bad = tg.tensor([[1.0, 2.0], [nan, inf], [nan, 1.0]])
    for options in ({}, {"scale_grad_by_freq": True}):
        weight = tg.zeros(3, 2, requires_grad=True)
        F.embedding(tg.tensor([0, 1, 1]), weight, padding_idx=1, **options).backward(bad)
        assert weight.grad is not None
        assert weight.grad.tolist() == [[1, 2], [0, 0], [0, 0]]


def test_writes_through_data_are_not_changes() -> None:
    for dtype in (tg.float32, tg.bfloat16):
        x = tg.ones(2, dtype=dtype, requires_grad=True)
        y = x * 2
        z = y * y
        y.data.mul_(3)
        assert y._version == 0
        assert y.tolist() == [6, 6]
        z.sum().backward()
        assert x.grad is not None
        assert x.grad.tolist() == [24, 24]
    x = tg.ones(2, 3)
    x.t().data[0].fill_(7)
    assert x.tolist() == [[7, 1, 1], [7, 1, 1]]
    assert x._version == 0
    x.detach().add_(1)
    assert x._version == 1


def test_an_expanded_tensor_is_writable_if_nothing_is_repeated() -> None:
    x = tg.ones(1)
    x.expand(1).add_(1)
    assert x.tolist() == [2]
    y = tg.ones(2)
    y.expand(1, 2).mul_(3)
    assert y.tolist() == [3, 3]
    leaf = tg.ones(2, requires_grad=True)
    z = leaf * 1
    z.expand(1, 2).mul_(5)
    z.sum().backward()
    assert leaf.grad is not None
    assert leaf.grad.tolist() == [5, 5]
    with pytest.raises(RuntimeError, match="clone"):
        tg.ones(1).expand(2).add_(1)


@pytest.mark.parametrize(
    "parts",
    [
        lambda x: x.unbind(0),
        lambda x: x.split(1),
        lambda x: x.chunk(2),
        lambda x: [part[0] for part in x.split(1)],
        list,
    ],
)
def test_one_of_several_views_is_not_changed_where_gradients_are_recorded(parts: Any) -> None:
    x = tg.ones(2, 2, requires_grad=True).clone()
    first = parts(x)[0]
    with pytest.raises(RuntimeError, match="several views"):
        first.add_(1)
    with tg.no_grad():
        first.add_(1)
    plain = tg.ones(2, 2)
    part = parts(plain)[0]
    part.add_(1)
    assert plain.sum().item() == 6
    with pytest.raises(RuntimeError, match="several views"):
        part.add_(tg.ones(2, requires_grad=True))
    x = tg.ones(2, 2, requires_grad=True).clone()
    first = parts(x)[0]
    x.mul_(2)
    with pytest.raises(RuntimeError, match="several views"):
        first.sum()


def test_a_view_of_no_grad_is_not_changed_where_gradients_are_recorded() -> None:
    x = tg.ones(2, 2, requires_grad=True).clone()
    with tg.no_grad():
        view = x[0]
        other = x.view(4)
    for v in (view, other, view[:1]):
        with pytest.raises(RuntimeError, match="no_grad mode"):
            v.add_(1)
    with tg.no_grad():
        view.add_(1)
    assert x.tolist() == [[2, 2], [1, 1]]
    assert not (view * 2).requires_grad
    plain = tg.ones(2, 2)
    with tg.no_grad():
        view = plain[0]
    view.add_(1)
    with pytest.raises(RuntimeError, match="no_grad mode"):
        view.add_(tg.ones(2, requires_grad=True))
    assert plain.tolist() == [[2, 2], [1, 1]]


def test_a_hook_after_accumulation_returns_nothing() -> None:
    x = tg.ones(2, requires_grad=True)
    x.register_post_accumulate_grad_hook(lambda p: p.grad)
    with pytest.raises(RuntimeError, match="return None"):
        (x * 2).sum().backward()


def test_backward_hooks_run_once_under_double_backward() -> None:
    calls: list[str] = []
    layer = nn.Tanh()
    layer.register_full_backward_hook(lambda *a: calls.append("after"))
    layer.register_full_backward_pre_hook(lambda *a: calls.append("before"))
    x = tg.ones(2, requires_grad=True)
    (g,) = tg.autograd.grad(layer(x).sum(), x, create_graph=True)
    assert g is not None
    assert calls == ["before", "after"]
    g.sum().backward()
    assert calls == ["before", "after"]


def test_setup_context_sees_defaults() -> None:
    class Scaled(tg.autograd.Function):
        @staticmethod
        def forward(x: Any, factor: float = 3.0) -> Any:  # type: ignore[override]
            return x * factor

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            _, ctx.factor = inputs

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:  # type: ignore[override]
            return g * ctx.factor, None

    x = tg.ones(1, requires_grad=True)
    y = Scaled.apply(x)
    assert y.grad_fn.factor == 3
    y.backward()
    assert x.grad is not None
    assert x.grad.item() == 3


def test_backward_inside_of_backward_2000_deep() -> None:
    class Nested(tg.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            with tg.enable_grad():
                ctx.x = x.detach().requires_grad_()
                ctx.y = ctx.x - 1
            return ctx.y.detach()

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            if ctx.x.item() < 0:
                return g
            with tg.enable_grad():
                Nested.apply(ctx.y).sum().backward()
            return ctx.x.grad

    x = tg.tensor(2000.0, requires_grad=True)
    Nested.apply(x).backward()
    assert x.grad is not None
    assert x.grad.item() == 1
    assert all(t.name != "tapegrad-backward" for t in threading.enumerate())


def test_gradcheck_changes_the_inputs_themselves() -> None:
    x = tg.tensor([1.0, 2.0], dtype=tg.float64, requires_grad=True)
    assert tg.autograd.gradcheck(lambda _: x * x, (x,))
    assert x.tolist() == [1, 2]
    assert x._version == 0
    with pytest.raises(RuntimeError, match="stride 0"):
        tg.autograd.gradcheck(lambda x: x * 2, (x.expand(3, 2),))


# -- modes -------------------------------------------------------------------------------------


def test_generators_keep_their_mode() -> None:
    seen: list[Any] = []

    @tg.no_grad()
    def numbers() -> Iterator[int]:
        seen.append(tg.is_grad_enabled())
        try:
            sent = yield 1
        except ValueError:
            seen.append("caught")
            sent = 0
        try:
            seen.append((sent, tg.is_grad_enabled()))
            yield 2
        finally:
            seen.append(tg.is_grad_enabled())
        return 3

    run = numbers()
    assert next(run) == 1
    assert tg.is_grad_enabled()
    assert run.throw(ValueError) == 2
    assert tg.is_grad_enabled()
    run.close()
    assert seen == [False, "caught", (0, False), False]


def test_inference_mode_off_inside_of_it() -> None:
    with tg.inference_mode():
        with tg.inference_mode(False):
            assert tg.is_grad_enabled()
            assert not tg.is_inference_mode_enabled()
            assert (tg.ones(1, requires_grad=True) * 2).requires_grad
        assert not tg.is_grad_enabled()
        assert tg.is_inference_mode_enabled()


def test_a_decorated_class_has_a_decorated_constructor() -> None:
    class Model:
        def __init__(self) -> None:
            self.mode = tg.is_grad_enabled()

    with pytest.warns(FutureWarning, match="class"):
        decorated = tg.no_grad()(Model)
    assert decorated is Model
    assert not Model().mode


# -- layers ------------------------------------------------------------------------------------


def test_track_running_stats_may_be_switched_off_later() -> None:
    layer = nn.BatchNorm1d(2)
    layer.track_running_stats = False
    layer(tg.tensor([[1.0, 2.0], [3.0, 5.0]]))
    assert layer.running_mean.tolist() == [0, 0]
    assert layer.num_batches_tracked.item() == 0
    assert layer.eval()(tg.ones(1, 2)).tolist()[0][0] == pytest.approx(1, abs=1e-4)
    averaging = nn.BatchNorm1d(2, momentum=None)
    averaging.track_running_stats = False
    averaging(tg.tensor([[1.0, 2.0], [3.0, 5.0]]))
    assert averaging.running_mean.tolist() == [0, 0]


def test_queries_that_see_no_key() -> None:
    tg.manual_seed(0)
    layer = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True).eval()
    x = tg.randn(2, 3, 4)
    padding = tg.tensor([[True] * 3, [False, False, True]])
    assert not layer(x, src_key_padding_mask=padding).isnan().any()
    with warnings.catch_warnings(), tg.no_grad():
        warnings.simplefilter("ignore")
        out = layer(x, src_key_padding_mask=padding)
        assert out[0].isnan().all()
        assert not out[1].isnan().any()
        encoder = nn.TransformerEncoder(layer, 2).eval()
        out = encoder(x, src_key_padding_mask=padding)
        assert (out[0] == 0).all()
        assert (out[1, 2] == 0).all()
        assert not (out[1, :2] == 0).any()
        unaligned = tg.tensor([[True, False, False], [False, False, True]])
        assert not (encoder(x, src_key_padding_mask=unaligned) == 0).any()


@pytest.mark.parametrize(
    "call",
    [
        lambda: F.avg_pool1d(tg.zeros(1, 0, 4), 2),
        lambda: F.avg_pool2d(tg.zeros(1, 0, 4, 4), 2),
        lambda: F.max_pool1d(tg.zeros(1, 1, 0), 1),
        lambda: F.max_pool2d(tg.zeros(1, 0, 4, 4), 2),
        lambda: F.max_pool3d(tg.zeros(1, 0, 4, 4, 4), 2),
        lambda: F.fractional_max_pool2d(tg.zeros(1, 0, 5, 5), 2, output_size=2),
        lambda: F.adaptive_max_pool2d(tg.zeros(1, 0, 4, 4), 2),
        lambda: F.adaptive_avg_pool3d(tg.zeros(1, 0, 4, 4, 4), 2),
        lambda: tg.meshgrid(tg.ones(2), tg.ones(2, dtype=tg.int64), indexing="ij"),
        lambda: tg.cartesian_prod(tg.ones(2), tg.ones(2, dtype=tg.float64)),
    ],
)
def test_what_pytorch_refuses(call: Callable[[], Any]) -> None:
    with pytest.raises(RuntimeError):
        call()


def test_pooling_of_an_empty_batch() -> None:
    assert tuple(F.max_pool2d(tg.zeros(0, 1, 4, 4), 2).shape) == (0, 1, 2, 2)
    assert tuple(F.avg_pool2d(tg.zeros(0, 1, 4, 4), 2).shape) == (0, 1, 2, 2)
    assert tuple(F.adaptive_avg_pool2d(tg.zeros(1, 0, 4, 4), 2).shape) == (1, 0, 2, 2)


def test_group_norm_needs_two_values() -> None:
    for call in (
        lambda: nn.GroupNorm(2, 2)(tg.ones(1, 2)),
        lambda: F.group_norm(tg.ones(1, 2, 1), 2),
    ):
        with pytest.raises(ValueError, match="more than 1 value"):
            call()
    assert nn.GroupNorm(1, 2)(tg.ones(1, 2)).tolist() == [[0, 0]]
    assert nn.GroupNorm(2, 2)(tg.ones(2, 2)).tolist() == [[0, 0], [0, 0]]


def test_import_paths() -> None:
    from tapegrad.autograd.function import Function, FunctionCtx, once_differentiable

    assert once_differentiable is tg.autograd.function.once_differentiable
    assert Function is tg.autograd.Function
    assert FunctionCtx is tg.autograd.function.FunctionCtx


def test_tensors_that_share_data_count_changes_together() -> None:
    for dtype in (tg.float32, tg.bfloat16):
        a, b = tg.ones(2, dtype=dtype), tg.zeros(2, dtype=dtype)
        b.data = a.data
        b.add_(1)
        assert a.tolist() == [2, 2]
        assert a._version == b._version == 1


# -- refusals ----------------------------------------------------------------------------------


def test_a_spread_without_degrees_of_freedom_warns() -> None:
    with pytest.warns(UserWarning, match="degrees of freedom"):
        assert math.isnan(tg.ones(1).var().item())


def test_integers_of_tensors_with_several_elements() -> None:
    for convert in (int, float):
        with pytest.raises(ValueError, match="is not one number"):
            convert(tg.ones(2))
    with pytest.raises(RuntimeError, match="one element"):
        tg.ones(2).item()


def test_a_later_ellipsis_stands_for_nothing() -> None:
    x = tg.arange(8).reshape(2, 2, 2)
    assert x[0, ..., 1, ...].tolist() == [1, 3]
    assert x[..., ...].tolist() == x.tolist()


def test_truth_values_have_no_sign() -> None:
    with pytest.raises(NotImplementedError, match="bool"):
        +tg.ones(2, dtype=tg.bool)
    x = tg.ones(2)
    assert +x is x


def test_linear_with_a_weight_of_one_dimension() -> None:
    weight = tg.arange(3.0).requires_grad_()
    out = F.linear(tg.ones(4, 3), weight, tg.tensor(1.0))
    assert out.tolist() == [4.0] * 4
    out.sum().backward()
    assert weight.grad is not None
    assert weight.grad.tolist() == [4.0] * 3


def test_addcdiv_divides_no_integers() -> None:
    with pytest.raises(RuntimeError, match="integers"):
        tg.addcdiv(tg.ones(1), tg.tensor([2]), tg.tensor([3]))


def test_each_resize_counts_as_a_change() -> None:
    x = tg.zeros(1)
    x.resize_((1, 2))
    assert x._version == 1
    x.resize_as_(tg.zeros(3))
    assert x._version == 2
    x.resize_(3)
    assert x._version == 2
    x.resize_(2)
    assert x._version == 3


def test_functional_call_takes_mappings() -> None:
    with pytest.raises(ValueError, match="mappings"):
        tg.func.functional_call(nn.Linear(2, 1), 3, tg.ones(2))


@pytest.mark.parametrize("compiled", [False, True])
def test_a_transposed_convolution_of_windows_that_move_far(compiled: bool) -> None:
    # Cut into loops for each of the 4096 positions inside a step, it hung while it was compiled.
    weight = tg.arange(4096.0).reshape(1, 1, 16, 16, 16)
    x = tg.tensor([[[[[2.0]], [[3.0]]]]])

    def run(x: tg.Tensor) -> tg.Tensor:
        return F.conv_transpose3d(x, weight, stride=16)

    call = tg.compile(run) if compiled else run
    out = [call(x) for _ in range(3)][-1]
    assert out.shape == (1, 1, 32, 16, 16)
    assert bool((out == tg.cat([2 * weight, 3 * weight], 2)).all())


@pytest.mark.parametrize("dtype", [tg.float16, tg.float32, tg.float64])
def test_drawn_numbers_have_no_memory_to_spare(dtype: Any) -> None:
    for draw in (tg.rand, tg.randn):
        assert [len(draw(n, dtype=dtype).storage()) for n in (0, 1, 4, 5)] == [0, 1, 4, 5]
