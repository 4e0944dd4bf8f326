"""GT: every example of the document, with what it promises. `gt` there is `tg` here."""

from itertools import pairwise

import numpy as np
import pytest

import tapegrad as tg
from tapegrad import nn
from tapegrad.dialects import binary_cross_entropy, cross_entropy_loss, mse_loss
from tapegrad.nn import Linear, Module
from tapegrad.optim import SGD
from tapegrad.testing import gradcheck


def same(actual, expected, rtol=1e-5, atol=1e-6):
    np.testing.assert_allclose(actual, expected, rtol, atol)


@pytest.fixture(autouse=True)
def seed():
    tg.manual_seed(0)


# -- Enabling Gradients ------------------------------------------------------------------------


def test_enabling_gradients():
    a = tg.randn(10, 10, requires_grad=True)
    assert a.requires_grad
    assert a.shape == (10, 10)

    data = np.random.default_rng(0).standard_normal((5, 5))
    b = tg.from_numpy(data, requires_grad=True)
    assert b.requires_grad
    same(b.data.numpy(), data)


# -- Computing Gradients -----------------------------------------------------------------------


def test_basic_example():
    x = tg.randn(10, 10, requires_grad=True)
    y = x * 2
    loss = y.sum()

    loss.backward()

    same(x.grad.data.numpy(), np.full((10, 10), 2.0), rtol=0)


def test_multi_step_computation():
    a = tg.randn(100, 50, requires_grad=True)
    b = tg.randn(50, 20, requires_grad=True)

    hidden = a @ b
    activated = hidden.relu()
    output = activated.sum()

    output.backward()

    a_grad = a.grad.data.numpy()
    b_grad = b.grad.data.numpy()
    mask = (a.data.numpy() @ b.data.numpy() > 0).astype(np.float32)
    same(a_grad, mask @ b.data.numpy().T, 1e-4, 1e-4)
    same(b_grad, a.data.numpy().T @ mask, 1e-4, 1e-4)


# -- Training Neural Networks ------------------------------------------------------------------


class MLP(Module):
    def __init__(self):
        super().__init__()
        self.fc1 = Linear(784, 256)
        self.fc2 = Linear(256, 10)

    def forward(self, x):
        x = self.fc1(x).relu()
        return self.fc2(x)


def test_complete_example(capsys):
    X_train = tg.randn(64, 784)
    y_train = tg.randn(64, 10)
    model = MLP()
    optimizer = SGD(model.parameters(), lr=0.01)

    losses = []
    for epoch in range(100):
        pred = model(X_train)
        loss = ((pred - y_train) ** 2).mean()

        loss.backward()

        optimizer.step()
        optimizer.zero_grad()

        losses.append(float(loss.data.numpy()))
        if epoch % 10 == 0:
            print(f"Epoch {epoch}, Loss: {loss.data.numpy()}")
    assert losses[-1] < losses[0]
    assert all(b < a for a, b in pairwise(losses))
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 10
    assert lines[0] == f"Epoch 0, Loss: {np.float32(losses[0])}"


# -- Supported Operations ----------------------------------------------------------------------

