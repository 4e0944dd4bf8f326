"""FLAME: every example of the document, in Python spelling, with what it promises."""

import gc
import math

import numpy as np
import pytest

import tapegrad as tg
from tapegrad import nn
from tapegrad.dialects import (
    AutogradContext,
    CustomOp,
    GradientClipper,
    GradientMap,
    add_at_index,
    check_gradients,
    sub_at_index,
)
from tapegrad.optim import Adam
from tapegrad.testing import GradcheckError


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
def graph():
    x = tg.normal(0.0, 1.0, (10, 5)).requires_grad_()
    w = tg.normal(0.0, 0.1, (5, 3)).requires_grad_()
    b = tg.zeros(3).requires_grad_()
    return x, w, b


# -- How Autograd Works ------------------------------------------------------------------------


def test_computation_graph(graph):
    x, w, b = graph
    y = x.matmul(w)
    z = y.add(b)
    loss = z.sum()
    assert [t.grad_fn.primitive.name for t in (y, z, loss)] == ["matmul", "add", "sum"]
    assert loss.grad_fn.next_functions == ((z.grad_fn, 0),)
    assert z.grad_fn.next_functions[0] == (y.grad_fn, 0)
    assert z.grad_fn.next_functions[1][0].variable is b


def test_backward_pass(graph):
    x, w, b = graph
    loss = x.matmul(w).add(b).sum()

    grads = loss.backward()

    x_grad = grads.get(x.id)
    w_grad = grads.get(w.id)
    b_grad = grads.get(b.id)
    ones = np.ones((10, 3))
    same(x_grad, ones @ w.detach().numpy().T)
    same(w_grad, x.detach().numpy().T @ ones)
    same(b_grad, np.full(3, 10.0))
    assert grads.get(-1) is None


# -- Gradient Computation Rules ----------------------------------------------------------------

A = [[0.5, -1.2], [1.5, 0.3]]
B = [[1.1, 0.4], [0.2, -2.0]]
G = [[1.0, 2.0], [3.0, -4.0]]
RULES = {
    # operation, and what the document says its gradients are
    "add": (lambda a, b: a.add(b), lambda g, a, b: (g, g)),
    "sub": (lambda a, b: a.sub(b), lambda g, a, b: (g, -g)),
    "mul": (lambda a, b: a.mul(b), lambda g, a, b: (g * b, g * a)),
    "div": (lambda a, b: a.div(b), lambda g, a, b: (g / b, -g * a / b**2)),
    "matmul": (lambda a, b: a.matmul(b), lambda g, a, b: (g @ b.T, a.T @ g)),
    "transpose": (lambda a, b: a.transpose(), lambda g, a, b: (g.T, None)),
    "relu": (lambda a, b: a.relu(), lambda g, a, b: (g * (a > 0), None)),
    "sigmoid": (
        lambda a, b: a.sigmoid(),
        lambda g, a, b: (g / (1 + np.exp(-a)) * (1 - 1 / (1 + np.exp(-a))), None),
    ),
    "tanh": (lambda a, b: a.tanh(), lambda g, a, b: (g * (1 - np.tanh(a) ** 2), None)),
}


@pytest.mark.parametrize("name", RULES)
def test_gradient_rules(name):
    operation, rule = RULES[name]
    a = tg.tensor(A, dtype=tg.float64, requires_grad=True)
    b = tg.tensor(B, dtype=tg.float64, requires_grad=True)
    g = tg.tensor(G, dtype=tg.float64)
    grads = operation(a, b).backward(g)
    expected = rule(g.numpy(), np.array(A), np.array(B))
    same(grads[a], expected[0], 1e-12)
    if expected[1] is None:
        assert grads.get(b) is None
    else:
        same(grads[b], expected[1], 1e-12)


