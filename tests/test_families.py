"""Small eager operations as native code: one program for all sizes, the same as NumPy's results."""

from __future__ import annotations

import gc
import os
import pickle
import sys
import threading
import tracemalloc
from typing import Any

import numpy as np
import pytest
from sweep import NAMES, call, some_cases, weighted_sum

import tapegrad as tg
from tapegrad import nn, random
from tapegrad.core import acceleration, numeric
from tapegrad.ops import drawing
from tapegrad.replay.cpu import caller, caller_layout, family
from tapegrad.replay.use import eager, families

F = nn.functional

pytest.importorskip("llvmlite")


class Watching(eager.Native):
    """Remembers the kernels and rules that it was asked for, with their arguments."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[Any, ...]] = []

    def kernel(self, p: Any, inputs: Any, params: Any) -> Any:
        if p.has_families:
            self.asked.append((p, None, tuple(inputs), None, None, params))
        return super().kernel(p, inputs, params)

    def rule(
        self, p: Any, pull: Any, g: Any, edges: Any, saved: Any, params: Any, totals: Any = ()
    ) -> Any:
        if p.has_families and not totals:
            self.asked.append((p, pull, g, edges, saved, params))
        return super().rule(p, pull, g, edges, saved, params, totals)

    @property
    def programs(self) -> int:
        """How many families there are."""
        return sum(len(site.families) for site in self._families._sites.values())


@pytest.fixture
def watching(monkeypatch: pytest.MonkeyPatch) -> Watching:
    """An accelerator that has seen nothing yet."""
    made = Watching()
    monkeypatch.setattr(acceleration, "SITES", acceleration.SITES)
    acceleration.SITES.clear()
    monkeypatch.setattr(acceleration, "_accelerator", made)
    return made


def _with_sizes(args: Any, pattern: Any, sizes: Any, rng: Any) -> list[Any] | None:
    """Arguments of a pattern with other sizes, and elements like those given; None if too large."""
    for row in pattern.rows:
        labels = (
            row[caller_layout.LABELS : caller_layout.LABELS + row[caller_layout.RANK]]
            if len(row) > 2
            else ()
        )
        if np.prod([sizes[i - 1] for i in labels if i], dtype=object) > family.MAX_ELEMENTS:
            return None
    made = families._at_sizes(args, pattern, sizes)
    for x, y in zip(args, made, strict=True):
        if isinstance(y, np.ndarray):
            if numeric.is_floating(x.dtype):
                y[...] = np.resize(x, y.shape) * rng.uniform(0.7, 1, y.shape)
            else:
                y[...] = np.resize(np.minimum(x, 1), y.shape)  # a valid index
    return made


def _compare(native: Any, plain: Any) -> None:
    for a, b in zip(
        *(r if isinstance(r, (tuple, list)) else (r,) for r in (native, plain)), strict=True
    ):
        if b is None:
            assert a is None
            continue
        b = np.asarray(b)
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        close = {4: 2e-5, 8: 1e-11}.get(a.dtype.itemsize, 2e-2)
        wide = np.complex128 if numeric.is_complex(a.dtype) else np.float64
        np.testing.assert_allclose(a.astype(wide), b.astype(wide), close, close)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", [tg.float32, tg.float64])
def test_all_sizes_of_a_family_are_right(name: str, dtype: Any, watching: Watching) -> None:
    for op, _, arguments in some_cases(name, dtype):
        loss = weighted_sum(call(op, arguments))
        if loss is not None and loss.requires_grad:
            loss.backward()
    rng = np.random.default_rng(0)
    for p, pull, g, edges, saved, params in [*watching.asked]:
        if pull is None:
            args, shapes = list(g), []
        else:
            first = [*g] if isinstance(g, list) else [g]
            args = [*first, *saved]
            shapes = [len(first) + i for i, slot in enumerate(p.slots) if slot[0] == "shape"]
        pattern = families.pattern_of(args, shapes)
        if pattern is None or not pattern.sizes or len(pattern.sizes) > 3:
            continue
        for most in (5, 40, 150):
            sizes = rng.choice(np.arange(2, most + 1), len(pattern.sizes), replace=False).tolist()
            given = _with_sizes(args, pattern, sizes, rng)
            if given is None:
                continue
            split = len(given) - len(saved or ())
            received = given[:split] if isinstance(g, list) else given[0]
            try:
                with np.errstate(all="ignore"):
                    if pull is None:
                        plain = p.kernel(*given, **params)
                    else:
                        plain = pull(received, edges, given[split:], params)
            except (ValueError, RuntimeError, IndexError):
                continue  # the sizes of these arguments depend on each other
            before = watching.programs
            if pull is None:
                found = watching.kernel(p, given, params)
            else:
                found = watching.rule(p, pull, received, edges, given[split:], params)
            assert watching.programs == before, "another program was made for other sizes"
            if found is not NotImplemented:
                _compare(found, plain)


# -- arguments -------------------------------------------------------------------------------------


def _softmax(array: Any, axis: int) -> Any:
    """The same in NumPy, in float64."""
    wide = array.astype(np.float64)
    e = np.exp(wide - wide.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def _check_softmax(x: Any, axis: int = 1) -> None:
    found = x.softmax(axis).numpy()
    np.testing.assert_allclose(found, _softmax(x.numpy(), axis), 1e-5, 1e-6)


def test_one_program_serves_all_sizes(watching: Watching) -> None:
    for rows in range(2, 40, 3):
        for columns in range(41, 90, 7):
            _check_softmax(tg.randn(rows, columns))
    assert watching.programs == 1 + 1  # the draws, and softmax
    assert watching.forms == {}


def test_sizes_that_coincide(watching: Watching) -> None:
    for sizes in ((4, 5), (4, 4), (5, 4), (1, 4), (4, 1), (1, 1), (7, 7), (2, 2)):
        for axis in (0, 1):
            _check_softmax(tg.randn(*sizes), axis)
    for n in range(2, 9):  # labels may be as many as classes
        x, labels = tg.randn(n, 5, dtype=tg.float64), tg.arange(n) % 5
        logs = np.log(_softmax(x.numpy(), 1))
        expected = -logs[np.arange(n), labels.numpy()].mean()
        assert F.cross_entropy(x, labels).item() == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("size", [family.MAX_ELEMENTS - 1, family.MAX_ELEMENTS, 20000])
def test_the_largest_sizes(size: int, watching: Watching) -> None:
    _check_softmax(tg.randn(1, size))
    _check_softmax(tg.randn(size, 1))
    _check_softmax(tg.randn(2, size // 2))


@pytest.mark.filterwarnings("ignore:smooth_l1_loss. the target")
def test_results_larger_than_arguments(watching: Watching) -> None:
    x, y = tg.randn(300, 1), tg.randn(1, 300)
    small = F.smooth_l1_loss(tg.randn(3, 1), tg.randn(1, 4), reduction="none")
    assert small.shape == (3, 4)
    found = F.smooth_l1_loss(x, y, reduction="none")
    d = np.abs(x.numpy() - y.numpy())
    np.testing.assert_allclose(found, np.where(d < 1, d * d / 2, d - 0.5), 1e-5, 1e-6)


@pytest.mark.filterwarnings("ignore:mse_loss. the target")
def test_loops_over_more_than_the_arguments(watching: Watching) -> None:
    for n in (30, 300, 3000):
        x, y = tg.randn(n, 1, dtype=tg.float64), tg.randn(1, n, dtype=tg.float64)
        expected = np.square(x.numpy() - y.numpy()).mean()
        assert F.mse_loss(x, y).item() == pytest.approx(expected, rel=1e-12)


def test_layouts(watching: Watching) -> None:
    x = tg.randn(30, 40)
    for y in (x.T, x[:, 3:17], x[::2], x[:, ::3], x.T[5:], x[3:4], x[:, :1], x.flip(0)):
        for axis in (0, 1):
            _check_softmax(y, axis)
    wide = tg.randn(1, 40).expand(30, 40)
    _check_softmax(wide)
    for dims in ((0, 2, 1), (2, 1, 0), (1, 2, 0)):
        z = tg.randn(3, 4, 5).permute(dims)
        _check_softmax(z, 2)


def test_sizes_of_which_the_smaller_counts(watching: Watching) -> None:
    x = tg.arange(63.0).reshape(7, 9).requires_grad_()
    for rows in (7, 3, 5, 1, 7):
        for columns in (9, 4, 12, 2, 9):
            index = tg.from_numpy(np.random.default_rng(rows).integers(0, 9, (rows, columns)))
            found = x.gather(1, index)
            expected = np.take_along_axis(x.detach().numpy()[:rows], index.numpy(), 1)
            assert (found.detach().numpy() == expected).all()
            x.grad = None
            found.sum().backward()
            counts = np.zeros((7, 9), np.float32)
            np.add.at(counts, (np.arange(rows)[:, None], index.numpy()), 1)
            assert x.grad is not None
            assert (x.grad.numpy() == counts).all()


def test_gradients_of_some_inputs_alone(watching: Watching) -> None:
    x, src = tg.randn(4, 6), tg.randn(4, 3)
    index = tg.tensor([[0, 5, 0]] * 4)
    for needs in ((True, False), (False, True), (True, True)):
        a, b = x.clone().requires_grad_(needs[0]), src.clone().requires_grad_(needs[1])
        a.scatter_add(1, index, b).square().sum().backward()
        expected = x.numpy().copy()
        np.add.at(expected, (np.arange(4)[:, None], index.numpy()), src.numpy())
        assert (a.grad is not None, b.grad is not None) == needs
        if a.grad is not None:
            np.testing.assert_allclose(a.grad, 2 * expected, 1e-6)
        if b.grad is not None:
            np.testing.assert_allclose(b.grad, 2 * expected[:, [0, 5, 0]], 1e-6)


def test_empty_and_single_elements(watching: Watching) -> None:
    assert tg.zeros(0, 3).softmax(1).shape == (0, 3)
    assert tg.zeros(3, 0).softmax(0).shape == (3, 0)
    assert tg.tensor(2.0).softmax(0).item() == 1.0
    assert F.gelu(tg.zeros(0)).shape == (0,)
    assert F.gelu(tg.tensor(0.0)).item() == 0.0


def test_memory_that_is_not_aligned(watching: Watching) -> None:
    memory = np.zeros(4 * 12 + 1, np.uint8)[1:].view(np.float32).reshape(3, 4)
    memory[...] = np.arange(12).reshape(3, 4)
    _check_softmax(tg.from_numpy(memory))


def test_elementwise_results_keep_the_layout(watching: Watching) -> None:
    for rows, columns in ((3, 4), (20, 30), (100, 120)):
        x = tg.randn(rows, columns, 2).permute(2, 0, 1)
        for function in (F.gelu, tg.sigmoid, F.silu, lambda y: tg.maximum(y, -y)):
            assert function(x).stride() == tg.exp(x).stride()


@pytest.mark.filterwarnings("ignore:var of 2 elements")
def test_counts_that_are_zero(watching: Watching) -> None:
    for n in (5, 3, 2):
        x = tg.randn(3, n, dtype=tg.float64, requires_grad=True)
        for correction in (0, 1, 2):
            out = x.var(1, correction=correction).sum()
            (plain,) = tg.autograd.grad(out, x, retain_graph=True)
            (again,) = tg.autograd.grad(out, x, create_graph=True)
            np.testing.assert_allclose(plain, again.detach(), 1e-12)


def test_arrays_whose_dtype_is_another_object(watching: Watching) -> None:
    data = pickle.dumps(np.arange(12, dtype=np.float32).reshape(3, 4))
    for _ in range(5):
        _check_softmax(tg.from_numpy(pickle.loads(data)))
    assert watching.programs == 1


def test_forms_do_not_displace_families(watching: Watching) -> None:
    y = tg.randn(3, 4)
    before = y.softmax(1).numpy()
    for i in range(140):
        _check_softmax(tg.randn(20 + i, 20).T)
    assert (y.softmax(1).numpy() == before).all()
    for n in range(2, 80):  # so many patterns that old ones are forgotten, and learned again
        tg.zeros(n, *[1] * (n % 3), 2, *[1] * (n % 5)).softmax(0)
    assert (y.softmax(1).numpy() == before).all()


def test_first_calls_in_threads_give_the_same_bits(watching: Watching) -> None:
    x = tg.randn(50, 60)
    for trial in range(5):
        found: list[Any] = []

        def work(beta: float = 1.5 + trial, found: list[Any] = found) -> None:
            found.append(F.softplus(x, beta).numpy())

        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(found) == 3
        assert all((a == found[0]).all() for a in found)


def test_an_interrupted_first_call_is_made_again(
    watching: Watching, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*args: Any) -> Any:
        raise KeyboardInterrupt

    x = tg.randn(3, 4)
    with monkeypatch.context() as patch:
        patch.setattr(families.Families, "_family", interrupted)
        with pytest.raises(KeyboardInterrupt):
            x.softmax(1)
    _check_softmax(x)
    assert watching.programs == 2


def test_bad_data_is_numpys_error_and_changes_nothing(watching: Watching) -> None:
    x = tg.randn(3, 4, requires_grad=True)
    good = F.cross_entropy(x, tg.tensor([0, 1, 2]))
    for labels in ([0, 1, 4], [0, -1, 2]):
        with pytest.raises(IndexError, match="out of"):
            F.cross_entropy(x, tg.tensor(labels))
    assert F.cross_entropy(x, tg.tensor([0, 1, 2])).item() == good.item()


def test_numbers_that_look_alike_are_told_apart(watching: Watching) -> None:
    x = tg.full((3, 4), -1.0)
    for _ in range(3):
        assert not np.signbit(F.threshold(x, 0.0, 0.0).numpy()[0, 0])
        assert np.signbit(F.threshold(x, 0.0, -0.0).numpy()[0, 0])
        assert F.leaky_relu(x, 0.5).numpy()[0, 0] == -0.5
        assert F.leaky_relu(x, 1).numpy()[0, 0] == -1
        assert F.leaky_relu(x, True).numpy()[0, 0] == -1
        assert np.isnan(F.elu(x, float("nan")).numpy()).all()


def test_many_parameters_and_sizes_are_forgotten(
    watching: Watching, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(families, "MOST_SITES", 4)
    monkeypatch.setattr(caller, "MAX_PROGRAMS", 4)
    x = tg.linspace(-1, 1, 12).reshape(3, 4)
    for _ in range(2):
        for slope in (0.1, 0.2, 0.3, 0.4, 0.5, 0.6):
            assert F.leaky_relu(x, slope).numpy()[0, 0] == pytest.approx(-slope)
        for shape in ((2, 3), (3, 3), (1, 3), (3, 1), (2, 3, 4), (3, 3, 4), (3, 4, 4), (4, 3, 4)):
            _check_softmax(tg.randn(shape))
    assert len(acceleration.SITES) <= 5


def test_without_a_native_caller(watching: Watching, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(caller, "find_caller", lambda: None)
    x = tg.randn(3, 4, requires_grad=True)
    x.softmax(1).pow(2).sum().backward()
    _check_softmax(x.detach())
    assert acceleration.SITES == {}
    y = tg.randn(30, 40)  # a form of its own, without a site
    _check_softmax(y)


# -- objects ---------------------------------------------------------------------------------------


def test_references_are_balanced(watching: Watching) -> None:
    x, labels = np.ones((3, 4), np.float32), np.zeros(3, np.int64)
    small, grad = tg.from_numpy(x), tg.randn(3, 4, requires_grad=True)

    def work() -> None:
        small.softmax(1)
        F.cross_entropy(grad, tg.from_numpy(labels)).backward()
        grad.grad = None
        with pytest.raises(IndexError):
            F.cross_entropy(small, tg.from_numpy(labels + 9))

    def counts() -> list[int]:
        held = (x, x.dtype, None, True, False, NotImplemented, labels.dtype)
        return [sys.getrefcount(held_object) for held_object in held]

    for _ in range(20):
        work()
    gc.collect()
    before = counts()
    for _ in range(200):
        work()
    gc.collect()
    assert max(abs(a - b) for a, b in zip(counts(), before, strict=True)) < 100


def test_no_memory_is_lost(watching: Watching) -> None:
    x = tg.randn(60, 70)

    def work() -> None:
        for n in range(2, 60):
            x[:n].softmax(1)

    work()
    tracemalloc.start()
    try:
        work()
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(5):
            work()
        after = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert after - before < 10 * x.nbytes


def test_sites_outlive_the_accelerator_that_made_them(watching: Watching) -> None:
    _check_softmax(tg.randn(3, 4))
    watching._families = families.Families()
    gc.collect()
    waste = [np.full(64, 7, np.int64) for _ in range(1000)]
    _check_softmax(tg.randn(5, 6))
    assert len(waste) == 1000


def test_threads(watching: Watching) -> None:
    failures: list[BaseException] = []
    arrays = [np.random.default_rng(i).normal(size=(i + 2, 9)).astype("f4") for i in range(4)]

    def work(array: Any) -> None:
        try:
            for n in range(300):
                _check_softmax(tg.from_numpy(array[: 2 + n % array.shape[0]]))
                x = tg.from_numpy(array).requires_grad_()
                F.layer_norm(x, (9,)).square().sum().backward()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(array,)) for array in arrays]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert failures == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_forked_children(watching: Watching) -> None:
    _check_softmax(tg.randn(3, 4))
    child = os.fork()
    if child == 0:
        try:
            _check_softmax(tg.randn(5, 6))
            F.layer_norm(tg.randn(3, 4), (4,))
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0


# -- draws -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
@pytest.mark.parametrize("kind", ["normal", "uniform"])
def test_draws_are_those_of_numpy(
    kind: str, dtype: Any, watching: Watching, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drawing, "FEW_DRAWS", 0)
    params = {"kind": kind, "dtype": np.dtype(dtype), "low": 0, "high": 0}
    for shape in ((), (1,), (7,), (8,), (9,), (16,), (3, 5), (100,), (2, 3, 17), (5000,), (20000,)):
        state = np.array([123, 2**40 + 45], np.int64)
        whole = {**params, "shape": shape}
        ordered = {name: whole[name] for name in ("kind", "shape", "dtype", "low", "high")}
        found, after = drawing._numbers(state, ordered)
        expected, moved = drawing.random_.kernel(state, **ordered)
        assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
        assert after.tolist() == moved.tolist()
        if kind == "uniform":
            assert (found == expected).all()
        else:
            close = 1e-3 if dtype == np.float16 else 1e-6
            np.testing.assert_allclose(found, expected, close, close)


def test_a_state_gives_the_same_numbers_again(watching: Watching) -> None:
    before = random.get_rng_state()
    first = [tg.randn(n) for n in (3, 8, 100)] + [tg.rand(n) for n in (3, 200)]
    random.set_rng_state(before)
    again = [tg.randn(n) for n in (3, 8, 100)] + [tg.rand(n) for n in (3, 200)]
    assert all((a.numpy() == b.numpy()).all() for a, b in zip(first, again, strict=True))
