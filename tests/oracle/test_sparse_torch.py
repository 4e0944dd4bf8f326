"""Sparse tensors and sparse gradients beside PyTorch's."""

import numpy as np
import pytest
import torch
import torch.nn.functional as their_functional

import tapegrad as tg
from tapegrad.nn import functional as our_functional

pytestmark = [
    pytest.mark.oracle,
    pytest.mark.filterwarnings("ignore:Sparse invariant checks"),
    pytest.mark.filterwarnings("ignore:Sparse CSR tensor support"),
]

LIBRARIES = (torch, their_functional), (tg, our_functional)


def values(x):
    """What can be compared of a result: numbers, types, whether it is sparse."""
    if isinstance(x, (torch.Tensor, tg.Tensor)):
        dense = x.detach().to_dense()
        name = str(x.dtype).rpartition(".")[2]
        return x.is_sparse, name, tuple(x.shape), dense.tolist()
    return x


def outcome(function, *args):
    """A result, or the kind of the error."""
    try:
        return values(function(*args))
    except (RuntimeError, TypeError, ValueError, IndexError) as error:
        kinds = (TypeError, ValueError, IndexError, RuntimeError)
        return next(kind.__name__ for kind in kinds if isinstance(error, kind))


def same(ours, theirs):
    if isinstance(theirs, tuple) and len(theirs) == 4:
        assert ours[:3] == theirs[:3]
        np.testing.assert_allclose(np.array(ours[3]), np.array(theirs[3]), rtol=1e-6, atol=1e-7)
    else:
        assert ours == theirs


def example(library, unique=False):
    x = library.sparse_coo_tensor(
        library.tensor([[0, 1, 1, 0], [2, 0, 0, 1]]),
        library.tensor([3.0, -4.0, 5.0, 0.5]),
        (2, 3),
    )
    return x.coalesce() if unique else x


def dense(library):
    return library.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])


