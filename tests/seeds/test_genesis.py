"""Genesis: every example of the document, with what it promises. `genesis` there is `tg` here."""

import numpy as np
import pytest

import tapegrad as tg
from tapegrad import Function, nn
from tapegrad.autograd import gradcheck


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


# -- Tensor ------------------------------------------------------------------------------------


def test_constructor():
    x = tg.Tensor([[1.0, 2.0], [3.0, 4.0]], device="cpu", dtype=tg.float64, requires_grad=True)
    assert x.dtype is tg.float64
    assert x.device == tg.device("cpu")
    assert x.requires_grad
    y = tg.Tensor(np.ones((2, 3), np.float32))
    assert y.dtype is tg.float32
    assert not y.requires_grad
    assert tg.Tensor([1, 2]).dtype is tg.float32
    assert tg.Tensor([1, 2], dtype=tg.int64).dtype is tg.int64


def test_shape_and_type_information():
    x = tg.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    assert x.shape == (2, 3)
    assert x.dtype is tg.float32
    assert str(x.device) == "cpu"
    assert x.ndim == 2
    assert x.numel() == 6
    assert x.size() == (2, 3)


def test_gradient_properties():
    x = tg.tensor([1.0, 2.0], requires_grad=True)
    assert x.requires_grad
    assert x.grad is None
    assert x.is_leaf
    assert x.grad_fn is None
    y = x * 2
    assert y.requires_grad
    assert not y.is_leaf
    assert y.grad_fn is not None
    assert y.id > x.id


def test_backward():
    x = tg.tensor([1.0, 2.0, 3.0], requires_grad=True)
    y = (x**2).sum()
    y.backward()
    assert repr(x.grad) == "tensor([2., 4., 6.])"


def test_backward_with_a_gradient():
    x = tg.tensor([1.0, 2.0, 3.0], requires_grad=True)
    y = x**2
    with pytest.raises(RuntimeError, match="gradient"):
        y.backward()
    y.backward(gradient=tg.tensor([1.0, 0.0, 2.0]))
    same(x.grad, [2.0, 0.0, 12.0])


def test_detach():
    x = tg.tensor([1.0, 2.0], requires_grad=True)
    y = x.detach()
    assert y.requires_grad is False


def test_retain_grad():
    x = tg.tensor([1.0, 2.0], requires_grad=True)
    y = x * 2
    y.retain_grad()
    z = y.sum()
    z.backward()
    assert repr(y.grad) == "tensor([1., 1.])"


def test_zero_grad():
    x = tg.tensor([1.0, 2.0], requires_grad=True)
    y = x.sum()
    y.backward()
    x.zero_grad()
    assert x.grad is None


