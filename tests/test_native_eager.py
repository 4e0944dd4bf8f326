"""Eager operations as native code: the same as their NumPy kernels, in every run and every mode."""

from __future__ import annotations

import functools
import os
import pathlib
import subprocess
import sys
import threading
import traceback
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from sweep import (
    NAMES,
    Arguments,
    call,
    cases,
    differentiated,
    mapped,
    numbered_cases,
    strided,
    tensors,
    transposed,
    weighted_sum,
    with_array,
)

import tapegrad as tg
from tapegrad import Tensor, nn
from tapegrad.core import acceleration, fast, primitive
from tapegrad.core.primitive import NEVER, OPAQUE, PRIMITIVES, Accelerator, define
from tapegrad.ops.table import Op
from tapegrad.replay.cpu import jit, pool, progress
from tapegrad.replay.use import eager

F = nn.functional

pytest.importorskip("llvmlite")

#: large enough for native code
ROWS, COLUMNS = 300, 200


class Counting(eager.Native):
    """Counts the programs that ran."""

    def __init__(self) -> None:
        super().__init__()
        self.ran = 0

    def _run(self, *given: Any) -> Any:
        result = super()._run(*given)
        self.ran += result is not NotImplemented
        return result


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> Counting:
    """An accelerator that has seen nothing yet."""
    acceleration.SITES.clear()
    monkeypatch.setattr(acceleration, "_accelerator", Counting())
    assert isinstance(acceleration._accelerator, Counting)
    return acceleration._accelerator


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The texts that are compiled from now on; nothing is found on disk."""
    texts: list[str] = []
    plain = jit._object_of

    def counted(text: str) -> bytes:
        texts.append(text)
        return plain(text)

    monkeypatch.setenv("TAPEGRAD_CACHE", "0")
    monkeypatch.setattr(jit, "_object_of", counted)
    monkeypatch.setattr(jit, "_functions", weakref.WeakValueDictionary())
    return texts


def numbers(*shape: int, seed: int = 0, dtype: Any = np.float32) -> Tensor:
    return tg.tensor(np.random.default_rng(seed).standard_normal(shape).astype(dtype))


def results(function: Callable[..., Any], given: list[Tensor]) -> list[Any]:
    """Values, first and second derivatives, as arrays."""
    leaves = [t.detach().requires_grad_(t.dtype.is_floating_point) for t in given]
    return derived(function(*leaves), [t for t in leaves if t.requires_grad])


def derived(out: Any, leaves: list[Tensor]) -> list[Any]:
    made = [t.detach() for t in tensors(out)]
    loss = weighted_sum(out)
    if loss is not None and leaves:
        first = tg.autograd.grad(loss, leaves, create_graph=True, allow_unused=True)
        made += [g for g in first if g is not None]
        squares = [(g * g).sum() for g in first if g is not None and g.requires_grad]
        if squares:
            total = sum(squares[1:], squares[0])
            second = tg.autograd.grad(total, leaves, allow_unused=True)
            made += [g for g in second if g is not None]
    return [t.detach().numpy().copy() for t in made]


def in_numpy(function: Callable[..., Any], *given: Any) -> Any:
    """What a function does where there is no native code."""
    before = acceleration._accelerator
    primitive.set_accelerator(Accelerator())
    try:
        return function(*given)
    finally:
        acceleration._accelerator = before


def assert_same(got: list[Any], expected: list[Any], tolerance: float = 1e-5) -> None:
    assert len(got) == len(expected)
    for a, b in zip(got, expected, strict=True):
        assert a.dtype == b.dtype
        assert a.shape == b.shape
        scale = np.abs(b[np.isfinite(b)]).max(initial=1.0) if b.dtype.kind == "f" else 1.0
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance * scale)


def check(function: Callable[..., Any], *given: Tensor, tolerance: float = 1e-5) -> None:
    """Native code gives what NumPy gives, and the same bits again."""
    accelerator = primitive.accelerator()
    assert isinstance(accelerator, Counting)
    expected = in_numpy(results, function, list(given))
    before = [t.numpy().copy() for t in given]
    ran = accelerator.ran
    first = results(function, list(given))
    assert accelerator.ran > ran, "no native code ran"
    assert_same(first, expected, tolerance)
    for a, b in zip(first, results(function, list(given)), strict=True):
        np.testing.assert_array_equal(a, b)
    for t, array in zip(given, before, strict=True):
        np.testing.assert_array_equal(t.numpy(), array)


# -- every operation -----------------------------------------------------------------------------


def backwards(x: Tensor) -> Tensor:
    """The same values, in memory from last to first."""
    turned = (slice(None, None, -1),) * x.ndim
    return with_array(x, x._array[turned].copy()[turned])


LAYOUTS: list[Callable[[Tensor], Tensor]] = [lambda x: x, transposed, strided, backwards]


@pytest.fixture
def everywhere(fresh: Counting, monkeypatch: pytest.MonkeyPatch) -> Counting:
    """Native code at every size."""
    for p in PRIMITIVES.values():
        if p.native_size < NEVER:
            if not p.composite:
                monkeypatch.setattr(p, "native_size", 0)
            monkeypatch.setattr(p, "_pull", None)
            assert p.pull
            monkeypatch.setattr(p, "native_size", 0)
    monkeypatch.setitem(fast.NAMES, "ARRAY_SIZE", 0)
    monkeypatch.setattr(eager, "SMALL_PRODUCT", 0)
    return fresh


def outcome(op: Op, arguments: Arguments) -> list[Any]:
    return derived(call(op, arguments), differentiated(arguments))


@pytest.mark.sweep(keep=1 / 2, some="name")
@pytest.mark.parametrize("name", NAMES)
def test_every_operation_and_its_derivatives(name: str, everywhere: Counting) -> None:
    for number, op, _, made in numbered_cases(name):
        arguments = mapped(LAYOUTS[number % len(LAYOUTS)], made)
        try:
            expected = in_numpy(outcome, op, arguments)
        except (RuntimeError, TypeError):
            # What has no gradient has none in native code either.
            with pytest.raises((RuntimeError, TypeError)):
                outcome(op, arguments)
            continue
        assert_same(outcome(op, arguments), expected, 1e-9)


def test_nearly_all_operations_have_native_code(everywhere: Counting) -> None:
    """Without this the sweep could compare NumPy with itself."""
    for name in ("add", "exp", "sum", "softmax", "matmul", "conv2d", "nn.functional.gelu"):
        ran = everywhere.ran
        for op, _, arguments in cases(name):
            outcome(op, arguments)
        assert everywhere.ran > ran, name


# -- large operands ------------------------------------------------------------------------------

OPERANDS: dict[str, Callable[[], Tensor]] = {
    "contiguous": lambda: numbers(ROWS, COLUMNS),
    "transposed": lambda: numbers(COLUMNS, ROWS).T,
    "every second": lambda: numbers(2 * ROWS, 2 * COLUMNS)[::2, ::2],
    "backwards": lambda: tg.from_numpy(numbers(ROWS, COLUMNS).numpy()[::-1, ::-1]),
    "broadcast": lambda: numbers(1, COLUMNS).expand(ROWS, COLUMNS),
    "float64": lambda: numbers(ROWS, COLUMNS, dtype=np.float64),
    "a piece": lambda: numbers(ROWS + 5, COLUMNS + 3)[2:-3, 3:],
}

FUNCTIONS: dict[str, Callable[[Tensor], Any]] = {
    "elementwise": lambda x: (x * 2 - 1).tanh(),
    "with itself": lambda x: x * x,
    "with a row": lambda x: x * x[0] + x[:, :1],
    "with one number": lambda x: x * x[3, 4],
    "reductions": lambda x: (x.sum(0), x.mean(1), x.amax(1), x.sum(), x.var(0)),
    "softmax": lambda x: F.softmax(x, 1),
    "log_softmax": lambda x: F.log_softmax(x, 0),
    "layer_norm": lambda x: F.layer_norm(x, (x.shape[1],)),
    "gelu": lambda x: F.gelu(x),
    "product": lambda x: x @ x.T,
    "product of a piece": lambda x: x[:100] @ x[:100].T,
    "convolution": lambda x: F.conv2d(
        x.reshape(1, 4, 75, 200), numbers(3, 4, 3, 3, seed=1).to(x.dtype), padding=1
    ),
    "pooling": lambda x: F.max_pool2d(x.reshape(1, 4, 75, 200), 2),
}


@pytest.mark.parametrize("operand", OPERANDS)
@pytest.mark.parametrize("function", FUNCTIONS)
def test_layouts_of_large_operands(function: str, operand: str, fresh: Counting) -> None:
    tolerance = 1e-11 if operand == "float64" else 1e-4
    check(FUNCTIONS[function], OPERANDS[operand](), tolerance=tolerance)


def test_a_number_of_no_dimensions_beside_a_large_operand(fresh: Counting) -> None:
    check(lambda x, y: x * y + y, numbers(ROWS, COLUMNS), numbers())
    check(lambda x, y: y / x.exp(), numbers(ROWS, COLUMNS), numbers())


def test_integers_and_booleans(fresh: Counting) -> None:
    x = tg.arange(ROWS * COLUMNS).reshape(ROWS, COLUMNS)
    check(lambda x: (x * 3 - 7, x // 5, x % 7, x.sum(0), (x > 5) & (x < 90), x / 3), x)
    check(lambda x: (x + 1, x.amax(1), x.to(tg.float32)), x.to(tg.int32).T)
    check(lambda x: (x ^ 3, x << 2, ~x), x)


def test_special_values(fresh: Counting) -> None:
    x = numbers(ROWS, COLUMNS)
    x[::7, ::3] = float("nan")
    x[1::7, ::3] = float("inf")
    x[2::7, ::3] = -float("inf")
    x[3::7, ::3] = -0.0
    for function in (
        lambda x: (x * 2, x.exp(), x.relu(), x.maximum(x.T.reshape(x.shape)), x.abs()),
        lambda x: (x.sum(), x.amax(0), x.mean(1), F.softmax(x, 1), (x == x).sum()),
        lambda x: (F.gelu(x), F.softplus(x), F.silu(x), x.sign()),
    ):
        expected = in_numpy(lambda f=function: [t.numpy() for t in tensors(f(x))])
        assert_same([t.numpy() for t in tensors(function(x))], expected)
    assert fresh.ran
    signs = [np.signbit((x * 1).numpy()[3, 0]), np.signbit((x * 0.0).numpy()[3, 0])]
    assert signs == [True, True]


def test_an_index_of_no_dimensions(fresh: Counting) -> None:
    weight = numbers(ROWS, COLUMNS).requires_grad_()
    row = F.embedding(tg.tensor(7), weight)
    row.sum().backward()
    np.testing.assert_array_equal(row.detach().numpy(), weight.detach().numpy()[7])
    assert weight.grad is not None
    assert weight.grad.sum(1).nonzero().tolist() == [[7]]


def test_odd_memory(fresh: Counting) -> None:
    """Steps that are no multiple of an element, other byte orders, odd addresses."""
    count = ROWS * COLUMNS
    records = np.zeros(count, dtype=[("x", "f4"), ("tag", "i1")])
    odd = np.zeros(4 * count + 1, np.uint8)[1:].view(np.float32)
    for array in (records["x"], np.zeros(count, ">f4"), odd):
        array[:] = np.arange(count)
        got = (tg.from_numpy(array) * 2 + 1).numpy()
        np.testing.assert_array_equal(got, np.arange(count, dtype=np.float32) * 2 + 1)
        leaf = tg.from_numpy(array).requires_grad_()
        (F.gelu(leaf / count) * leaf).sum().backward()
        same = tg.tensor(array.astype(np.float32), requires_grad=True)
        (F.gelu(same / count) * same).sum().backward()
        assert leaf.grad is not None
        np.testing.assert_allclose(leaf.grad.numpy(), same.grad.numpy(), rtol=1e-5)


def test_detach_and_views_of_large_tensors_share_memory(fresh: Counting) -> None:
    x = numbers(ROWS, COLUMNS).requires_grad_()
    y = x.detach()
    y[0, 0] = 5.0
    assert x[0, 0].item() == 5.0
    assert x.clone().detach().numpy().base is not x.detach().numpy()


# -- keys ----------------------------------------------------------------------------------------


def test_numbers_that_look_alike_are_told_apart(fresh: Counting) -> None:
    x = tg.full((ROWS, COLUMNS), -1.0)
    whole = tg.ones(ROWS, COLUMNS).long()
    for _ in range(2):
        assert not np.signbit(F.threshold(x, 0.0, 0.0).numpy()[0, 0])
        assert np.signbit(F.threshold(x, 0.0, -0.0).numpy()[0, 0])
        assert (whole * 1).dtype is tg.int64
        assert (whole * 1.0).dtype is tg.float32
        assert (whole * True).dtype is tg.int64
        assert np.isnan((x * float("nan")).numpy()).all()


def test_nan_is_one_number(fresh: Counting) -> None:
    x = numbers(ROWS, COLUMNS)
    for _ in range(5):
        F.threshold(x, 0.0, float("nan"))
        F.pad(x, (1, 1), value=float("nan"))
        x * float("nan")
    assert len(fresh.forms) <= 3


def test_other_sizes_share_kernels(fresh: Counting, compiled: list[str]) -> None:
    def work(rows: int, columns: int) -> None:
        x = numbers(rows, columns).requires_grad_()
        y = tg.arange(rows)
        loss = (F.softmax(F.gelu(x * 2), 1) @ x.T).gather(1, y[:, None]).sum()
        loss.backward()

    work(300, 200)
    first = len(compiled)
    assert first > 0
    work(411, 173)
    work(260, 320)
    assert len(compiled) == first


def test_forms_keep_no_arrays(fresh: Counting) -> None:
    x = numbers(ROWS, COLUMNS).requires_grad_()
    y = F.softmax((x * 2).exp(), 1)
    y.sum().backward()
    assert x.grad is not None
    arrays = [weakref.ref(t._array) for t in (x, y, x.grad)]
    del x, y
    assert [r() for r in arrays] == [None, None, None]
    assert fresh.ran


def test_forms_are_forgotten_when_there_are_many(
    fresh: Counting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(eager, "MOST_FORMS", 3)
    x = numbers(ROWS, COLUMNS)
    for i in range(10):
        np.testing.assert_array_equal((x * float(i)).numpy(), x.numpy() * np.float32(i))
        assert len(fresh.forms) <= 3


# -- errors --------------------------------------------------------------------------------------


def _gradients(function: Callable[..., Tensor], *arrays: Any, **options: Any) -> list[Any]:
    leaves = [tg.tensor(a).requires_grad_() for a in arrays]
    function(*leaves).backward(**options)
    return [leaf.grad.numpy() for leaf in leaves]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("layer", ["matmul", "linear"])
def test_gradients_of_a_weight_that_is_used_again(layer: str, dtype: str, fresh: Counting) -> None:
    """Native rules add to what a leaf has got; NumPy's sum of the parts is the same."""
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal((80, 80)).astype(dtype) * 0.2 for _ in range(2))
    b = rng.standard_normal(80).astype(dtype)

    def recurrence(w: Tensor, b: Tensor) -> Tensor:
        h = tg.tensor(x)
        for _ in range(5):
            h = F.linear(h, w.T, b) if layer == "linear" else h @ w + b
            h = h.tanh()
        return h.square().sum()

    found = _gradients(recurrence, w, b)
    # The same with a leaf for each use, whose gradients are added up afterwards.
    copies = [tg.tensor(w).requires_grad_() for _ in range(5)]
    h, bias = tg.tensor(x), tg.tensor(b)
    for copy in copies:
        h = (h @ copy + bias).tanh()
    h.square().sum().backward()
    expected = np.sum([copy.grad.numpy() for copy in copies], axis=0)
    np.testing.assert_allclose(found[0], expected, rtol=1e-3, atol=1e-4)


