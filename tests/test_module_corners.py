"""Corners of modules, optimizers and functions of layers where PyTorch says what happens."""

import gc
import pickle

import numpy as np
import pytest

import tapegrad as tg
from tapegrad import nn, optim
from tapegrad.nn import functional as F


def test_a_buffer_that_becomes_an_attribute_asks_a_subclass():
    class Old(nn.Module):
        def register_buffer(self, name, value):
            super().register_buffer(name, value * 2)

    module = Old()
    module.scale = nn.Buffer(tg.ones(1))
    assert module.scale.item() == 2
    with pytest.raises(RuntimeError, match="persistent"):
        module.other = nn.Buffer(tg.ones(1), persistent=False)
    plain = nn.Module()
    plain.name = 5
    with pytest.raises(KeyError, match="name"):
        plain.name = nn.Buffer(tg.ones(1))
    assert plain.name == 5
    plain.empty = nn.Buffer(None)
    assert plain.empty.shape == nn.Parameter(None).shape == nn.Parameter().shape == (0,)


def test_arguments_of_to():
    module = nn.Linear(1, 1)
    for arguments in (("cpu", True), (None, True), (tg.device("cpu"), True)):
        with pytest.raises(TypeError, match="dtype"):
            module.to(*arguments)
    with pytest.raises(RuntimeError, match="deepcopy"):
        module.to(tg.float64, copy=True)
    assert module.to("cpu", tg.float64, True).weight.dtype == tg.float64


def test_apply_sees_the_parameters_themselves():
    module = nn.Linear(2, 1)
    y = module.weight * module.weight
    version = module.weight._version
    same = module.weight
    module._apply(lambda x: x.add_(1.0))
    assert module.weight is same
    assert module.weight._version > version
    with pytest.raises(RuntimeError, match="changed"):
        y.sum().backward()


def test_hook_dictionaries_can_be_deleted_and_come_back():
    for module in (nn.ParameterList([nn.Parameter(tg.ones(1))]), nn.Linear(1, 1)):
        del module._forward_pre_hooks, module._state_dict_hooks
        del module._non_persistent_buffers_set
        loaded = pickle.loads(pickle.dumps(module))
        assert loaded._forward_pre_hooks == {}
        assert loaded._non_persistent_buffers_set == set()
        assert list(loaded.state_dict()) == list(dict(module.named_parameters()))


def test_shared_memory_says_so():
    module = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    tensors = [*module.parameters(), *module.buffers()]
    assert not any(t.untyped_storage().is_shared() for t in tensors)
    module.share_memory()
    tensors = [*module.parameters(), *module.buffers()]
    assert all(t.untyped_storage().is_shared() and t.storage().is_shared() for t in tensors)


def test_a_backward_hook_gives_no_gradient_to_inputs_without_one():
    module = nn.Linear(2, 3)
    given = [None, (None,), tg.ones(1, 2)]
    module.register_full_backward_hook(lambda *_: given[0])
    for _ in range(2):
        module(tg.ones(1, 2)).sum().backward()
        given.pop(0)
    with pytest.raises(RuntimeError, match="none of which requires"):
        module(tg.ones(1, 2)).sum().backward()


def test_a_public_hook_cannot_be_a_private_one():
    module = nn.Linear(1, 1)

    def hook(module, state, prefix, metadata):
        return None

    module.register_state_dict_post_hook(hook)
    with pytest.raises(RuntimeError, match="already"):
        module._register_state_dict_hook(hook)


def test_loading_leaves_no_cycles():
    module = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    state = module.state_dict()
    module.load_state_dict(state)
    gc.collect()
    gc.disable()
    try:
        module.load_state_dict(state)
        assert gc.collect() == 0
    finally:
        gc.enable()


def test_a_list_is_not_extended_by_one_parameter():
    parameters = nn.ParameterList()
    with pytest.raises(TypeError, match="append"):
        parameters.extend(nn.Parameter(tg.ones(2)))
    with pytest.raises(TypeError, match="append"):
        parameters += nn.Parameter(tg.ones(2))
    assert len(parameters) == 0


def test_cross_map_is_local_response():
    x = tg.randn(2, 6, 3, 3)
    for size in (3, 4, 5):
        expected = nn.LocalResponseNorm(size, 0.3, 0.6, 2.0)(x)
        assert tg.equal(nn.CrossMapLRN2d(size, 0.3, 0.6, 2.0)(x), expected)


# -- optimizers ----------------------------------------------------------------------------------


def test_options_of_adam_that_are_tensors():
    parameters = [nn.Parameter(tg.ones(1))]
    rate, beta = tg.tensor(0.1), tg.tensor(0.9)
    for kind in (optim.Adam, optim.AdamW):
        with pytest.raises(ValueError, match="capturable"):
            kind(parameters, lr=rate, foreach=True)
        with pytest.raises(ValueError, match="capturable"):
            kind(parameters, betas=(beta, beta), foreach=True)
        for mixed in ((0.9, beta), (beta, 0.9)):
            with pytest.raises(ValueError, match="both"):
                kind(parameters, betas=mixed)
        kind(parameters, lr=rate, foreach=True, capturable=True)
    for kind in (optim.SGD, optim.Adagrad, optim.RMSprop):
        assert kind(parameters, lr=rate, foreach=True).param_groups[0]["lr"] is rate


