"""Sparse tensors: gradients of embeddings, the optimizers that take them, and what they refuse."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tapegrad as tg
from tapegrad.nn import functional as F


def table(rows=5, size=3, dtype=tg.float64):
    values = np.random.default_rng(0).normal(size=(rows, size))
    return tg.tensor(values, dtype=dtype, requires_grad=True)


def gradients(tokens, loss, **options):
    """The dense gradient of a table, by the sparse way and by the dense one."""
    found = []
    for sparse in (True, False):
        weight = table()
        loss(weight, F.embedding(tokens, weight, sparse=sparse, **options)).backward()
        found.append(weight.grad)
    assert found[0].is_sparse or not found[1].numel()
    return found[0].to_dense().numpy(), found[1].numpy()


# -- gradients of embeddings -------------------------------------------------------------------

TOKENS = tg.tensor([[0, 2, 2], [4, 0, 2]])


@pytest.mark.parametrize("padding", [None, 2, -1, 1])
def test_gradient_of_embedding_equals_the_dense_one(padding):
    ours, dense = gradients(TOKENS, lambda w, y: (y**3).sum(), padding_idx=padding)
    np.testing.assert_allclose(ours, dense, rtol=1e-12)


def test_gradient_has_one_element_for_each_token_but_padding():
    weight = table()
    F.embedding(TOKENS, weight, padding_idx=2, sparse=True).sum().backward()
    assert weight.grad._nnz() == 3
    assert weight.grad._indices().tolist() == [[0, 4, 0]]
    assert not weight.grad.is_coalesced()
    assert weight.grad.coalesce().indices().tolist() == [[0, 4]]
    assert weight.grad.coalesce().values().tolist() == [[2.0] * 3, [1.0] * 3]


def test_nan_gradient_of_padding_is_left_out():
    weight = table()
    F.embedding(tg.tensor([1, 0]), weight, padding_idx=1, sparse=True).backward(
        tg.tensor([[float("nan")] * 3, [1.0] * 3], dtype=tg.float64)
    )
    assert weight.grad.to_dense().tolist() == [[1.0] * 3, *[[0.0] * 3] * 4]


def test_no_tokens_give_an_empty_gradient():
    weight = table()
    F.embedding(tg.zeros(0, dtype=tg.int64), weight, sparse=True).sum().backward()
    assert weight.grad.is_sparse
    assert weight.grad._nnz() == 0
    assert weight.grad.to_dense().tolist() == [[0.0] * 3] * 5


def test_max_norm_changes_the_table_and_then_the_gradient_is_sparse():
    weight, dense = table(), table()
    for w, sparse in ((weight, True), (dense, False)):
        (F.embedding(TOKENS, w, max_norm=0.5, sparse=sparse) ** 2).sum().backward()
    np.testing.assert_allclose(weight.detach().numpy(), dense.detach().numpy())
    np.testing.assert_allclose(weight.grad.to_dense().numpy(), dense.grad.numpy())


def test_scale_by_frequency_is_an_error_in_backward():
    weight = table()
    y = F.embedding(TOKENS, weight, scale_grad_by_freq=True, sparse=True)
    with pytest.raises(RuntimeError, match="scale_grad_by_freq does not go with sparse"):
        y.sum().backward()
    assert weight.grad is None


@pytest.mark.parametrize("order", [0, 1])
def test_a_weight_that_is_used_both_ways_gets_a_dense_gradient(order):
    weight, dense = table(), table()

    def loss(w, sparse):
        parts = [(F.embedding(TOKENS, w, sparse=sparse) ** 2).sum(), (w**3).sum()]
        return parts[order] + parts[1 - order] + F.embedding(TOKENS[0], w, sparse=sparse).sum()

    loss(weight, True).backward()
    loss(dense, False).backward()
    assert not weight.grad.is_sparse
    np.testing.assert_allclose(weight.grad.numpy(), dense.grad.numpy())


def test_large_tables_used_both_ways():
    weight = tg.zeros(400, 100, requires_grad=True)
    (weight.sum() + F.embedding(TOKENS, weight, sparse=True).sum() + weight.sum()).backward()
    expected = np.full((400, 100), 2.0)
    for token in TOKENS.reshape(-1).tolist():
        expected[token] += 1
    np.testing.assert_array_equal(weight.grad.numpy(), expected)


def test_weight_tied_with_a_linear_layer():
    def model(sparse):
        tg.manual_seed(0)
        layer = tg.nn.Embedding(6, 4, sparse=sparse)
        head = tg.nn.Linear(4, 6, bias=False)
        head.weight = layer.weight
        (head(layer(tg.tensor([1, 1, 5]))) ** 2).sum().backward()
        return layer.weight.grad

    assert not model(True).is_sparse
    np.testing.assert_allclose(model(True).numpy(), model(False).numpy(), rtol=1e-6)


def test_two_lookups_of_one_table_add_up():
    weight = table()
    (
        F.embedding(TOKENS, weight, sparse=True) * F.embedding(TOKENS, weight, sparse=True)
    ).sum().backward()
    dense = table()
    (F.embedding(TOKENS, dense) ** 2).sum().backward()
    assert weight.grad.is_sparse
    np.testing.assert_allclose(weight.grad.to_dense().numpy(), dense.grad.numpy())


def test_backward_passes_accumulate_whatever_kind_they_are():
    kinds = {"sparse": True, "dense": False}
    for first in kinds:
        for second in kinds:
            weight = table()
            for kind in (first, second):
                F.embedding(TOKENS, weight, sparse=kinds[kind]).sum().backward()
            assert weight.grad.is_sparse == (first == second == "sparse")
            expected = np.bincount(TOKENS.numpy().reshape(-1), minlength=5) * 2.0
            np.testing.assert_array_equal(weight.grad.to_dense().numpy()[:, 0], expected)


def test_accumulation_keeps_the_tensor_that_grad_is():
    weight = table()
    F.embedding(TOKENS, weight, sparse=True).sum().backward()
    grad = weight.grad
    F.embedding(TOKENS, weight, sparse=True).sum().backward()
    assert weight.grad is grad


def test_gradient_is_not_that_of_another_call():
    """`.grad` has memory of its own: scaling it changes no gradient of the mapping."""
    weight = table()
    found = F.embedding(TOKENS, weight, sparse=True).sum().backward()
    weight.grad.mul_(10)
    weight.grad._values().zero_()
    assert found[weight].to_dense()[0, 0].item() == 2.0


def test_zero_grad_both_ways():
    weight = table()
    optimizer = tg.optim.SGD([weight], lr=1.0)
    F.embedding(TOKENS, weight, sparse=True).sum().backward()
    optimizer.zero_grad(set_to_none=False)
    assert weight.grad.is_sparse
    assert weight.grad._nnz() == 0
    assert weight.grad.is_coalesced()
    F.embedding(TOKENS, weight, sparse=True).sum().backward()
    assert weight.grad.to_dense()[2, 0].item() == 3.0
    optimizer.zero_grad()
    assert weight.grad is None


def test_hooks_get_and_replace_sparse_gradients():
    weight, seen = table(), []
    weight.register_hook(lambda g: (seen.append(g.is_sparse), g * 2)[1])
    weight.register_post_accumulate_grad_hook(lambda w: seen.append(w.grad._nnz()))
    F.embedding(TOKENS, weight, sparse=True).sum().backward()
    assert seen == [True, 6]
    assert weight.grad.is_sparse
    assert weight.grad.to_dense()[2].tolist() == [6.0] * 3


def test_a_hook_may_make_the_gradient_dense():
    weight = table()
    weight.register_hook(lambda g: g.to_dense())
    F.embedding(TOKENS, weight, sparse=True).sum().backward()
    assert not weight.grad.is_sparse
    assert weight.grad[2].tolist() == [3.0] * 3


def test_autograd_grad_and_inputs():
    weight = table()
    (g,) = tg.autograd.grad(F.embedding(TOKENS, weight, sparse=True).sum(), weight)
    assert g.is_sparse
    assert weight.grad is None
    F.embedding(TOKENS, weight, sparse=True).sum().backward(inputs=[weight])
    assert weight.grad.is_sparse


def test_second_derivatives():
    weight, dense = table(), table()
    (g,) = tg.autograd.grad(
        (F.embedding(TOKENS, weight, sparse=True) ** 3).sum(), weight, create_graph=True
    )
    assert g.requires_grad
    (g.to_dense() ** 2).sum().backward()
    (h,) = tg.autograd.grad((F.embedding(TOKENS, dense) ** 3).sum(), dense, create_graph=True)
    (h**2).sum().backward()
    np.testing.assert_allclose(weight.grad.to_dense().numpy(), dense.grad.numpy())


def test_tables_that_are_results_get_dense_gradients():
    weight = table()
    F.embedding(TOKENS, weight * 2, sparse=True).sum().backward()
    assert not weight.grad.is_sparse
    assert weight.grad[2].tolist() == [6.0] * 3


def test_retained_graphs_and_checkpoints():
    weight = table()
    y = F.embedding(TOKENS, weight, sparse=True).sum()
    y.backward(retain_graph=True)
    y.backward()
    assert weight.grad.to_dense()[2, 0].item() == 6.0
    weight.grad = None
    tg.checkpoint(lambda t: (F.embedding(t, weight, sparse=True) ** 2).sum(), TOKENS).backward()
    expected = gradients(TOKENS, lambda w, y: (y**2).sum())[1]
    np.testing.assert_allclose(weight.grad.to_dense().numpy(), expected)


def test_anomaly_detection_looks_at_the_elements():
    weight = table()
    with tg.autograd.detect_anomaly():
        F.embedding(TOKENS, weight, sparse=True).sum().backward()
    assert weight.grad.is_sparse


def test_tapes_and_transforms():
    weight = table()
    with tg.Tape() as tape:
        loss = F.embedding(TOKENS, weight, sparse=True).sum()
    assert tape.backward(loss)[weight].to_dense()[2, 0].item() == 3.0
    weight.grad = None
    found = tg.func.grad(lambda w: F.embedding(TOKENS, w, sparse=True).sum())(weight.detach())
    assert found.to_dense()[2, 0].item() == 3.0
    layer = tg.nn.Embedding(5, 3, sparse=True)
    tg.func.functional_call(layer, {"weight": weight}, (TOKENS,)).sum().backward()
    assert weight.grad.is_sparse
    rows = tg.vmap(lambda t: F.embedding(t, weight, sparse=True).sum())(TOKENS)
    rows.sum().backward()
    assert weight.grad.to_dense()[2, 0].item() == 6.0


@pytest.mark.parametrize("dtype", [tg.float16, tg.bfloat16, tg.float32, tg.float64])
def test_dtypes(dtype):
    weight = table(dtype=dtype)
    (F.embedding(TOKENS, weight, sparse=True) * 2).sum().backward()
    assert weight.grad.dtype is dtype
    assert weight.grad.to_dense().dtype is dtype
    assert weight.grad.to_dense().float()[2].tolist() == [6.0] * 3
    assert weight.grad.float().dtype is tg.float32


OFFSETS = tg.tensor([0, 2, 2])


@pytest.mark.parametrize("padding", [None, 2])
@pytest.mark.parametrize("mode", ["sum", "mean"])
def test_bags(mode, padding):
    found = []
    for sparse in (True, False):
        layer = tg.nn.EmbeddingBag(5, 3, mode=mode, sparse=sparse, padding_idx=padding)
        with tg.no_grad():
            layer.weight.copy_(table().float())
        (layer(tg.tensor([0, 2, 2, 4]), OFFSETS) ** 2).sum().backward()
        found.append(layer.weight.grad)
    assert found[0].is_sparse
    np.testing.assert_allclose(found[0].to_dense().numpy(), found[1].numpy(), rtol=1e-6)


def test_bags_with_weights_of_samples():
    weight = table()
    scales = tg.tensor([[1.0, 2.0, 3.0]] * 2, dtype=tg.float64, requires_grad=True)
    F.embedding_bag(
        TOKENS, weight, mode="sum", sparse=True, per_sample_weights=scales
    ).sum().backward()
    assert weight.grad.to_dense()[:, 0].tolist() == [3.0, 0.0, 8.0, 0.0, 1.0]
    np.testing.assert_allclose(scales.grad.numpy(), weight.detach().numpy().sum(1)[TOKENS.numpy()])


def test_bags_of_maxima_refuse():
    with pytest.raises(ValueError, match="mode='max'"):
        F.embedding_bag(TOKENS, table(), mode="max", sparse=True)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(0, 4), max_size=12),
    st.one_of(st.none(), st.integers(0, 4)),
    st.lists(st.integers(0, 4), max_size=5),
)
def test_random_tokens(tokens, padding, more):
    tokens, more = (tg.tensor(t, dtype=tg.int64) for t in (tokens, more))

    def loss(weight, y):
        again = F.embedding(more, weight, sparse=y.shape[0] % 2 == 0)
        return (y.sin() * 2).sum() + (again**2).sum()

    ours, dense = [], []
    for sparse, found in ((True, ours), (False, dense)):
        weight = table()
        loss(weight, F.embedding(tokens, weight, padding_idx=padding, sparse=sparse)).backward()
        found.append(weight.grad.to_dense().numpy())
    np.testing.assert_allclose(ours[0], dense[0], rtol=1e-12, atol=1e-15)
