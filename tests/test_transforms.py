"""vmap and forward mode beside the sweeps: arguments, nesting, writes, randomness, layers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tapegrad as tg
from tapegrad import func, nn
from tapegrad.autograd import forward_ad


def f64(*shape: int, seed: int = 0) -> tg.Tensor:
    return tg.tensor(np.random.default_rng(seed).normal(size=shape))


def same(a: Any, b: Any) -> None:
    assert tuple(a.shape) == tuple(b.shape)
    np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-10, atol=1e-12)


def per_example(function: Any, *args: Any) -> Any:
    return tg.stack([function(*row) for row in zip(*args, strict=True)])


# -- dimensions --------------------------------------------------------------------------------


def test_in_dims_and_out_dims() -> None:
    x, y = f64(3, 4), f64(4, 3, seed=1)
    same(tg.vmap(tg.mul, in_dims=(0, 1))(x, y), x * y.t())
    same(tg.vmap(tg.mul, in_dims=(-2, -1))(x, y), x * y.t())
    same(tg.vmap(tg.mul, in_dims=(0, None))(x, y[:, 0]), x * y[:, 0])
    same(tg.vmap(tg.exp, in_dims=1)(x), x.t().exp())
    same(tg.vmap(tg.exp, out_dims=1)(x), x.t().exp())
    same(tg.vmap(tg.exp, in_dims=1, out_dims=-1)(x), x.exp())


def test_nested_structures() -> None:
    x, y = f64(3, 4), f64(3, 4, seed=1)

    def function(pair: Any, named: Any) -> Any:
        return {"sum": pair[0] + named["y"], "both": (pair[0] * pair[1], named["y"])}

    got = tg.vmap(function, in_dims=((0, None), {"y": 0}), out_dims={"sum": 1, "both": 0})(
        (x, y[0]), {"y": y}
    )
    same(got["sum"], (x + y).t())
    same(got["both"][0], x * y[0])
    same(got["both"][1], y)
    both = tg.vmap(lambda p: (p[0] + p[1], p[0]), in_dims=(0,), out_dims=(0, 1))([x, y])
    same(both[1], x.t())


def test_results_without_the_batch() -> None:
    x, w = f64(3, 4), f64(2, seed=1)
    _, b = tg.vmap(lambda x: (x.sum(), w))(x)
    same(b, w.expand(3, 2))
    _, b = tg.vmap(lambda x: (x.sum(), w), out_dims=(0, None))(x)
    same(b, w)


def test_keyword_arguments_are_shared() -> None:
    x, w = f64(3, 4), f64(4, seed=1)
    same(tg.vmap(lambda x, w: x * w)(x, w=w), x * w)


def test_nesting() -> None:
    x, y = f64(3, 2), f64(4, 2, seed=1)
    table = tg.vmap(lambda a: tg.vmap(lambda b: tg.dot(a, b))(y))(x)
    same(table, x @ y.t())
    table = tg.vmap(tg.vmap(tg.dot, in_dims=(None, 0)), in_dims=(0, None))(x, y)
    same(table, x @ y.t())
    z = f64(2, 3, 4, 5)
    same(tg.vmap(tg.vmap(tg.vmap(tg.sin)), in_dims=1, out_dims=1)(z), z.sin())


@pytest.mark.parametrize("chunk", [1, 2, 3, 7, 100])
def test_chunks(chunk: int) -> None:
    x, w = f64(7, 3), f64(3, 2, seed=1)
    got = tg.vmap(lambda x: (x @ w, x.sum()), out_dims=(1, 0), chunk_size=chunk)(x)
    same(got[0], (x @ w).t())
    same(got[1], x.sum(1))


def test_a_batch_of_nothing_and_of_one() -> None:
    assert tg.vmap(lambda x: (x * 2).sum())(tg.zeros(0, 3)).shape == (0,)
    assert tg.vmap(lambda x: x @ tg.ones(3, 2))(tg.zeros(0, 3)).shape == (0, 2)
    same(tg.vmap(tg.cumsum, in_dims=(0, None))(f64(1, 3), 0), f64(1, 3).cumsum(1))


def test_what_a_function_sees() -> None:
    seen = []

    def function(x: tg.Tensor) -> tg.Tensor:
        seen.append((tuple(x.shape), x.ndim, x.numel(), x.dtype, len(x), x.requires_grad))
        assert "BatchedTensor" in repr(x)
        return x

    tg.vmap(function)(f64(3, 4, 5))
    assert seen == [((4, 5), 2, 20, tg.float64, 4, False)]


def test_dtypes_promote_as_for_one_example() -> None:
    ints, halves = tg.arange(3), tg.ones(3, dtype=tg.float16)
    assert tg.vmap(lambda n, h: n * h)(ints, halves).dtype == tg.float16
    # An example without dimensions does not decide the dtype beside one that has some.
    one = tg.vmap(lambda x: x + tg.ones(2, dtype=tg.float16))(tg.ones(3))
    assert one.dtype == tg.float16


# -- errors ------------------------------------------------------------------------------------


def test_errors_of_arguments() -> None:
    x = f64(3, 4)
    with pytest.raises(ValueError, match="no input whose"):
        tg.vmap(lambda: x)()
    with pytest.raises(ValueError, match="in_dims must be an int or a tuple"):
        tg.vmap(tg.sin, in_dims=[0])(x)
    with pytest.raises(ValueError, match="an entry for each input"):
        tg.vmap(tg.sin, in_dims=(0, 0))(x)
    with pytest.raises(ValueError, match="in_dims has 2 for a tensor of 2 dimensions"):
        tg.vmap(tg.sin, in_dims=2)(x)
    with pytest.raises(ValueError, match="only tensors have examples"):
        tg.vmap(lambda x, n: x)(x, 3)
    with pytest.raises(ValueError, match="None for all"):
        tg.vmap(tg.sin, in_dims=(None,))(x)
    with pytest.raises(ValueError, match="different numbers of examples"):
        tg.vmap(tg.add)(x, f64(4, 4))
    with pytest.raises(ValueError, match="it must return tensors"):
        tg.vmap(lambda x: 3)(x)
    with pytest.raises(ValueError, match="out_dims=None expects"):
        tg.vmap(tg.sin, out_dims=None)(x)
    with pytest.raises(ValueError, match="nested like the outputs"):
        tg.vmap(tg.sin, out_dims=(0, 0))(x)
    with pytest.raises(ValueError, match="chunk_size"):
        tg.vmap(tg.sin, chunk_size=0)
    with pytest.raises(RuntimeError, match="randomness"):
        tg.vmap(tg.sin, randomness="maybe")
    with pytest.raises(ValueError, match="out_dims must have ints"):
        tg.vmap(tg.sin, out_dims="a")(x)


def test_values_cannot_be_read() -> None:
    x = f64(3)
    for read in (
        lambda x: x.item(),
        lambda x: float(x),
        lambda x: x.tolist(),
        lambda x: x.numpy(),
        lambda x: x if x > 0 else -x,
        lambda x: np.asarray(x),
        lambda x: tg.tensor(x),
        lambda x: x.nonzero(),
        lambda x: tg.zeros(3)[x > 0],
    ):
        with pytest.raises((RuntimeError, ValueError), match="vmap"):
            tg.vmap(read)(x)


def test_a_kept_tensor_is_refused() -> None:
    kept: list[Any] = []
    tg.vmap(lambda x: kept.append(x) or x)(f64(3, 2))  # type: ignore[func-returns-value]
    with pytest.raises(RuntimeError, match="vmap"):
        kept[0] + 1
    with pytest.raises(RuntimeError, match="kept and used after"):
        tg.vmap(lambda x: x + kept[0])(f64(3, 2))


def test_modes_are_left_after_an_error() -> None:
    def fails(x: tg.Tensor) -> tg.Tensor:
        raise KeyError("x")

    with pytest.raises(KeyError):
        tg.vmap(fails)(f64(3))
    with pytest.raises(KeyError):
        func.jvp(fails, (f64(3),), (f64(3),))
    assert (f64(3) + 1).shape == (3,)
    same(tg.vmap(tg.sin)(f64(3)), f64(3).sin())


# -- writes ------------------------------------------------------------------------------------


def test_writes_inside() -> None:
    def function(x: tg.Tensor, y: tg.Tensor) -> tg.Tensor:
        z = x.clone()
        z[0] = y.sum()
        z[1:].mul_(2).add_(y[1:])
        z.t_() if z.ndim == 2 else z.neg_()
        return z

    x, y = f64(3, 4), f64(3, 4, seed=1)
    same(tg.vmap(function)(x, y), per_example(function, x, y))


def test_gradients_through_writes() -> None:
    def function(x: tg.Tensor) -> tg.Tensor:
        z = x * 2
        part = z[1:3]
        part.mul_(x[:2])
        z[0] = x[3] ** 2
        z.exp_()
        return (z * x).sum() + part.sum()

    x = f64(3, 4)
    same(tg.vmap(func.grad(function))(x), per_example(func.grad(function), x))
    outer = func.grad(lambda x: tg.vmap(function)(x).sum())(x)
    same(outer, per_example(func.grad(function), x))
    v = f64(3, 4, seed=1)
    got = tg.vmap(lambda x, v: func.jvp(function, (x,), (v,))[1])(x, v)
    same(got, (outer * v).sum(1))


def test_a_batch_cannot_be_written_into_one_example() -> None:
    with pytest.raises(RuntimeError, match="would write values of all examples"):
        tg.vmap(lambda x: tg.zeros(4).add_(x))(f64(3, 4))
    with pytest.raises(RuntimeError, match="would write values of all examples"):
        tg.vmap(lambda x: tg.zeros(4).copy_(x))(f64(3, 4))

    def indexed(x: tg.Tensor) -> tg.Tensor:
        z = tg.zeros(4, dtype=tg.float64)
        z[0] = x[0]
        return z

    with pytest.raises(RuntimeError, match="would write values of all examples"):
        tg.vmap(indexed)(f64(3, 4))
    # In forward mode, what the function made itself may get a tangent.
    value, tangent = func.jvp(indexed, (f64(4),), (tg.ones(4, dtype=tg.float64),))
    assert tangent.tolist() == [1, 0, 0, 0]
    assert value[0] == f64(4)[0]


def test_writes_reach_the_callers_memory() -> None:
    x = f64(3, 4)
    before = x.clone()
    tg.vmap(lambda x: x.mul_(2))(x)
    same(x, before * 2)


def test_a_leaf_is_not_overwritten_inside() -> None:
    def function(x: tg.Tensor) -> tg.Tensor:
        x.mul_(2)
        return x.sum()

    with pytest.raises(RuntimeError, match="leaf"):
        tg.vmap(func.grad(function))(f64(3, 4))


def test_saved_values_that_were_overwritten_are_an_error() -> None:
    def function(x: tg.Tensor) -> tg.Tensor:
        y = x.exp()
        z = y * y
        y.add_(1)
        return z.sum()

    with pytest.raises(RuntimeError, match="changed in place"):
        tg.vmap(func.grad(function))(f64(3, 4))


# -- randomness --------------------------------------------------------------------------------


def test_randomness() -> None:
    x = tg.zeros(5, 100)
    with pytest.raises(RuntimeError, match="whether examples share"):
        tg.vmap(lambda x: x + tg.rand(100))(x)
    with pytest.raises(RuntimeError, match="whether examples share"):
        tg.vmap(lambda x: tg.dropout(x, 0.5, True))(x)
    same_draws = tg.vmap(lambda x: x + tg.randn(100), randomness="same")(x)
    assert (same_draws == same_draws[0]).all()
    other = tg.vmap(lambda x: x + tg.randn(100), randomness="different")(x)
    assert len({tuple(row) for row in other.tolist()}) == 5
    dropped = tg.vmap(lambda x: tg.dropout(x, 0.5, True), randomness="different")(x + 1)
    assert len({tuple(row) for row in dropped.tolist()}) == 5
    dropped = tg.vmap(lambda x: tg.dropout(x, 0.5, True), randomness="same")(x + 1)
    assert (dropped == dropped[0]).all()
    shuffled = tg.vmap(lambda x: tg.randperm(20), randomness="different")(x)
    assert (shuffled.sort(1).values == tg.arange(20)).all()
    assert len({tuple(row) for row in shuffled.tolist()}) == 5


def test_randomness_of_nested_and_chunked_maps() -> None:
    x = tg.zeros(3, 4, 50)
    draw = lambda x: x + tg.rand(50)  # noqa: E731
    inner = tg.vmap(tg.vmap(draw, randomness="different"), randomness="same")(x)
    assert (inner == inner[0]).all()
    assert not (inner[0, 0] == inner[0, 1]).any()
    outer = tg.vmap(tg.vmap(draw, randomness="same"), randomness="different")(x)
    assert (outer == outer[:, :1]).all()
    assert not (outer[0] == outer[1]).any()
    chunked = tg.vmap(draw, randomness="same", chunk_size=2)(tg.zeros(5, 50))
    assert (chunked == chunked[0]).all()


# -- layers ------------------------------------------------------------------------------------


def stateless(model: nn.Module) -> Any:
    return {name: p.detach() for name, p in model.named_parameters()}


def check_per_sample(model: nn.Module, x: tg.Tensor, y: tg.Tensor, loss: Any) -> None:
    """Per-sample gradients equal those of a loop, eagerly and compiled."""

    def of_one(params: Any, x: tg.Tensor, y: tg.Tensor) -> tg.Tensor:
        return loss(func.functional_call(model, params, (x[None],)), y[None])

    params = stateless(model)
    gradient = func.grad(of_one)
    mapped = func.vmap(gradient, in_dims=(None, 0, 0))
    got = mapped(params, x, y)
    compiled = tg.compile(mapped)
    again = [compiled(params, x, y) for _ in range(4)][-1]
    each = [gradient(params, a, b) for a, b in zip(x, y, strict=True)]
    for name in params:
        expected = tg.stack([e[name] for e in each])
        np.testing.assert_allclose(got[name].numpy(), expected.numpy(), rtol=1e-8, atol=1e-10)
        np.testing.assert_allclose(again[name].numpy(), expected.numpy(), rtol=1e-8, atol=1e-10)


def test_per_sample_gradients_of_an_mlp() -> None:
    model = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.LayerNorm(8), nn.Linear(8, 3)).double()
    check_per_sample(model, f64(6, 5), tg.arange(6) % 3, nn.functional.cross_entropy)


def test_per_sample_gradients_of_a_cnn() -> None:
    model = nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(4, 4, 3, groups=2),
        nn.GroupNorm(2, 4),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(4, 3),
    ).double()
    check_per_sample(model, f64(5, 2, 8, 8), tg.arange(5) % 3, nn.functional.cross_entropy)


def test_per_sample_gradients_of_a_transformer_layer() -> None:
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True).double()
    check_per_sample(layer, f64(4, 5, 8), f64(4, 5, 8, seed=1), nn.functional.mse_loss)


@pytest.mark.parametrize("kind", [nn.RNN, nn.LSTM, nn.GRU])
def test_per_sample_gradients_of_recurrent_layers(kind: Any) -> None:
    class Last(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = kind(3, 4, batch_first=True)

        def forward(self, x: tg.Tensor) -> tg.Tensor:
            return self.layer(x)[0][:, -1]

    check_per_sample(Last().double(), f64(3, 5, 3), f64(3, 4, seed=1), nn.functional.mse_loss)


def test_batch_norm_in_training_is_refused() -> None:
    norm = nn.BatchNorm1d(3)
    with pytest.raises(RuntimeError, match="vmap"):
        tg.vmap(norm)(tg.randn(4, 5, 3))
    frozen = nn.BatchNorm1d(3).eval()
    x = tg.randn(4, 5, 3)
    assert tg.vmap(frozen)(x).allclose(tg.stack([frozen(a) for a in x]))
    without = nn.BatchNorm1d(3, track_running_stats=False)
    assert tg.vmap(without)(x).allclose(tg.stack([without(a) for a in x]), atol=1e-5)


def test_ensembles() -> None:
    models = [nn.Linear(3, 2) for _ in range(4)]
    params, buffers = func.stack_module_state(models)
    assert params["weight"].shape == (4, 2, 3)
    assert params["weight"].requires_grad
    assert buffers == {}
    x = tg.randn(5, 3)
    call = lambda p, b, x: func.functional_call(models[0], (p, b), (x,))  # noqa: E731
    out = tg.vmap(call, in_dims=(0, 0, None))(params, buffers, x)
    assert out.allclose(tg.stack([m(x) for m in models]), atol=1e-6)
    out.sum().backward()
    expected = tg.stack([x.sum(0).expand(2, 3) for _ in models])
    assert params["weight"].grad.allclose(expected, atol=1e-5)
    with pytest.raises(RuntimeError, match="different classes"):
        func.stack_module_state([nn.Linear(2, 2), nn.ReLU()])
    with pytest.raises(RuntimeError, match="at least one model"):
        func.stack_module_state([])


# -- compiled functions ------------------------------------------------------------------------


def test_a_compiled_function_inside() -> None:
    inner = tg.compile(lambda x: (x.sin() * 2).sum())
    for _ in range(3):
        inner(f64(4))
    x = f64(3, 4)
    for _ in range(4):
        same(tg.vmap(inner)(x), (x.sin() * 2).sum(1))
        same(tg.vmap(func.grad(inner))(x), x.cos() * 2)
        same(func.jvp(inner, (x[0],), (x[1],))[1], (x[0].cos() * 2 * x[1]).sum())


@pytest.mark.parametrize(
    "function",
    [
        tg.vmap(lambda x: tg.softmax(x, 0).log().sum()),
        tg.vmap(func.hessian(lambda x: (x**3).prod())),
        lambda x: func.jvp(lambda x: x.sin().cumsum(0), (x,), (x * 2,))[1],
        func.jacfwd(lambda x: x[0] * x.exp().sum()),
        func.jacrev(lambda x: x[0] * x.exp().sum()),
        tg.vmap(lambda x: x[x.argmax()] * x.sort().values),
        tg.vmap(lambda x: x.clone().mul_(2).index_fill_(0, tg.tensor([1]), 3.0)),
    ],
)
def test_compiled_transforms(function: Any) -> None:
    x = f64(3, 4)
    compiled = tg.compile(function)
    for k in range(5):
        y = x + k
        same(compiled(y), function(y))


# -- forward mode ------------------------------------------------------------------------------


def test_dual_levels() -> None:
    x, t = f64(3), f64(3, seed=1)
    with forward_ad.dual_level():
        d = forward_ad.make_dual(x, t)
        out = (d.sin() * d).sum()
        value, tangent = forward_ad.unpack_dual(out)
        same(value, (x.sin() * x).sum())
        same(tangent, ((x.cos() * x + x.sin()) * t).sum())
        assert forward_ad.unpack_dual(x) == (x, None)
        assert forward_ad.unpack_dual(d.detach()).tangent is None
        assert "tangent" in repr(d)
        with pytest.raises(RuntimeError, match="do not nest"):
            forward_ad.enter_dual_level()
    assert forward_ad.unpack_dual(d).tangent is None
    same(d + 1, x + 1)
    with pytest.raises(RuntimeError, match="an open level"):
        forward_ad.make_dual(x, t)
    with pytest.raises(RuntimeError, match="order opposite"):
        forward_ad.exit_dual_level()


def test_errors_of_dual_tensors() -> None:
    x = f64(3)
    with forward_ad.dual_level():
        with pytest.raises(ValueError, match="floating"):
            forward_ad.make_dual(tg.arange(3), tg.ones(3))
        with pytest.raises(RuntimeError, match="shape of its tensor"):
            forward_ad.make_dual(x, f64(4))
        with pytest.raises(RuntimeError, match="dtype"):
            forward_ad.make_dual(x, tg.ones(3))


def test_backward_of_dual_tensors() -> None:
    x, t = f64(3).requires_grad_(), f64(3, seed=1)
    with forward_ad.dual_level():
        y = (forward_ad.make_dual(x, t) ** 3).sum()
        tangent = forward_ad.unpack_dual(y).tangent
        (g,) = tg.autograd.grad(tangent, x, retain_graph=True)
        same(g, 6 * x * t)
        (g,) = tg.autograd.grad(y, x, create_graph=True)
        same(forward_ad.unpack_dual(g).primal, 3 * x**2)
        same(forward_ad.unpack_dual(g).tangent, 6 * x * t)


def test_dual_tensors_written_in_place() -> None:
    x, t = f64(4), f64(4, seed=1)
    with forward_ad.dual_level():
        d = forward_ad.make_dual(x.clone(), t.clone())
        view = d[1:3]
        view.mul_(2)
        d[0] = 5.0
        same(forward_ad.unpack_dual(d).tangent, t * tg.tensor([0.0, 2.0, 2.0, 1.0]))
        same(forward_ad.unpack_dual(d).primal[1:], x[1:] * tg.tensor([2.0, 2.0, 1.0]))
        empty = tg.zeros(2, 4, dtype=tg.float64)
        empty[1] = d
        same(forward_ad.unpack_dual(empty).tangent[1], forward_ad.unpack_dual(d).tangent)


def test_parameters_as_dual_tensors() -> None:
    layer = nn.Linear(3, 2).double()
    x = f64(4, 3)
    direction = f64(2, 3, seed=1)
    with forward_ad.dual_level():
        weight = forward_ad.make_dual(layer.weight, direction)
        out = func.functional_call(layer, {"weight": weight}, (x,))
        same(forward_ad.unpack_dual(out).tangent, x @ direction.t())


def test_mixed_modes_agree() -> None:
    f = lambda x: (x.exp() * x.roll(1)).sum() ** 2  # noqa: E731
    x = f64(4)
    expected = func.jacrev(func.jacrev(f))(x)
    same(func.jacfwd(func.jacfwd(f))(x), expected)
    same(func.jacfwd(func.jacrev(f))(x), expected)
    same(func.jacrev(func.jacfwd(f))(x), expected)
    same(func.hessian(f)(x), expected)
    xs = f64(3, 4)
    same(func.vmap(func.hessian(f))(xs), tg.stack([func.hessian(f)(x) for x in xs]))
    same(func.jacfwd(func.vmap(f))(xs).diagonal(0, 0, 1).t(), func.vmap(func.grad(f))(xs))
    third = func.jacfwd(func.jacfwd(func.jacfwd(lambda x: (x**4).sum())))(x)
    same(third[1, 1, 1], 24 * x[1])


def test_jvp_arguments() -> None:
    x = f64(3)
    with pytest.raises(RuntimeError, match="a tuple of primals"):
        func.jvp(tg.sin, x, x)
    with pytest.raises(RuntimeError, match="same nested form"):
        func.jvp(tg.mul, (x, x), (x,))
    with pytest.raises(RuntimeError, match="shape"):
        func.jvp(tg.sin, (x,), (f64(4),))
    _, tangent, aux = func.jvp(lambda x: (x * 2, {"x": x}), (x,), (x,), has_aux=True)
    same(tangent, x * 2)
    assert type(aux["x"]) is tg.Tensor
    with pytest.raises(RuntimeError, match="strict"):
        func.jvp(lambda x: tg.ones(3), (x,), (x,), strict=True)
    _, tangent = func.jvp(lambda x: tg.ones(3), (x,), (x,))
    assert tangent.tolist() == [0, 0, 0]
    _, tangent = func.jvp(lambda d: d["a"] * d["b"], ({"a": x, "b": x},), ({"a": x, "b": x},))
    same(tangent, 2 * x * x)


def test_captured_tensors_get_no_tangent_by_a_write() -> None:
    outside = tg.zeros(3, dtype=tg.float64)
    with pytest.raises(RuntimeError, match="from outside"):
        func.jvp(lambda x: outside.copy_(x), (f64(3),), (f64(3),))


def test_hooks_inside() -> None:
    def function(x: tg.Tensor) -> tg.Tensor:
        y = x * 2
        y.register_hook(lambda g: g * 10)
        return y.sum()

    assert tg.vmap(func.grad(function))(tg.ones(2, 3)).tolist() == [[20.0] * 3] * 2


def test_no_grad_inside() -> None:
    def function(x: tg.Tensor) -> tg.Tensor:
        with tg.no_grad():
            shift = x**2
        return (x**2 - shift).sum()

    x = f64(3, 4)
    same(tg.vmap(func.grad(function))(x), 2 * x)
    x = x.requires_grad_()
    tg.vmap(function)(x).sum().backward()
    same(x.grad, 2 * x)


def test_parameters_outside_get_gradients() -> None:
    layer = nn.Linear(3, 1).double()
    x = f64(5, 3)
    tg.vmap(layer)(x).sum().backward()
    same(layer.weight.grad, x.sum(0, keepdim=True))
    # A gradient taken inside stays connected to what is outside.
    layer.zero_grad()
    slopes = tg.vmap(func.grad(lambda x: layer(x).sin().sum()))(x)
    slopes.sum().backward()
    w = layer.weight.detach().requires_grad_()
    b = layer.bias.detach()
    expected = ((x @ w.t() + b).cos() * w).sum()
    same(layer.weight.grad, tg.autograd.grad(expected, w)[0])


# -- functions of users ------------------------------------------------------------------------


class Cube(tg.autograd.Function):
    """With a rule that vmap makes, and a jvp."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Any) -> Any:
        return x**3, 3 * x**2

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(inputs[0], output[1])
        ctx.save_for_forward(inputs[0], output[1])

    @staticmethod
    def backward(ctx: Any, g: Any, g_slope: Any) -> Any:
        x, slope = ctx.saved_tensors
        return g * slope + g_slope * 6 * x

    @staticmethod
    def jvp(ctx: Any, t: Any) -> Any:
        x, slope = ctx.saved_tensors
        return t * slope, t * 6 * x