def test_adamw_stays_decoupled():
    layer = nn.Linear(1, 1)
    saved = optim.Adam(layer.parameters()).state_dict()
    assert saved["param_groups"][0]["decoupled_weight_decay"] is False
    optimizer = optim.AdamW(layer.parameters())
    optimizer.load_state_dict(saved)
    assert optimizer.param_groups[0]["decoupled_weight_decay"] is True
    other = optim.Adam(layer.parameters())
    other.load_state_dict(optimizer.state_dict())
    assert other.param_groups[0]["decoupled_weight_decay"] is True


def test_hooks_may_keep_things_in_the_state():
    for kind in (optim.SparseAdam, optim.Adam):
        optimizer = kind([nn.Parameter(tg.ones(2, 3))])
        optimizer.register_load_state_dict_post_hook(lambda o: o.state.update(seen=True))
        optimizer.load_state_dict(optimizer.state_dict())
        assert optimizer.state["seen"] is True


def test_lbfgs_without_a_gradient():
    parameter = nn.Parameter(tg.ones(2))
    optimizer = optim.LBFGS([parameter], tolerance_grad=-float("inf"))
    assert optimizer.step(lambda: tg.tensor([10.0])).item() == 10
    assert parameter.tolist() == [1.0, 1.0]
    with pytest.raises(ValueError, match="learning rate"):
        optim.LBFGS(None, lr=tg.ones(2))


# -- functions -----------------------------------------------------------------------------------


def test_shapes_of_cosine_embedding_loss():
    for target, x in (((15, 1), (15, 10)), ((10,), (10,)), ((), (2, 5))):
        with pytest.raises(RuntimeError, match="cosine_embedding_loss needs"):
            F.cosine_embedding_loss(tg.ones(x), tg.ones(x), tg.ones(target))
    loss = F.cosine_embedding_loss(tg.ones(3), tg.ones(3), tg.tensor(1.0))
    assert abs(loss.item()) < 1e-6


def test_one_label_in_a_row_gives_one_loss_in_a_row():
    x = tg.randn(4)
    shape = F.multi_margin_loss(x, tg.tensor([1]), reduction="none").shape
    assert shape == (1,)
    assert F.multi_margin_loss(x, tg.tensor(1), reduction="none").shape == ()


@pytest.mark.parametrize(
    ("function", "shape"),
    [
        (lambda x: F.pad(x, (2, 2), mode="reflect"), (3, 0, 10)),
        (lambda x: F.pad(x, (2, 2), mode="replicate"), (3, 0, 10)),
        (lambda x: F.pad(x, (1, 1, 1, 1), mode="reflect"), (0, 10, 10)),
        (lambda x: F.unfold(x, (2, 3)), (3, 0, 3, 4)),
        (lambda x: F.ctc_loss(x, tg.zeros(0, dtype=tg.int64), [], [], reduction="none"), (0, 0, 4)),
        (lambda x: F.interpolate(x, scale_factor=1e20, mode="bilinear"), (1, 1, 16, 16)),
        (lambda x: F.adaptive_max_pool1d(x, 0x3FFFFFFFFFFFFFFF), (2, 2, 2)),
        (lambda x: nn.utils.rnn.pack_padded_sequence(x, []), (0, 0)),
        (lambda x: nn.utils.rnn.pack_padded_sequence(x, tg.ones(1, 2), True), (0, 1, 10)),
        (lambda x: tg.conv_tbc(x, tg.ones(2, 2), tg.ones(2)), (2, 2, 2)),
    ],
)
def test_inputs_that_are_refused(function, shape):
    with pytest.raises(RuntimeError, match=r"needs|elements|memory"):
        function(tg.ones(shape))


def test_an_empty_batch_may_be_padded_and_unfolded():
    assert F.pad(tg.ones(0, 3, 10), (2, 2), mode="reflect").shape == (0, 3, 14)
    assert F.unfold(tg.ones(0, 3, 3, 4), (2, 3)).shape == (0, 18, 4)
    assert F.grid_sample(tg.ones(2, 0, 4, 4), tg.zeros(2, 3, 3, 2), align_corners=False).shape == (
        *(2, 0, 3, 3),
    )


def test_nothing_has_a_softmax_with_all_derivatives():
    for shape in ((0, 10), (10, 0)):
        for function in (F.softmax, F.log_softmax):
            x = tg.ones(shape, requires_grad=True)
            (g,) = tg.autograd.grad(function(x, 0), x, tg.ones(shape), create_graph=True)
            g.sum().backward()
            assert x.grad.shape == shape
    assert F.cross_entropy(tg.ones(5, 0), tg.ones(5, 0)).item() == 0


