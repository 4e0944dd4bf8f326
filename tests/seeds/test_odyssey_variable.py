"""ML Odyssey (Variable, GradientTape): every example of the document, in Python."""

import numpy as np
import pytest

import tapegrad as tg
from tapegrad import backward_functions as backward
from tapegrad import nn
from tapegrad.autograd import GradientTape
from tapegrad.backward_functions import mean_backward, mean_squared_error_backward
from tapegrad.dialects import SGD, Variable, binary_cross_entropy, cross_entropy, mean_squared_error
from tapegrad.nn import functional as F


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


@pytest.fixture
def tape():
    tape = GradientTape()
    yield tape
    tape.disable()


# -- Quick Start -------------------------------------------------------------------------------


def test_quick_start(tape):
    shape = (2, 3)
    x = Variable(tg.zeros(shape, dtype=tg.float32), requires_grad=True)
    y = Variable(tg.ones(shape, dtype=tg.float32), requires_grad=True)

    tape.enable()

    z = x * y
    loss = z.sum()

    tape.backward()

    same(x.grad, np.ones(shape))
    same(y.grad, np.zeros(shape))
    assert loss.item() == 0.0


# -- Variable ----------------------------------------------------------------------------------


def test_variable():
    data = tg.zeros((3, 4), dtype=tg.float32)
    x = Variable(data, requires_grad=True)

    assert x.data.shape == (3, 4)
    assert not x.data.requires_grad
    assert x.grad is None

    x.zero_grad()
    assert x.grad is None

    y = x.detach()
    assert not y.requires_grad
    y[0, 0] = 5.0
    assert x.data[0, 0].item() == 5.0
    assert data[0, 0].item() == 5.0


def test_variable_key_methods():
    assert not Variable([1.0, 2.0]).requires_grad
    x = Variable([1.0, 2.0], requires_grad=True)
    assert isinstance(x, Variable)
    assert isinstance(x, tg.Tensor)
    assert not isinstance(1.0, Variable)
    loss = (x * x).sum()
    loss.backward()
    same(x.grad, [2.0, 4.0])
    x.zero_grad()
    assert x.grad is None
    with pytest.raises(RuntimeError, match="floating"):
        Variable(tg.tensor([1, 2]), requires_grad=True)


def test_a_variable_of_a_result_has_no_history():
    x = tg.ones(2, requires_grad=True)
    v = Variable(x * 2, requires_grad=True)
    assert v.is_leaf
    (v * 3).sum().backward()
    assert x.grad is None
    same(v.grad, [3.0, 3.0])


# -- GradientTape ------------------------------------------------------------------------------


def test_gradient_tape():
    x = Variable([1.0, 2.0], requires_grad=True)
    tape = GradientTape()

    tape.enable()
    assert tape.is_recording

    y = x + 2
    z = y * 3
    total = z.sum()

    grads = tape.backward()

    tape.disable()
    assert not tape.is_recording
    assert len(tape) == 0
    same(x.grad, [3.0, 3.0])
    same(grads.get(y), [3.0, 3.0])
    same(grads.get(total), 1.0)
    assert len(tape) == 0

    with tape:
        x * 2
    assert len(tape) == 1
    tape.clear()
    assert len(tape) == 0


def test_backward_of_the_last_result_needs_one_element(tape):
    """The document calls backward on `z = y * 3`; with several elements, a loss must be made."""
    x = Variable([2.0], requires_grad=True)
    tape.enable()
    y = x + 2
    z = y * 3
    tape.backward()
    same(x.grad, [3.0])
    assert z.item() == 12.0


def test_backward_of_an_empty_tape():
    with pytest.raises(RuntimeError, match="empty"):
        GradientTape().backward()


def test_negation_is_differentiable_on_the_tape(tape):
    x = Variable([1.0, -2.0], requires_grad=True)
    tape.enable()
    (-x).sum()
    tape.backward()
    same(x.grad, [-1.0, -1.0])


# -- Optimizers --------------------------------------------------------------------------------