class Scaled(tg.autograd.Function):
    """With a rule of its own, and neither jvp nor an input in its gradient that is a tensor."""

    calls: list[Any] = []  # noqa: RUF012

    @staticmethod
    def forward(x: Any, w: Any, factor: float) -> Any:
        return x * w * factor

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        x, w, ctx.factor = inputs
        ctx.save_for_backward(x, w)

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        x, w = ctx.saved_tensors
        return g * w * ctx.factor, g * x * ctx.factor, None

    @staticmethod
    def vmap(info: Any, in_dims: Any, x: Any, w: Any, factor: float) -> Any:
        Scaled.calls.append((info.batch_size, info.randomness, in_dims))
        x = x.movedim(in_dims[0], 0) if in_dims[0] is not None else x
        w = w.movedim(in_dims[1], 0) if in_dims[1] is not None else w
        return Scaled.apply(x, w, factor), 0


def test_functions_with_a_generated_rule() -> None:
    x = f64(3, 4)
    f = lambda x: (Cube.apply(x)[0] * x).sum()  # noqa: E731
    plain = lambda x: (x**4).sum()  # noqa: E731
    same(tg.vmap(f)(x), tg.vmap(plain)(x))
    same(tg.vmap(func.grad(f))(x), 4 * x**3)
    same(func.grad(lambda x: tg.vmap(f)(x).sum())(x), 4 * x**3)
    same(func.grad(lambda x: tg.vmap(func.grad(f))(x).sum())(x), 12 * x**2)
    same(tg.vmap(func.grad(lambda x: func.grad(f)(x).sum()))(x), 12 * x**2)
    same(tg.vmap(func.hessian(f))(x), tg.vmap(func.hessian(plain))(x))
    v = f64(3, 4, seed=1)
    same(func.jvp(lambda x: Cube.apply(x)[0], (x,), (v,))[1], 3 * x**2 * v)
    got = tg.vmap(lambda x, v: func.jvp(lambda x: Cube.apply(x)[1], (x,), (v,))[1])(x, v)
    same(got, 6 * x * v)
    same(func.jvp(func.grad(f), (x,), (v,))[1], 12 * x**2 * v)
    same(func.jvp(tg.vmap(f), (x,), (v,))[1], (4 * x**3 * v).sum(1))
    y = tg.vmap(tg.vmap(lambda x: Cube.apply(x)[0]))(x)
    same(y, x**3)