def test_conv_tbc_is_a_convolution_with_time_first():
    x, weight, bias = tg.randn(7, 2, 3), tg.randn(3, 3, 4), tg.randn(4)
    expected = F.conv1d(x.permute(1, 2, 0), weight.permute(2, 1, 0), bias, padding=1)
    result = tg.conv_tbc(x, weight, bias, 1)
    np.testing.assert_allclose(result.numpy(), expected.permute(2, 0, 1).numpy(), rtol=1e-5)
    assert F.conv_tbc is tg.conv_tbc


def test_a_further_parametrization_inverts_what_it_made():
    class Cayley(nn.Module):
        def __init__(self, n):
            super().__init__()
            self.base = nn.Buffer(tg.eye(n))

        def forward(self, x):
            one = tg.eye(len(x))
            return self.base @ tg.linalg.solve(one + x, one - x)

        def right_inverse(self, x):
            if not tg.allclose(x.T @ x, tg.eye(len(x)), atol=1e-4):
                raise ValueError("not orthogonal")
            self.base = x
            return tg.zeros_like(x)

    class Skew(nn.Module):
        def forward(self, x):
            x = x.triu(1)
            return x - x.T

        def right_inverse(self, x):
            return x.triu(1)

    layer = nn.Linear(4, 4)
    nn.utils.parametrize.register_parametrization(layer, "weight", Skew())
    nn.utils.parametrize.register_parametrization(layer, "weight", Cayley(4))
    with pytest.raises(ValueError, match="not orthogonal"):
        layer.weight = tg.rand(4, 4)
    x = nn.init.orthogonal_(tg.empty(4, 4))
    layer.weight = x
    np.testing.assert_allclose(layer.weight.detach().numpy(), x.numpy(), atol=1e-5)


def test_conversions_leave_parameters_in_place():
    future = tg.__future__
    assert future.get_swap_module_params_on_conversion() is False
    assert future.get_overwrite_module_params_on_conversion() is False
    future.set_swap_module_params_on_conversion(False)
    future.set_overwrite_module_params_on_conversion(False)
    for refused in ("swap", "overwrite"):
        with pytest.raises(NotImplementedError, match="in place"):
            getattr(future, f"set_{refused}_module_params_on_conversion")(True)


def test_windows_of_fractional_pooling_have_all_their_sizes():
    x = tg.ones(1, 2, 7, 7)
    for kernel, output in (((1,), (3, 3)), ((2, 2), (3,)), ((), 3), (2, (3, 3, 3))):
        with pytest.raises(RuntimeError, match="one integer or 2"):
            F.fractional_max_pool2d(x, kernel, output_size=output)
    assert F.fractional_max_pool2d(x, 2, output_size=3).shape == (1, 2, 3, 3)


def test_unique_refuses_a_gradient_and_does_not_drop_it():
    x = tg.tensor([2.0, 1.0, 2.0], requires_grad=True)
    for function in (tg.unique, tg.unique_consecutive):
        values, counts = function(x, return_counts=True)
        assert values.requires_grad
        assert not counts.requires_grad
        with pytest.raises(NotImplementedError, match=f"{function.__name__} has no gradient"):
            values.sum().backward()
        with tg.no_grad():
            assert not function(x).requires_grad
        assert not function(x.detach()).requires_grad


@pytest.mark.parametrize("largest", [True, False])
def test_the_gradient_of_lobpcg_is_that_of_both_triangles(largest):
    tg.manual_seed(0)
    a = tg.rand(5, 5, dtype=tg.float64)
    a = (a @ a.mT).requires_grad_()
    values, vectors = tg.lobpcg(a, k=2, largest=largest)
    loss = (values * values).sum() + (vectors.abs() * tg.arange(10.0).reshape(5, 2)).sum()
    (g,) = tg.autograd.grad(loss, a)
    np.testing.assert_allclose(g.numpy(), g.mT.numpy(), atol=1e-12)

    def at(x):
        values, vectors = tg.lobpcg(x, k=2, largest=largest)
        weights = tg.arange(10.0).reshape(5, 2)
        return ((values * values).sum() + (vectors.abs() * weights).sum()).item()

    d = tg.rand(5, 5, dtype=tg.float64)
    eps = 1e-6
    with tg.no_grad():
        slope = (at(a + eps * d) - at(a - eps * d)) / (2 * eps)
    assert abs(slope - (g * d).sum().item()) < 1e-4 * max(1, abs(slope))


def test_pieces_that_may_be_changed():
    x = tg.ones(6, requires_grad=True)
    pieces = (x * 2).unsafe_split_with_sizes((1, 2, 3))
    assert [len(p) for p in pieces] == [1, 2, 3]
    pieces[1].mul_(3)
    sum(p.sum() for p in pieces).backward()
    assert x.grad.tolist() == [2.0, 6.0, 6.0, 2.0, 2.0, 2.0]
