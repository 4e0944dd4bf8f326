"""ML Odyssey (Tape): every example of the document, in Python, with what it promises."""

import math

import numpy as np
import pytest

import tapegrad as tg
from tapegrad import nn
from tapegrad.autograd import Tape, checkpoint, is_grad_enabled, no_grad, set_grad_enabled
from tapegrad.dialects import (
    accumulate_gradients,
    clip_grad_norm,
    clip_grad_value,
    cross_entropy_loss,
)
from tapegrad.nn import functional as F
from tapegrad.testing import gradcheck, gradgradcheck


def same(actual, expected, rtol=1e-5, atol=1e-6):
    np.testing.assert_allclose(
        actual.detach().numpy(),
        expected.detach().numpy() if isinstance(expected, tg.Tensor) else expected,
        rtol,
        atol,
    )


@pytest.fixture(autouse=True)
def seed():
    tg.manual_seed(0)


# -- Tape --------------------------------------------------------------------------------------


def test_recording_with_a_context_manager():
    tape = Tape()
    with tape:
        x = tg.randn(10, 5, dtype=tg.float32)
        w = tg.randn(5, 3, dtype=tg.float32)
        y = x @ w
        loss = y.sum()
    assert [entry.primitive.name for entry in tape][-2:] == ["matmul", "sum"]
    assert loss.shape == ()


def test_recording_between_start_and_stop():
    tape = Tape()
    tape.start_recording()

    x = tg.randn(10, 5, dtype=tg.float32)
    w = tg.randn(5, 3, dtype=tg.float32)
    y = x @ w
    loss = y.sum()

    tape.stop_recording()
    recorded = len(tape)
    (x * 2).sum()
    assert len(tape) == recorded
    assert tape.backward(loss).get(w).shape == (5, 3)


def test_computing_gradients_of_all_recorded_tensors():
    tape = Tape()
    with tape:
        x = tg.randn(10, 5)
        w = tg.randn(5, 3)
        y = x @ w
        loss = y.sum()

    grads = tape.backward(loss)

    dx = grads.get(x)
    dw = grads.get(w)
    same(dx, np.ones((10, 3)) @ w.numpy().T)
    same(dw, x.numpy().T @ np.ones((10, 3)))
    same(grads.get(y), np.ones((10, 3)))
    same(grads.get(loss), 1.0)
    assert dict(grads.items())[w.id] is dw


@pytest.mark.parametrize("scale", [1.0, 0.05])
def test_complete_example(scale):
    """With the document's weights (scale 1) most probabilities are rounded to 0 or 1."""
    learning_rate = 0.1
    targets = tg.randint(0, 10, (32,))
    x = tg.randn(32, 784)
    w = tg.randn(784, 10) * scale
    b = tg.randn(10) * scale

    def train_step(w, b):
        tape = Tape()
        with tape:
            logits = x @ w + b
            probs = F.softmax(logits, dim=-1)
            loss = cross_entropy_loss(probs, targets, from_logits=False)

        grads = tape.backward(loss)

        dw = grads.get(w)
        db = grads.get(b)
        return loss, dw, db, w - learning_rate * dw, b - learning_rate * db

    loss, dw, db, new_w, new_b = train_step(w, b)
    assert not dw.has_nan()
    same(new_w, w.numpy() - 0.1 * dw.numpy())
    same(new_b, b.numpy() - 0.1 * db.numpy())

    if scale < 1:
        z = x.numpy() @ w.numpy() + b.numpy()
        error = np.exp(z - z.max(1, keepdims=True))
        error /= error.sum(1, keepdims=True)
        rows = np.arange(32)
        expected = -np.log(error[rows, targets.numpy()]).mean()
        assert loss.item() == pytest.approx(expected, rel=1e-4)
        error[rows, targets.numpy()] -= 1
        same(dw, x.numpy().T @ error / 32, 1e-4, 1e-5)
        same(db, error.mean(0), 1e-4, 1e-5)

    losses = [loss.item()]
    for _ in range(5):
        loss, _, _, new_w, new_b = train_step(new_w, new_b)
        losses.append(loss.item())
    assert losses[-1] < losses[0]