def test_reduction_rules():
    x = tg.randn(4, 3, requires_grad=True)
    same(x.sum().backward()[x], np.ones((4, 3)))
    same(x.mean().backward()[x], np.full((4, 3), 1 / 12))
    g = tg.randn(4)
    same(x.sum(1, keepdim=False).backward(g)[x], np.repeat(g.numpy()[:, None], 3, 1))


# -- Advanced Features -------------------------------------------------------------------------


def test_gradient_accumulation():
    model = nn.Linear(3, 2)
    batches = [(tg.randn(4, 3), tg.randn(4, 2)) for _ in range(4)]
    accumulation_steps = len(batches)
    compute_loss = nn.MSELoss()

    accumulated_grads = GradientMap()
    for inputs, targets in batches:
        output = model.forward(inputs)
        loss = compute_loss(output, targets)

        scaled_loss = loss * (1.0 / accumulation_steps)
        grads = scaled_loss.backward()

        for tensor_id, grad in grads.items():
            acc_grad = accumulated_grads.get(tensor_id)
            if acc_grad is not None:
                accumulated_grads[tensor_id] = acc_grad.add(grad)
            else:
                accumulated_grads.insert(tensor_id, grad.clone())

    merged = GradientMap()
    for p in model.parameters():
        p.grad = None
    for inputs, targets in batches:
        merged.merge((compute_loss(model(inputs), targets) / accumulation_steps).backward())
    whole = compute_loss(model(tg.cat([b[0] for b in batches])), tg.cat([b[1] for b in batches]))
    expected = tg.autograd.grad(whole, list(model.parameters()))
    for p, g in zip(model.parameters(), expected, strict=True):
        same(accumulated_grads[p], g)
        same(merged[p], g)
        same(p.grad, g)


def test_a_gradient_from_the_mapping_is_not_changed_by_later_calls():
    x = tg.tensor([1.0, 2.0], requires_grad=True)
    first = (x * x).sum().backward()[x]
    second = (x * x).sum().backward()[x]
    same(first, [2.0, 4.0])
    same(second, [2.0, 4.0])
    same(x.grad, [4.0, 8.0])
    second.mul_(10)
    same(x.grad, [4.0, 8.0])
    x.grad.zero_()
    same(first, [2.0, 4.0])


def test_gradient_checkpointing():
    layer1 = nn.Sequential(nn.Linear(6, 32), nn.Tanh(), nn.Linear(32, 6), nn.Tanh())
    input = tg.randn(4, 6, requires_grad=True)
    grad_output = tg.randn(4, 6)

    # By hand, as the document has it: forget x1, compute it again, go back from there.
    with tg.no_grad():
        x1 = layer1.forward(input)
    x1_recomputed = layer1.forward(input)
    by_hand = x1_recomputed.backward(grad_output)
    same(x1, x1_recomputed)

    by_itself = tg.checkpoint(layer1, input).backward(grad_output)
    assert set(by_itself) == set(by_hand)
    for tensor_id, grad in by_hand.items():
        same(by_itself[tensor_id], grad)


def test_checkpoint_keeps_less():
    layer1 = nn.Sequential(*[nn.Sequential(nn.Linear(64, 64), nn.Tanh()) for _ in range(6)])
    input = tg.randn(128, 64, requires_grad=True)

    def kept(run):
        gc.collect()
        before = AutogradContext.memory_stats().saved_bytes
        out = run()
        after = AutogradContext.memory_stats().saved_bytes
        out.sum().backward()
        return after - before

    assert kept(lambda: tg.checkpoint(layer1, input)) < kept(lambda: layer1(input)) / 4


def test_custom_backward_functions():
    def forward(inputs):
        x = inputs[0]
        return x * 2.0

    def backward(grad_output, inputs):
        grad_input = grad_output * 2.0
        return [grad_input]

    custom_op = CustomOp(forward=forward, backward=backward)
    x = tg.tensor([1.0, 2.0], requires_grad=True)
    y = custom_op(x)
    same(y, [2.0, 4.0])
    same(y.sum().backward()[x], [2.0, 2.0])