X = [[0.5, -1.2, 2.0], [1.5, 0.3, -0.7]]
Y = [[1.1, 0.4, -0.6], [0.2, -2.0, 0.9]]
OPERATIONS = {
    "x + y": (lambda x, y: x + y, np.add),
    "x - y": (lambda x, y: x - y, np.subtract),
    "x * y": (lambda x, y: x * y, np.multiply),
    "x / y": (lambda x, y: x / y, np.divide),
    "x ** y": (lambda x, y: x.abs() ** y, lambda x, y: np.abs(x) ** y),
    "x @ y": (lambda x, y: x @ y.T, lambda x, y: x @ y.T),
    "-x": (lambda x, y: -x, lambda x, y: -x),
    "abs": (lambda x, y: x.abs(), lambda x, y: np.abs(x)),
    "exp": (lambda x, y: x.exp(), lambda x, y: np.exp(x)),
    "log": (lambda x, y: x.abs().log(), lambda x, y: np.log(np.abs(x))),
    "sqrt": (lambda x, y: x.abs().sqrt(), lambda x, y: np.sqrt(np.abs(x))),
    "sin": (lambda x, y: x.sin(), lambda x, y: np.sin(x)),
    "cos": (lambda x, y: x.cos(), lambda x, y: np.cos(x)),
    "tanh": (lambda x, y: x.tanh(), lambda x, y: np.tanh(x)),
    "sum": (lambda x, y: x.sum(), lambda x, y: x.sum()),
    "mean": (lambda x, y: x.mean(), lambda x, y: x.mean()),
    "max": (lambda x, y: x.max(), lambda x, y: x.max()),
    "min": (lambda x, y: x.min(), lambda x, y: x.min()),
    "reshape": (lambda x, y: x.reshape((3, 2)) * 2, lambda x, y: x.reshape(3, 2) * 2),
    "transpose": (lambda x, y: x.transpose((1, 0)) * 2, lambda x, y: x.T * 2),
    "squeeze": (lambda x, y: x[:1].squeeze() * 2, lambda x, y: x[0] * 2),
    "unsqueeze": (lambda x, y: x.unsqueeze(1) * 2, lambda x, y: x[:, None] * 2),
    "view": (lambda x, y: x.view((6,)) * 2, lambda x, y: x.reshape(6) * 2),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_tensor_operations(name):
    operation, reference = OPERATIONS[name]
    x = tg.tensor(X, dtype=tg.float64, requires_grad=True)
    y = tg.tensor(Y, dtype=tg.float64, requires_grad=True)
    same(operation(x, y), reference(np.array(X), np.array(Y)), 1e-12)
    assert gradcheck(operation, (x, y))
    assert tg.testing.gradgradcheck(operation, (x, y))


# -- Function ----------------------------------------------------------------------------------


class Exp(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return tg.tensor(x.data.exp(), requires_grad=x.requires_grad)

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return grad_output * x.exp()


def test_custom_function():
    exp = Exp.apply
    x = tg.tensor([1.0, 2.0, 3.0], requires_grad=True)
    y = exp(x)
    assert not y.is_leaf
    y.sum().backward()
    same(x.grad, np.exp([1.0, 2.0, 3.0]))
    assert not exp(tg.ones(2)).requires_grad


def test_a_custom_function_differentiates_again():
    x = tg.tensor([0.5, -1.0], dtype=tg.float64, requires_grad=True)
    assert gradcheck(Exp.apply, (x,))
    assert tg.testing.gradgradcheck(Exp.apply, (x,))


def test_a_function_without_methods():
    class Empty(Function):
        pass

    with pytest.raises(NotImplementedError):
        Empty.apply(tg.ones(2))


def test_several_inputs_outputs_and_arguments_that_are_not_tensors():
    class Scaled(Function):
        @staticmethod
        def forward(ctx, x, y, factor):
            ctx.save_for_backward(x, y)
            ctx.factor = factor
            return x * y * factor, x + y

        @staticmethod
        def backward(ctx, g_product, g_sum):
            x, y = ctx.saved_tensors
            return g_product * y * ctx.factor + g_sum, g_product * x * ctx.factor + g_sum, None

    x = tg.tensor([2.0], requires_grad=True)
    y = tg.tensor([3.0], requires_grad=True)
    product, total = Scaled.apply(x, y, 10.0)
    (product + total).sum().backward()
    same(x.grad, [31.0])
    same(y.grad, [21.0])


# -- Context Management ------------------------------------------------------------------------


def test_no_grad():
    model = nn.Linear(2, 2)
    x = tg.randn(3, 2)
    with tg.no_grad():
        y = model(x)
    assert not y.requires_grad
    assert y.grad_fn is None


def test_enable_grad_inside_no_grad():
    model = nn.Linear(2, 2)
    x = tg.randn(3, 2)
    with tg.no_grad():
        y = model(x)

        with tg.enable_grad():
            z = y.sum()
            # y was made without recording, so there is nothing to differentiate yet
            with pytest.raises(RuntimeError, match="requires_grad"):
                z.backward()
            y.requires_grad_()
            z = y.sum()
            z.backward()
    same(y.grad, np.ones((3, 2)))


def test_set_grad_enabled():
    x = tg.ones(2, requires_grad=True)
    tg.set_grad_enabled(False)
    y = x * 2
    tg.set_grad_enabled(True)
    z = x * 2
    assert not y.requires_grad
    assert z.requires_grad
    with tg.set_grad_enabled(False):
        assert not tg.is_grad_enabled()
    assert tg.is_grad_enabled()


# -- Gradient Hooks ----------------------------------------------------------------------------


def test_hooks(capsys):
    def print_grad(grad):
        print(f"Gradient: {grad}")
        return grad

    x = tg.tensor([1.0, 2.0, 3.0], requires_grad=True)
    x.register_hook(print_grad)
    y = (x**2).sum()
    y.backward()
    assert capsys.readouterr().out == "Gradient: tensor([2., 4., 6.])\n"


def test_hooks_may_change_the_gradient():
    x = tg.tensor([1.0, 2.0, 3.0], requires_grad=True)
    handle = x.register_hook(lambda grad: grad * 10)
    middle = x * 1
    middle.register_hook(lambda grad: grad + 1)
    middle.sum().backward()
    same(x.grad, [20.0, 20.0, 20.0])
    handle.remove()
    x.grad = None
    x.sum().backward()
    same(x.grad, [1.0, 1.0, 1.0])


# -- Memory Management -------------------------------------------------------------------------


def test_gradient_accumulation():
    x = tg.tensor([1.0, 2.0], requires_grad=True)

    y1 = x.sum()
    y1.backward()
    assert repr(x.grad) == "tensor([1., 1.])"

    y2 = (x * 2).sum()
    y2.backward()
    assert repr(x.grad) == "tensor([3., 3.])"


def test_clearing_gradients():
    x = tg.tensor([1.0, 2.0], requires_grad=True)
    x.sum().backward()
    x.grad = None
    assert x.grad is None
    x.sum().backward()
    x.zero_grad()
    assert x.grad is None


# -- Best Practices ----------------------------------------------------------------------------


def test_efficient_inference():
    model = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5), nn.BatchNorm1d(3))
    test_data = tg.randn(4, 3)
    model.eval()
    with tg.no_grad():
        predictions = model(test_data)
    assert not predictions.requires_grad
    with tg.no_grad():
        same(model(test_data), predictions)


