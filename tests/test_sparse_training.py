"""Training with sparse gradients: optimizers, clipping, scaling, compiled steps."""

import copy
import warnings

import numpy as np
import pytest

import tapegrad as tg
from tapegrad.nn import functional as F


def table(rows=5, size=3, dtype=tg.float64):
    values = np.random.default_rng(0).normal(size=(rows, size))
    return tg.tensor(values, dtype=dtype, requires_grad=True)


TOKENS = tg.tensor([[0, 2, 2], [4, 0, 2]])


# -- optimizers --------------------------------------------------------------------------------


def trained(make, sparse, steps=5, **options):
    weight = table()
    optimizer = make([weight], **options)
    for step in range(steps):
        optimizer.zero_grad()
        (F.embedding((TOKENS + step) % 5, weight, sparse=sparse) ** 2).sum().backward()
        optimizer.step()
    return weight.detach().numpy()


@pytest.mark.parametrize(
    ("make", "options"),
    [
        (tg.optim.SGD, {"lr": 0.1}),
        (tg.optim.SGD, {"lr": 0.1, "momentum": 0.9, "dampening": 0.1}),
        (tg.optim.SGD, {"lr": 0.1, "momentum": 0.9, "nesterov": True, "maximize": True}),
        (tg.optim.Adagrad, {"lr": 0.1, "lr_decay": 0.1, "maximize": True}),
        (tg.optim.LBFGS, None),
    ],
)
def test_optimizers_that_take_both_do_the_same(make, options):
    if make is tg.optim.LBFGS:
        found = []
        for sparse in (True, False):
            weight = table()
            optimizer = make([weight], max_iter=3)

            def closure(optimizer=optimizer, weight=weight, sparse=sparse):
                optimizer.zero_grad()
                loss = ((F.embedding(TOKENS, weight, sparse=sparse) - 1) ** 4).sum()
                loss.backward()
                return loss

            optimizer.step(closure)
            found.append(weight.detach().numpy())
        np.testing.assert_allclose(*found)
        return
    ours, dense = trained(make, True, **options), trained(make, False, **options)
    np.testing.assert_allclose(ours, dense, rtol=1e-12, atol=1e-14)


def test_large_tables_are_updated_in_their_rows():
    weight = tg.zeros(5000, 4, requires_grad=True)
    others = [tg.zeros(300, requires_grad=True) for _ in range(20)]
    optimizer = tg.optim.SGD([weight, *others], lr=1.0)
    for _ in range(3):
        optimizer.zero_grad()
        loss = F.embedding(tg.tensor([7, 7, 4999]), weight, sparse=True).sum()
        (loss + sum(x.sum() for x in others)).backward()
        optimizer.step()
    expected = np.zeros((5000, 4))
    expected[7], expected[4999] = -6, -3
    np.testing.assert_array_equal(weight.detach().numpy(), expected)
    assert all((x == -3).all() for x in others)


@pytest.mark.parametrize(
    "make",
    [
        *(tg.optim.Adam, tg.optim.AdamW, tg.optim.Adamax, tg.optim.Adadelta, tg.optim.ASGD),
        *(tg.optim.NAdam, tg.optim.RAdam, tg.optim.RMSprop, tg.optim.Rprop),
        *(tg.optim.Adafactor, tg.optim.Muon),
    ],
)
def test_other_optimizers_refuse_before_anything_changes(make):
    weight, other = table(), table()
    optimizer = make([other, weight])
    (other.sum() + F.embedding(TOKENS, weight, sparse=True).sum()).backward()
    with pytest.raises(RuntimeError, match="takes no sparse gradients"):
        optimizer.step()
    np.testing.assert_array_equal(other.detach().numpy(), table().detach().numpy())


def test_sparse_adam_refuses_what_it_does_not_take():
    with pytest.raises(RuntimeError, match="SparseAdam takes sparse gradients only"):
        trained(tg.optim.SparseAdam, False)
    for options in ({"lr": -1.0}, {"eps": 0.0}, {"betas": (1.0, 0.9)}, {"betas": (0.9, -0.1)}):
        with pytest.raises(ValueError, match=r"learning rate|eps|beta"):
            tg.optim.SparseAdam([table()], **options)
    with pytest.raises(ValueError, match="dense parameters"):
        tg.optim.SparseAdam([tg.eye(2).to_sparse()])


