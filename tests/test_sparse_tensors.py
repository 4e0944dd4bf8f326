"""Sparse tensors: what they do, and what they refuse."""

import copy
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tapegrad as tg
from tapegrad.nn import functional as F


def table(rows=5, size=3, dtype=tg.float64):
    values = np.random.default_rng(0).normal(size=(rows, size))
    return tg.tensor(values, dtype=dtype, requires_grad=True)


TOKENS = tg.tensor([[0, 2, 2], [4, 0, 2]])


def example():
    return tg.sparse_coo_tensor([[0, 1, 1], [2, 0, 0]], [3.0, 4.0, 5.0], (2, 3))


def test_making():
    x = example()
    assert x.is_sparse
    assert isinstance(x, tg.Tensor)
    assert x.layout is tg.sparse_coo
    assert (x._nnz(), x.sparse_dim(), x.dense_dim(), x.ndim, x.numel()) == (3, 2, 0, 2, 6)
    assert x.shape == (2, 3)
    assert x.to_dense().tolist() == [[0.0, 0.0, 3.0], [9.0, 0.0, 0.0]]
    assert x.coalesce().indices().tolist() == [[0, 1], [2, 0]]
    assert x.coalesce().values().tolist() == [3.0, 9.0]
    with pytest.raises(RuntimeError, match="needs a coalesced tensor"):
        x.indices()
    assert tg.sparse_coo_tensor((2, 3)).to_dense().tolist() == [[0.0] * 3] * 2
    for made in (tg.zeros, tg.empty):
        zeros = made(2, 3, layout=tg.sparse_coo, dtype=tg.float64, requires_grad=True)
        assert (zeros.layout, zeros.dtype, zeros.requires_grad) == (tg.sparse_coo, tg.float64, True)
        assert zeros.to_dense().tolist() == [[0.0] * 3] * 2
    assert tg.zeros_like(tg.ones(2), layout=tg.sparse_coo)._nnz() == 0
    assert tg.sparse_coo_tensor([[0, 2]], [1, 2]).shape == (3,)
    assert tg.sparse_coo_tensor([[0]], [[1.0, 2.0]], (3, 2)).to_dense()[0].tolist() == [1.0, 2.0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([[0, 1]], [1.0]), "need the same number"),
        (([[0, 3]], [1.0, 2.0], (3,)), "out of range"),
        (([[0, -1]], [1.0, 2.0], (3,)), "is negative"),
        (([[0, 1]], [1.0, 2.0], (3, 4)), "rows of indices"),
        (([[0]], [[1.0, 2.0]], (3, 3)), "do not fit"),
        (([0, 1], [1.0, 2.0]), "dimensions, count"),
    ],
)
def test_what_does_not_fit_is_refused(arguments, message):
    with pytest.raises(RuntimeError, match=message):
        tg.sparse_coo_tensor(*arguments)


def test_there_and_back():
    x = tg.tensor([[0.0, 2.0, 0.0], [1.0, 0.0, 3.0]])
    for dims in (1, 2, None):
        sparse = x.to_sparse() if dims is None else x.to_sparse(dims)
        assert sparse.is_coalesced()
        assert sparse.to_dense().tolist() == x.tolist()
    assert x.to_sparse(1).dense_dim() == 1
    assert x.to_dense() is x
    assert (x.sparse_dim(), x.dense_dim()) == (0, 2)
    for name in ("indices", "values", "coalesce", "is_coalesced", "_nnz", "_values"):
        with pytest.raises(RuntimeError, match="is for sparse tensors"):
            getattr(x, name)()
    assert tg.tensor(3.0).to_sparse().to_dense().item() == 3.0


