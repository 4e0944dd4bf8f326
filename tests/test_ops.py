"""Every operation of the table, over all of its samples."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sweep import (
    NAMES,
    Arguments,
    array_of,
    assert_close,
    call,
    cases,
    differentiated,
    flat,
    gradients,
    mapped,
    some_cases,
    strided,
    tensors,
    transposed,
    weighted_sum,
    with_array,
)

import tapegrad
from tapegrad import Tape, Tensor
from tapegrad.core.primitive import ELEMENTWISE, PRIMITIVES, REDUCE
from tapegrad.ops import TABLE

each_op = pytest.mark.parametrize("name", NAMES)


# -- derivatives -------------------------------------------------------------------------------


def moved(arguments: Arguments, shifts: list[Any]) -> Arguments:
    """The arguments with the differentiated tensors moved."""
    steps = iter(shifts)
    return mapped(
        lambda x: with_array(x, np.asarray(x._array + next(steps))) if x.requires_grad else x,
        arguments,
    )


def directions(gradient: list[Any]) -> list[list[Any]]:
    """Random directions, and the gradient's own: along it the derivative is the norm."""
    rng = np.random.default_rng(1)

    def direction(g: Any) -> Any:
        if g.dtype.kind == "c":
            return rng.standard_normal(g.shape) + 1j * rng.standard_normal(g.shape)
        return rng.standard_normal(g.shape)

    found = [list(map(direction, gradient)) for _ in range(3)]
    norm = np.sqrt(sum(float((np.abs(g) ** 2).sum()) for g in gradient))
    if np.isfinite(norm) and norm > 0:
        found.append([g / norm for g in gradient])
    return found


def allowed(direction: list[Any], moves: str | None, arguments: Arguments) -> list[Any]:
    """A direction in which the arguments keep what the gradient takes for granted."""
    if moves == "symmetric":
        first, *rest = direction
        return [(first + first.swapaxes(-1, -2)) / 2, *rest]
    if moves == "nonzero":
        values = [x._array for x in differentiated(arguments)]
        return [np.where(x != 0, d, 0.0) for d, x in zip(direction, values, strict=True)]
    return direction


def check_derivative(
    function: Any, arguments: Arguments, gradient: list[Any], what: str, moves: str | None
) -> None:
    """Slopes of `function` by central differences equal the gradient times the direction."""
    eps = 1e-6
    scale = max([1.0, *(np.abs(g[np.isfinite(g)]).max(initial=0.0) for g in gradient)])
    for direction in directions(gradient):
        direction = allowed(direction, moves, arguments)
        above = function(moved(arguments, [eps * d for d in direction]))
        below = function(moved(arguments, [-eps * d for d in direction]))
        numerical = (above - below) / (2 * eps)
        analytical = sum(
            float((g.conj() * d).sum().real) for g, d in zip(gradient, direction, strict=True)
        )
        np.testing.assert_allclose(
            analytical, numerical, rtol=1e-5, atol=2e-7 * scale + 1e-8, err_msg=what
        )


def as_arrays(found: list[Tensor | None], inputs: list[Tensor]) -> list[Any]:
    return [
        np.zeros_like(x._array) if g is None else g._array
        for g, x in zip(found, inputs, strict=True)
    ]


@each_op
def test_first_derivatives(name: str) -> None:
    for op, sample, arguments in some_cases(name):
        result = call(op, arguments)
        inputs = differentiated(arguments)
        if not op.differentiable:
            assert not any(y.requires_grad for y in tensors(result)), f"{name}{sample}"
        if not inputs or not op.differentiable:
            continue
        found = as_arrays(gradients(result, inputs), inputs)

        def function(arguments: Arguments, op: Any = op) -> float:
            loss = weighted_sum(call(op, arguments))
            return 0.0 if loss is None else float(loss)

        check_derivative(function, arguments, found, f"{name}{sample}", op.moves)


@each_op
def test_second_derivatives(name: str) -> None:
    for op, sample, arguments in some_cases(name):
        inputs = differentiated(arguments)
        if not inputs or not op.differentiable:
            continue

        def slope(arguments: Arguments, op: Any = op) -> Tensor | None:
            inputs = differentiated(arguments)
            first = gradients(call(op, arguments), inputs, create_graph=True)
            return weighted_sum([g for g in first if g is not None], seed=2)

        def function(arguments: Arguments, slope: Any = slope) -> float:
            value = slope(arguments)
            return 0.0 if value is None else float(value)

        total = slope(arguments)
        if total is None:
            continue
        found = tapegrad.autograd.grad(total, inputs, allow_unused=True)
        second = as_arrays(list(found), inputs)
        check_derivative(function, arguments, second, f"{name}{sample}", op.moves)