OPERATIONS = {
    "add": lambda t, x, d: x + x,
    "add unique": lambda t, x, d: x.coalesce() + x.coalesce(),
    "add dense": lambda t, x, d: d + x,
    "dense add": lambda t, x, d: x + d,
    "add number": lambda t, x, d: x + 1,
    "number add": lambda t, x, d: 1 + x,
    "sub": lambda t, x, d: x - x * 3,
    "sub dense": lambda t, x, d: d - x,
    "dense sub": lambda t, x, d: x - d,
    "add alpha": lambda t, x, d: t.add(d, x, alpha=2),
    "add_ alpha": lambda t, x, d: d.clone().add_(x, alpha=-0.5),
    "iadd": lambda t, x, d: d.clone().__iadd__(x),
    "sparse iadd dense": lambda t, x, d: x.clone().add_(d),
    "mul": lambda t, x, d: x * 2,
    "rmul": lambda t, x, d: 2.5 * x,
    "mul 0-d": lambda t, x, d: x * t.tensor(2.0),
    "mul dense": lambda t, x, d: x * d,
    "dense mul": lambda t, x, d: d * x,
    "mul sparse": lambda t, x, d: x * x,
    "mul int": lambda t, x, d: x.long() * 2,
    "mul promotes": lambda t, x, d: x.long() * 0.5,
    "div": lambda t, x, d: x / 4,
    "div dense": lambda t, x, d: x / d,
    "div floor": lambda t, x, d: x // 2,
    "div mode": lambda t, x, d: t.div(x, 2, rounding_mode="trunc"),
    "neg": lambda t, x, d: -x,
    "abs": lambda t, x, d: x.abs(),
    "sqrt": lambda t, x, d: (x * x).sqrt(),
    "pow": lambda t, x, d: x**2,
    "sin": lambda t, x, d: x.sin(),
    "exp": lambda t, x, d: x.exp(),
    "isnan": lambda t, x, d: x.isnan(),
    "sum": lambda t, x, d: x.sum(),
    "sum 0": lambda t, x, d: x.sum(0),
    "sum -1": lambda t, x, d: x.sum(-1),
    "sparse.sum": lambda t, x, d: t.sparse.sum(x),
    "sparse.sum dim": lambda t, x, d: t.sparse.sum(x, 1),
    "sparse.sum dtype": lambda t, x, d: t.sparse.sum(x, dtype=t.float64),
    "norm": lambda t, x, d: x.norm(),
    "norm 1": lambda t, x, d: t.norm(x, 1),
    "norm inf": lambda t, x, d: x.norm(float("inf")),
    "norm dim": lambda t, x, d: x.norm(dim=0),
    "mean": lambda t, x, d: x.mean(),
    "t": lambda t, x, d: x.t(),
    "transpose": lambda t, x, d: x.transpose(0, 1),
    "cat": lambda t, x, d: t.cat([x, x]),
    "cat 1": lambda t, x, d: t.cat([x, x], 1),
    "unsqueeze": lambda t, x, d: x.unsqueeze(0),
    "unsqueeze 1": lambda t, x, d: x.unsqueeze(1),
    "unsqueeze -1": lambda t, x, d: x.unsqueeze(-1),
    "hybrid unsqueeze": lambda t, x, d: d.to_sparse(1).unsqueeze(2),
    "hybrid unsqueeze 0": lambda t, x, d: d.to_sparse(1).unsqueeze(0),
    "to": lambda t, x, d: x.to(t.float64),
    "half": lambda t, x, d: x.half(),
    "float": lambda t, x, d: x.float() is x,
    "clone": lambda t, x, d: x.clone(),
    "zero_": lambda t, x, d: x.clone().zero_(),
    "zero_ coalesced": lambda t, x, d: x.clone().zero_().is_coalesced(),
    "zeros_like": lambda t, x, d: t.zeros_like(x),
    "ones_like": lambda t, x, d: t.ones_like(x),
    "mul_": lambda t, x, d: x.clone().mul_(3),
    "sub_": lambda t, x, d: x.clone().sub_(x),
    "sparse_mask": lambda t, x, d: d.sparse_mask(x.coalesce()),
    "copy_": lambda t, x, d: d.clone().copy_(x),
    "sparse copy_": lambda t, x, d: x.clone().copy_(x * 2),
    "to_sparse": lambda t, x, d: (d - 3).to_sparse(),
    "to_sparse 1": lambda t, x, d: (d - 3).to_sparse(1),
    "to_sparse 1 parts": lambda t, x, d: (d - 3).to_sparse(1).values(),
    "mm": lambda t, x, d: t.mm(x, d.t()),
    "matmul": lambda t, x, d: x @ d.t(),
    "mv": lambda t, x, d: x @ d[0],
    "dense @ sparse": lambda t, x, d: d.t() @ x,
    "sparse.mm": lambda t, x, d: t.sparse.mm(x, d.t()),
    "sparse.addmm": lambda t, x, d: t.sparse.addmm(t.ones(2, 2), x, d.t(), beta=2, alpha=3),
    "addmm": lambda t, x, d: t.addmm(t.ones(2, 2), x, d.t()),
    "sparse @ sparse": lambda t, x, d: x @ x.t(),
    "sparse @ sparse sorted": lambda t, x, d: t.sparse.mm(x.t(), x).is_coalesced(),
    "sparse @ sparse twice": lambda t, x, d: (x.t() @ x) @ x.t(),
    "sparse @ sparse shapes": lambda t, x, d: x @ x,
    "sparse @ nothing": lambda t, x, d: x @ t.zeros_like(x).t(),
    "softmax": lambda t, x, d: t.sparse.softmax(x, 1),
    "softmax 0": lambda t, x, d: t.sparse.softmax(x, 0),
    "softmax -1": lambda t, x, d: t.sparse.softmax(x, -1),
    "softmax dtype": lambda t, x, d: t.sparse.softmax(x, 1, dtype=t.float64),
    "softmax int": lambda t, x, d: t.sparse.softmax(x.long(), 1),
    "softmax hybrid": lambda t, x, d: t.sparse.softmax(d.to_sparse(1), 0),
    "softmax dense dim": lambda t, x, d: t.sparse.softmax(d.to_sparse(1), 1),
    "softmax of dense": lambda t, x, d: t.sparse.softmax(d, 1),
    "log_softmax": lambda t, x, d: t.sparse.log_softmax(x, 1),
    "spdiags": lambda t, x, d: t.sparse.spdiags(d, t.tensor([0, -1]), (3, 3)),
    "spdiags wide": lambda t, x, d: t.sparse.spdiags(d, t.tensor([2, 1]), (2, 5)),
    "spdiags one": lambda t, x, d: t.sparse.spdiags(d[0], t.tensor([1]), (5, 5)),
    "spdiags twice": lambda t, x, d: t.sparse.spdiags(d, t.tensor([1, 1]), (3, 3)),
    "x[0]": lambda t, x, d: x[0],
    "x[-1]": lambda t, x, d: x[-1],
    "x[:, 1]": lambda t, x, d: x.select(1, 1),
    "x[1, 0]": lambda t, x, d: x[1, 0],
    "x[5]": lambda t, x, d: x[5],
    "narrow_copy": lambda t, x, d: t.narrow_copy(x, 1, 1, 2),
    "hybrid x[0]": lambda t, x, d: (d - 1).to_sparse(1)[0],
    "hybrid x[1]": lambda t, x, d: (d - 4).to_sparse(1)[1],
    "index_select": lambda t, x, d: x.index_select(1, t.tensor([0, 2, 0])),
    "index_select 0": lambda t, x, d: t.index_select(x, 0, t.tensor([1])),
    "index_select none": lambda t, x, d: x.index_select(1, t.tensor([], dtype=t.int64)),
    "index_select range": lambda t, x, d: x.index_select(1, t.tensor([0, 3])),
    "index_select hybrid": lambda t, x, d: d.to_sparse(1).index_select(1, t.tensor([2, 0])),
    "iter": lambda t, x, d: [row.to_dense().tolist() for row in x],
    "stack": lambda t, x, d: t.stack([x, x * 2]),
    "stack 1": lambda t, x, d: t.stack([x, x * 2], 1),
    "data.div_": lambda t, x, d: (x.data.div_(2), x)[1],
    "data.neg_": lambda t, x, d: (x.data.neg_(), x)[1],
    "data.mul_": lambda t, x, d: (x.data.mul_(2), x)[1],
    "data.zero_": lambda t, x, d: (x.data.zero_(), x)[1],
    "values mul_": lambda t, x, d: (x._values().mul_(2), x)[1],
    "leaf mul_": lambda t, x, d: x.detach().requires_grad_().mul_(2),
    "float into int": lambda t, x, d: x.int().add_(x),
    "spmm": lambda t, x, d: t.spmm(x, d.t()),
    "item of one": lambda t, x, d: x[0, 2].item(),
    "mm shapes": lambda t, x, d: t.sparse.mm(x, d),
    "numpy": lambda t, x, d: x.numpy(),
    "item": lambda t, x, d: x.item(),
    "len": lambda t, x, d: len(x),
    "stride": lambda t, x, d: list(x.stride()),
    "is_contiguous": lambda t, x, d: x.is_contiguous(),
    "dims": lambda t, x, d: (x.sparse_dim(), x.dense_dim(), x._nnz(), x.numel(), x.dim()),
    "indices": lambda t, x, d: x.indices(),
    "coalesced indices": lambda t, x, d: x.coalesce().indices(),
    "coalesced values": lambda t, x, d: x.coalesce().values(),
    "dense indices": lambda t, x, d: d.indices(),
    "dense coalesce": lambda t, x, d: d.coalesce(),
    "any": lambda t, x, d: x.any(),
    "type": lambda t, x, d: x.layout == t.sparse_coo,
}


