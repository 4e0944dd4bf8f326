"""Convolutions and poolings in compiled functions: native, and equal to eager."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from replaying import callbacks, close, randn, replayed
from sweep import flat, generator, samples_of
from thinning import some

import tapegrad as tg
from tapegrad import nn
from tapegrad.core.primitive import OPAQUE, Primitive
from tapegrad.core.tensor import Tensor
from tapegrad.nn import functional as F
from tapegrad.ops import TABLE
from tapegrad.replay import Compiled
from tapegrad.replay.cpu import patches, vectors
from tapegrad.testing import make_arguments

OPERATIONS = [
    name
    for name in sorted(TABLE)
    if any(part in name for part in ("conv", "pool", "fold", "functional.pad", "sample", "shuffle"))
    or name.split(".")[-1] in ("interpolate", "affine_grid", "local_response_norm")
]


def with_gradients(function: Any) -> Any:
    """Values of a function and the gradients of a sum that weighs them."""

    def f(*args: Any, **kwargs: Any) -> Any:
        outs = [o for o in flat(function(*args, **kwargs)) if isinstance(o, Tensor)]
        given = [x for x in flat([args, list(kwargs.values())]) if isinstance(x, Tensor)]
        inputs = [x for x in given if x.requires_grad]
        total = sum((o * o.detach().cos()).sum() for o in outs if o.requires_grad)
        return [o.detach() for o in outs], tg.autograd.grad(total, inputs)

    return f


def agrees(function: Any, make: Any, tolerance: float = 2e-5) -> Compiled:
    """Calls of the compiled function give what the plain one gives, without NumPy."""
    fast: Compiled = tg.compile(function)
    for i in range(4):
        results = [flat(g(*args, **kwargs)) for g in (function, fast) for args, kwargs in [make(i)]]
        for a, b in zip(*results, strict=True):
            assert (a.dtype, a.shape) == (b.dtype, b.shape)
            close(a, b, tolerance)
    assert replayed(fast) == 2
    assert callbacks(fast) == []
    return fast


@pytest.mark.sweep(keep=1 / 2)
@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("dtype", [tg.float32, tg.float64], ids=str)
def test_every_sample_is_native(name: str, dtype: Any) -> None:
    op = TABLE[name]
    for _, sample in some(samples_of(name)):

        def make(i: int, sample: Any = sample) -> Any:
            tg.manual_seed(i)  # some pools draw their windows
            return make_arguments(sample, generator(name, i), dtype, True)

        agrees(with_gradients(op.function), make)


@pytest.mark.parametrize("seed", range(16))
def test_convolutions_of_random_geometry(seed: int) -> None:
    choose = random.Random(seed)
    groups = choose.choice([1, 1, 1, 2, 3])
    channels, outs = groups * choose.randint(1, 9), groups * choose.randint(1, 17)
    kernel = [choose.randint(1, 4) for _ in range(2)]
    options = {
        "stride": [choose.choice([1, 1, 2, 3]) for _ in range(2)],
        "padding": [choose.randint(0, 3) for _ in range(2)],
        "dilation": [choose.choice([1, 1, 2]) for _ in range(2)],
        "groups": groups,
    }
    size = [choose.randint(7, 36) for _ in range(2)]
    shapes = (
        (choose.randint(1, 5), channels, *size),
        (outs, channels // groups, *kernel),
        (outs,),
    )

    def make(i: int) -> Any:
        tensors = [randn(*shape, seed=10 * i + j) for j, shape in enumerate(shapes)]
        return [t.requires_grad_() for t in tensors], options

    agrees(with_gradients(F.conv2d), make, 1e-4)


def wide_convolution(seed: int) -> tuple[Any, list[tuple[int, ...]], dict[str, Any]]:
    """A convolution of some dimensions with so many channels that patches are copied."""
    choose = random.Random(seed)
    dims, groups, transposed = choose.choice([1, 2, 2, 3]), choose.choice([1, 1, 2]), seed % 4 == 3
    outs, channels = groups * choose.randint(16, 60), groups * choose.randint(16, 40)
    kernel = [choose.randint(1, 4) for _ in range(dims)]
    options = {
        "stride": [choose.choice([1, 1, 2, 3, 5]) for _ in range(dims)],
        "dilation": [choose.choice([1, 1, 2]) for _ in range(dims)],
        "groups": groups,
    }
    if not transposed:
        options["padding"] = [choose.randint(0, 3) for _ in range(dims)]
    size = [choose.randint(7, (150, 30, 9)[dims - 1]) for _ in range(dims)]
    filters = (channels, outs // groups) if transposed else (outs, channels // groups)
    shapes = [(choose.randint(1, 4), channels, *size), (*filters, *kernel)]
    return getattr(F, f"conv{'_transpose' * transposed}{dims}d"), shapes, options


@pytest.mark.parametrize("seed", range(16))
def test_convolutions_over_patches(seed: int) -> None:
    function, shapes, options = wide_convolution(seed)

    def make(i: int) -> Any:
        return [randn(*s, seed=10 * i + j).requires_grad_() for j, s in enumerate(shapes)], options

    agrees(with_gradients(function), make, 2e-4)


@pytest.mark.parametrize("seed", range(4))
def test_sums_over_patches_do_not_depend_on_threads(seed: int) -> None:
    function, shapes, options = wide_convolution(seed)
    given = [randn(*shape, seed=j).requires_grad_() for j, shape in enumerate(shapes)]
    before, found = tg.get_num_threads(), []
    try:
        for threads in (1, 2, 3):
            tg.set_num_threads(threads)
            fast = tg.compile(with_gradients(function))
            for _ in range(4):
                results = flat(fast(*given, **options))
            found.append([x.numpy().copy() for x in results])
    finally:
        tg.set_num_threads(before)
    for other in found[1:]:
        for a, b in zip(found[0], other, strict=True):
            np.testing.assert_array_equal(a, b)


def test_windows_of_nan_and_infinity_alone_are_touched() -> None:
    x, weight = randn(3, 20, 11, 13, seed=0), randn(33, 20, 3, 3, seed=1)
    x[1, 4, 5, 6], x[2, 19, 10, 12] = float("nan"), float("inf")
    fast = tg.compile(lambda: F.conv2d(x, weight, padding=1))
    for _ in range(4):
        out = fast().numpy()
    expected = np.zeros(out.shape, bool)
    expected[1, :, 4:7, 5:8] = expected[2, :, 9:11, 11:13] = True
    np.testing.assert_array_equal(~np.isfinite(out), expected)


def seen_as(make: Any) -> list[patches.Patches]:
    """How the contractions of a compiled function are seen as products over patches."""
    found = []

    def see(c: Any, lanes: int, original: Any = patches._shape) -> Any:
        found.append(original(c, lanes))
        return found[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(patches, "_shape", see)
        patch.setenv("TAPEGRAD_CACHE", "0")
        function = tg.compile(make)
        for _ in range(3):
            function()
    return found


def test_what_is_a_tap_and_what_a_position() -> None:
    x, weight, g = randn(2, 17, 7, 9, seed=0), randn(19, 17, 3, 3, seed=1), randn(2, 19, 7, 9)
    (result,) = seen_as(lambda: F.conv2d(x, weight, padding=1))
    assert (result.summed, result.rows, result.step) == (False, 19, 1)
    assert [d.size for d in result.taps] == [17, 3, 3]
    assert [d.size for d in result.positions] == [2, 7, 9]
    weight.requires_grad_()
    (filters,) = seen_as(
        lambda: tg.autograd.grad(F.conv2d(x, weight, padding=1, stride=(1, 1)), weight, g)
    )
    assert (filters.summed, filters.rows) == (True, 19)
    assert [d.size for d in filters.taps] == [17, 3, 3]


@pytest.mark.parametrize("seed", range(12))
def test_pools_of_random_geometry(seed: int) -> None:
    choose = random.Random(seed)
    size = [choose.randint(1, 4) for _ in range(2)]
    stride = [choose.randint(1, 4) for _ in range(2)]
    padding = [choose.randint(0, n // 2) for n in size]
    shape = (choose.randint(1, 3), choose.randint(1, 5), *(choose.randint(6, 33) for _ in range(2)))
    ceil = choose.random() < 0.5

    def make(i: int) -> Any:
        return [randn(*shape, seed=i).requires_grad_()], {}

    agrees(with_gradients(lambda x: F.max_pool2d(x, size, stride, padding, ceil_mode=ceil)), make)
    agrees(with_gradients(lambda x: F.avg_pool2d(x, size, stride, padding, ceil)), make)


@pytest.mark.parametrize("options", [(2,), (3, 1), (3, 2, 1)], ids=str)
def test_max_pools_of_ties_infinities_and_nan(options: Any) -> None:
    def make(i: int) -> Any:
        rng = np.random.default_rng(i)
        values = rng.choice(
            [-np.inf, 0.0, 1.0, np.inf, np.nan], (3, 4, 12, 12), p=[0.3] * 3 + [0.05] * 2
        )
        return [tg.tensor(values.astype(np.float32), requires_grad=True)], {}

    def f(x: Tensor) -> Any:
        out, index = F.max_pool2d(x, *options, return_indices=True)
        weights = tg.arange(out.numel()).reshape(out.shape) + 1.0
        return out.detach(), index, tg.autograd.grad(out, [x], [weights])

    fast: Compiled = tg.compile(f)
    for i in range(4):
        for a, b in zip(flat(f(*make(i)[0])), flat(fast(*make(i)[0])), strict=True):
            np.testing.assert_array_equal(a.numpy(), b.numpy())
    assert replayed(fast) == 2


def test_gradients_of_gradients() -> None:
    weight = randn(4, 3, 3, 3, seed=9).requires_grad_()

    def f(x: Tensor) -> Any:
        out = F.avg_pool2d(F.conv2d(x, weight, padding=1).tanh(), 2)
        (g,) = tg.autograd.grad(out.sum(), [x], create_graph=True)
        return tg.autograd.grad((g * g).sum(), [x, weight])

    agrees(f, lambda i: ([randn(2, 3, 8, 8, seed=i).requires_grad_()], {}))


def network(seed: int) -> Any:
    tg.manual_seed(seed)
    return nn.Sequential(
        nn.Conv2d(1, 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(6, 8, 3, stride=2, padding=1, groups=2), nn.ReLU(), nn.AvgPool2d(2),
        nn.Flatten(), nn.Linear(8 * 3 * 3, 5),
    )  # fmt: skip


def test_training_agrees_with_eager() -> None:
    models = network(0), network(0)
    steps = []
    for model in models:
        optimizer = tg.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

        def step(x: Any, y: Any, model: Any = model, optimizer: Any = optimizer) -> Any:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            return loss

        steps.append(step)
    eager, fast = steps[0], tg.compile(steps[1])
    labels = tg.tensor(np.random.default_rng(0).integers(0, 5, 16))
    losses = []
    for i in range(10):
        x = randn(16, 1, 24, 24, seed=i % 2)
        expected = eager(x, labels)
        close(expected, fast(x, labels), 1e-4)
        losses.append(expected.item())
    assert losses[-1] < losses[0]
    assert callbacks(fast) == []
    assert replayed(fast) >= 7
    for p, q in zip(models[0].state_dict().values(), models[1].state_dict().values(), strict=True):
        close(p, q, 1e-4)


# -- contractions ----------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(20))
def test_contractions_of_any_layout(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sums of products over dimensions that lie in any order, against einsum."""
    if seed % 4 == 3:  # as on a processor with smaller vectors, and fewer of them
        monkeypatch.setattr(vectors, "registers", lambda: (32, 12))
    choose = random.Random(seed)
    letters = "abcdef"[: choose.randint(2, 6)]
    kinds = {c: choose.choice(["x", "y", "xy", "sum", "sum"]) for c in letters}
    sizes = {c: choose.choice([1, 2, 3, 5, 9, 17, 35]) for c in letters}
    while np.prod([float(n) for n in sizes.values()]) > 6e5:
        largest = max(sizes, key=lambda c: sizes[c])
        sizes[largest] = sizes[largest] // 2
    of_x, of_y = ([c for c in letters if kinds[c] in (name, "xy", "sum")] for name in ("x", "y"))
    kept = [c for c in letters if kinds[c] != "sum"]
    for names in (of_x, of_y, kept):
        choose.shuffle(names)

    def spread(array: Any, names: list[str]) -> Any:
        """Dimensions in the order of the letters; a size of 1 for those that are not there."""
        order = [names.index(c) for c in letters if c in names]
        index = tuple(slice(None) if c in names else None for c in letters)
        return array.transpose(order)[index]

    def lower(b: Any, out: Any, x: Any, y: Any) -> None:
        b.contract(spread(out, kept), spread(x, of_x), spread(y, of_y))

    rule = f"{''.join(of_x)},{''.join(of_y)}->{''.join(kept)}"
    primitive = Primitive(
        "contract",
        lambda x, y: np.asarray(np.einsum(rule, x, y), order="C"),
        OPAQUE,
        ("x", "y"),
        lower=lower,
    )
    shapes = [[sizes[c] for c in names] for names in (of_x, of_y)]

    def make(i: int) -> Any:
        return [randn(*shape, seed=i + 10 * j) for j, shape in enumerate(shapes)], {}

    agrees(lambda x, y: primitive(x, y), make, 1e-4)