@each_op
def test_backward_on_arrays_and_on_tensors_agree(name: str) -> None:
    for dtype in (tapegrad.float32, tapegrad.float64):
        for op, sample, arguments in some_cases(name, dtype):
            inputs = differentiated(arguments)
            raw = gradients(call(op, arguments), inputs)
            recorded = gradients(call(op, arguments), inputs, create_graph=True)
            for x, a, b in zip(inputs, raw, recorded, strict=True):
                assert (a is None) == (b is None), f"{name}{sample}"
                if a is not None and b is not None:
                    assert a.shape == b.shape == x.shape, f"{name}{sample}"
                    assert a.dtype is b.dtype is x.dtype, f"{name}{sample}"
                    assert not a.requires_grad
                    tolerance = 1e-6 if dtype is tapegrad.float32 else 1e-13
                    assert_close(a, b, tolerance, tolerance, f"{name}{sample}")


# -- values ------------------------------------------------------------------------------------


#: they raise where memory is not in order, which test_pieces.py checks
CONTIGUOUS_ONLY = (
    *("as_strided", "as_strided_copy", "view", "view_as", "view_as_complex", "view_copy"),
)


@pytest.mark.parametrize("name", [name for name in NAMES if name not in CONTIGUOUS_ONLY])
def test_layout_of_memory_does_not_matter(name: str) -> None:
    for layout in (strided, transposed):
        for op, sample, arguments in some_cases(name):
            other = mapped(layout, arguments)
            expected, got = call(op, arguments), call(op, other)
            for a, b in zip(flat(got), flat(expected), strict=True):
                assert_close(a, b, 1e-12, 1e-12, f"{name}{sample} {layout.__name__}")
            ours = gradients(got, differentiated(other))
            theirs = gradients(expected, differentiated(arguments))
            for g, h in zip(ours, theirs, strict=True):
                assert (g is None) == (h is None)
                if g is not None:
                    assert_close(g, h, 1e-11, 1e-11, f"{name}{sample} {layout.__name__}")


@each_op
def test_inputs_are_not_changed(name: str) -> None:
    for op, sample, arguments in some_cases(name):
        inputs = tensors([*arguments[0], *arguments[1].values()])
        before = [x._array.copy() for x in inputs]
        result = call(op, arguments)
        gradients(result, differentiated(arguments))
        gradients(call(op, arguments), differentiated(arguments), create_graph=True)
        for x, array in zip(inputs, before, strict=True):
            np.testing.assert_array_equal(x._array, array, err_msg=f"{name}{sample}")


@each_op
def test_results_are_finite_and_of_their_dtype(name: str) -> None:
    for op, sample, arguments in some_cases(name, tapegrad.float32):
        result = call(op, arguments)
        inputs = tensors([*arguments[0], *arguments[1].values()])
        odd = any(not np.isfinite(x._array).all() for x in inputs)
        for y in tensors(result):
            assert isinstance(y._array, np.ndarray), f"{name}{sample}"
            if y.dtype.is_floating_point:
                assert odd or np.isfinite(y._array).all(), f"{name}{sample}"
                assert y.dtype is RESULT_DTYPES.get((name, str(sample)), tapegrad.float32), sample
        for x, g in zip(
            differentiated(arguments), gradients(result, differentiated(arguments)), strict=True
        ):
            if g is not None:
                assert g.dtype is x.dtype, f"{name}{sample}"
                assert x.dtype in (tapegrad.float32, tapegrad.complex64), f"{name}{sample}"
                assert isinstance(g._array, np.ndarray)
                assert odd or np.isfinite(g._array).all(), f"{name}{sample}"


#: samples of float32 inputs whose result is another floating type, by design
RESULT_DTYPES: dict[tuple[str, str], Any] = {
    (name, str(sample)): tapegrad.float64
    for name in ("float_power", "to")
    for sample in (TABLE[name].samples or list)()
    if name == "float_power" or tapegrad.float64 in sample.args
}