def test_a_custom_op_of_several_inputs():
    product = CustomOp(
        forward=lambda inputs: inputs[0] * inputs[1],
        backward=lambda g, inputs: [g * inputs[1], g * inputs[0]],
    )
    x = tg.tensor([1.0, 2.0], dtype=tg.float64, requires_grad=True)
    y = tg.tensor([3.0, -4.0], dtype=tg.float64, requires_grad=True)
    assert tg.testing.gradcheck(product, (x, y))
    (first,) = tg.autograd.grad(product(x, x).sum(), x, create_graph=True)
    same(first, [2.0, 4.0])
    same(tg.autograd.grad(first.sum(), x)[0], [2.0, 2.0])


def test_gradient_clipping():
    x = tg.tensor([3.0], requires_grad=True)
    y = tg.tensor([4.0], requires_grad=True)
    grads = (x * 3 + y * 4).sum().backward()
    clipper = GradientClipper(1.0)
    clipped_grads = clipper.clip_grads(grads)
    assert clipped_grads is grads
    assert grads.norm().item() == pytest.approx(1.0, rel=1e-4)
    same(grads[x], [0.6], 1e-4)
    same(grads[y], [0.8], 1e-4)
    same(x.grad, [3.0])

    small = (x * 0.3).sum().backward()
    same(clipper.clip_grads(small)[x], [0.3])
    assert len(clipper.clip_grads(GradientMap())) == 0
    with pytest.raises(ValueError, match="max_norm"):
        GradientClipper(-1.0)


def test_no_gradient_context(graph):
    x, w, _ = graph
    y = x.detach().matmul(w.detach())
    assert not y.requires_grad

    with AutogradContext.no_grad():
        y = x.matmul(w)
    assert not y.requires_grad
    assert x.matmul(w).requires_grad


# -- Implementation Details --------------------------------------------------------------------


def test_operation_recording(graph):
    """What the document's GradientEntry has: operation, inputs, output, saved tensors."""
    x, w, _ = graph
    with tg.Tape() as tape:
        y = x.matmul(w)
        total = y.sum()
    entry = tape[0]
    assert entry.primitive.name == "matmul"
    inputs, outputs = entry.log
    assert [value.number for value in inputs] == [x.id, w.id]
    assert [value.number for value in outputs] == [y.id]
    assert entry.saved_bytes == x.nbytes + w.nbytes
    assert total.item() == pytest.approx(y.sum().item())


def test_topological_order(graph):
    """Entries are recorded in an order in which inputs come before what uses them."""
    x, w, b = graph
    with tg.Tape() as tape:
        y = x.matmul(w)
        ((y + b) * y.tanh()).sum()
    made = {x.id, w.id, b.id}
    for entry in tape:
        inputs, outputs = entry.log
        assert {value.number for value in inputs} <= made
        made |= {value.number for value in outputs}


# -- Common Patterns ---------------------------------------------------------------------------


def test_training_loop():
    model = nn.Sequential(nn.Linear(3, 16), nn.Tanh(), nn.Linear(16, 1))
    inputs = tg.randn(64, 3)
    targets = (inputs.sum(1, keepdim=True)).sin()
    dataloader = [(inputs[i : i + 16], targets[i : i + 16]) for i in range(0, 64, 16)]
    loss_fn = nn.MSELoss()
    parameters = list(model.parameters())

    optimizer = Adam(parameters, 3e-2)

    losses = []
    for _ in range(15):
        for batch_input, batch_target in dataloader:
            output = model.forward(batch_input)
            loss = loss_fn(output, batch_target)

            grads = loss.backward()

            optimizer.step(grads)

            AutogradContext.clear()
            losses.append(loss.item())
    assert losses[-1] < 0.2 * losses[0]


