"""Half precision: sums and products round once, gradients keep the dtype, models train."""

import copy

import numpy as np
import pytest
from sweep import NAMES, call, flat, mapped, some_cases

import tapegrad as tg
import tapegrad.nn.functional as F
from tapegrad import nn
from tapegrad.ops import TABLE
from tapegrad.ops.linalg.matmul import matmul_

HALF = [tg.bfloat16, tg.float16]
each_half = pytest.mark.parametrize("dtype", HALF, ids=[d.name for d in HALF])
#: the distance of two neighbours at 1
STEP = {tg.bfloat16: 2.0**-7, tg.float16: 2.0**-10}


@pytest.fixture(autouse=True)
def seeded():
    tg.manual_seed(0)


def error(got, exact):
    """The largest difference, in parts of the largest value."""
    size = exact.abs().max().item() or 1.0
    return (got.detach().double() - exact.detach()).abs().max().item() / size


# -- dtypes ------------------------------------------------------------------------------------


@pytest.mark.sweep(keep=1 / 6)
@pytest.mark.parametrize("create_graph", [False, True], ids=["first", "create_graph"])
@pytest.mark.parametrize("dtype", [*HALF, tg.float32], ids=lambda d: d.name)
@pytest.mark.parametrize("name", [n for n in NAMES if TABLE[n].differentiable and TABLE[n].half])
def test_gradients_on_their_way_have_the_dtype_of_their_tensor(name, dtype, create_graph):
    """A float32 gradient on its way through half precision is read by kernels as something else."""
    for op, sample, given in some_cases(name, tg.float32):
        seen = []

        def inner(x, seen=seen):
            if not x.dtype.is_floating_point or not x.requires_grad:
                return x.to(dtype) if x.dtype.is_floating_point else x
            copied = x.detach().to(dtype).requires_grad_().clone()
            copied.register_hook(lambda g: seen.append(g.dtype))
            return copied

        out = call(op, mapped(inner, given))
        results = [y for y in flat(out) if isinstance(y, tg.Tensor) and y.requires_grad]
        if results:
            starts = [tg.ones_like(y) for y in results]
            tg.autograd.backward(results, starts, create_graph=create_graph)
        assert set(seen) <= {dtype}, f"{name}{sample}"


@each_half
def test_modules_in_half_precision(dtype):
    net = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(8, 3))
    net = net.half() if dtype is tg.float16 else net.bfloat16()
    assert {p.dtype for p in net.parameters()} == {dtype}
    assert net[1].num_batches_tracked.dtype is tg.int64
    assert net(tg.randn(2, 1, 4, 4).to(dtype)).dtype is dtype
    with pytest.raises(RuntimeError, match="dtype"):
        net(tg.randn(2, 1, 4, 4))


@each_half
def test_norms_with_weights_in_float32(dtype):
    x = tg.randn(4, 6, 3).to(dtype).requires_grad_()
    w, b = tg.rand(6, requires_grad=True), tg.rand(6, requires_grad=True)
    ours = [
        F.layer_norm(x.transpose(1, 2), (6,), w, b),
        F.rms_norm(x.transpose(1, 2), (6,), w),
        F.group_norm(x, 2, w, b),
        F.batch_norm(x, tg.zeros(6), tg.ones(6), w, b, True),
        F.instance_norm(x, None, None, w, b),
        F.batch_norm(x, tg.zeros(6), tg.ones(6), w, b, False),
    ]
    assert {y.dtype for y in ours} == {dtype}
    sum(y.float().sum() for y in ours).backward()
    assert (x.grad.dtype, w.grad.dtype, b.grad.dtype) == (dtype, tg.float32, tg.float32)
    with pytest.raises(RuntimeError, match="one dtype"):
        F.layer_norm(x.float(), (3,), tg.ones(3).to(dtype))
    with pytest.raises(RuntimeError, match="one dtype"):
        F.layer_norm(x, (3,), tg.ones(3).double())


def test_the_bias_of_a_norm_is_not_rounded_to_half_precision():
    x, b = tg.randn(257, 8).bfloat16(), tg.zeros(8, requires_grad=True)
    F.layer_norm(x, (8,), tg.ones(8), b).backward(tg.ones(257, 8).bfloat16())
    assert b.grad.tolist() == [257.0] * 8


# -- values ------------------------------------------------------------------------------------