@pytest.mark.parametrize("make", [tg.optim.SGD, tg.optim.Adagrad])
def test_weight_decay_is_refused(make):
    with pytest.raises(RuntimeError, match="weight_decay"):
        trained(make, True, lr=0.1, weight_decay=0.1)


def test_sparse_adam_is_adam_if_all_rows_are_used():
    weight, dense = table(), table()
    sparse_adam = tg.optim.SparseAdam([weight], lr=0.1)
    adam = tg.optim.Adam([dense], lr=0.1)
    tokens = tg.tensor([0, 1, 1, 2, 3, 4, 4])
    for w, optimizer, sparse in ((weight, sparse_adam, True), (dense, adam, False)):
        for _ in range(5):
            optimizer.zero_grad()
            (F.embedding(tokens, w, sparse=sparse) ** 2).sum().backward()
            optimizer.step()
    # Adam adds eps before it corrects, so they differ by about eps.
    np.testing.assert_allclose(weight.detach().numpy(), dense.detach().numpy(), atol=1e-6)


@pytest.mark.parametrize("make", [tg.optim.SparseAdam, tg.optim.SGD, tg.optim.Adagrad])
def test_training_resumes_from_a_state_dict(make):
    options = {"lr": 0.1, "momentum": 0.9} if make is tg.optim.SGD else {"lr": 0.1}

    def step(weight, optimizer, number):
        optimizer.zero_grad()
        (F.embedding((TOKENS + number) % 5, weight, sparse=True) ** 2).sum().backward()
        optimizer.step()

    weight = table()
    optimizer = make([weight], **options)
    for number in range(3):
        step(weight, optimizer, number)
    again = weight.detach().clone().requires_grad_()
    resumed = make([again], **options)
    resumed.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    for number in range(3, 6):
        step(weight, optimizer, number)
        step(again, resumed, number)
    np.testing.assert_array_equal(weight.detach().numpy(), again.detach().numpy())


def test_state_of_sparse_adam_is_saved(tmp_path):
    weight = table()
    optimizer = tg.optim.SparseAdam([weight], lr=0.1)
    (F.embedding(TOKENS, weight, sparse=True) ** 2).sum().backward()
    optimizer.step()
    tg.save(optimizer.state_dict(), tmp_path / "state.tg")
    other = tg.optim.SparseAdam([table()], lr=0.5)
    other.load_state_dict(tg.load(tmp_path / "state.tg"))
    saved, loaded = (o.state_dict()["state"][0] for o in (optimizer, other))
    assert saved["step"] == loaded["step"] == 1
    np.testing.assert_array_equal(saved["exp_avg"].numpy(), loaded["exp_avg"].numpy())


def test_step_takes_a_mapping_of_gradients():
    weight = table()
    before = weight.detach().clone()
    found = F.embedding(TOKENS, weight, sparse=True).sum().backward()
    found.scale_(2.0)
    assert not found.has_nan()
    tg.optim.SGD([weight], lr=1.0).step(found)
    assert (before - weight.detach())[2].tolist() == pytest.approx([6.0] * 3)


def test_clipping_refuses():
    weight = table()
    F.embedding(TOKENS, weight, sparse=True).sum().backward()
    with pytest.raises(NotImplementedError, match="to_dense"):
        tg.nn.utils.clip_grad_norm_([weight], 1.0)
    with pytest.raises(NotImplementedError, match=r"clamp.*to_dense"):
        tg.nn.utils.clip_grad_value_([weight], 1.0)
    assert weight.grad.to_dense()[2, 0].item() == 3.0


def test_gradient_scaler():
    weight = table(dtype=tg.float32)
    scaler = tg.amp.GradScaler("cpu", init_scale=8.0)
    optimizer = tg.optim.SGD([weight], lr=1.0)
    before = weight.detach().clone()
    scaler.scale(F.embedding(TOKENS, weight, sparse=True).sum()).backward()
    assert weight.grad.to_dense()[2, 0].item() == 24.0
    scaler.unscale_(optimizer)
    assert weight.grad.to_dense()[2, 0].item() == 3.0
    scaler.step(optimizer)
    scaler.update()
    assert (before - weight.detach())[2].tolist() == pytest.approx([3.0] * 3)
    optimizer.zero_grad()
    middle = weight.detach().clone()
    scaler.scale(F.embedding(TOKENS, weight, sparse=True).sum() * float("inf")).backward()
    scaler.step(optimizer)
    np.testing.assert_array_equal(weight.detach().numpy(), middle.numpy())