def test_sgd(tape):
    optimizer = SGD(learning_rate=0.01)
    assert optimizer.defaults["lr"] == 0.01

    optimizer_momentum = SGD(learning_rate=0.01, momentum=0.9)
    assert optimizer_momentum.defaults["momentum"] == 0.9

    model = nn.Linear(3, 1)
    inputs = tg.randn(16, 3)
    targets = inputs @ tg.tensor([[1.0], [-2.0], [0.5]]) + 0.3
    loss_fn = nn.MSELoss()
    model_parameters = list(model.parameters())

    for optimizer, num_epochs in ((SGD(learning_rate=0.1), 60), (optimizer_momentum, 200)):
        losses = []
        tape.enable()
        for _ in range(num_epochs):
            predictions = model(inputs)
            loss = loss_fn(predictions, targets)

            tape.backward()

            optimizer.step(model_parameters)
            optimizer.zero_grad(model_parameters)
            losses.append(loss.item())
        tape.disable()
        assert all(p.grad is None for p in model_parameters)
        assert losses[-1] < 0.1 * losses[0]
        with tg.no_grad():
            for p in model_parameters:
                p.fill_(0.0)


# -- Loss Functions ----------------------------------------------------------------------------


def test_losses():
    predictions = tg.tensor([0.9, 0.2, 0.6])
    targets = tg.tensor([1.0, 0.0, 1.0])
    loss = binary_cross_entropy(predictions, targets)
    expected = -np.mean([np.log(0.9), np.log(0.8), np.log(0.6)])
    assert loss.item() == pytest.approx(expected, rel=1e-5)

    loss = mean_squared_error(predictions, targets)
    assert loss.item() == pytest.approx((0.01 + 0.04 + 0.16) / 3, rel=1e-5)

    logits = tg.tensor([[2.0, 0.5, -1.0], [0.1, 0.2, 3.0]])
    targets_onehot = tg.tensor([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
    loss = cross_entropy(logits, targets_onehot)
    p = np.exp(logits.numpy())
    p /= p.sum(1, keepdims=True)
    assert loss.item() == pytest.approx(-np.log([p[0, 0], p[1, 2]]).mean(), rel=1e-5)
    same(loss, cross_entropy(logits, tg.tensor([0, 2])))


# -- the backward functions --------------------------------------------------------------------

X = [[0.5, -1.2, 2.0], [1.5, 0.3, -0.7]]
POSITIVE = [[0.5, 1.2, 2.0], [1.5, 0.3, 0.7]]
Y = [[1.1, 0.4, -0.6], [0.2, -2.0, 0.9]]
PROBABILITIES = [[0.2, 0.9, 0.5], [0.7, 0.1, 0.4]]
NAMED = {
    # name: (inputs, further arguments, the operation)
    "add": ((X, Y), (), lambda a, b: a + b),
    "subtract": ((X, Y), (), lambda a, b: a - b),
    "multiply": ((X, Y), (), lambda a, b: a * b),
    "divide": ((X, Y), (), lambda a, b: a / b),
    "power": ((POSITIVE, Y), (), lambda a, b: a**b),
    "matmul": ((X, [[1.0, 2.0], [0.5, -1.0], [2.0, 0.3]]), (), lambda a, b: a @ b),
    "relu": ((X,), (), lambda x: x.relu()),
    "sigmoid": ((X,), (), lambda x: x.sigmoid()),
    "tanh": ((X,), (), lambda x: x.tanh()),
    "softmax": ((X,), (), lambda x: F.softmax(x, -1)),
    "gelu": ((X,), (), F.gelu),
    "leaky_relu": ((X,), (0.2,), F.leaky_relu),
    "prelu": ((X, [0.25]), (), F.prelu),
    "sum": ((X,), (1,), lambda x, dim: x.sum(dim)),
    "mean": ((X,), (0,), lambda x, dim: x.mean(dim)),
    "max": ((X,), (1,), lambda x, dim: x.max(dim).values),
    "min": ((X,), (1,), lambda x, dim: x.min(dim).values),
    "exp": ((X,), (), lambda x: x.exp()),
    "log": ((POSITIVE,), (), lambda x: x.log()),
    "sqrt": ((POSITIVE,), (), lambda x: x.sqrt()),
    "abs": ((X,), (), lambda x: x.abs()),
    "clip": ((X,), (-0.8, 1.0), lambda x, low, high: x.clip(low, high)),
    "square": ((X,), (), lambda x: x.square()),
    "neg": ((X,), (), lambda x: -x),
    "mean_squared_error": ((X,), (tg.tensor(Y, dtype=tg.float64),), mean_squared_error),
    "binary_cross_entropy": (
        (PROBABILITIES,),
        (tg.tensor([[0.0, 1.0, 1.0], [1.0, 0.0, 0.0]], dtype=tg.float64),),
        binary_cross_entropy,
    ),
    "cross_entropy": ((X,), (tg.tensor([2, 0]),), cross_entropy),
}


@pytest.mark.parametrize("name", NAMED)
def test_backward_functions_agree_with_autograd(name):
    arrays, further, operation = NAMED[name]
    inputs = [tg.tensor(a, dtype=tg.float64, requires_grad=True) for a in arrays]
    out = operation(*inputs, *further)
    grad_output = tg.randn(*out.shape, dtype=tg.float64)
    expected = tg.autograd.grad(out, inputs, grad_output)

    function = getattr(backward, f"{name}_backward")
    plain = [x.detach() for x in inputs]
    result = function(grad_output, *plain, *further)
    found = result if isinstance(result, tuple) else (result,)
    assert len(found) == len(inputs)
    for g, e in zip(found, expected, strict=True):
        assert not g.requires_grad
        same(g, e, 1e-12, 1e-14)


def test_transpose_backward():
    g = tg.randn(3, 2)
    same(backward.transpose_backward(g), g.numpy().T)
    g = tg.randn(2, 3, 4)
    same(backward.transpose_backward(g, 0, 2), g.numpy().swapaxes(0, 2))
    same(backward.transpose_backward(g), g.numpy().T)


def test_shapes_stand_for_inputs_whose_values_do_not_matter():
    g = tg.randn(3, 4)
    a, b = backward.add_backward(g, (3, 4), (4,))
    same(a, g)
    same(b, g.numpy().sum(0))
    a, b = backward.subtract_backward(g, (3, 1), (3, 4))
    same(a, g.numpy().sum(1, keepdims=True))
    same(b, -g.numpy())
    same(backward.sum_backward(tg.tensor(2.0), (2, 2)), np.full((2, 2), 2.0))
    same(backward.mean_backward(tg.tensor(2.0), (2, 2)), np.full((2, 2), 0.5))
    same(backward.sum_backward(tg.ones(3), (2, 3), axis=0), np.ones((2, 3)))
    same(backward.neg_backward(g), -g.numpy())


def test_backward_functions_of_tensors_given_twice_and_of_numbers():
    g = tg.ones(2)
    for requires_grad in (False, True):
        x = tg.tensor([3.0, 4.0], requires_grad=requires_grad)
        first, second = backward.multiply_backward(g, x, x)
        same(first, [3.0, 4.0])
        same(second, [3.0, 4.0])
    base, exponent = backward.power_backward(g, tg.tensor([3.0, 4.0]), 2)
    same(base, [6.0, 8.0])
    assert exponent is None


def test_backward_functions_differentiate_again():
    x = tg.tensor([0.3, -0.8], dtype=tg.float64, requires_grad=True)
    (second,) = tg.autograd.grad(backward.tanh_backward(tg.ones(2).double(), x).sum(), x)
    t = np.tanh(x.detach().numpy())
    same(second, -2 * t * (1 - t**2), 1e-12)


def test_backward_functions_say_what_is_wrong():
    with pytest.raises(TypeError, match="grad_output"):
        backward.exp_backward(1.0, tg.ones(2))
    with pytest.raises(TypeError, match="2 inputs"):
        backward.multiply_backward(tg.ones(2), tg.ones(2))
    with pytest.raises(RuntimeError, match="same shape"):
        backward.exp_backward(tg.ones(3), tg.ones(2))
    with pytest.raises(TypeError, match="str"):
        backward.exp_backward(tg.ones(3), "x")


# -- Training Example --------------------------------------------------------------------------


def test_training_with_a_backward_pass_by_hand(capsys):
    """The document's loop, for one sample: its w.grad has the shape of X."""
    learning_rate = 0.1
    num_epochs = 100

    w = Variable(tg.zeros(1, dtype=tg.float32), requires_grad=True)
    b = Variable(tg.zeros(1, dtype=tg.float32), requires_grad=True)

    optimizer = SGD(learning_rate)

    X = tg.tensor([2.0])
    Y = tg.tensor([7.0])

    tape = GradientTape()
    tape.enable()

    for epoch in range(num_epochs):
        predictions = w.data * X + b.data
        mse = mean_squared_error(predictions, Y)
        loss = mse.mean()

        grad_loss = tg.ones_like(loss)
        grad_mse = mean_backward(grad_loss, mse.shape)
        grad_pred = mean_squared_error_backward(grad_mse, predictions, Y)
        same(grad_pred, 2 * (predictions.numpy() - 7.0))

        w.grad = grad_pred * X
        b.grad = grad_pred

        params = [w, b]
        optimizer.step(params)
        optimizer.zero_grad(params)

        if epoch % 10 == 0:
            print("Epoch:", epoch, "Loss:", loss)
    tape.disable()

    assert (w * X + b).item() == pytest.approx(7.0, abs=1e-4)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 10
    assert lines[0] == "Epoch: 0 Loss: tensor(49.)"


def test_training_with_the_tape():
    """What the document leaves for later: `tape.backward()` instead of the manual pass."""
    w = Variable(tg.zeros(1), requires_grad=True)
    b = Variable(tg.zeros(1), requires_grad=True)
    optimizer = SGD(0.1)
    X = tg.linspace(-1, 1, 20)
    Y = 3 * X + 0.5

    tape = GradientTape()
    tape.enable()
    for _ in range(200):
        predictions = w * X + b
        loss = mean_squared_error(predictions, Y)
        tape.backward(loss)
        optimizer.step([w, b])
        optimizer.zero_grad([w, b])
    tape.disable()
    assert w.item() == pytest.approx(3.0, abs=1e-3)
    assert b.item() == pytest.approx(0.5, abs=1e-3)
    assert w.requires_grad


def test_updates_while_a_tape_records_leave_histories_alone(tape):
    w = Variable([1.0, 2.0], requires_grad=True)
    h = w * 2
    view = h.view(2)
    tape.enable()
    with tg.no_grad():
        w -= 0.5
        w[0] = 3.0
        h += 1
    assert w.is_leaf
    assert w.requires_grad
    assert h.requires_grad
    assert view.requires_grad
    (view * 3).sum()
    tape.backward()
    tape.disable()
    same(w.grad, [6.0, 6.0])


@pytest.mark.parametrize("name", ["Adam", "RMSprop"])
def test_optimizers_that_the_document_leaves_for_later(name):
    w = Variable(tg.zeros(1), requires_grad=True)
    optimizer = getattr(tg.optim, name)(learning_rate=0.05)
    for _ in range(300):
        (w - 3).square().sum().backward()
        optimizer.step([w])
        optimizer.zero_grad([w])
    assert w.item() == pytest.approx(3.0, abs=0.1)


def test_higher_order_gradients():
    x = Variable([2.0], requires_grad=True)
    (first,) = tg.autograd.grad((x**3).sum(), x, create_graph=True)
    (second,) = tg.autograd.grad(first.sum(), x, create_graph=True)
    (third,) = tg.autograd.grad(second.sum(), x)
    assert (first.item(), second.item(), third.item()) == (12.0, 12.0, 6.0)


def test_names_stand_where_the_document_has_them():
    assert tg.autograd.Variable is Variable
    assert tg.autograd.GradientTape is tg.Tape
    assert tg.autograd.SGD is tg.optim.SGD