def test_cross_entropy_of_probabilities_and_of_logits_is_the_same():
    logits = tg.randn(6, 4, dtype=tg.float64, requires_grad=True)
    targets = tg.tensor([0, 1, 2, 3, 1, 0])
    one_hot = F.one_hot(targets, 4).double()
    probabilities = F.softmax(logits, dim=-1)
    expected = cross_entropy_loss(logits, targets)
    expected_gradient = tg.autograd.grad(expected, logits)[0]
    for target in (targets, one_hot):
        loss = cross_entropy_loss(probabilities, target, from_logits=False)
        same(loss, expected, 1e-10, 1e-12)
        gradient = tg.autograd.grad(loss, logits, retain_graph=True)[0]
        same(gradient, expected_gradient, 1e-10, 1e-12)
        same(cross_entropy_loss(logits, target), expected, 1e-10, 1e-12)
    zero = tg.tensor([[0.0, 1.0]], requires_grad=True)
    loss = cross_entropy_loss(zero, tg.tensor([1]), from_logits=False)
    loss.backward()
    assert loss.item() == 0.0
    assert not zero.grad.has_nan()


# -- Gradient Context --------------------------------------------------------------------------


def test_no_grad():
    model = nn.Linear(4, 3)
    input = tg.randn(5, 4)
    with no_grad():
        output = model.forward(input)
        predictions = output.argmax(dim=-1)
    assert not output.requires_grad
    assert predictions.shape == (5,)
    same(predictions, output.numpy().argmax(-1))


def test_is_grad_enabled():
    messages = []
    if is_grad_enabled():
        messages.append("Gradients are being tracked")
    assert messages == ["Gradients are being tracked"]
    with no_grad():
        assert not is_grad_enabled()


def test_set_grad_enabled():
    x = tg.ones(2, requires_grad=True)
    set_grad_enabled(False)
    assert not (x * 2).requires_grad
    set_grad_enabled(True)
    assert (x * 2).requires_grad


# -- Gradient Accumulation ---------------------------------------------------------------------


def test_gradient_accumulation():
    model = nn.Linear(3, 2)
    criterion = nn.MSELoss()
    optimizer = tg.optim.SGD(model.parameters(), lr=0.1)
    batches = [(tg.randn(4, 3), tg.randn(4, 2)) for _ in range(4)]
    before = [p.detach().clone() for p in model.parameters()]

    tape = Tape()
    accumulation_steps = 4
    total = None

    for i in range(accumulation_steps):
        batch_input, batch_target = batches[i]

        with tape:
            output = model.forward(batch_input)
            loss = criterion.forward(output, batch_target)
            loss = loss / accumulation_steps

        grads = tape.backward(loss)
        total = accumulate_gradients(grads, total)

    whole_input = tg.cat([b[0] for b in batches])
    whole_target = tg.cat([b[1] for b in batches])
    expected = tg.autograd.grad(criterion(model(whole_input), whole_target), model.parameters())
    for p, g in zip(model.parameters(), expected, strict=True):
        same(p.grad, g)
        same(total.get(p), g)

    optimizer.step()
    optimizer.zero_grad()
    for p, old, g in zip(model.parameters(), before, expected, strict=True):
        same(p, old - 0.1 * g)
        assert p.grad is None


def test_accumulating_without_keeping_the_total():
    """As the document writes it: `.grad` is the running total, the call adds nothing twice."""
    w = tg.ones(2, requires_grad=True)
    tape = Tape()
    for _ in range(3):
        with tape:
            loss = (w * 2).sum()
        accumulate_gradients(tape.backward(loss))
    same(w.grad, [6.0, 6.0])


# -- Retain Graph ------------------------------------------------------------------------------