@pytest.mark.parametrize("unique", [False, True])
@pytest.mark.parametrize("name", OPERATIONS)
def test_operation(name, unique):
    theirs, ours = (
        outcome(OPERATIONS[name], library, example(library, unique), dense(library))
        for library, _ in LIBRARIES
    )
    same(ours, theirs)


MAKING = {
    "plain": lambda t: t.sparse_coo_tensor([[0, 1]], [1.0, 2.0]),
    "size": lambda t: t.sparse_coo_tensor([[0, 1]], [1.0, 2.0], (4,)),
    "only size": lambda t: t.sparse_coo_tensor((2, 3)),
    "hybrid": lambda t: t.sparse_coo_tensor([[0, 1]], [[1.0, 2.0], [3.0, 4.0]], (4, 2)),
    "int": lambda t: t.sparse_coo_tensor([[0, 1], [1, 1]], [1, 2]),
    "dtype": lambda t: t.sparse_coo_tensor([[0]], [1.0], dtype=t.float64),
    "dims": lambda t: t.sparse_coo_tensor([[0, 1]], [1.0, 2.0], (4, 2)),
    "count": lambda t: t.sparse_coo_tensor([[0, 1, 0]], [1.0, 2.0], (4,)),
    "inner": lambda t: t.sparse_coo_tensor([[0]], [[1.0, 2.0]], (4, 3)),
    "range": lambda t: t.sparse_coo_tensor([[4]], [1.0], (4,), check_invariants=True),
    "below": lambda t: t.sparse_coo_tensor([[-1]], [1.0], (4,), check_invariants=True),
    "flat": lambda t: t.sparse_coo_tensor([0, 1], [1.0, 2.0]),
}