def test_added_gradients_are_nobody_elses(fresh: Counting) -> None:
    """A gradient kept from an earlier pass, or by a mapping, does not change later."""
    rng = np.random.default_rng(1)
    x, w = tg.tensor(rng.standard_normal((90, 90))), tg.tensor(rng.standard_normal((90, 90)) * 0.1)
    w.requires_grad_()
    loss = ((x @ w) @ w @ w).sum()
    loss.backward(retain_graph=True)
    first = w.grad
    kept = first.numpy().copy()
    w.grad = None
    loss.backward(retain_graph=True)
    np.testing.assert_array_equal(first.numpy(), kept)
    np.testing.assert_array_equal(w.grad.numpy(), kept)
    loss.backward()
    np.testing.assert_allclose(w.grad.numpy(), 2 * kept)


def test_a_gradient_that_lies_in_another_order_is_added_to(fresh: Counting) -> None:
    """Sums of gradients that come through transposes lie as these do, and products add to them."""
    rng = np.random.default_rng(4)
    w, x, a, b = (rng.standard_normal(s) for s in ((60, 70), (80, 60), (70, 60), (70, 60)))

    def loss(w: Tensor) -> Tensor:
        product = (tg.tensor(x) @ w).sum() * 0.5  # recorded first, so its rule runs last
        return product + (w.T * tg.tensor(a)).sum() + (w.T * tg.tensor(b)).sum()

    expected = 0.5 * (x.T @ np.ones((80, 70))) + a.T + b.T
    np.testing.assert_allclose(_gradients(loss, w)[0], expected, rtol=1e-9)


