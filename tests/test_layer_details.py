"""Details of layers as in PyTorch: lazy mixins, hooks on everything, gradients of convolutions,
options of optimizers that get gradients."""

from __future__ import annotations

from typing import Any

import pytest
from tapegrad.nn.modules.lazy import LazyModuleMixin

import tapegrad as tg
from tapegrad import nn
from tapegrad.nn import functional as F
from tapegrad.nn.modules import module as everywhere
from tapegrad.nn.modules.utils import consume_prefix_in_state_dict_if_present
from tapegrad.nn.parameter import UninitializedBuffer, UninitializedParameter

# -- lazy modules ------------------------------------------------------------------------------


class LazyScale(LazyModuleMixin, nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = UninitializedParameter()

    def initialize_parameters(self, input: Any) -> None:
        self.weight.materialize(input.shape[-1:])
        nn.init.ones_(self.weight)

    def forward(self, input: Any) -> Any:
        return input * self.weight


def test_a_lazy_module_of_the_user() -> None:
    layer = LazyScale()
    assert layer.has_uninitialized_params()
    assert isinstance(layer.weight, UninitializedParameter)
    assert layer(tg.ones(2, 3)).tolist() == [[1.0] * 3] * 2
    assert not layer.has_uninitialized_params()
    assert type(layer.weight) is nn.Parameter
    assert not layer._forward_pre_hooks
    assert isinstance(nn.LazyLinear(2), LazyModuleMixin)


def test_what_cannot_be_done_without_a_shape() -> None:
    parameter = UninitializedParameter()
    with pytest.raises(RuntimeError, match="has no shape yet"):
        _ = parameter.shape
    with pytest.raises(ValueError, match="uninitialized parameters"):
        nn.utils.weight_norm(nn.LazyLinear(2))
    with pytest.raises(ValueError, match="uninitialized parameters"):
        nn.utils.spectral_norm(nn.LazyLinear(2))
    with pytest.raises(RuntimeError, match="no memory to share"):
        nn.LazyLinear(2).share_memory()
    parameter.materialize(3)
    assert tuple(parameter.shape) == (3,)
    assert isinstance(UninitializedBuffer(), nn.Buffer)


# -- hooks -------------------------------------------------------------------------------------


def test_hooks_when_something_is_registered() -> None:
    seen: list[Any] = []

    def note(module: Any, name: str, value: Any) -> None:
        seen.append((type(module).__name__, name, type(value).__name__))

    handles = [
        everywhere.register_module_parameter_registration_hook(note),
        everywhere.register_module_buffer_registration_hook(note),
        everywhere.register_module_module_registration_hook(note),
    ]
    try:
        layer = nn.Sequential(nn.BatchNorm1d(1))
    finally:
        for handle in handles:
            handle.remove()
    assert ("BatchNorm1d", "weight", "Parameter") in seen
    assert ("BatchNorm1d", "running_mean", "Tensor") in seen
    assert ("Sequential", "0", "BatchNorm1d") in seen
    count = len(seen)
    nn.Linear(1, 1)
    assert len(seen) == count
    assert layer is not None


def test_a_registration_hook_may_replace_what_is_registered() -> None:
    with everywhere.register_module_parameter_registration_hook(
        lambda module, name, value: nn.Parameter(tg.full_like(value, 7.0))
    ):
        layer = nn.Module()
        layer.weight = nn.Parameter(tg.zeros(1))
    assert layer.weight.tolist() == [7]


def test_handles_know_their_hooks() -> None:
    layer = nn.Linear(1, 1)
    handle = layer.register_forward_hook(lambda *a: None, with_kwargs=True, always_call=True)
    assert handle.id in layer._forward_hooks
    assert handle.id in layer._forward_hooks_with_kwargs
    assert handle.id in layer._forward_hooks_always_called
    assert len(handle.hooks_dict_ref()) == 1
    handle.remove()
    assert handle.id not in layer._forward_hooks
    first = everywhere.register_module_forward_hook(lambda *a: None)
    assert len(everywhere._global_forward_hooks) == len(first.hooks_dict_ref()) == 1
    everywhere._global_forward_hooks = {}
    assert not everywhere._global_forward_hooks
    kept: dict[int, Any] = {}
    handle = tg.core.handles.RemovableHandle(kept)
    kept[handle.id] = "hook"
    handle.remove()
    assert not kept


# -- functions ---------------------------------------------------------------------------------


def test_gradients_of_convolutions_as_functions() -> None:
    for dims in (1, 2, 3):
        x = tg.rand(2, 4, *[5] * dims, requires_grad=True)
        w = tg.rand(6, 2, *[3] * dims, requires_grad=True)
        out = getattr(F, f"conv{dims}d")(x, w, None, 2, 1, 1, 2)
        g = tg.rand(*out.shape)
        expected = tg.autograd.grad(out, (x, w), g)
        options = (2, 1, 1, 2)
        of_input = getattr(nn.grad, f"conv{dims}d_input")(x.shape, w.detach(), g, *options)
        of_weight = getattr(F.grad, f"conv{dims}d_weight")(x.detach(), w.shape, g, *options)
        assert of_input.allclose(expected[0])
        assert of_weight.allclose(expected[1])


def test_sizes_of_layers() -> None:
    layer = nn.ConvTranspose2d(1, 1, 3, stride=2)
    assert tuple(layer(tg.ones(1, 4, 4), output_size=(1, 10, 10)).shape) == (1, 10, 10)
    assert tuple(layer(tg.ones(2, 1, 4, 4), output_size=(2, 1, 9, 10)).shape) == (2, 1, 9, 10)
    assert tuple(nn.Conv1d(0, 8, 2).weight.shape) == (8, 0, 2)
    with pytest.warns(UserWarning, match="nothing to initialize"):
        nn.init.kaiming_normal_(tg.empty(0, 1))
    with pytest.warns(UserWarning, match="input of 3 dimensions"):
        F.dropout2d(tg.ones(2, 3, 4), 0.5)
    with pytest.warns(UserWarning, match="3 or 4 dimensions, got 5"):
        F.dropout2d(tg.ones(1, 2, 2, 2, 2), 0.5)
    assert tuple(F.adaptive_avg_pool3d(tg.zeros(0, 4, 4, 4), 2).shape) == (0, 2, 2, 2)
    assert tuple(F.fractional_max_pool2d(tg.zeros(1, 1, 4, 4), 2, (0, 1)).shape) == (1, 1, 0, 1)
    with pytest.raises(RuntimeError, match="floating"):
        F.adaptive_max_pool2d(tg.zeros(1, 1, 4, 4, dtype=tg.int64), 2)


def test_embedding_bags() -> None:
    weight = tg.arange(10.0).reshape(5, 2)
    tokens, offsets = tg.tensor([0, 1, 2, 3]), tg.tensor([0, 3, 3])

    def bag(**options: Any) -> Any:
        return F.embedding_bag(
            tokens, weight, offsets, include_last_offset=True, **options
        ).tolist()

    assert bag(mode="sum") == [[6, 9], [0, 0]]
    # With padding, and for maxima, the last bag has all tokens that are left.
    assert bag(mode="sum", padding_idx=4) == [[6, 9], [6, 7]]
    assert bag(mode="mean", padding_idx=4) == [[2, 3], [6, 7]]
    assert bag(mode="max") == [[4, 5], [6, 7]]
    with pytest.raises(RuntimeError, match="out of range"):
        F.embedding_bag(tg.tensor([[5]]), weight)


def test_prefixes_of_state_dicts() -> None:
    state = nn.Sequential(nn.Linear(1, 1)).state_dict()
    consume_prefix_in_state_dict_if_present(state, "0.")
    assert list(state) == ["weight", "bias"]
    nn.Linear(1, 1).load_state_dict(state)


# -- optimizers --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "NAdam", "RAdam", "RMSprop", "ASGD"])
def test_options_get_gradients(name: str) -> None:
    decay = tg.tensor(0.1, dtype=tg.float64, requires_grad=True)

    def trained(decay: Any) -> Any:
        start = tg.tensor([1.0, 2.0], dtype=tg.float64).requires_grad_()
        weights = start.clone()
        optimizer = getattr(tg.optim, name)(
            [weights], lr=0.1, weight_decay=decay, differentiable=True
        )
        for _ in range(3):
            weights.grad = weights * 2 + 1
            optimizer.step()
        return (weights * weights).sum()

    assert tg.autograd.gradcheck(trained, (decay,))


def test_the_state_of_nadam_gets_gradients() -> None:
    def stepped(product: Any) -> Any:
        weights = tg.tensor([1.0, 2.0], dtype=tg.float64).requires_grad_().clone()
        weights.grad = tg.tensor([0.5, -1.0], dtype=tg.float64)
        optimizer = tg.optim.NAdam([weights], lr=0.1, differentiable=True)
        zeros = tg.zeros(2, dtype=tg.float64)
        optimizer.state[weights].update(
            step=tg.tensor(10.0, dtype=tg.float64),
            exp_avg=zeros + 0.5,
            exp_avg_sq=zeros + 0.25,
            mu_product=product.clone(),
        )
        optimizer.step()
        return weights

    product = tg.tensor(0.4, dtype=tg.float64, requires_grad=True)
    assert tg.autograd.gradcheck(stepped, (product,))


def test_amsgrad_can_be_differentiated() -> None:
    def stepped(g: Any) -> Any:
        weights = tg.tensor([1.0, 2.0], dtype=tg.float64).requires_grad_().clone()
        optimizer = tg.optim.Adam([weights], lr=0.1, amsgrad=True, differentiable=True)
        for k in range(2):
            weights.grad = g * (k + 1)
            optimizer.step()
        return weights

    g = tg.tensor([0.3, 0.4], dtype=tg.float64, requires_grad=True)
    assert tg.autograd.gradcheck(stepped, (g,), atol=1e-4)


def test_instance_norms_check_their_channels() -> None:
    with pytest.raises(ValueError, match="num_features"):
        nn.InstanceNorm1d(3, affine=True)(tg.ones(1, 2, 4))
    with pytest.warns(UserWarning, match="num_features"):
        nn.InstanceNorm1d(3)(tg.rand(1, 2, 4))


def test_clipping_no_gradients_warns() -> None:
    parameters = nn.Linear(1, 1).parameters()
    list(parameters)
    with pytest.warns(UserWarning, match="no parameters"):
        nn.utils.clip_grad_norm_(parameters, 1.0)


def test_parameter_dicts_hold_other_values_too() -> None:
    values = nn.ParameterDict({"b": tg.ones(1), "a": 3})
    assert list(values) == ["a", "b"]  # a plain dictionary is entered in order
    assert values["a"] == 3
    assert [name for name, _ in values.named_parameters()] == ["b"]
    values["b"] = "text"
    assert not list(values.parameters())
    assert list(values.items()) == [("a", 3), ("b", "text")]
    del values["a"]
    assert list(values) == ["b"]


def test_a_mixin_behind_module() -> None:
    class Mixin:
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self.mixed = True

    class Model(nn.Module, Mixin):
        call_super_init = True

    assert Model().mixed
    with pytest.raises(TypeError, match="unexpected keyword"):
        nn.Module(size=3)


def test_types_that_functions_take() -> None:
    x = tg.tensor([[1, 2]], dtype=tg.int8)
    assert F.cosine_similarity(x, x.float()).tolist() == pytest.approx([1.0])
    with pytest.raises(RuntimeError, match="floating"):
        F.cosine_similarity(x, x)
    with pytest.raises(RuntimeError, match="floating"):
        F.interpolate(tg.ones(1, 1, 2, dtype=tg.int64), 4)
    assert F.interpolate(tg.ones(1, 1, 2, dtype=tg.uint8), 4).dtype is tg.uint8
    assert F.normalize(tg.tensor(-0.3), p=1, dim=-1).item() == -1
    with pytest.raises(ValueError, match="labels"):
        F.nll_loss(tg.zeros(4, 3), tg.zeros(2, dtype=tg.int64))
    assert tg.pairwise_distance(tg.zeros(1, 2), tg.ones(1, 2)).item() == pytest.approx(
        2**0.5, rel=1e-4
    )