@pytest.mark.parametrize("name", MAKING)
def test_making(name):
    theirs, ours = (outcome(MAKING[name], library) for library, _ in LIBRARIES)
    same(ours, theirs)


@pytest.mark.parametrize("name", ["plain", "only size", "hybrid", "int", "dtype"])
def test_printing(name):
    theirs, ours = (repr(MAKING[name](library)) for library, _ in LIBRARIES)
    assert ours.replace("tapegrad.", "torch.") == theirs


# -- gradients ---------------------------------------------------------------------------------

TOKENS = [[0, 2, 2], [4, 0, 2]]
CASES = {
    "plain": lambda t, F, w, i: F.embedding(i, w, sparse=True),
    "padding": lambda t, F, w, i: F.embedding(i, w, padding_idx=2, sparse=True),
    "max_norm": lambda t, F, w, i: F.embedding(i, w, max_norm=0.5, sparse=True),
    "by frequency": lambda t, F, w, i: F.embedding(i, w, scale_grad_by_freq=True, sparse=True),
    "empty": lambda t, F, w, i: F.embedding(i[:0], w, sparse=True),
    "scalar": lambda t, F, w, i: F.embedding(i[0, 0], w, sparse=True),
    "both": lambda t, F, w, i: F.embedding(i, w, sparse=True).sum() + (w**2).sum(),
    "twice": lambda t, F, w, i: F.embedding(i, w, sparse=True) * F.embedding(i, w, sparse=True),
    "bag sum": lambda t, F, w, i: F.embedding_bag(i, w, mode="sum", sparse=True),
    "bag mean": lambda t, F, w, i: F.embedding_bag(i, w, sparse=True),
    "bag max": lambda t, F, w, i: F.embedding_bag(i, w, mode="max", sparse=True),
    "bag padding": lambda t, F, w, i: F.embedding_bag(i, w, padding_idx=2, sparse=True),
    "bag by frequency": lambda t, F, w, i: F.embedding_bag(
        i, w, mode="sum", scale_grad_by_freq=True, sparse=True
    ),
    "bag offsets": lambda t, F, w, i: F.embedding_bag(
        i.reshape(-1), w, t.tensor([0, 2, 2, 5]), mode="sum", sparse=True
    ),
    "bag weights": lambda t, F, w, i: F.embedding_bag(
        i, w, mode="sum", per_sample_weights=t.tensor(TOKENS, dtype=w.dtype), sparse=True
    ),
}