@pytest.mark.sweep
@each_op
@pytest.mark.parametrize("dtype", [tapegrad.float16, tapegrad.bfloat16], ids=["half", "bfloat16"])
def test_half_precision(name: str, dtype: Any) -> None:
    limits = tapegrad.finfo(dtype)
    eps = limits.eps
    for op, sample, arguments in some_cases(name, dtype):
        given_tensors = tensors([*arguments[0], *arguments[1].values()])
        if any(x.dtype.is_complex for x in given_tensors):
            continue  # there is no complex half precision
        if op.half is not True:
            try:
                call(op, arguments)
            except RuntimeError as error:
                assert "does not exist for" in str(error), f"{name}{sample}"  # noqa: PT017
                continue
            assert op.half is None, f"{name}{sample}"
        wide = mapped(
            lambda x: (
                with_array(x, x._array.astype(np.float64)) if x.dtype.is_floating_point else x
            ),
            arguments,
        )
        got, expected = call(op, arguments), call(op, wide)
        inputs = tensors([*arguments[0], *arguments[1].values()])
        given = any(x.dtype is dtype for x in inputs)
        for a, b in zip(tensors(got), tensors(expected), strict=True):
            if b.dtype.is_floating_point:
                if given and (name, str(sample)) not in RESULT_DTYPES and name != "to":
                    assert a.dtype is dtype, f"{name}{sample}"
                b = np.clip(b._array, limits.min, limits.max)
                assert_close(a, b, 8 * eps, 8 * eps, f"{name}{sample}")
            else:
                assert a.dtype is b.dtype
        ours = gradients(got, differentiated(arguments))
        theirs = gradients(expected, differentiated(wide))
        for g, h in zip(ours, theirs, strict=True):
            if g is not None and h is not None:
                assert g.dtype is dtype, f"{name}{sample}"
                size = max(1.0, float(np.abs(h._array).max(initial=0.0)))
                assert_close(g, h, 32 * eps, 32 * eps * size, f"gradient of {name}{sample}")


# -- names -------------------------------------------------------------------------------------


@each_op
def test_every_name_is_the_same_function(name: str) -> None:
    op = TABLE[name]
    if op.module == "":
        for alias in (op.name, *op.aliases):
            assert getattr(tapegrad, alias) is op.function
    for method in op.methods:
        assert callable(getattr(Tensor, method))
    pure = [method for method in op.methods if not method.endswith("_")]
    for _, sample, arguments in some_cases(name):
        first, *rest = arguments[0]
        if pure and isinstance(first, Tensor):
            expected = call(op, arguments)
            for method in pure:
                got = getattr(first, method)(*rest, **arguments[1])
                for a, b in zip(flat(got), flat(expected), strict=True):
                    np.testing.assert_array_equal(
                        array_of(a), array_of(b), err_msg=f"{method}{sample}"
                    )


def test_names_of_numpy_are_accepted() -> None:
    x = tapegrad.arange(6.0).reshape(2, 3)
    assert x.sum(axis=1, keepdims=True).tolist() == [[3.0], [12.0]]
    assert tapegrad.max(x, axis=0).values.tolist() == [3.0, 4.0, 5.0]
    assert x.std(axis=0, keepdims=True).shape == (1, 3)
    assert tapegrad.cat([x, x], axis=1).shape == (2, 6)
    assert x.argmax(axis=1).tolist() == [2, 2]
    with pytest.raises(TypeError, match="both 'dim' and 'axis'"):
        x.sum(dim=0, axis=0)
    with pytest.raises(TypeError, match="unexpected keyword"):
        x.sum(dims=0)


def test_size_is_a_number_and_a_method() -> None:
    x = tapegrad.zeros(2, 3)
    assert x.size == 6
    assert x.size() == (2, 3)
    assert x.size(-1) == x.size(dim=1) == 3
    assert isinstance(x.size(), tapegrad.Size)
    with pytest.raises(IndexError, match="out of range"):
        x.size(2)


@pytest.mark.parametrize("dtype", [tapegrad.float16, tapegrad.bfloat16, tapegrad.float32])
def test_where_of_large_arrays_is_exact(dtype: Any) -> None:
    """Large arrays are chosen from by their bits: NaN, infinities and signs of zero stay."""
    rng = np.random.default_rng(0)
    odd = [np.nan, np.inf, -np.inf, -0.0, 0.0, 1.5]
    x, y = (tapegrad.tensor(rng.choice(odd, (64, 65)), dtype=dtype) for _ in range(2))
    condition = tapegrad.tensor(rng.random((64, 65)) < 0.5)
    for c in (condition, condition.t().contiguous().t()):
        for a, b in (
            *((x, y), (x, 0.0), (0.0, y), (x, -0.0), (-1.5, y), (x.t().contiguous().t(), y)),
            (x[:1].expand(64, 65), y),
        ):
            got = tapegrad.where(c, a, b)
            small = [
                tapegrad.where(c[i], *(v[i] if isinstance(v, Tensor) else v for v in (a, b)))
                for i in range(64)
            ]
            expected = bits_of(tapegrad.stack(small)._array)
            assert got.dtype is dtype
            np.testing.assert_array_equal(bits_of(got._array), expected)
            if str(b) == "0.0":
                raw = PRIMITIVES["where"](c._array, a._array, 0.0)
                np.testing.assert_array_equal(bits_of(raw), expected)