def test_functions_with_a_rule_of_their_own() -> None:
    x, w = f64(3, 4), f64(4, seed=1)
    Scaled.calls.clear()
    same(tg.vmap(lambda x: Scaled.apply(x, w, 2.0))(x), x * w * 2)
    assert Scaled.calls == [(3, "error", (0, None, None))]
    g = tg.vmap(func.grad(lambda x, w: Scaled.apply(x, w, 2.0).sum(), argnums=(0, 1)), (0, None))
    got = g(x, w)
    same(got[0], (w * 2).expand(3, 4))
    same(got[1], x * 2)
    outer = func.grad(lambda w: tg.vmap(lambda x: Scaled.apply(x, w, 2.0))(x).sum())(w)
    same(outer, x.sum(0) * 2)
    same(func.jvp(lambda w: Scaled.apply(x[0], w, 3.0), (w,), (w,))[1], x[0] * w * 3)
    with forward_ad.dual_level():
        d = forward_ad.make_dual(w, w)
        same(forward_ad.unpack_dual(Scaled.apply(x[0], d, 3.0)).tangent, x[0] * w * 3)


def test_functions_without_a_rule() -> None:
    class Plain(tg.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g * 2

    class Both(Plain):
        generate_vmap_rule = True

        @staticmethod
        def vmap(info: Any, in_dims: Any, x: Any) -> Any:
            return x * 2, in_dims[0]

    x = f64(3)
    with pytest.raises(RuntimeError, match="cannot run on a batch"):
        tg.vmap(Plain.apply)(x)
    with pytest.raises(RuntimeError, match="keep one of the two"):
        tg.vmap(Both.apply)(x)
    same(func.jvp(Plain.apply, (x,), (x,))[1], x * 2)
    same(tg.vmap(lambda v: func.jvp(Plain.apply, (x,), (v,))[1])(f64(2, 3)), f64(2, 3) * 2)


def test_errors_of_a_jvp() -> None:
    class Wrong(tg.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            out = x.clone()
            ctx.mark_non_differentiable(out)
            return x * 2, out

        @staticmethod
        def jvp(ctx: Any, t: Any) -> Any:
            return t * 2, t

    class Few(tg.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2, x * 3

        @staticmethod
        def jvp(ctx: Any, t: Any) -> Any:
            return t * 2

    x = f64(3)
    with pytest.raises(RuntimeError, match="return None in its stead"):
        func.jvp(Wrong.apply, (x,), (x,))
    with pytest.raises(RuntimeError, match="1 tangents for 2 outputs"):
        func.jvp(Few.apply, (x,), (x,))


def test_batched_gradients() -> None:
    x = f64(3).requires_grad_()
    y = x**2
    rows = tg.eye(3, dtype=tg.float64)
    (got,) = tg.autograd.grad(y, x, rows, is_grads_batched=True)
    same(got, tg.diag(2 * x))
    (got, none) = tg.autograd.grad(
        [x**2, x.exp()], [x, tg.ones(2, requires_grad=True)], [rows, rows], is_grads_batched=True,
        allow_unused=True,
    )  # fmt: skip
    same(got, tg.diag(2 * x + x.exp()))
    assert none is None


def test_gradcheck_of_tangents_and_batches() -> None:
    x, y = f64(3).requires_grad_(), f64(2, 3, seed=1).requires_grad_()
    check = tg.autograd.gradcheck
    options = {"check_forward_ad": True, "check_batched_grad": True}
    options["check_batched_forward_grad"] = True
    assert check(lambda x, y: (x * y).sin().sum(0), (x, y), **options)
    assert tg.autograd.gradgradcheck(
        lambda x, y: (x * y).sin(), (x, y), check_fwd_over_rev=True, check_batched_grad=True
    )

    class Wrong(tg.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2

        @staticmethod
        def vjp(ctx: Any, g: Any) -> Any:
            return g * 2

        @staticmethod
        def jvp(ctx: Any, t: Any) -> Any:
            return t * 3

    assert check(Wrong.apply, (x,))
    with pytest.raises(RuntimeError, match="forward mode: the derivative of output 0"):
        check(Wrong.apply, (x,), check_forward_ad=True)
    with pytest.raises(ValueError, match="needs check_forward_ad"):
        check(Wrong.apply, (x,), check_batched_forward_grad=True)


def test_modules_taken_apart() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1)).double()
    with pytest.raises(RuntimeError, match="has buffers"):
        func.make_functional(model)
    f, params, buffers = func.make_functional_with_buffers(model.eval())
    x = f64(5, 3)
    same(f(params, buffers, x), model(x))
    plain = nn.Linear(3, 2).double()
    g, weights = func.make_functional(plain, disable_autograd_tracking=True)
    assert not any(w.requires_grad for w in weights)
    same(g(tuple(w * 2 for w in weights), x), plain(x) * 2)
    models = [nn.Linear(3, 2).double() for _ in range(3)]
    whole, stacked, none = func.combine_state_for_ensemble(models)
    out = tg.vmap(whole, in_dims=(0, 0, None))(stacked, none, x)
    same(out, tg.stack([m(x) for m in models]))
    func.replace_all_batch_norm_modules_(model.train())
    xs = f64(2, 5, 3)
    same(tg.vmap(model)(xs), tg.stack([model(x) for x in xs]))


def test_long_attention_in_batches() -> None:
    q, m = f64(2, 2, 300, 4), f64(2, 300, 300, seed=1)
    attend = lambda q, m: nn.functional.scaled_dot_product_attention(q, q, q, m)  # noqa: E731
    for x, mask in ((q, m), (q[:, 0], m)):
        same(tg.vmap(attend)(x, mask), per_example(attend, x, mask))
        same(tg.vmap(attend, in_dims=(0, None))(x, mask[0]), tg.stack([attend(a, m[0]) for a in x]))
    drop = lambda q: nn.functional.scaled_dot_product_attention(q, q, q, dropout_p=0.5)  # noqa: E731
    same_draw = tg.vmap(drop, randomness="same")(q[:1].expand(3, 2, 300, 4))
    assert (same_draw == same_draw[0]).all()


@pytest.mark.parametrize("empty", [(), [], {}, None, 3.0])
def test_functions_must_return_tensors(empty: Any) -> None:
    x = f64(3)
    for run in (
        lambda: func.vjp(lambda x: empty, x),
        lambda: func.jvp(lambda x: empty, (x,), (x,)),
        lambda: func.jacrev(lambda x: empty)(x),
        lambda: func.jacfwd(lambda x: empty)(x),
        lambda: func.grad(lambda x: empty)(x),
    ):
        with pytest.raises(RuntimeError):
            run()


def test_backward_inside_is_refused() -> None:
    w = f64(3).requires_grad_()

    def function(x: tg.Tensor) -> tg.Tensor:
        (x * w).sum().backward()
        return x

    with pytest.raises(RuntimeError, match="inside of vmap"):
        tg.vmap(function)(f64(2, 3))
    with pytest.raises(RuntimeError, match="inside of vmap"):
        func.jvp(function, (f64(3),), (f64(3),))
    assert w.grad is None
    with forward_ad.dual_level():
        (forward_ad.make_dual(f64(3), f64(3)) * w).sum().backward()
    same(w.grad, f64(3))