def table(library, dtype="float64"):
    numbers = np.random.default_rng(0).normal(size=(5, 3))
    return library.tensor(numbers, dtype=getattr(library, dtype), requires_grad=True)


@pytest.mark.parametrize("name", CASES)
def test_gradient(name):
    def run(library, F):
        weight = table(library)
        y = CASES[name](library, F, weight, library.tensor(TOKENS))
        (y**2).sum().backward()
        return weight.grad

    theirs, ours = (outcome(run, *library) for library in LIBRARIES)
    same(ours, theirs)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_gradient_of_other_dtypes(dtype):
    def run(library, F):
        weight = table(library, dtype)
        (F.embedding(library.tensor(TOKENS), weight, sparse=True) * 2).sum().backward()
        return weight.grad.coalesce()

    theirs, ours = (outcome(run, *library) for library in LIBRARIES)
    same(ours, theirs)


def test_number_of_elements_and_order():
    def run(library, F):
        weight = table(library)
        F.embedding(library.tensor(TOKENS), weight, padding_idx=4, sparse=True).sum().backward()
        found = [weight.grad._indices().tolist(), weight.grad.is_coalesced()]
        F.embedding(library.tensor([1, 3]), weight, sparse=True).sum().backward()
        return [*found, weight.grad._nnz(), weight.grad.is_coalesced()]

    theirs, ours = (run(*library) for library in LIBRARIES)
    assert ours == theirs


def test_second_derivative():
    def run(library, F):
        weight = table(library)
        loss = (F.embedding(library.tensor(TOKENS), weight, sparse=True) ** 3).sum()
        (g,) = library.autograd.grad(loss, weight, create_graph=True)
        assert g.is_sparse
        assert g.grad_fn is not None
        (h,) = library.autograd.grad(library.sparse.sum(g), weight)
        return h

    theirs, ours = (outcome(run, *library) for library in LIBRARIES)
    same(ours, theirs)


def test_gradient_of_elements_and_of_leaves():
    def run(library, F):
        v = library.tensor([1.0, 2.0, 3.0], requires_grad=True)
        i = library.tensor([[0, 1, 1], [2, 0, 0]])
        a = library.sparse_coo_tensor(i, v, (2, 3))
        assert not a.is_leaf
        (library.sparse.mm(a, dense(library).t()) ** 2).sum().backward()
        leaf = library.sparse_coo_tensor(i[:, :2], [1.0, 2.0], (2, 3)).requires_grad_()
        (library.sparse.mm(leaf, dense(library).t()) ** 2).sum().backward()
        return [v.grad.tolist(), leaf.grad.is_sparse, leaf.grad.to_dense().tolist()]

    theirs, ours = (run(*library) for library in LIBRARIES)
    assert ours == theirs


# -- optimizers --------------------------------------------------------------------------------

OPTIMIZERS = [
    ("SGD", {"lr": 0.1}),
    ("SGD", {"lr": 0.1, "momentum": 0.9}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "dampening": 0.3}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True, "maximize": True}),
    ("SGD", {"lr": 0.1, "weight_decay": 0.1}),
    ("Adagrad", {"lr": 0.1, "lr_decay": 0.1}),
    ("Adagrad", {"maximize": True, "initial_accumulator_value": 0.2}),
    ("Adagrad", {"weight_decay": 0.1}),
    ("SparseAdam", {"lr": 0.1}),
    ("SparseAdam", {"maximize": True, "betas": (0.5, 0.7), "eps": 1e-3}),
    *[
        (name, {})
        for name in (
            *("Adam", "AdamW", "Adamax", "Adadelta", "ASGD", "NAdam", "RAdam", "RMSprop"),
            *("Rprop", "Adafactor", "Muon"),
        )
    ],
]


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(("name", "options"), OPTIMIZERS)
def test_training(name, options, dtype):
    def run(library, F):
        weight = table(library, dtype)
        optimizer = getattr(library.optim, name)([weight], **options)
        for number, tokens in enumerate([[0, 1, 1], [2, 2, 0], [3], [], [1, 0], [1, 4, 4, 4]]):
            optimizer.zero_grad(set_to_none=bool(number % 2))
            t = library.tensor(tokens, dtype=library.int64)
            (F.embedding(t, weight, sparse=True) ** 2).sum().backward()
            if number == 2:
                (F.embedding(t, weight, sparse=True) ** 3).sum().backward()
            optimizer.step()
        return weight

    theirs, ours = (outcome(run, *library) for library in LIBRARIES)
    same(ours, theirs)