def bits_of(array: Any) -> Any:
    return np.ascontiguousarray(array.astype(np.float32)).view(np.int32)


# -- in-place variants -------------------------------------------------------------------------

CHANGING = [name for name in NAMES if any(m.endswith("_") for m in TABLE[name].methods)]


@pytest.mark.parametrize("name", CHANGING)
def test_in_place_equals_pure(name: str) -> None:
    method = next(m for m in TABLE[name].methods if m.endswith("_"))
    for op, sample, arguments in some_cases(name):
        x = arguments[0][0]
        if not isinstance(x, Tensor):
            continue
        expected = call(op, arguments)
        target = x.clone()
        fits = (
            np.broadcast_shapes(expected.shape, x.shape) == x.shape
            and expected.dtype.category <= x.dtype.category
        )
        if not fits:
            before = target._array.copy()
            with pytest.raises(RuntimeError):
                getattr(target, method)(*arguments[0][1:], **arguments[1])
            np.testing.assert_array_equal(target._array, before)
            continue
        if op.random:
            tapegrad.manual_seed(0)
        memory = target._array
        result = getattr(target, method)(*arguments[0][1:], **arguments[1])
        assert result is target, f"{method}{sample}"
        assert target._array is memory, f"{method}{sample}"
        assert target.dtype is x.dtype
        assert_close(target, expected, 1e-12, 1e-12, f"{method}{sample}")
        inputs = differentiated(arguments)
        for g, h in zip(gradients(target, inputs), gradients(expected, inputs), strict=True):
            if h is None:
                assert g is None or not g.any(), f"{method}{sample}"
            else:
                assert g is not None, f"{method}{sample}"
                assert_close(g, h, 1e-12, 1e-12, f"{method}{sample}")


# -- guards ------------------------------------------------------------------------------------


def test_every_op_has_samples() -> None:
    assert [name for name in NAMES if not TABLE[name].samples or not TABLE[name].samples()] == []


class Watching(Tape):
    """A tape that logs what is inside composites and backward passes too."""

    captures = True


#: primitives that no sample reaches
UNREACHED = {
    "all_gather_start": "begins what fully_shard gathers: tests/test_distributed_prefetching.py",
    "all_gather_wait": "ends it in compiled functions",
    "all_reduce_start": "begins what DistributedDataParallel reduces: tests/test_distributed.py",
    "all_reduce_wait": "ends it",
    "gradient_as": "averages gradients in another dtype: tests/test_distributed_sharding.py",
    "join_shards": "joins what fully_shard divides: tests/test_distributed_sharding.py",
    "reduce_scatter_start": "begins what a compiled step of fully_shard reduces",
    "reduce_scatter_wait": "ends it",
    "receive": "needs a sender: tests/test_distributed_dividing.py",
    "send": "needs a receiver",
    "unshard": "gathers what fully_shard divides: tests/test_distributed_sharding.py",
    "unshard_apart": "gathers where gradients are not sent: tests/test_distributed_prefetching.py",
    "unshard_apart_wait": "ends such a gather",
    "unshard_wait": "ends a gather",
    "to_device": "needs a GPU",
    "embedding_rows": "its gradient is sparse: tests/test_sparse.py",
    "random": "draws without inputs, so it is no op of the table",
    "beta_moment": "a part of gradients of samples: tests/test_distributions.py",
    "angle_moment": "a part of gradients of samples",
    "angle_quantile": "makes samples of angles",
    "log_bessel": "the normalizer of VonMises: tests/test_distributions.py",
    "binomial_quantile": "makes samples of uniform numbers, as the following do",
    "dirichlet_draw": "makes samples",
    "dirichlet_grad": "the gradient of samples",
    "gamma_cdf": "the distribution function of Gamma",
    "gamma_moment": "a part of gradients of samples",
    "gamma_quantile": "makes samples",
    "multinomial": "draws with weights: tests/test_distributions.py",
    "poisson_quantile": "makes samples",
    "standard_gamma_grad": "the gradient of samples",
    "shared_cast": "made by autocast for parameters, which tests/test_amp.py uses",
    "reserve": "moves the generator, for dropout in attention: tests/test_attention_dropout.py",
    "tiled_attention": "attention of long sequences: tests/test_attention.py",
    "tiled_attention_gradient": "its gradient",
    "shown": "made by a Function that returns a view, which tests/test_function.py has",
    "write": "changes of views in place, which tests/test_indexing.py makes",
}