#: functions of a (200, 200) matrix: large enough for native code
LARGE = {
    "sum": lambda x: x.sum(1),
    "mean": lambda x: x.mean(0),
    "matmul": lambda x: x @ x,
    "linear": lambda x: F.linear(x, x[:50], x[0, :50]),
    "exp": lambda x: (x / 4).exp(),
    "gelu": F.gelu,
    "tanh": lambda x: x.tanh(),
    "softmax": lambda x: x.softmax(-1),
    "log_softmax": lambda x: x.log_softmax(-1),
    "layer_norm": lambda x: F.layer_norm(x, (200,), x[0], x[1]),
    "cross_entropy": lambda x: F.cross_entropy(x, tg.arange(200)),
    "mse_loss": lambda x: F.mse_loss(x, x.flip(0), reduction="none"),
    "conv2d": lambda x: F.conv2d(x.reshape(4, 8, 25, 50), x[:9, :8].T.reshape(1, 8, 3, 3)),
    "max_pool2d": lambda x: F.max_pool2d(x.reshape(1, 10, 40, 100), 2),
    "attention": lambda x: F.scaled_dot_product_attention(
        *x.reshape(10, 50, 80).split([30, 30, 20], -1), is_causal=True
    ),
    "embedding": lambda x: F.embedding(tg.arange(400) % 7, x),
    "multiplication": lambda x: x * x.T + 0.5,
    "var": lambda x: x.var(1),
    "norm": lambda x: x.norm(dim=1),
    "cumsum": lambda x: x.cumsum(0),
    "cat": lambda x: tg.cat([x, x * 2]),
    "bce": lambda x: F.binary_cross_entropy_with_logits(
        x, (x.detach() > 0).to(x.dtype), reduction="none"
    ),
}


@each_half
@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("name", LARGE)
def test_large_operations(name, dtype, compiled):
    function = tg.compile(LARGE[name]) if compiled else LARGE[name]
    for _ in range(3 if compiled else 1):
        # Halves of small integers: what is added up is not lost in rounding alone.
        x = (tg.randn(200, 200) * 4).round().div(4).to(dtype).requires_grad_()
        exact = x.detach().double().requires_grad_()
        got, expected = function(x), LARGE[name](exact)
        g = tg.randn(*got.shape).to(dtype)
        got.backward(g)
        expected.backward(g.double())
    assert (got.dtype, x.grad.dtype) == (dtype, dtype)
    assert error(got, expected) < 2 * STEP[dtype]
    assert error(x.grad, exact.grad) < 4 * STEP[dtype]


@pytest.mark.parametrize("pair", [(0, 2), (2, 0), (1, 2), (2, 1)], ids=str)
def test_native_products_of_mixed_arrays(pair):
    kinds = [tg.bfloat16.numpy, np.dtype("float16"), np.dtype("float32")]
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal((200, 200)).astype(kinds[i]) for i in pair)
    exact = x.astype(np.float64) @ y.astype(np.float64)
    np.testing.assert_allclose(matmul_(x, y), exact, rtol=1e-3, atol=1e-3)


# -- training ----------------------------------------------------------------------------------


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(9, 16)
        self.norm = nn.LayerNorm(16)
        self.project, self.head = nn.Linear(16, 48), nn.Linear(16, 9)

    def forward(self, ids):
        x = self.words(ids)
        q, k, v = self.project(self.norm(x)).chunk(3, dim=-1)
        x = x + F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.head(x).flatten(0, 1)


def convolutional():
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1),
        nn.GroupNorm(2, 8),
        nn.GELU(),
        nn.Conv2d(8, 8, 3, padding=1),
        nn.Flatten(),
        nn.Linear(8 * 64, 9),
    )


def batch(name):
    if name == "attention":
        ids = tg.randint(0, 9, (16, 9))
        return ids[:, :-1].contiguous(), ids[:, 1:].flatten()
    return tg.randn(16, 1, 8, 8), tg.randint(0, 9, (16,))


@each_half
@pytest.mark.parametrize("name", ["attention", "convolutional"])
def test_gradients_of_whole_models(name, dtype):
    net = Attention() if name == "attention" else convolutional()
    x, y = batch(name)
    net = net.to(dtype)
    exact = copy.deepcopy(net).double()
    floating = x.dtype.is_floating_point
    F.cross_entropy(net(x.to(dtype) if floating else x), y).backward()
    F.cross_entropy(exact(x.to(dtype).double() if floating else x), y).backward()
    for (name, p), q in zip(net.named_parameters(), exact.parameters(), strict=True):
        assert p.grad.dtype is dtype
        assert error(p.grad, q.grad) < 8 * STEP[dtype], name


@each_half
@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("name", ["attention", "convolutional"])
def test_models_learn(name, dtype, compiled):
    net = (Attention() if name == "attention" else convolutional()).to(dtype)
    optimizer = tg.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    x, y = batch(name)
    x = x.to(dtype) if x.dtype.is_floating_point else x

    def step(x, y):
        optimizer.zero_grad()
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        return loss

    run = tg.compile(step) if compiled else step
    losses = [run(x, y).item() for _ in range(20)]
    assert losses[-1] < 0.9 * losses[0]


@each_half
@pytest.mark.parametrize("kind", [nn.RNN, nn.LSTM, nn.GRU])
def test_gradients_of_sequences_in_several_pieces(kind, dtype):
    net = kind(3, 4).to(dtype)
    exact = kind(3, 4).double()
    exact.load_state_dict(net.state_dict())
    x = tg.randn(75, 2, 3).to(dtype)
    net(x)[0].float().sum().backward()
    exact(x.double())[0].sum().backward()
    for ours, theirs in zip(net.parameters(), exact.parameters(), strict=True):
        assert ours.grad.dtype is dtype
        assert error(ours.grad, theirs.grad) < STEP[dtype]