@pytest.mark.parametrize(
    "options", [{"lr": -1.0}, {"eps": 0.0}, {"betas": (1.0, 0.9)}, {"betas": (0.5, -0.1)}, {}]
)
def test_options_of_sparse_adam(options):
    def run(library, F):
        return repr(library.optim.SparseAdam([table(library)], **options))

    theirs, ours = (outcome(run, *library) for library in LIBRARIES)
    assert ours == theirs


def test_state_of_sparse_adam_goes_both_ways():
    def stepped(library, F, optimizer, weight):
        optimizer.zero_grad()
        (F.embedding(library.tensor(TOKENS), weight, sparse=True) ** 2).sum().backward()
        optimizer.step()

    def made(library):
        weight = table(library)
        return weight, library.optim.SparseAdam([weight], lr=0.1)

    (their_weight, theirs), (our_weight, ours) = made(torch), made(tg)
    stepped(torch, their_functional, theirs, their_weight)
    state = theirs.state_dict()
    converted = {
        key: tg.tensor(value.numpy()) if isinstance(value, torch.Tensor) else value
        for key, value in state["state"][0].items()
    }
    ours.load_state_dict({"state": {0: converted}, "param_groups": state["param_groups"]})
    with tg.no_grad():
        our_weight.copy_(tg.tensor(their_weight.detach().numpy()))
    for _ in range(2):
        stepped(torch, their_functional, theirs, their_weight)
        stepped(tg, our_functional, ours, our_weight)
    np.testing.assert_allclose(our_weight.detach().numpy(), their_weight.detach().numpy())
    back = ours.state_dict()["state"][0]
    assert back["step"] == theirs.state_dict()["state"][0]["step"] == 3
    assert type(back["step"]) is int


@pytest.mark.parametrize("name", ["clip_grad_norm_", "clip_grad_value_"])
def test_clipping(name):
    def run(library, F):
        weight = table(library)
        F.embedding(library.tensor(TOKENS), weight, sparse=True).sum().backward()
        return getattr(library.nn.utils, name)([weight], 0.5)

    theirs, ours = (outcome(run, *library) for library in LIBRARIES)
    same(ours, theirs)


def test_unscaling():
    def run(library, F):
        weight = table(library, "float32")
        scaler = library.amp.GradScaler("cpu", init_scale=8.0)
        optimizer = library.optim.SGD([weight], lr=1.0)
        scaler.scale(F.embedding(library.tensor(TOKENS), weight, sparse=True).sum()).backward()
        scaler.unscale_(optimizer)
        found = weight.grad.to_dense().tolist()
        scaler.step(optimizer)
        scaler.update()
        return [found, scaler.get_scale()]

    theirs, ours = (run(*library) for library in LIBRARIES)
    assert ours == theirs


def test_gradients_of_softmax_and_of_sparse_products():
    def run(library, F):
        v = library.tensor([1.0, 2.0, 3.0, 0.5], requires_grad=True)
        i = library.tensor([[0, 1, 1, 1], [2, 0, 0, 1]])
        a = library.sparse_coo_tensor(i, v, (2, 3))
        weights = dense(library)
        loss = (library.sparse.softmax(a, 1).to_dense() * weights).sum()
        loss = loss + (library.sparse.mm(a, a.t()).to_dense() * weights[:, :2]).sum()
        (g,) = library.autograd.grad(loss, v)
        return g

    theirs, ours = (outcome(run, *library) for library in LIBRARIES)
    same(ours, theirs)