def test_retain_graph_for_several_losses():
    tape = Tape()
    with tape:
        x = tg.tensor([1.0, 2.0])
        y = x * x
        loss1 = y.sum()
        loss2 = (y * 3).sum()
    grads1 = tape.backward(loss1, retain_graph=True)
    grads2 = tape.backward(loss2)
    same(grads1.get(x), [2.0, 4.0])
    same(grads2.get(x), [6.0, 12.0])
    assert len(tape) == 0


def test_the_graph_is_freed_by_default():
    x = tg.tensor([1.0, 2.0], requires_grad=True)
    with Tape() as tape:
        loss = (x * x).sum()
    tape.backward(loss)
    with pytest.raises(RuntimeError, match="retain_graph=True"):
        tape.backward(loss)


def test_higher_order_gradients():
    x = tg.tensor([0.5, -0.3], dtype=tg.float64)
    with Tape() as tape:
        y = x.tanh().sum()
    first = tape.backward(y, create_graph=True).get(x)
    t = np.tanh(x.numpy())
    same(first, 1 - t**2, 1e-12)
    with Tape() as outer:
        with Tape() as inner:
            y = x.tanh().sum()
        first = inner.backward(y, create_graph=True).get(x)
        total = first.sum()
    second = outer.backward(total).get(x)
    same(second, -2 * t * (1 - t**2), 1e-12)


def test_gradient_penalty():
    model = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1)).double()
    x = tg.randn(5, 3, dtype=tg.float64, requires_grad=True)

    def loss_of(*parameters):
        out = model(x).sum()
        (g,) = tg.autograd.grad(out, x, create_graph=True)
        return ((g.square().sum(1).sqrt() - 1) ** 2).mean()

    loss = loss_of()
    loss.backward()
    weight = model[0].weight
    eps = 1e-6
    with no_grad():
        weight[0, 0] += eps
    above = loss_of().item()
    with no_grad():
        weight[0, 0] -= 2 * eps
    below = loss_of().item()
    assert weight.grad[0, 0].item() == pytest.approx((above - below) / (2 * eps), rel=1e-5)


# -- Supported Operations ----------------------------------------------------------------------