def test_adam_with_a_mapping_is_adam_with_grad():
    results = []
    for by_mapping in (True, False):
        tg.manual_seed(1)
        model = nn.Linear(3, 1)
        inputs, targets = tg.randn(8, 3), tg.randn(8, 1)
        optimizer = Adam(model.parameters(), 1e-4)
        for _ in range(3):
            optimizer.zero_grad()
            grads = nn.functional.mse_loss(model(inputs), targets).backward()
            optimizer.step(grads) if by_mapping else optimizer.step()
        results.append(model.weight.detach().clone())
    same(results[0], results[1], rtol=0, atol=0)


def test_clear_frees_what_is_recorded():
    x = tg.ones(1000, requires_grad=True)
    y = x.exp().sum()
    before = AutogradContext.memory_stats()
    assert before.saved_bytes >= 4000
    AutogradContext.clear()
    assert AutogradContext.memory_stats().saved_bytes <= before.saved_bytes - 4000
    with pytest.raises(RuntimeError, match="freed"):
        y.backward()
    with tg.Tape() as tape:
        x.exp()
        AutogradContext.clear()
        assert len(tape) == 0


def test_loss_scaling():
    w = tg.tensor([0.5, -0.25], requires_grad=True)
    loss = (w * w).sum()
    scale = 1024.0
    scaled_loss = loss * scale
    grads = scaled_loss.backward()
    same(grads[w], [1024.0, -512.0])

    for tensor_id, grad in grads.items():
        grads[tensor_id] = grad * (1.0 / scale)
    same(grads[w], [1.0, -0.5])

    grads = ((w * w).sum() * scale).backward()
    for grad in grads.values():
        grad.mul_(1.0 / scale)
    same(grads[w], [1.0, -0.5])

    grads = ((w * w).sum() * scale).backward().scale_(1.0 / scale)
    same(grads[w], [1.0, -0.5])
    same(w.grad, [3 * 1024.0, -3 * 512.0])


def test_gradient_debugging(capsys):
    x = tg.tensor([1.0, 4.0], requires_grad=True)
    y = tg.tensor([0.0], requires_grad=True)
    grads = ((x * x).sum() + y.sqrt().sum()).backward()
    for tensor_id, grad in grads.items():
        grad_data = grad.tolist()
        if any(math.isnan(v) or math.isinf(v) for v in grad_data):
            print(f"Invalid gradient detected for tensor {tensor_id}")
    assert capsys.readouterr().out == f"Invalid gradient detected for tensor {y.id}\n"

    grad = grads[x]
    grad_norm = grad.square().sum().sqrt()
    print(f"Gradient norm: {grad_norm.tolist()}")
    assert capsys.readouterr().out == f"Gradient norm: {np.float32(math.sqrt(68)).item()}\n"


def test_second_order_gradients():
    x = tg.randn(10).requires_grad_()
    y = x.square().sum()

    grads = y.backward(create_graph=True)
    x_grad = grads.get(x.id)
    same(x_grad, 2 * x.detach().numpy())

    grad_sum = x_grad.sum()
    second_grads = grad_sum.backward()
    same(second_grads.get(x.id), np.full(10, 2.0))


def test_hessian_vector_product():
    a = tg.randn(4, 4, dtype=tg.float64)
    x = tg.randn(4, dtype=tg.float64, requires_grad=True)
    v = tg.randn(4, dtype=tg.float64)
    loss = (x @ a @ x).sum()
    x_grad = loss.backward(create_graph=True)[x]
    product = (x_grad * v).sum().backward()[x]
    same(product, (a + a.T).numpy() @ v.numpy(), 1e-10)


# -- Performance Considerations ----------------------------------------------------------------


def saved(run):
    with tg.Tape() as tape:
        run()
    return tape.memory_stats().saved_bytes