# -- compiled functions ------------------------------------------------------------------------


@pytest.mark.parametrize("make", [tg.optim.SparseAdam, tg.optim.SGD, tg.optim.Adagrad])
def test_a_compiled_step_equals_eager_on_changing_data(make):
    def run(compiled):
        tg.manual_seed(0)
        layer = tg.nn.Embedding(50, 4, sparse=True)
        head = tg.nn.Linear(4, 1)
        optimizers = [make(layer.parameters(), lr=0.1), tg.optim.Adam(head.parameters(), lr=0.1)]

        def step(tokens):
            for optimizer in optimizers:
                optimizer.zero_grad()
            loss = (head(layer(tokens)) ** 2).mean()
            loss.backward()
            for optimizer in optimizers:
                optimizer.step()
            return loss

        call = tg.compile(step) if compiled else step
        losses = []
        for number in range(8):
            tokens = (tg.arange(12).reshape(3, 4) * (number + 1)) % 50
            losses.append(call(tokens).item())
            assert layer.weight.grad.is_sparse
        return losses, layer.weight.detach().numpy(), head.weight.detach().numpy()

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ours = run(True)
    for a, b in zip(ours, run(False), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


def test_a_compiled_step_says_why_it_runs_eagerly():
    layer = tg.nn.Embedding(5, 2, sparse=True)

    def step(tokens):
        layer(tokens).sum().backward()

    fast = tg.compile(step)
    fast(TOKENS)
    with pytest.warns(UserWarning, match="gradients of an embedding of sparse tensors"):
        fast(TOKENS)
    fast(TOKENS)
    assert layer.weight.grad.to_dense()[2, 0].item() == 9.0
    with pytest.raises(RuntimeError, match="sparse=False"):
        tg.compile(step, fullgraph=True)(TOKENS)


def test_a_compiled_layer_gives_sparse_gradients():
    layer = tg.nn.Embedding(5, 2, sparse=True)
    fast = tg.compile(layer)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(4):
            layer.zero_grad()
            fast(TOKENS).sum().backward()
            assert layer.weight.grad.is_sparse
            assert layer.weight.grad.to_dense()[2].tolist() == [3.0, 3.0]
    layer.weight.requires_grad_(False)
    assert fast(TOKENS).shape == (2, 3, 2)


def test_a_dense_program_meets_a_sparse_gradient():
    weight = table()

    @tg.compile
    def step():
        (weight * 2).sum().backward()

    for _ in range(4):
        weight.grad = None
        step()
    weight.grad = None
    F.embedding(TOKENS, weight, sparse=True).sum().backward()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        step()
    assert weight.grad.to_dense()[:, 0].tolist() == [4.0, 2.0, 5.0, 2.0, 3.0]


def test_sparse_arguments_and_globals_of_compiled_functions():
    matrix = tg.tensor([[0.0, 2.0], [3.0, 0.0]]).to_sparse()
    x = tg.tensor([[1.0], [10.0]])
    by_argument = tg.compile(lambda a, x: a @ x)
    by_closure = tg.compile(lambda x: (matrix @ x) * matrix._nnz())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for number in range(1, 6):
            assert by_argument(matrix, x * number).tolist() == [[20.0 * number], [3.0 * number]]
            assert by_closure(x).tolist() == [[40.0], [6.0]]
        matrix.mul_(2)
        assert by_argument(matrix, x).tolist() == [[40.0], [6.0]]
        assert by_closure(x).tolist() == [[80.0], [12.0]]
        matrix.zero_()
        assert by_closure(x).tolist() == [[0.0], [0.0]]


@pytest.mark.parametrize("first", [True, False])
def test_what_kind_a_gradient_is_belongs_to_the_signature(first):
    weight = table()

    def lookup(sparse):
        weight.grad = None
        F.embedding(TOKENS, weight, sparse=sparse).sum().backward()

    fast = tg.compile(lambda x: x * 2 if weight.grad.is_sparse else x * 3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for sparse in [first] * 4 + [not first] * 4 + [first, not first]:
            lookup(sparse)
            assert fast(tg.ones(1)).item() == (2.0 if sparse else 3.0)