def test_arithmetic():
    x, dense = example(), example().to_dense()
    for ours, expected in (
        (x + x, dense * 2),
        (x + x.coalesce(), dense * 2),
        (x - x, dense * 0),
        (x * 2, dense * 2),
        (2 * x, dense * 2),
        (x / 2, dense / 2),
        (x // 2, dense // 2),
        (-x, -dense),
        (x * x, dense * dense),
        (x * dense, dense * dense),
        (dense * x, dense * dense),
        (dense + x, dense * 2),
        (dense - x, dense * 0),
        (x**2, dense**2),
        (x.abs().sqrt(), dense.sqrt()),
        (x * tg.tensor(2.0), dense * 2),
        (tg.add(x, x, alpha=3), dense * 4),
        (x.t(), dense.t()),
        (x.T, dense.T),
        (tg.cat([x, x]), tg.cat([dense, dense])),
        (tg.cat([x, x], 1), tg.cat([dense, dense], 1)),
        (x.double(), dense.double()),
        (x.to(tg.float16), dense.half()),
        (x.clone(), dense),
        (x.detach(), dense),
        (tg.zeros_like(x), dense * 0),
    ):
        found = ours.to_dense()
        assert found.dtype is expected.dtype
        np.testing.assert_array_equal(found.float().numpy(), expected.float().numpy())
    assert x.sum().item() == 12.0
    assert x.sum(0).to_dense().tolist() == dense.sum(0).tolist()
    assert x.norm().item() == pytest.approx(dense.norm().item())
    for p in (1, 3, float("inf")):
        assert x.norm(p).item() == pytest.approx(dense.norm(p).item())
    assert dense.sparse_mask(x)._values().tolist() == [3.0, 9.0, 9.0]


def test_changes_in_place():
    x = example()
    same = x
    x += x
    x *= 2
    x /= 4
    x.add_(x, alpha=2).sub_(example()).neg_().mul_(tg.tensor(0.5))
    assert x is same
    assert x.to_dense().tolist() == [[0.0, 0.0, -3.0], [-9.0, 0.0, 0.0]]
    assert x.copy_(example()).to_dense().tolist() == example().to_dense().tolist()
    dense = tg.zeros(2, 3)
    dense += example()
    dense.add_(example(), alpha=2)
    assert dense.tolist() == [[0.0, 0.0, 9.0], [27.0, 0.0, 0.0]]


REFUSED = {
    "exp": lambda x: x.exp(),
    "mean": lambda x: x.mean(),
    "max": lambda x: x.max(),
    "reshape": lambda x: x.to_dense().to_sparse(1).reshape(-1),
    "eq": lambda x: x == x,
    "clamp": lambda x: x.clamp(min=0.0),
    "softmax": lambda x: x.softmax(0),
    "linear": lambda x: F.linear(tg.ones(4, 3), x),
    "where": lambda x: tg.where(tg.ones(2, 3) > 0, x, 0.0),
    "Parameter": lambda x: tg.nn.Parameter(x),
    "tensor": lambda x: tg.tensor(x),
    "resize_": lambda x: x.resize_(4),
    "set_": lambda x: x.set_(tg.ones(2)),
    "as_subclass": lambda x: x.as_subclass(tg.nn.Parameter),
    "ones": lambda x: tg.ones(2, layout=tg.sparse_coo),
    "flip": lambda x: x.flip(0),
    "untyped_storage": lambda x: x.untyped_storage(),
    "setting": lambda x: x.__setitem__(0, 1.0),
    "index": lambda x: x[tg.tensor([0]), tg.tensor([1])],
    "tolist": lambda x: x.tolist(),
    "setting .data": lambda x: setattr(tg.zeros(2, 3), "data", x),
    "reading": lambda x: tg.zeros(2, 3).copy_(x),
    "elements": lambda x: tg.zeros(2, 3).__setitem__(0, x[0]),
    "_like": lambda x: tg.ones_like(x),
    "data_ptr": lambda x: x.data_ptr(),
    "register_hook": lambda x: x.register_hook(print),
    "isfinite": lambda x: x.isfinite(),
    "backward": lambda x: x.backward(),
}


@pytest.mark.parametrize("name", REFUSED)
def test_everything_else_is_refused_by_name(name):
    with pytest.raises((NotImplementedError, RuntimeError), match=r"to_dense|sparse"):
        REFUSED[name](example())


def test_more_refusals():
    x = example()
    with pytest.raises(TypeError, match="to_dense"):
        x.numpy()
    with pytest.raises(TypeError, match="to_dense"):
        np.asarray(x)
    for wrong in (lambda: x + 1, lambda: x + x.to_dense(), lambda: x - x.to_dense()):
        with pytest.raises(RuntimeError, match="add the sparse one"):
            wrong()
    with pytest.raises(RuntimeError, match="divided by a number"):
        x / x.to_dense()
    with pytest.raises(RuntimeError):
        tg.nn.Parameter(tg.ones(2, 3)).data = x
    with pytest.raises(TypeError, match="sparse_coo_tensor"):
        type(x)([1.0])


def test_leaves_change_only_without_recording():
    x = example().requires_grad_()
    for change in (lambda: x.mul_(2), lambda: x.zero_(), lambda: x.neg_(), lambda: x.div_(2)):
        with pytest.raises(RuntimeError, match="leaf"):
            change()
    with tg.no_grad():
        x.mul_(2)
    assert x.requires_grad
    assert x.to_dense().tolist() == (example() * 2).to_dense().tolist()
    with pytest.raises(RuntimeError, match="does not fit"):
        example().int().add_(example())


def test_printing():
    assert repr(example()) == (
        "tensor(indices=tensor([[0, 1, 1],\n"
        "                       [2, 0, 0]]),\n"
        "       values=tensor([3., 4., 5.]),\n"
        "       size=(2, 3), nnz=3, layout=tapegrad.sparse_coo)"
    )


def test_copies_and_pickles():
    x = example()
    for copied in (copy.deepcopy(x), copy.copy(x), pickle.loads(pickle.dumps(x))):
        assert copied.to_dense().tolist() == x.to_dense().tolist()
        assert copied.is_coalesced() == x.is_coalesced()
    weight = table()
    F.embedding(TOKENS, weight, sparse=True).sum().backward()
    assert copy.deepcopy(weight).grad.to_dense().tolist() == weight.grad.to_dense().tolist()


def test_saving_and_loading(tmp_path):
    for x in (
        example(),
        example().coalesce(),
        tg.sparse_coo_tensor((2, 3)),
        tg.eye(3).to_sparse(1),
    ):
        tg.save({"x": [x], "y": tg.ones(2)}, tmp_path / "file")
        loaded = tg.load(tmp_path / "file")["x"][0]
        assert loaded.is_sparse
        assert loaded.is_coalesced() == x.is_coalesced()
        assert (loaded.shape, loaded.dtype) == (x.shape, x.dtype)
        assert loaded.to_dense().tolist() == x.to_dense().tolist()


def test_momentum_of_sparse_gradients_is_saved(tmp_path):
    weight = table()
    optimizer = tg.optim.SGD([weight], lr=0.1, momentum=0.9)
    F.embedding(TOKENS, weight, sparse=True).sum().backward()
    optimizer.step()
    tg.save(optimizer.state_dict(), tmp_path / "state")
    other = tg.optim.SGD([table()], lr=0.1, momentum=0.9)
    other.load_state_dict(tg.load(tmp_path / "state"))
    saved, loaded = (o.state_dict()["state"][0]["momentum_buffer"] for o in (optimizer, other))
    assert loaded.is_sparse
    assert loaded.to_dense().tolist() == saved.to_dense().tolist()


def test_modules_with_sparse_gradients_move():
    layer = tg.nn.Embedding(5, 3, sparse=True)
    layer(TOKENS).sum().backward()
    layer.double()
    assert layer.weight.grad is None or layer.weight.grad.dtype is tg.float64


def test_products_with_gradients():
    values = tg.tensor([2.0, 3.0, 4.0], dtype=tg.float64, requires_grad=True)
    x = tg.tensor(np.arange(6.0).reshape(3, 2), requires_grad=True)
    places = [[0, 1, 1], [2, 0, 0]]

    def dense(v):
        return tg.zeros(2, 3, dtype=v.dtype).index_put(
            tuple(map(tg.tensor, places)), v, accumulate=True
        )

    def loss(a, x):
        return (tg.sparse.mm(a, x) ** 2).sum() + (x.t() @ a.t()).sum() + (a @ x[:, 0]).sum()

    loss(tg.sparse_coo_tensor(places, values, (2, 3)), x).backward()
    ours = values.grad.numpy(), x.grad.numpy()
    values.grad = x.grad = None
    a = dense(values)
    ((a @ x) ** 2 + (x.t() @ a.t()).sum() / 4).sum().backward(retain_graph=True)
    (a @ x[:, 0]).sum().backward()
    np.testing.assert_allclose(ours[0], values.grad.numpy())
    np.testing.assert_allclose(ours[1], x.grad.numpy())
    tg.testing.gradgradcheck(
        lambda v, x: tg.sparse.mm(tg.sparse_coo_tensor(places, v, (2, 3)), x), (values, x)
    )


def test_gradients_of_sparse_leaves():
    x = example().double().requires_grad_()
    assert x.is_leaf
    (x.to_dense() ** 2).sum().backward()
    assert x.grad.is_sparse
    assert x.grad._values().tolist() == [6.0, 18.0, 18.0]
    other = tg.sparse_coo_tensor(x._indices().flip(1), x._values().detach(), tuple(x.shape))
    for refused in (
        tg.ones(tuple(x.shape)),
        other,
        tg.sparse_coo_tensor([[0], [0]], [1.0], (9, 9)),
    ):
        with pytest.raises(RuntimeError, match="the gradient of a sparse tensor must"):
            x.grad = refused
        assert x.grad._values().tolist() == [6.0, 18.0, 18.0]
    x.grad = x.grad * 2
    assert x.grad._values().tolist() == [12.0, 36.0, 36.0]
    x.grad = None
    assert x.grad is None


def test_functions_of_the_module():
    x, y = example(), tg.ones(3, 2)
    assert tg.sparse.addmm(tg.ones(2, 2), x, y, beta=2, alpha=3).tolist() == [
        [11.0, 11.0],
        [29.0, 29.0],
    ]
    assert tg.sparse.sum(x).item() == 12.0
    assert tg.sparse.sum(x, 1).to_dense().tolist() == [3.0, 9.0]
    with tg.sparse.check_sparse_tensor_invariants(False):
        tg.sparse_coo_tensor([[5]], [1.0], (3,))
    with pytest.raises(RuntimeError):
        tg.sparse_coo_tensor([[5]], [1.0], (3,))


def test_second_derivatives_of_softmax_and_of_sparse_products():
    places = [[0, 1, 1, 1], [2, 0, 0, 1]]
    values = tg.tensor([1.0, 2.0, 3.0, 0.5], dtype=tg.float64, requires_grad=True)

    def functions(v):
        a = tg.sparse_coo_tensor(places, v, (2, 3))
        return tg.sparse.softmax(a, 1).to_dense(), tg.sparse.mm(a, a.t()).to_dense()

    assert tg.testing.gradcheck(functions, values)
    assert tg.testing.gradgradcheck(functions, values)


PARTS = st.one_of(
    st.integers(-2, 1),
    st.slices(4).filter(lambda s: s.step is None or s.step > 0),
)


@settings(max_examples=80, deadline=None)
@given(
    st.lists(st.tuples(*[st.integers(0, 1)] * 3), max_size=10),
    st.integers(1, 3),
    st.lists(PARTS, max_size=3),
    st.integers(0, 2),
    st.lists(st.integers(-2, 1), max_size=4),
)
def test_random_parts_equal_those_of_the_dense_tensor(places, sparse, key, dim, index):
    dense = np.zeros((2, 2, 2))
    rows = np.array(places, np.int64).reshape(-1, 3)[:, :sparse].T
    elements = np.random.default_rng(len(places)).normal(size=(len(places), *[2] * (3 - sparse)))
    np.add.at(dense, tuple(rows), elements)
    x = tg.sparse_coo_tensor(tg.tensor(rows), tg.tensor(elements), (2, 2, 2))
    np.testing.assert_allclose(x.to_dense().numpy(), dense)
    np.testing.assert_allclose(x[tuple(key)].to_dense().numpy(), dense[tuple(key)], atol=1e-15)
    index = np.array(index, np.int64)
    chosen = x[(slice(None),) * dim + (tg.tensor(index),)]
    np.testing.assert_allclose(chosen.to_dense().numpy(), dense.take(index, dim), atol=1e-15)
    stacked = tg.stack([x, x * 2], min(dim, sparse)).to_dense().numpy()
    np.testing.assert_allclose(stacked, np.stack([dense, dense * 2], min(dim, sparse)))
    for part, expected in zip(x.split(1, dim), np.split(dense, 2, dim), strict=True):
        np.testing.assert_allclose(part.to_dense().numpy(), expected, atol=1e-15)
    for d in range(3):
        np.testing.assert_allclose(x.sum(d).to_dense().numpy(), dense.sum(d), atol=1e-14)
    if sparse > 1:
        flat = x.reshape(4, *[2] * (3 - 2))
        np.testing.assert_allclose(flat.to_dense().numpy(), dense.reshape(4, 2))
    np.testing.assert_allclose(x.unsqueeze(dim).to_dense().numpy(), np.expand_dims(dense, dim))


def test_assert_close_compares_coordinates_and_elements():
    x, same = example(), example().coalesce().requires_grad_()
    tg.testing.assert_close(x, same)
    tg.testing.assert_close([x], [x.to_dense()], check_layout=False)
    elsewhere = tg.sparse_coo_tensor([[0, 1], [1, 0]], [3.0, 9.0], (2, 3))
    for other, told in (
        (elsewhere, "different coordinates"),
        (x * 2, "Mismatched elements: 2 / 2"),
        (x.to_dense(), "differ in layout"),
        (tg.sparse_coo_tensor((2, 4)), "differ in shape"),
    ):
        with pytest.raises(AssertionError, match=told):
            tg.testing.assert_close(x, other)