A = [[0.5, -1.2, 2.0], [1.5, 0.3, -0.7]]
B = [[1.1, 0.4, -0.6], [0.2, -2.0, 0.9]]
OPERATIONS = {
    "addition": lambda a, b: a + b,
    "subtraction": lambda a, b: a - b,
    "multiplication": lambda a, b: a * b,
    "division": lambda a, b: a / b,
    "power": lambda a, b: (a * a + 0.5) ** b,
    "negation": lambda a, b: -a,
    "matmul operator": lambda a, b: a @ b.T,
    "matmul": lambda a, b: tg.matmul(a, b.T),
    "transpose": lambda a, b: a.T * 2,
    "dot": lambda a, b: tg.dot(a[0], b[1]),
    "sum": lambda a, b: a.sum(),
    "mean": lambda a, b: a.mean(dim=0),
    "max": lambda a, b: a.max(),
    "max along": lambda a, b: a.max(dim=1).values,
    "relu": lambda a, b: a.relu(),
    "leaky_relu": lambda a, b: F.leaky_relu(a, 0.1),
    "elu": lambda a, b: F.elu(a),
    "gelu": lambda a, b: F.gelu(a),
    "sigmoid": lambda a, b: a.sigmoid(),
    "tanh": lambda a, b: a.tanh(),
    "softmax": lambda a, b: F.softmax(a, dim=-1),
    "log_softmax": lambda a, b: F.log_softmax(a, dim=-1),
    "cross entropy": lambda a, b: nn.CrossEntropyLoss()(a, tg.tensor([2, 0])),
    "mse": lambda a, b: nn.MSELoss()(a, b),
    "bce": lambda a, b: nn.BCELoss()(a.sigmoid(), b.sigmoid()),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_supported_operations(name):
    a = tg.tensor(A, dtype=tg.float64, requires_grad=True)
    b = tg.tensor(B, dtype=tg.float64, requires_grad=True)
    assert gradcheck(OPERATIONS[name], (a, b))
    assert gradgradcheck(OPERATIONS[name], (a, b))
    with Tape() as tape:
        loss = OPERATIONS[name](a, b).sum()
    grads = tape.backward(loss)
    same(grads.get(a), tg.autograd.grad(OPERATIONS[name](a, b).sum(), a)[0], 1e-12)


LAYERS = {
    "Linear": (lambda: nn.Linear(6, 3), (2, 6)),
    "Conv2d": (lambda: nn.Conv2d(2, 3, 3, padding=1), (2, 2, 4, 4)),
    "BatchNorm2d": (lambda: nn.BatchNorm2d(2), (3, 2, 2, 2)),
    "MaxPool2d": (lambda: nn.MaxPool2d(2), (1, 2, 4, 4)),
    "AvgPool2d": (lambda: nn.AvgPool2d(2), (1, 2, 4, 4)),
    "Dropout": (lambda: nn.Dropout(0.4), (3, 5)),
}


@pytest.mark.parametrize("name", LAYERS)
def test_supported_layers(name):
    make, shape = LAYERS[name]
    layer = make().double()
    x = tg.randn(*shape, dtype=tg.float64, requires_grad=True)

    def forward(x):
        tg.manual_seed(7)
        return layer(x)

    assert gradcheck(forward, (x,))


# -- Gradient Checkpointing --------------------------------------------------------------------


def test_checkpoint():
    w = tg.randn(16, 16, requires_grad=True)
    calls = []

    def expensive_forward(x):
        calls.append(1)
        for _ in range(4):
            x = (x @ w).tanh()
        return F.dropout(x, 0.5)

    input = tg.randn(8, 16, requires_grad=True)

    tg.manual_seed(3)
    output = checkpoint(expensive_forward, input)
    output.square().sum().backward()
    assert len(calls) == 2
    with_checkpoint = input.grad.clone(), w.grad.clone()

    input.grad = w.grad = None
    tg.manual_seed(3)
    plain = expensive_forward(input)
    plain.square().sum().backward()
    same(output, plain)
    same(input.grad, with_checkpoint[0])
    same(w.grad, with_checkpoint[1])


# -- Debugging Gradients -----------------------------------------------------------------------


def test_check_for_nan_and_inf():
    messages = []
    with Tape() as tape:
        x = tg.tensor([0.0, 4.0])
        loss = (x.sqrt() * tg.tensor([math.inf, 1.0])).sum()
    grads = tape.backward(loss)
    for tensor_id, grad in grads.items():
        assert isinstance(tensor_id, int)
        if grad.has_nan():
            messages.append("NaN gradient detected!")
        if grad.has_inf():
            messages.append("Inf gradient detected!")
    assert "Inf gradient detected!" in messages
    assert "NaN gradient detected!" not in messages

    with Tape() as tape:
        y = tg.tensor([1.0])
        loss = (y * math.nan).sum()
    grads = tape.backward(loss)
    assert grads.get(y).has_nan()
    assert grads.has_nan()


def test_clipping_by_norm_and_by_value():
    model = nn.Linear(3, 2)
    for p in model.parameters():
        p.grad = tg.full(p.shape, 3.0)
    norm = clip_grad_norm(model.parameters(), max_norm=1.0)
    assert norm.item() == pytest.approx(3.0 * math.sqrt(8), rel=1e-5)
    squares = sum(p.grad.square().sum().item() for p in model.parameters())
    assert math.sqrt(squares) == pytest.approx(1.0, rel=1e-4)

    for p in model.parameters():
        p.grad = tg.full(p.shape, -3.0)
    clip_grad_value(model.parameters(), clip_value=0.5)
    for p in model.parameters():
        same(p.grad, np.full(p.shape, -0.5))


def test_names_stand_where_the_document_has_them():
    for name in ("Tape", "no_grad", "is_grad_enabled", "set_grad_enabled", "checkpoint"):
        assert hasattr(tg.autograd, name)
    assert tg.Tape is Tape