def test_one_leaf_on_both_sides_of_products(fresh: Counting) -> None:
    rng = np.random.default_rng(2)
    a = rng.standard_normal((70, 70))
    found = _gradients(lambda w: (w @ w).sum() + (w @ w.T).sum() + (w @ w).sum(), a)[0]
    ones = np.ones_like(a)
    expected = 2 * (ones @ a.T + a.T @ ones) + ones @ a + ones.T @ a
    np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_gradients_that_reach_a_leaf_in_other_ways_too(fresh: Counting) -> None:
    """Products, sums and hooks on the same weight."""
    rng = np.random.default_rng(3)
    w = tg.tensor(rng.standard_normal((64, 64)) * 0.1).requires_grad_()
    seen = []
    w.register_hook(lambda g: seen.append(g.clone()))
    x = tg.tensor(rng.standard_normal((64, 64)))

    def loss(w: Tensor) -> Tensor:
        return ((x @ w).tanh() @ w).square().sum() + (w * 3).sum() + (w @ x).sum()

    loss(w).backward()
    (g,) = tg.autograd.grad(loss(w), w, create_graph=True)
    np.testing.assert_allclose(w.grad.numpy(), g.detach().numpy(), rtol=1e-9)
    assert len(seen) == 2


def test_errors_are_those_of_numpy_kernels_and_leave_no_trace(fresh: Counting) -> None:
    x, y = numbers(ROWS, COLUMNS), tg.arange(ROWS) % COLUMNS
    whole = tg.arange(ROWS * COLUMNS)
    zero = whole.clone()
    zero[7] = 0
    wrong = y.clone()
    wrong[5] = COLUMNS
    attempts: list[tuple[Callable[[], Any], Callable[[], Any]]] = [
        (lambda: F.cross_entropy(x, y), lambda: F.cross_entropy(x, wrong)),
        (lambda: x.gather(1, y[:, None]), lambda: x.gather(1, wrong[:, None])),
        (lambda: x.T[y], lambda: x.T[wrong]),
        (lambda: F.embedding(y, x.T), lambda: F.embedding(wrong, x.T)),
        (lambda: whole // (zero + 1), lambda: whole // zero),
    ]
    for right, bad in attempts:
        fine = right().numpy()
        with pytest.raises((IndexError, RuntimeError)) as expected:
            in_numpy(bad)
        for _ in range(2):
            with pytest.raises(expected.type) as raised:
                bad()
            assert str(raised.value) == str(expected.value)
            lines = [frame.name for frame in traceback.extract_tb(raised.value.__traceback__)]
            assert "<lambda>" in lines
        np.testing.assert_array_equal(right().numpy(), fine)


def test_shapes_that_do_not_fit(fresh: Counting) -> None:
    x = numbers(ROWS, COLUMNS)
    for bad in (lambda: x + x.T, lambda: x @ x, lambda: F.linear(x, numbers(4, COLUMNS + 1))):
        with pytest.raises((RuntimeError, ValueError)) as expected:
            in_numpy(bad)
        with pytest.raises(expected.type) as raised:
            bad()
        assert str(raised.value) == str(expected.value)


# -- circumstances -------------------------------------------------------------------------------


def network(x: Tensor) -> Tensor:
    w = numbers(64, COLUMNS, seed=3).requires_grad_()
    return F.cross_entropy(F.gelu(F.linear(x, w)) * 2, tg.arange(x.shape[0]) % 64)


def test_without_llvmlite(monkeypatch: pytest.MonkeyPatch, fresh: Counting) -> None:
    x = numbers(ROWS, COLUMNS)
    expected = in_numpy(results, network, [x])
    monkeypatch.setattr(jit, "available", lambda: False)
    for a, b in zip(results(network, [x]), expected, strict=True):
        np.testing.assert_array_equal(a, b)
    assert fresh.ran == 0
    p = tg.ones(ROWS, COLUMNS, requires_grad=True)
    optimizer = tg.optim.Adam([p], lr=0.5)
    for _ in range(3):
        optimizer.zero_grad()
        (p * p).sum().backward()
        optimizer.step()
    assert p[0, 0].item() < 0


def test_modes(fresh: Counting) -> None:
    x = numbers(ROWS, COLUMNS).requires_grad_()
    expected = network(x).item()
    for mode in (tg.no_grad, tg.inference_mode):
        with mode():
            assert network(x).item() == expected
            assert not network(x).requires_grad
    with tg.Tape() as tape:
        loss = network(x)
    assert loss.item() == expected
    (plain,) = tg.autograd.grad(network(x), [x])
    np.testing.assert_array_equal(tape.backward(loss)[x].numpy(), plain.numpy())
    with tg.autograd.detect_anomaly():
        (checked,) = tg.autograd.grad(network(x), [x])
    np.testing.assert_array_equal(checked.numpy(), plain.numpy())
    assert fresh.ran


def test_a_nan_of_native_code_names_its_line(fresh: Counting) -> None:
    x = tg.zeros(ROWS, COLUMNS, requires_grad=True)
    F.softmax(x, 1).sum().backward()
    with tg.autograd.detect_anomaly():
        loss = ((x * 0).sqrt() * 0).sum()
        with pytest.raises(RuntimeError, match=r"test_native_eager\.py"):
            loss.backward()


def test_saved_tensors_hooks_see_what_is_saved(fresh: Counting) -> None:
    x = numbers(ROWS, COLUMNS).requires_grad_()
    (expected,) = tg.autograd.grad(network(x), [x])
    packed: list[Any] = []

    def pack(t: Tensor) -> Any:
        packed.append(t.shape)
        return t.numpy().copy()

    with tg.autograd.graph.saved_tensors_hooks(pack, tg.tensor):
        loss = network(x)
    (got,) = tg.autograd.grad(loss, [x])
    np.testing.assert_array_equal(got.numpy(), expected.numpy())
    assert (ROWS, COLUMNS) in packed or (ROWS, 64) in packed


def test_an_overwritten_value_is_noticed(fresh: Counting) -> None:
    x = numbers(ROWS, COLUMNS).requires_grad_()
    y = x * 1
    loss = F.softmax(y * y, 1).sum()
    y.add_(1)
    with pytest.raises(RuntimeError, match="test_native_eager"):
        loss.backward()


def test_several_threads_at_once(fresh: Counting) -> None:
    given = [numbers(ROWS + i % 2, COLUMNS, seed=i) for i in range(6)]
    expected = [results(network, [x]) for x in given]
    errors: list[BaseException] = []
    barrier = threading.Barrier(len(given))

    def work(i: int) -> None:
        try:
            barrier.wait()
            for _ in range(5):
                for a, b in zip(results(network, [given[i]]), expected[i], strict=True):
                    np.testing.assert_array_equal(a, b)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(len(given))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []


def test_any_number_of_threads_at_any_time(
    fresh: Counting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool.pool, "threads", None)
    x = numbers(500, COLUMNS)
    expected = in_numpy(results, network, [x])
    seen: dict[int, list[Any]] = {}
    for threads in (1, 3, 2, 1, 4, 2, 3):
        tg.set_num_threads(threads)
        got = results(network, [x])
        assert_same(got, expected)
        for a, b in zip(got, seen.setdefault(threads, got), strict=True):
            np.testing.assert_array_equal(a, b)


def test_kernels_of_callbacks_may_run_native_code(fresh: Counting) -> None:
    """A program waits for its callback, whose kernel starts a program of its own."""
    twice = define("twice_the_exponential", lambda x: PRIMITIVES["exp"](x) * 2, kind=OPAQUE)
    try:
        f = tg.compile(lambda x: twice(x * 2) + 1)
        x = numbers(ROWS, COLUMNS)
        expected = (x * 2).exp().numpy() * 2 + 1
        for _ in range(4):
            np.testing.assert_allclose(f(x).numpy(), expected, rtol=1e-5)
        assert "callback twice_the_exponential" in f.explain()
    finally:
        del PRIMITIVES["twice_the_exponential"]


# -- processes -----------------------------------------------------------------------------------


def output_of(code: str, cache: object) -> str:
    root = pathlib.Path(__file__).parent.parent
    environment = {**os.environ, "PYTHONPATH": str(root), "TAPEGRAD_CACHE": str(cache)}
    environment["PYTHONWARNINGS"] = "ignore"
    done = subprocess.run(
        [sys.executable, "-c", code],
        check=True,
        env=environment,
        timeout=120,
        stdout=subprocess.PIPE,
        text=True,
    )
    return done.stdout


def test_a_fresh_process_gives_the_same_bits_from_its_first_call_on(
    tmp_path: pathlib.Path,
) -> None:
    code = """
import hashlib, tapegrad as tg
from tapegrad import nn
tg.manual_seed(0)
x, y = tg.randn(300, 200), tg.arange(300) % 10
start = nn.Linear(200, 10)
for _ in range(3):
    model = nn.Linear(200, 10)
    model.load_state_dict(start.state_dict())
    optimizer = tg.optim.Adam(model.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(nn.functional.gelu(model(x * 2)), y)
        loss.backward()
        optimizer.step()
    print(hashlib.sha256(model.weight.detach().numpy().tobytes()).hexdigest(), loss.item())
"""
    cold, warm = output_of(code, tmp_path / "cache"), output_of(code, tmp_path / "cache")
    assert cold == warm
    assert len(set(cold.splitlines())) == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_forks_while_another_thread_computes(tmp_path: pathlib.Path) -> None:
    code = """
import os, threading, tapegrad as tg
from tapegrad import nn
x = tg.ones(400, 300)
def work(n):
    return nn.functional.softmax(x * n, 1).sum(), (x @ x.T).sum()
expected = [t.item() for t in work(2)]
stop = False
def other():
    n = 0
    while not stop:
        n += 1
        work(float(n))
thread = threading.Thread(target=other)
thread.start()
for i in range(10):
    child = os.fork()
    if child == 0:
        nn.functional.layer_norm(x + i, (300,))
        os._exit(0 if [t.item() for t in work(2)] == expected else 1)
    assert os.waitpid(child, 0)[1] == 0
stop = True
thread.join()
print("done")
"""
    assert output_of(code, 0) == "done\n"


# -- the first time ------------------------------------------------------------------------------


@pytest.mark.parametrize("transposed", [False, True])
def test_a_form_is_found_without_computing(
    transposed: bool, fresh: Counting, monkeypatch: pytest.MonkeyPatch
) -> None:
    called: list[str] = []

    def counted(name: str, plain: Any, *given: Any, **params: Any) -> Any:
        if max(x.size for x in given if isinstance(x, np.ndarray)) > 1:  # not of a dtype alone
            called.append(name)
        return plain(*given, **params)

    for name in ("convolution", "convolution_weight", "convolution_input", "matmul"):
        p = PRIMITIVES[name]
        monkeypatch.setattr(p, "kernel", functools.partial(counted, name, p.kernel))
    make = nn.ConvTranspose2d if transposed else nn.Conv2d
    layer, head = make(8, 8, 3), nn.Linear(64, 64)
    x = numbers(4, 8, 64, 64).requires_grad_(True)
    head(layer(x).flatten()[: 1 << 15].reshape(-1, 64)).sum().backward()
    assert called == []
    assert fresh.ran > 0


def test_operations_that_take_long_to_compile_say_so_once(
    fresh: Counting, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = iter(range(1000))
    monkeypatch.setattr(progress, "clock", lambda: 0.2 * next(now))
    monkeypatch.setattr(progress.Progress, "check", lambda self: None)
    monkeypatch.delenv("TAPEGRAD_QUIET")
    x = numbers(ROWS, COLUMNS)
    for function in (tg.exp, tg.sin, tg.tanh, tg.cos, tg.sigmoid):
        function(x)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("tapegrad: compiling operations as they are first met")