def test_memory_optimization():
    alpha = 0.9
    running_mean = tg.zeros(3)
    w = tg.ones(3, requires_grad=True)
    for _ in range(3):
        batch_mean = (w * tg.randn(8, 3)).mean(0)
        running_mean = alpha * running_mean.detach() + (1 - alpha) * batch_mean
    depth, node = 0, running_mean.grad_fn
    while node is not None and hasattr(node, "edges"):
        depth, node = depth + 1, node.next_functions[-1][0]
    assert depth <= 6


def test_gradient_clipping():
    model = nn.Linear(3, 2)
    for p in model.parameters():
        p.grad = tg.full(p.shape, 2.0)
    tg.nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
    squares = sum(p.grad.square().sum().item() for p in model.parameters())
    assert squares == pytest.approx(1.0, rel=1e-4)


# -- Common Patterns ---------------------------------------------------------------------------


class MyModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer1 = nn.Sequential(nn.Linear(3, 16), nn.Tanh())
        self.layer2 = nn.Sequential(nn.Linear(16, 16), nn.Tanh(), nn.Dropout(0.1))
        self.layer3 = nn.Linear(16, 2)
        self.checkpointing = False

    def forward(self, x):
        from tapegrad.utils.checkpoint import checkpoint

        if self.checkpointing:
            x = checkpoint(self.layer1, x)
            x = checkpoint(self.layer2, x)
        else:
            x = self.layer2(self.layer1(x))
        return self.layer3(x)


def test_training_loop():
    inputs = tg.randn(96, 3)
    targets = (inputs[:, 0] > 0).long()
    dataloader = [(inputs[i : i + 32], targets[i : i + 32]) for i in range(0, 96, 32)]
    criterion = nn.CrossEntropyLoss()

    model = MyModel()
    optimizer = tg.optim.Adam(model.parameters(), lr=1e-2)

    losses = []
    for _ in range(20):
        for batch_inputs, batch_targets in dataloader:
            outputs = model(batch_inputs)
            loss = criterion(outputs, batch_targets)

            optimizer.zero_grad()
            loss.backward()

            optimizer.step()
            losses.append(loss.item())
    assert losses[-1] < 0.3 * losses[0]
    assert tg.optim.Adam(model.parameters()).defaults["lr"] == 1e-3


def test_gradient_checkpointing():
    model = MyModel()
    x = tg.randn(5, 3, requires_grad=True)
    found = []
    for checkpointing in (False, True):
        model.checkpointing = checkpointing
        tg.manual_seed(11)
        grads = model(x).square().sum().backward()
        found.append({key: grad.clone() for key, grad in grads.items()})
    assert set(found[0]) == set(found[1])
    for key, grad in found[0].items():
        same(found[1][key], grad)


# -- Debugging ---------------------------------------------------------------------------------


def test_gradient_checking():
    def func(x):
        return (x**2).sum()

    x = tg.tensor([1.0, 2.0, 3.0], requires_grad=True)
    assert gradcheck(func, x, eps=1e-6) is True


def test_inspecting_the_computational_graph(capsys):
    x = tg.tensor([1.0, 2.0], requires_grad=True)
    y = x * 2 + 3
    print(y.grad_fn)
    assert capsys.readouterr().out == "<AddBackward>\n"
    print(y.grad_fn.next_functions)
    assert capsys.readouterr().out == "((<MulBackward>, 0), (None, 0))\n"
    (mul, _), _ = y.grad_fn.next_functions
    assert mul.next_functions[0][0].variable is x


def test_in_place_operations():
    x = tg.tensor([1.0, 2.0])
    y = tg.tensor([10.0, 20.0])
    x.add_(y)
    same(x, [11.0, 22.0])
    w = tg.ones(2, requires_grad=True)
    h = w * 3
    h.add_(y)
    (h * h).sum().backward()
    same(w.grad, 2 * (3 + y.numpy()) * 3)


def test_mixed_precision_training():
    model, criterion = nn.Linear(4, 2), nn.MSELoss()
    tg.enable_autocast = True
    with tg.autocast():
        output = model(tg.randn(3, 4))
        loss = criterion(output, tg.zeros(3, 2))
    assert (output.dtype, loss.dtype) == (tg.bfloat16, tg.float32)
    loss.backward()
    assert model.weight.grad.dtype is tg.float32


def test_names_stand_where_the_document_has_them():
    for name in ("Tensor", "tensor", "Function", "no_grad", "enable_grad", "set_grad_enabled"):
        assert hasattr(tg, name)
    assert tg.utils.checkpoint.checkpoint is tg.checkpoint
    assert tg.autograd.gradcheck is tg.testing.gradcheck