@pytest.mark.parametrize("stride", [2, 3, 4, 6])
@pytest.mark.parametrize("dilation", [2, 3, 4])
@pytest.mark.parametrize("padding", [0, 3])
def test_taps_are_met_where_windows_move_and_have_gaps(
    stride: int, dilation: int, padding: int
) -> None:
    def f(x: Any, weight: Any) -> Any:
        return F.conv_transpose1d(x, weight, None, stride, padding, 1, 1, dilation)

    agrees(f, lambda i: ((randn(2, 3, 7, seed=i), randn(3, 2, 4, seed=i + 1)), {}))


def test_a_filter_with_nan_spoils_what_its_taps_meet_alone() -> None:
    def f(x: Any, weight: Any) -> Any:
        return F.conv_transpose1d(x, weight, stride=3, padding=2, dilation=4)

    fast = tg.compile(f)
    for i in range(4):
        x, weight = randn(1, 3, 4, seed=i), randn(3, 2, 2, seed=i)
        weight[1, 1, 1] = float("nan")
        expected = f(x, weight)
        assert expected.isnan().sum() == 3
        assert tg.allclose(fast(x, weight), expected, atol=1e-5, equal_nan=True)
    assert replayed(fast) == 2


def test_many_channels_of_double_precision_have_gradients():
    """The product over patches has enough of everything to be packed, and no memory for that."""
    x = np.random.default_rng(0).standard_normal((2, 256, 16, 16))
    g = np.random.default_rng(1).standard_normal((2, 256, 16, 16))
    w = tg.zeros(256, 256, 3, 3, dtype=tg.float64, requires_grad=True)
    out = F.conv2d(tg.from_numpy(x), w, padding=1)
    out.backward(tg.from_numpy(g))
    inside = np.einsum("nihw,nohw->oi", x[:, :, :-1], g[:, :, 1:])
    np.testing.assert_allclose(w.grad.numpy()[:, :, 0, 1], inside, rtol=1e-9, atol=1e-9)
