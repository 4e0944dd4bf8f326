"""Native code of single operations: equal to eager, and which still run as NumPy callbacks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from replaying import callbacks, close, randn, replayed
from sweep import NAMES, flat, generator, samples_of
from thinning import some

import tapegrad as tg
from tapegrad import nn, random
from tapegrad.core.tensor import Tensor
from tapegrad.ops import TABLE
from tapegrad.replay import CaptureError, Compiled
from tapegrad.replay.cpu import pool
from tapegrad.testing import make_arguments

F = nn.functional

pytest.importorskip("llvmlite")


@pytest.fixture(autouse=True)
def _threads() -> Iterator[None]:
    before = pool.pool.threads
    yield
    pool.pool.threads = before


def array_of(x: Tensor) -> Any:
    return x.detach().double().numpy() if x.dtype.is_floating_point else x.numpy()


def exactly(function: Callable[..., Any], *given: Any, calls: int = 3) -> Compiled:
    """Compile, replay, and compare with eager bit by bit; nothing may run in NumPy."""
    compiled: Compiled = tg.compile(function)
    for _ in range(calls):
        found = flat(compiled(*given))
    for k, (a, b) in enumerate(zip(flat(function(*given)), found, strict=True)):
        assert (a.dtype, a.shape) == (b.dtype, b.shape), k
        np.testing.assert_array_equal(array_of(a), array_of(b), err_msg=str(k))
    assert replayed(compiled) == calls - 2
    assert callbacks(compiled) == []
    return compiled


# -- every operation -------------------------------------------------------------------------------

REFUSED = {
    *("allclose", "argwhere", "equal", "has_inf", "has_nan", "isclose", "masked_select", "nonzero"),
    *("_segment_reduce", "bincount", "unique", "unique_consecutive"),
}

#: by operation: the primitives that run in NumPy, in the operation or in its gradient. This list
#: may only become shorter.
IN_NUMPY: dict[str, set[str]] = {
    **{name: {"argsort"} for name in ("argsort", "sort", "topk")},
    **{name: {"argsort"} for name in ("kthvalue", "median", "nanmedian")},
    **{name: {"argsort"} for name in ("nanquantile", "quantile")},
    **{name: {name} for name in ("gcd", "lcm", "nextafter", "nonzero_static")},
    "frexp": {"frexp", "scaled_down"},
    "logcumsumexp": {"decaying_sum"},
    **{name: {"searchsorted"} for name in ("bucketize", "searchsorted")},
    **{name: {"argsort", "scatter_extreme"} for name in ("index_reduce", "scatter_reduce")},
    **{name: {"bin_counts"} for name in ("histc", "histogram", "histogramdd")},
    "mode": {"mode_places"},
    **{name: {"polygamma"} for name in ("digamma", "polygamma")},
    "nn.functional.embedding_bag": {"bag_winners"},
    **{name: {"argsort"} for name in ("masked.median", "msort")},
    **{name: {"running_places"} for name in ("cummax", "cummin")},
    **{name: {"inverse"} for name in ("inverse", "linalg.inv")},
    **{name: {"inverse"} for name in ("matrix_power", "linalg.matrix_power")},
    **{name: {"det", "adjugate"} for name in ("det", "linalg.det")},
    **{name: {"log_abs_det", "sign_det", "inverse"} for name in ("slogdet", "linalg.slogdet")},
    "logdet": {"log_abs_det", "sign_det", "inverse"},
    "matrix_exp": {"matrix_exp"},
    # LAPACK's
    **{
        name: {"cholesky", "solve_triangular"}
        for name in ("cholesky", "linalg.cholesky", "linalg.cholesky_ex")
    },
    **{name: {"solve_triangular"} for name in ("cholesky_inverse", "cholesky_solve")},
    **{name: {"solve_triangular"} for name in ("linalg.solve_triangular", "triangular_solve")},
    **{name: {"solve"} for name in ("linalg.solve", "linalg.solve_ex", "linalg.tensorsolve")},
    **{name: {"inverse_ex"} for name in ("linalg.inv_ex", "linalg.tensorinv")},
    **{name: {"svd"} for name in ("linalg.svd", "svd")},
    **{name: {"svd", "svdvals"} for name in ("linalg.svdvals", "nuclear_norm")},
    **{name: {"eigh"} for name in ("linalg.eigh", "lobpcg")},
    "linalg.eigvalsh": {"eigh", "eigvalsh"},
    "linalg.matrix_rank": {"eigvalsh", "svdvals"},
    "linalg.cond": {"inverse_ex", "svd", "svdvals"},
    "linalg.qr": {"qr", "qr_r", "solve_triangular"},
    "qr": {"qr", "solve_triangular"},
    **{name: {"qr", "solve_triangular", "svd"} for name in ("pca_lowrank", "svd_lowrank")},
    "geqrf": {"geqrf"},
    "_int_mm": {"matmul"},
    **{
        name: {"lu_factor", "pivot_rows", "solve_triangular"}
        for name in ("linalg.lu", "linalg.lu_factor", "linalg.lu_factor_ex", "lu")
    },
    **{name: {"pivot_rows", "solve_triangular"} for name in ("linalg.lu_solve", "lu_solve")},
    "lu_unpack": {"pivot_rows"},
    **{name: {"ldl_factor"} for name in ("linalg.ldl_factor", "linalg.ldl_factor_ex")},
    "linalg.ldl_solve": {"ldl_solve"},
    **{name: {"pinv"} for name in ("linalg.pinv", "pinverse")},
    "linalg.lstsq": {"lstsq", "pinv"},
    # SciPy's
    **{name: {"i0", "i1"} for name in ("i0", "special.i1")},
    **{name: {"i0", "i1"} for name in ("special.modified_bessel_i0", "special.modified_bessel_i1")},
    **{f"special.{name}": {"i0e", "i1e"} for name in ("i0e", "i1e")},
    **{
        f"special.{stem}{order}": {f"{stem}0", f"{stem}1"}
        for stem in ("bessel_j", "bessel_y", "modified_bessel_k", "scaled_modified_bessel_k")
        for order in (0, 1)
    },
    "special.airy_ai": {"airy_ai", "airy_slope"},
    "special.log_ndtr": {"erfcx", "log_ndtr"},
    **{name: {name} for name in ("igamma", "igammac")},
    **{f"special.{name}": {name} for name in ("erfcx", "ndtri", "polygamma", "zeta")},
    **{
        f"special.{name}": {name}
        for kind in "tuvw"
        for name in (f"chebyshev_polynomial_{kind}", f"shifted_chebyshev_polynomial_{kind}")
    },
    **{
        f"special.{name}": {name}
        for name in (
            *("hermite_polynomial_h", "hermite_polynomial_he", "laguerre_polynomial_l"),
            "legendre_polynomial_p",
        )
    },
}


def with_gradients(function: Callable[..., Any]) -> Callable[..., Any]:
    """The results of an operation, and the gradients of their squares."""

    def f(*args: Any, **kwargs: Any) -> Any:
        out = function(*args, **kwargs)
        outs = [o for o in flat(out) if isinstance(o, Tensor)]
        given = [x for x in flat([args, list(kwargs.values())]) if isinstance(x, Tensor)]
        inputs = [x for x in given if x.requires_grad]
        total = sum((o * o).sum().real for o in outs if o.requires_grad)
        values = [o.detach() if isinstance(o, Tensor) else o for o in flat(out)]
        if not inputs or not isinstance(total, Tensor):
            return values
        return values, tg.autograd.grad(total, inputs, allow_unused=True)

    return f


@pytest.mark.sweep(keep=1 / 2, some="name")
@pytest.mark.parametrize("name", NAMES)
def test_first_samples_of_every_operation(name: str) -> None:
    """Values and gradients of an op, recorded on other data than it is replayed on."""
    f = with_gradients(TABLE[name].function)
    in_numpy: set[str] = set()
    first = [sample for _, sample in samples_of(name)[:5]]
    for sample in (tried := some(first)):
        fast = tg.compile(f, fullgraph=True)
        for i in range(3):
            results = []
            for function in (f, fast):
                args, kwargs = make_arguments(sample, generator(name, i), tg.float32, True)
                tg.manual_seed(i)
                try:
                    results.append(flat(function(*args, **kwargs)))
                except CaptureError:
                    by_tensor = name == "repeat_interleave" and isinstance(args[1], Tensor)
                    unknown = (name, kwargs) == ("nn.functional.one_hot", {})
                    assert name in REFUSED or by_tensor or unknown
                    break
            else:
                for a, b in zip(*results, strict=True):
                    if isinstance(a, Tensor):
                        assert (a.dtype, a.shape) == (b.dtype, b.shape)
                        close(a, b, 2e-5)
                    else:
                        assert a == b or a != a
                continue
            break
        else:
            assert replayed(fast) == 1
        if not any(isinstance(x, Tensor) and x.is_complex() for x in flat([results, args])):
            in_numpy |= set(callbacks(fast))  # complex numbers have no native code
    listed = IN_NUMPY.get(name, set())
    assert in_numpy == listed if len(tried) == len(first) else in_numpy <= listed


@pytest.mark.sweep(some="name")
@pytest.mark.parametrize("dtype", [tg.float16, tg.bfloat16], ids=["float16", "bfloat16"])
@pytest.mark.parametrize("name", NAMES)
def test_half_precision_rounds_where_the_recording_did(name: str, dtype: Any) -> None:
    f = tg.compile(with_gradients(TABLE[name].function), fullgraph=True)
    sample = samples_of(name)[0][1]
    results = []
    for _ in range(3):
        args, kwargs = make_arguments(sample, generator(name, 0), dtype, True)
        tg.manual_seed(0)
        if any(isinstance(x, Tensor) and x.is_complex() for x in flat(list(args))):
            return  # there is no complex half precision
        try:
            results.append(flat(f(*args, **kwargs)))
        except CaptureError:
            return
        except RuntimeError as error:
            assert "does not exist for" in str(error)  # noqa: PT017
            return
    assert replayed(f) == 1
    assert set(callbacks(f)) <= IN_NUMPY.get(name, set())
    for a, b in zip(results[0], results[2], strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        # Sums run in another order, and their float32 may round to the neighbour.
        step = tg.finfo(dtype).eps
        np.testing.assert_allclose(array_of(a), array_of(b), rtol=12 * step, atol=step / 4)


# -- random numbers --------------------------------------------------------------------------------


def test_philox_is_that_of_numpy() -> None:
    for seed, offset in ((0, 0), (12345, 7), (2**64 - 1, 2**40)):
        words = random.words_at(seed, offset, 8).tolist()
        blocks = [random.philox_uint64(seed, offset + k, j) for k in range(2) for j in range(4)]
        assert [word % 2**64 for word in blocks] == words


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_draws_are_those_of_eager_code(threads: int) -> None:
    pool.set_num_threads(threads)

    def draws() -> Any:
        exact = [
            tg.rand(50_001),
            tg.rand(7, dtype=tg.float64),
            tg.rand(9, dtype=tg.float16),
            tg.rand(3, 5, dtype=tg.bfloat16),
            tg.randint(-5, 100, (77,)),
            tg.randint(0, 2**30, (5, 2), dtype=tg.int32),
            tg.randperm(20),
            tg.bernoulli(tg.full((10, 3), 0.3)),
            tg.rand(()),
            tg.zeros(5).uniform_(2, 3),
            F.dropout(tg.ones(40, 30), 0.4),
        ]
        return exact, [tg.randn(50_001), tg.randn(7, dtype=tg.float64), tg.randn(1)]

    compiled = tg.compile(draws)
    for i in range(4):
        results = []
        for function in (draws, compiled):
            tg.manual_seed(100 - i)
            results.append((*function(), tg.get_rng_state(), tg.rand(3).tolist()))
        (exact, normal, *after), (found, near, *afterwards) = results
        assert after == afterwards, "draws go on where the replay ended"
        for a, b in zip(exact, found, strict=True):
            assert a.dtype is b.dtype
            np.testing.assert_array_equal(array_of(a), array_of(b))
        for a, b in zip(normal, near, strict=True):
            assert a.dtype is b.dtype
            np.testing.assert_array_max_ulp(a.numpy(), b.numpy(), 2)
    assert callbacks(compiled) == ["argsort"]
    assert replayed(compiled) == 2


def test_normal_numbers_are_normal() -> None:
    x = np.sort(tg.randn(200_000, generator=tg.Generator().manual_seed(3)).numpy())
    import scipy.stats

    assert scipy.stats.kstest(x, "norm").pvalue > 0.01


def test_dropout_differs_from_call_to_call() -> None:
    step = tg.compile(lambda x: F.dropout(x, 0.5))
    x = tg.ones(100)
    seen = {tuple(step(x).tolist()) for _ in range(6)}
    assert len(seen) == 6


def test_a_generator_of_its_own_is_advanced() -> None:
    own, other = tg.Generator().manual_seed(5), tg.Generator().manual_seed(5)
    step = tg.compile(lambda: tg.rand(5, generator=own))
    before = tg.get_rng_state()
    for _ in range(5):
        assert step().tolist() == tg.rand(5, generator=other).tolist()
    assert own.get_state() == other.get_state()
    assert tg.get_rng_state() == before


def test_seeding_inside_a_compiled_function() -> None:
    @tg.compile
    def f() -> Any:
        tg.manual_seed(7)
        return tg.rand(3), tg.randn(5000)

    tg.manual_seed(7)
    expected = tg.rand(3).tolist()
    for _ in range(4):
        assert f()[0].tolist() == expected
    tg.rand(1)
    assert tg.get_rng_state() == (7, 1 + 625 + 1)


def test_a_checkpoint_draws_its_numbers_again() -> None:
    def step(x: Any) -> Any:
        x = x.detach().requires_grad_()
        y = tg.utils.checkpoint.checkpoint(lambda v: F.dropout(v * v, 0.5), x)
        (g,) = tg.autograd.grad(y.sum(), x)
        return y.detach(), g, tg.rand(2)

    fast = tg.compile(step)
    for i in range(4):
        x = randn(6, 5, seed=i)
        tg.manual_seed(i)
        expected = step(x)
        tg.manual_seed(i)
        for a, b in zip(expected, fast(x), strict=True):
            close(a, b)
    assert replayed(fast) == 2


@pytest.mark.parametrize("replacement", [True, False])
def test_draws_with_weights_are_recorded(replacement: bool) -> None:
    fast = tg.compile(lambda w: tg.multinomial(w, 3, replacement=replacement), fullgraph=True)
    weights = tg.tensor([[0.2, 0.8, 0.1, 0.4], [0.0, 1.0, 2.0, 3.0]])
    tg.manual_seed(0)
    expected = [tg.multinomial(weights, 3, replacement=replacement) for _ in range(6)]
    tg.manual_seed(0)
    for one in expected:
        assert fast(weights).tolist() == one.tolist()
    assert replayed(fast) == 4
    with pytest.raises(RuntimeError, match="weights of at least 0"):
        fast(-weights)


def test_a_failed_replay_leaves_the_generator_where_eager_does() -> None:
    def plain(x: Any, i: Any) -> Any:
        return F.dropout(x, 0.5)[i]

    step = tg.compile(plain)
    x, good, bad = tg.ones(4), tg.tensor([0, 3]), tg.tensor([0, 9])
    for _ in range(3):
        step(x, good)
    before, after = tg.get_rng_state(), []
    for function in (plain, step):
        tg.set_rng_state(before)
        with pytest.raises(IndexError):
            function(x, bad)
        after.append(tg.get_rng_state())
    assert after[0] == after[1]


# -- integers --------------------------------------------------------------------------------------

INTEGERS = [tg.int64, tg.int32, tg.int16, tg.int8, tg.uint8]


@pytest.mark.parametrize("dtype", INTEGERS, ids=lambda d: d.name)
def test_integer_arithmetic(dtype: Any) -> None:
    low, high = tg.iinfo(dtype).min, tg.iinfo(dtype).max
    signed = low < 0
    x = [low, high, -7 if signed else 7, 7, low, 5, high, 0, 3]
    y = [1, -1 if signed else 2, 3, -3 if signed else 4, -1 if signed else 9, 2, high, 7, 5]
    a, b = tg.tensor(x, dtype=dtype), tg.tensor(y, dtype=dtype)

    def f(a: Any, b: Any) -> Any:
        floor = tg.div(a, b, rounding_mode="floor")
        return [a // b, a % b, a.fmod(b), floor, a**3, a**b, a // 3, a % -3 if signed else a % 3]

    exactly(f, a, b)
    exactly(lambda a, b: [a << b, a >> b, a << 2, a >> 1, a & b, ~a], a, b)
    exactly(lambda a, b: [a < b, a == 3, a >= 0.5, a != b, a.to(tg.float32) < b], a, b)


def test_integer_division_by_zero_is_found() -> None:
    total = tg.zeros(3)

    def step(x: Any, y: Any) -> Any:
        total.add_(1.0)
        return x // y, x % y

    fast = tg.compile(step)
    x = tg.tensor([7, -8, 9])
    for _ in range(4):
        fast(x, tg.tensor([2, 3, -4]))
    with pytest.raises(RuntimeError, match="integer division by zero"):
        fast(x, tg.tensor([2, 0, -4]))
    assert total.tolist() == [5.0] * 3  # as eager: it added before it divided
    assert fast(x, tg.tensor([2, 3, -4]))[0].tolist() == [3, -3, -3]
    assert callbacks(fast) == []


def test_one_hot_checks_its_labels() -> None:
    fast = exactly(lambda i: F.one_hot(i, 4), tg.tensor([[0, 3], [2, 1]]))
    for bad in (4, -1):
        with pytest.raises(RuntimeError, match="one_hot"):
            fast(tg.tensor([[0, 3], [bad, 1]]))


# -- casts -----------------------------------------------------------------------------------------

FLOATS = [tg.float64, tg.float32, tg.float16, tg.bfloat16]


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda d: d.name)
def test_casts_of_floats(dtype: Any) -> None:
    edges = [np.nan, np.inf, -np.inf, 1e30, -1e30, 2.0**31, 2.0**63, -(2.0**31), -(2.0**63)]
    rng = np.random.default_rng(0)
    wide = rng.standard_normal(500) * 10.0 ** rng.integers(-8, 5, 500)
    # Halfway between two float16, and beside it by less than float32 can tell.
    ties = np.outer(1 + (2 * np.arange(8) + 1) * 2.0**-11, [1, 1 + 2.0**-40, 1 - 2.0**-40])
    values = [*edges, 300.7, -1.5, 70000.0, 0.0, -0.5, 65519.99, 65520.0, *wide, *ties.ravel()]
    x = tg.tensor(values, dtype=tg.float64).to(dtype)
    exactly(lambda x: [x.to(d) for d in (*INTEGERS, tg.bool, *FLOATS) if d is not x.dtype], x)


def test_casts_of_integers() -> None:
    x = tg.tensor(np.random.default_rng(0).integers(-(2**62), 2**62, 300))
    for y in (x, x >> 40, x.to(tg.int16), x.to(tg.uint8)):
        exactly(lambda y: [y.to(d) for d in (*INTEGERS, tg.bool, *FLOATS) if d is not y.dtype], y)


@pytest.mark.parametrize("dtype", [tg.float32, tg.float64], ids=lambda d: d.name)
def test_division_of_floats_with_a_remainder(dtype: Any) -> None:
    rng = np.random.default_rng(0)
    x = tg.tensor([*(rng.standard_normal(300) * 5), 1.0, 1.0, -1.0, 0.0, np.inf], dtype=dtype)
    steps = [*rng.choice([0.1, 0.25, -0.3, 1.0, -2.0, 0.0], 300), 0.1, -0.1, 0.0, 0.0, 2.0]
    exactly(lambda x, y: [x // y, x % y, x.fmod(y)], x, tg.tensor(steps, dtype=dtype))


@pytest.mark.parametrize("name", ["digamma", "lgamma", "erfinv"])
def test_special_functions_are_accurate(name: str) -> None:
    rng = np.random.default_rng(0)
    reach = 1.0 if name == "erfinv" else 30.0
    ends = [0.0, -0.0, 1.0, -1.0, 2.0, -2.0, np.inf, -np.inf, np.nan, 1e-300, 1 - 1e-16, 1.0 - 1e-9]
    small = 10.0 ** rng.uniform(-12, 0, 500) * rng.choice([-1, 1], 500)
    x = tg.tensor([*ends, *rng.uniform(-reach, reach, 2000), *small], dtype=tg.float64)
    for given, tolerance in ((x, 1e-12), (x.float(), 2e-6)):
        function = getattr(tg, name)
        fast = tg.compile(function)
        for _ in range(3):
            found = fast(given)
        expected = function(given)
        np.testing.assert_array_equal(found.isfinite().numpy(), expected.isfinite().numpy())
        # Near their zeros the functions are as good as their argument.
        np.testing.assert_allclose(
            found.numpy(), expected.numpy(), rtol=tolerance, atol=tolerance * 10
        )
        assert callbacks(fast) == []


# -- half precision --------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [tg.float16, tg.bfloat16], ids=lambda d: d.name)
def test_chains_of_half_precision_round_in_between(dtype: Any) -> None:
    x, y = randn(300).to(dtype), randn(300, seed=1).to(dtype)
    special = tg.tensor([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-7, 65504.0, 3e38]).to(dtype)
    chain = exactly(
        lambda x, y: [x * y + x - 0.1, (x * 3).exp() / (y.abs() + 1), x.float() * y, (x + y) > x],
        x,
        y,
    )
    (replay,) = chain.replays
    assert replay.executable is not None
    assert len(replay.executable.emitted.kernels) == 1
    exactly(lambda x: [x + x, x * 0, -x, x.relu(), x.maximum(x * 2), x.isnan()], special)
    exactly(lambda x: [x.amax(), x.cumsum(0), x.argmax(), x[::2].clone()], x)


@pytest.mark.parametrize("dtype", [tg.float16, tg.bfloat16], ids=lambda d: d.name)
def test_products_and_sums_of_half_precision_round_once(dtype: Any) -> None:
    a, b = randn(40, 300).to(dtype), randn(300, 30, seed=1).to(dtype)

    def f(a: Any, b: Any) -> Any:
        return a @ b, a.sum(0), a.sum(1), a.mean(), (a @ b).T @ a

    fast = tg.compile(f)
    for _ in range(3):
        found = fast(a, b)
    assert callbacks(fast) == []
    wide = a.double() @ b.double()
    exact = [wide, a.double().sum(0), a.double().sum(1), a.double().mean()]
    for x, y in zip(found, exact, strict=False):
        np.testing.assert_allclose(array_of(x), y.numpy(), rtol=tg.finfo(dtype).eps, atol=1e-4)


# -- positions, scans, extremes --------------------------------------------------------------------

SHAPES = [(7,), (1,), (50, 60), (3, 40, 5), (2, 1, 3), (300, 400), (0, 3), (4, 0)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_running_sums_and_products(shape: tuple[int, ...]) -> None:
    pool.set_num_threads(2)
    x = randn(*shape)
    x.numpy()[..., :1] = -0.0

    def f(x: Any) -> Any:
        out = []
        for d in range(x.ndim):
            out += [x.cumsum(d), x.cumprod(d), (x * 10).to(tg.int32).cumsum(d), x.half().cumsum(d)]
            out += [x.transpose(0, -1).cumsum(d), x.bfloat16().cumprod(d)]
        return out

    exactly(f, x)
    fast = tg.compile(lambda x: tg.autograd.grad(x.cumsum(0).square().sum(), x))
    for _ in range(3):
        (found,) = fast(x.detach().requires_grad_())
    running = x.cumsum(0) * 2
    np.testing.assert_array_equal(found.numpy(), running.flip(0).cumsum(0).flip(0).numpy())


@pytest.mark.parametrize("shape", [*SHAPES[:-2], (100_000,), ()], ids=str)
def test_places_of_extremes(shape: tuple[int, ...]) -> None:
    pool.set_num_threads(2)
    rng = np.random.default_rng(0)
    values = rng.integers(-5, 5, shape).astype(np.float32)
    x = tg.tensor(values)
    broken = tg.tensor(np.where(rng.random(shape) < 0.02, np.float32(np.nan), values))

    def f(*tensors: Any) -> Any:
        out = []
        for t in tensors:
            for d in (None, *range(t.ndim)):
                out += [t.argmax(d), t.argmin(d), t.half().argmax(d), (t > 0).byte().argmax(d)]
                if d is not None:
                    out += [*t.max(d), *t.min(d, keepdim=True)]
            out += [t.max(), t.min()]
        return out

    exactly(f, x, broken)
    exactly(lambda x: [x.argmax(), x.argmin()], x.to(tg.int32))


def test_triangles_and_diagonals() -> None:
    def f(x: Any) -> Any:
        causal = tg.tril(tg.ones(80, 80)).bool()
        masked = x.masked_fill(~causal[:70], -np.inf).softmax(-1).isnan()
        return [x.tril(), x.triu(2), x.T.tril(-3), x.half().tril(1), masked, tg.diag(x[0])]

    exactly(f, randn(70, 80))
    gradient = tg.compile(lambda x: tg.autograd.grad(x.tril().square().sum() + x.trace(), x))
    for _ in range(3):
        x = randn(6, 6).requires_grad_()
        (found,) = gradient(x)
    close(found, x.tril() * 2 + tg.eye(6))
    assert callbacks(gradient) == []