OPERATIONS = {
    "a + b": lambda a, b: a + b,
    "a - b": lambda a, b: a - b,
    "a * b": lambda a, b: a * b,
    "a / b": lambda a, b: a / b,
    "a ** 2": lambda a, b: a**2,
    "1 - a": lambda a, b: 1 - a,
    "2 / b": lambda a, b: 2 / b,
    "a @ b.T": lambda a, b: a @ b.T,
    "a.T": lambda a, b: a.T * b.T,
    "relu": lambda a, b: a.relu(),
    "sigmoid": lambda a, b: a.sigmoid(),
    "tanh": lambda a, b: a.tanh(),
    "sum": lambda a, b: a.sum(),
    "sum(axis=0)": lambda a, b: a.sum(axis=0),
    "mean": lambda a, b: a.mean(),
    "mean(axis=1)": lambda a, b: a.mean(axis=1),
    "exp": lambda a, b: a.exp(),
    "log": lambda a, b: b.abs().log(),
    "slice": lambda a, b: a[:, 1:] * b[:, :-1],
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_supported_operations(name):
    a = tg.tensor([[0.5, -1.2, 2.0], [1.5, 0.3, -0.7]], dtype=tg.float64, requires_grad=True)
    b = tg.tensor([[1.1, 0.4, -0.6], [0.2, -2.0, 0.9]], dtype=tg.float64, requires_grad=True)
    assert gradcheck(OPERATIONS[name], (a, b))


# -- Gradient Flow -----------------------------------------------------------------------------


def test_broadcasting():
    x = tg.randn(100, 1, requires_grad=True)
    y = tg.randn(1, 50, requires_grad=True)

    z = x + y
    assert z.shape == (100, 50)

    z.sum().backward()

    assert x.grad.data.numpy().shape == (100, 1)
    assert y.grad.data.numpy().shape == (1, 50)
    same(x.grad.data.numpy(), np.full((100, 1), 50.0))
    same(y.grad.data.numpy(), np.full((1, 50), 100.0))


def test_matrix_multiplication():
    a = tg.randn(100, 50, requires_grad=True)
    b = tg.randn(50, 20, requires_grad=True)

    c = a @ b
    assert c.shape == (100, 20)
    c.retain_grad()
    loss = c.sum()

    loss.backward()

    same(a.grad.numpy(), c.grad.numpy() @ b.detach().numpy().T, 1e-4, 1e-5)
    same(b.grad.numpy(), a.detach().numpy().T @ c.grad.numpy(), 1e-4, 1e-4)


# -- Neural Network Modules --------------------------------------------------------------------


def test_module_base_class():
    class MyModule(Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(tg.tensor(2.0))

        def forward(self, x):
            return x * self.scale

    module = MyModule()
    assert module(tg.tensor(3.0)).item() == 6.0
    assert [p.item() for p in module.parameters()] == [2.0]


def test_linear_layer(capsys):
    layer = Linear(input_size=784, output_size=256)
    input = tg.randn(4, 784)

    output = layer(input)
    same(output.data.numpy(), layer.forward(input).data.numpy())
    assert output.shape == (4, 256)

    for param in layer.parameters():
        print(param.data.numpy().shape)
    assert capsys.readouterr().out.splitlines() == ["(256, 784)", "(256,)"]


def test_loss_functions():
    predictions = tg.tensor([[0.2, 0.9], [0.6, 0.4]], requires_grad=True)
    targets = tg.tensor([[0.0, 1.0], [1.0, 0.0]])
    p, t = predictions.data.numpy(), targets.numpy()

    loss = mse_loss(predictions, targets)
    assert loss.item() == pytest.approx(((p - t) ** 2).mean(), rel=1e-5)

    logits = tg.tensor([[2.0, -1.0, 0.5], [0.3, 0.1, 0.2]], requires_grad=True)
    labels = tg.tensor([0, 2])
    loss = cross_entropy_loss(logits, labels)
    softmax = np.exp(logits.data.numpy())
    softmax /= softmax.sum(1, keepdims=True)
    assert loss.item() == pytest.approx(-np.log([softmax[0, 0], softmax[1, 2]]).mean(), rel=1e-5)
    loss.backward()
    one_hot = np.eye(3)[[0, 2]]
    same(logits.grad.numpy(), (softmax - one_hot) / 2)

    loss = binary_cross_entropy(predictions, targets)
    expected = -(t * np.log(p) + (1 - t) * np.log(1 - p)).mean()
    assert loss.item() == pytest.approx(expected, rel=1e-5)


# -- Optimizer ---------------------------------------------------------------------------------


def test_sgd_with_momentum():
    model = Linear(3, 1)
    inputs, targets = tg.randn(8, 3), tg.randn(8, 1)
    optimizer = SGD(model.parameters(), lr=0.01, momentum=0.9)
    velocity = [np.zeros(p.shape, np.float32) for p in model.parameters()]
    for _ in range(3):
        expected = []
        loss = mse_loss(model(inputs), targets)

        loss.backward()
        for i, p in enumerate(model.parameters()):
            velocity[i] = 0.9 * velocity[i] + p.grad.numpy()
            expected.append(p.detach().numpy() - 0.01 * velocity[i])
        optimizer.step()
        optimizer.zero_grad()

        for p, e in zip(model.parameters(), expected, strict=True):
            same(p.detach().numpy(), e)
            assert p.grad is None


# -- Manual Parameter Updates ------------------------------------------------------------------


def test_manual_sgd():
    model = Linear(3, 2)
    before = [p.detach().clone() for p in model.parameters()]
    model(tg.randn(4, 3)).sum().backward()
    gradients = [p.grad.clone() for p in model.parameters()]

    learning_rate = 0.01
    with tg.no_grad():
        for param in model.parameters():
            param -= learning_rate * param.grad
            param.grad.zero_()

    for p, old, g in zip(model.parameters(), before, gradients, strict=True):
        same(p.detach().numpy(), (old - learning_rate * g).numpy())
        same(p.grad.numpy(), np.zeros(p.shape))
        assert p.is_leaf
        assert p.requires_grad


def test_a_manual_update_outside_no_grad_is_refused():
    """The document has no no_grad here; the update would become part of the graph."""
    param = nn.Parameter(tg.ones(2))
    param.grad = tg.ones(2)
    with pytest.raises(RuntimeError, match="no_grad"):
        param -= 0.01 * param.grad
    same(param.detach().numpy(), [1.0, 1.0])


# -- Debugging Gradients -----------------------------------------------------------------------


def test_print_tape(capsys):
    x = tg.randn(10, 10, requires_grad=True)
    y = x.relu().sum()

    tg.debug.print_tape()

    shown = capsys.readouterr().out
    assert "relu" in shown
    assert "sum" in shown
    # Operations of other tests may still be there, before these.
    assert shown.rindex("relu") < shown.rindex("sum")
    assert "test_gt.py" in shown

    tg.debug.print_tape(y)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "2 operations made this tensor"
    assert "relu" in lines[1]

    with tg.Tape() as tape:
        x.exp()
        tg.debug.print_tape()
    assert "exp" in capsys.readouterr().out
    tg.debug.print_tape(tape)
    assert "exp" in capsys.readouterr().out
    with pytest.raises(TypeError, match="Tape"):
        tg.debug.print_tape(3)


def test_gradient_stats(capsys):
    model = Linear(3, 2)
    grads = model(tg.ones(4, 3)).sum().backward()
    by_name = tg.debug.gradient_stats(model)
    assert set(by_name) == {"weight", "bias"}
    assert by_name["bias"].mean == 4.0
    assert by_name["bias"].std == 0.0
    assert by_name["weight"].norm == pytest.approx(4 * np.sqrt(6))
    assert by_name["weight"].healthy
    assert tg.debug.gradient_stats(grads)[model.bias.id].norm == by_name["bias"].norm
    model.bias.grad[0] = float("nan")
    model.bias.grad[1] = float("inf")
    bad = tg.debug.gradient_stats([model.bias])[0]
    assert (bad.nans, bad.infs, bad.healthy) == (1, 1, False)
    tg.debug.print_gradients(model)
    assert "weight" in capsys.readouterr().out


def test_compare_with_pytorch(capsys):
    torch = pytest.importorskip("torch")
    data = np.random.default_rng(0).standard_normal((10, 10)).astype(np.float32)

    x_pt = torch.from_numpy(data.copy())
    x_pt.requires_grad = True
    y_pt = (x_pt * 2).sum()
    y_pt.backward()

    x_gt = tg.from_numpy(data.copy(), requires_grad=True)
    y_gt = (x_gt * 2).sum()
    y_gt.backward()

    grad_match = np.allclose(x_pt.grad.numpy(), x_gt.grad.data.numpy())
    print(f"Gradients match: {grad_match}")
    assert capsys.readouterr().out == "Gradients match: True\n"


# -- Implementation Details --------------------------------------------------------------------


def test_gradient_functions():
    a = tg.tensor([1.0, -2.0, 0.0], requires_grad=True)
    b = tg.tensor([3.0, 4.0, 5.0], requires_grad=True)
    g = tg.tensor([10.0, 20.0, 30.0])

    def gradients(out):
        grads = tg.autograd.grad(out, [a, b], g, allow_unused=True)
        return [None if x is None else x.tolist() for x in grads]

    assert gradients(a + b) == [[10, 20, 30], [10, 20, 30]]
    assert gradients(a * b) == [[30, 80, 150], [10, -40, 0]]
    assert gradients(a.relu()) == [[10, 0, 0], None]
    assert tg.autograd.grad(a.sum(), a)[0].tolist() == [1, 1, 1]


def test_gradients_accumulate_until_reset():
    x = tg.ones(3, requires_grad=True)
    for _ in range(2):
        (x * 2).sum().backward()
    same(x.grad.numpy(), [4.0, 4.0, 4.0])
    x.grad.zero_()
    same(x.grad.numpy(), [0.0, 0.0, 0.0])


def test_names_stand_where_the_document_has_them():
    assert nn.SGD is SGD
    assert nn.mse_loss is mse_loss
    assert nn.cross_entropy_loss is cross_entropy_loss
    assert nn.binary_cross_entropy is binary_cross_entropy