def test_every_primitive_is_reached() -> None:
    reached: set[str] = set()
    for name in NAMES:
        for op, _, arguments in cases(name):
            for kind in (Tape, Watching):
                with kind() as tape:
                    try:
                        result = call(op, arguments)
                    except RuntimeError as error:
                        if "data" not in str(error):
                            raise
                        continue
                    inputs = differentiated(arguments)
                    first = gradients(result, inputs, create_graph=True)
                    gradients([g for g in first if g is not None], inputs, create_graph=True)
                reached.update(entry.primitive.name for entry in tape)
    missing = set(PRIMITIVES) - reached - set(UNREACHED)
    assert missing == set(), "no sample reaches these primitives"


#: primitives that have no gradient
NOT_DIFFERENTIABLE = {
    *("eq", "ne", "lt", "le", "gt", "ge", "isnan", "isinf", "isfinite", "any", "all"),
    *("logical_and", "logical_or", "logical_xor", "logical_not"),
    *("bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not"),
    *("bitwise_left_shift", "bitwise_right_shift"),
    *("argmax", "argmin", "argsort", "bag_winners", "one_hot", "searchsorted"),
    *("bin_counts", "mode_places"),
    *("gcd", "lcm", "nonzero_static", "pivot_rows", "running_places", "sign_det", "view_dtype"),
    "floor_divide",  # as in PyTorch
    "detach",  # cuts gradients
    "shown",  # its gradient is the user's
    *("all_gather_start", "all_reduce_start", "reduce_scatter_start"),  # work on gradients
    *("all_gather_wait", "all_reduce_wait", "reduce_scatter_wait"),
    *("random", "reserve"),
    *("binomial_quantile", "multinomial", "poisson_quantile"),
    "zero",  # nor do these depend on their input
    "zeros_as",
}


def test_every_primitive_has_rules_or_is_listed() -> None:
    without = {name for name, p in PRIMITIVES.items() if not p.differentiable}
    assert without == NOT_DIFFERENTIABLE


#: elementwise and reducing primitives that native code cannot fuse yet: a debt
OPAQUE_DEBT = {
    *("gcd", "lcm", "nextafter", "polygamma", "scaled_down"),
    *("gamma_cdf", "gamma_moment", "beta_moment"),
    *("standard_gamma_grad", "dirichlet_grad"),
    *("angle_moment", "angle_quantile", "log_bessel"),
    *("gamma_quantile", "poisson_quantile", "binomial_quantile"),
}
#: ... those that SciPy computes
OPAQUE_DEBT |= {
    *("airy_ai", "airy_slope", "bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1", "erfcx"),
    *("hermite_polynomial_h", "hermite_polynomial_he", "i0", "i0e", "i1", "i1e", "igamma"),
    *("igammac", "laguerre_polynomial_l", "legendre_polynomial_p", "log_ndtr", "ndtri", "zeta"),
    *("modified_bessel_k0", "modified_bessel_k1"),
    *("scaled_modified_bessel_k0", "scaled_modified_bessel_k1"),
    *(f"chebyshev_polynomial_{kind}" for kind in "tuvw"),
    *(f"shifted_chebyshev_polynomial_{kind}" for kind in "tuvw"),
}


def test_every_fusible_primitive_has_an_expression() -> None:
    without = {
        name
        for name, p in PRIMITIVES.items()
        if p.kind in (ELEMENTWISE, REDUCE) and p.expression is None and not p.composite
    }
    assert without == OPAQUE_DEBT


def test_array_of_accepts_numbers() -> None:
    assert array_of(True).dtype == np.bool_


def test_cut_division_of_integers_keeps_all_digits() -> None:
    x = tapegrad.tensor([2**62 + 1, -(2**62) - 1, 7, -7, -8])
    assert tapegrad.div(x, 1, rounding_mode="trunc").tolist() == x.tolist()
    assert tapegrad.div(x, 4, rounding_mode="trunc").tolist() == [2**60, -(2**60), 1, -1, -2]
    assert tapegrad.div(x, -4, rounding_mode="trunc").tolist() == [-(2**60), 2**60, -1, 1, 2]
    small = tapegrad.tensor([250, 7], dtype=tapegrad.uint8)
    assert tapegrad.div(small, 3, rounding_mode="trunc").tolist() == [83, 2]
    with pytest.raises(RuntimeError, match="division by zero"):
        tapegrad.div(x, 0, rounding_mode="trunc")