def test_minimal_saved_tensors():
    x = tg.randn(100, 64, requires_grad=True)
    w = tg.randn(64, requires_grad=True)
    full = x.nbytes
    assert saved(lambda: x + x) == 0
    assert saved(lambda: x.sum()) == 0
    assert saved(lambda: x.relu()) <= full
    assert saved(lambda: x.exp()) == full
    assert saved(lambda: nn.functional.dropout(x, 0.5)) <= full
    assert saved(lambda: nn.functional.layer_norm(x, (64,), w, w)) <= full + w.nbytes + 1000


def test_detach_for_inference():
    model = nn.Linear(3, 2)
    input = tg.randn(4, 3, requires_grad=True)
    output = model.forward(input.detach())
    output.sum().backward()
    assert input.grad is None


def test_profile_memory_usage(capsys):
    x = tg.ones(1024, 1024, requires_grad=True)
    y = x.exp()
    memory_stats = AutogradContext.memory_stats()
    print(f"Saved tensors: {memory_stats.saved_memory_mb} MB")
    assert capsys.readouterr().out.startswith("Saved tensors: ")
    assert memory_stats.saved_memory_mb >= 4.0
    assert memory_stats.by_primitive["exp"] >= 4 * 2**20
    assert y.requires_grad


# -- Troubleshooting ---------------------------------------------------------------------------


def test_gradients_are_none_without_requires_grad():
    x, y = tg.ones(2), tg.ones(2, requires_grad=True)
    grads = (x * y).sum().backward()
    assert grads.get(x) is None
    assert x.grad is None
    with pytest.raises(RuntimeError, match="requires_grad"):
        (x * 2).sum().backward()


def test_numerical_gradient_checking():
    def f(x):
        return (x.sin() * x).sum()

    x = tg.randn(3, 4, dtype=tg.float64, requires_grad=True)
    eps = 1e-6
    analytical = f(x).backward()[x]
    for i in range(x.numel()):
        x_plus = add_at_index(x, i, eps)
        x_minus = sub_at_index(x, i, eps)
        assert x_plus.shape == x.shape

        y_plus = f(x_plus)
        y_minus = f(x_minus)

        numerical_grad = (y_plus - y_minus) / (2.0 * eps)
        assert numerical_grad.item() == pytest.approx(analytical.reshape(-1)[i].item(), rel=1e-6)
    same(add_at_index(tg.zeros(2, 2), 2, 1.5), [[0.0, 0.0], [1.5, 0.0]])
    with pytest.raises(IndexError, match="range"):
        add_at_index(tg.zeros(2, 2), 4, 1.0)

    assert check_gradients(f, x, eps)
    assert check_gradients(f, tg.randn(3), 1e-4)
    wrong = CustomOp(forward=lambda xs: xs[0] * xs[0], backward=lambda g, xs: [g * xs[0]])
    with pytest.raises(GradcheckError):
        check_gradients(lambda x: wrong(x).sum(), x, eps)


# -- what the document's own code has wrong ----------------------------------------------------


@pytest.mark.parametrize(
    "operation",
    [
        lambda x: x**3,
        lambda x: (x * x + 1) ** x,
        lambda x: x.sin(),
        lambda x: x.cos(),
        lambda x: x.split(2, dim=1)[1] * 2,
        lambda x: tg.cat(x.chunk(2, dim=1)[::-1], dim=1) * x,
    ],
)
def test_pow_sin_cos_split(operation):
    x = tg.randn(3, 4, dtype=tg.float64, requires_grad=True)
    assert tg.testing.gradcheck(operation, (x,))


def test_several_losses_over_one_graph():
    x = tg.tensor([1.0, 2.0], requires_grad=True)
    h = x * x
    first = h.sum().backward(retain_graph=True)
    second = (h * h).sum().backward()
    same(first[x], [2.0, 4.0])
    same(second[x], [4.0, 32.0])
    same(x.grad, [6.0, 36.0])


def test_names_stand_where_the_document_has_them():
    assert tg.GradientMap is GradientMap
    assert tg.AutogradContext is AutogradContext
    assert tg.GradientClipper is GradientClipper
    assert tg.CustomOp is CustomOp
