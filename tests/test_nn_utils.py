"""nn.utils: normalized weights, parametrizations, sequences, fusion, and first values."""

from __future__ import annotations

import copy
import math
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from replaying import close, randn, replayed

import tapegrad as tg
from tapegrad import Tensor, nn
from tapegrad.nn.utils import parametrizations, parametrize
from tapegrad.nn.utils.rnn import (
    PackedSequence,
    pack_padded_sequence,
    pack_sequence,
    pad_packed_sequence,
    pad_sequence,
    unpack_sequence,
    unpad_sequence,
)
from tapegrad.nn.utils.stateless import functional_call

# -- parametrizations --------------------------------------------------------------------------


class Double(nn.Module):
    def forward(self, x: Any) -> Any:
        return x * 2

    def right_inverse(self, x: Any) -> Any:
        return x / 2


class Shifted(nn.Module):
    def forward(self, x: Any) -> Any:
        return x + 1


def test_a_parametrized_weight_is_computed_when_it_is_read() -> None:
    layer = nn.Linear(3, 2)
    weight, before = layer.weight, layer.weight.detach().clone()
    assert parametrize.register_parametrization(layer, "weight", Double()) is layer
    assert parametrize.is_parametrized(layer)
    assert parametrize.is_parametrized(layer, "weight")
    assert not parametrize.is_parametrized(layer, "bias")
    assert isinstance(layer, nn.Linear)
    assert parametrize.type_before_parametrizations(layer) is nn.Linear
    assert layer.parametrizations.weight.original is weight
    close(layer.weight, before)
    close(weight, before / 2)
    assert list(layer.state_dict()) == ["bias", "parametrizations.weight.original"]
    layer(tg.ones(1, 3)).sum().backward()
    assert weight.grad.tolist() == [[2.0] * 3] * 2
    layer.weight = tg.ones(2, 3)
    assert weight.tolist() == [[0.5] * 3] * 2
    parametrize.register_parametrization(layer, "weight", Shifted())
    close(layer.weight, tg.full((2, 3), 2.0))
    with pytest.raises(RuntimeError, match="no right_inverse"):
        layer.weight = tg.ones(2, 3)
    parametrize.remove_parametrizations(layer, "weight")
    assert type(layer) is nn.Linear
    assert layer.weight is weight
    assert weight.tolist() == [[2.0] * 3] * 2
    assert list(layer.state_dict()) == ["bias", "weight"]


def test_original_values_come_back() -> None:
    layer = nn.Linear(3, 2)
    before = layer.weight.detach().clone()
    parametrize.register_parametrization(layer, "weight", Shifted())
    parametrize.register_parametrization(layer, "bias", Double())
    close(layer.weight, before + 1)
    parametrize.remove_parametrizations(layer, "weight", leave_parametrized=False)
    close(layer.weight, before)
    assert parametrize.is_parametrized(layer, "bias")
    assert type(layer) is not nn.Linear


def test_cached_tensors_are_computed_once() -> None:
    class Counting(nn.Module):
        calls = 0

        def forward(self, x: Any) -> Any:
            Counting.calls += 1
            return x * 1

    layer = parametrize.register_parametrization(nn.Linear(2, 2), "weight", Counting())
    Counting.calls = 0
    with parametrize.cached():
        first = layer.weight
        with parametrize.cached():
            assert layer.weight is first
        assert layer.weight is first
    assert Counting.calls == 1
    assert layer.weight is not first


def test_copies_of_parametrized_modules_are_independent() -> None:
    layer = parametrize.register_parametrization(nn.Linear(2, 2), "weight", Double())
    other = copy.deepcopy(layer)
    close(other.weight, layer.weight)
    parametrize.register_parametrization(other, "bias", Shifted())
    assert not parametrize.is_parametrized(layer, "bias")
    assert isinstance(layer.bias, nn.Parameter)
    with pytest.raises(RuntimeError, match="state_dict"):
        pickle.dumps(layer)
    target = parametrize.transfer_parametrizations_and_params(layer, nn.Linear(2, 2))
    close(target.weight, layer.weight)
    assert target.parametrizations.weight.original is not layer.parametrizations.weight.original


class Bad(nn.Module):
    def __init__(self, change: Callable[[Any], Any]) -> None:
        super().__init__()
        self.change = change

    def forward(self, x: Any) -> Any:
        return self.change(x)


def test_parametrizations_that_do_not_fit() -> None:
    def register(change: Callable[[Any], Any], name: str = "weight") -> Any:
        return parametrize.register_parametrization(nn.Linear(2, 3), name, Bad(change))

    with pytest.raises(ValueError, match="unsafe=True allows that"):
        register(lambda x: x[0])
    with pytest.raises(ValueError, match="unsafe=True allows that"):
        register(lambda x: x.double())
    with pytest.raises(ValueError, match="must return a Tensor"):
        register(lambda x: [x])
    with pytest.raises(ValueError, match="no parameter, buffer"):
        register(lambda x: x, "other")
    layer = register(lambda x: x)
    with pytest.raises(ValueError, match="is not parametrized"):
        parametrize.remove_parametrizations(layer, "bias")
    with pytest.raises(ValueError, match="unsafe=True"):
        parametrize.register_parametrization(layer, "weight", Bad(lambda x: x[0]))
    assert len(layer.parametrizations.weight) == 1
    layer = parametrizations.weight_norm(nn.Linear(2, 3))
    with pytest.raises(ValueError, match="leave_parametrized=True"):
        parametrize.remove_parametrizations(layer, "weight", leave_parametrized=False)


@pytest.mark.parametrize("shape", [(4, 4), (5, 3), (3, 5)])
@pytest.mark.parametrize("kind", [None, "matrix_exp", "cayley", "householder"])
@pytest.mark.parametrize("trivial", [True, False])
def test_orthogonal_weights_stay_so_while_they_are_trained(
    shape: Any, kind: str | None, trivial: bool
) -> None:
    tg.manual_seed(0)
    layer = nn.Linear(*shape)
    parametrizations.orthogonal(layer, orthogonal_map=kind, use_trivialization=trivial)
    optimizer = tg.optim.SGD(layer.parameters(), lr=0.5)
    for _ in range(4):
        w = layer.weight
        small = w @ w.T if w.shape[0] <= w.shape[1] else w.T @ w
        close(small, tg.eye(min(shape)), 1e-5)
        optimizer.zero_grad()
        layer(randn(6, shape[0])).square().sum().backward()
        optimizer.step()
    if trivial:
        wanted = nn.init.orthogonal_(tg.empty(shape[1], shape[0]))
        layer.weight = wanted
        close(layer.weight, wanted, 1e-5)


def test_the_largest_singular_value_is_one() -> None:
    tg.manual_seed(0)
    for normalize in (parametrizations.spectral_norm, nn.utils.spectral_norm):
        layer = normalize(nn.Linear(5, 4), n_power_iterations=60)
        layer(randn(2, 5))
        assert np.linalg.norm(layer.weight.detach().numpy(), 2) == pytest.approx(1.0, rel=1e-4)
        layer.eval()
        first = layer(randn(2, 5))
        close(layer(randn(2, 5)), first)
    conv = parametrizations.spectral_norm(nn.Conv2d(3, 4, 2), n_power_iterations=60)
    matrix = conv.weight.detach().numpy().reshape(4, -1)
    assert np.linalg.norm(matrix, 2) == pytest.approx(1.0, rel=1e-4)


# -- older forms -------------------------------------------------------------------------------


@pytest.mark.parametrize("dim", [0, 1, None])
def test_weight_norm(dim: int | None) -> None:
    layer = nn.Linear(3, 2)
    before = layer.weight.detach().clone()
    x = randn(4, 3)
    expected = layer(x)
    assert nn.utils.weight_norm(layer, dim=dim) is layer
    assert list(layer.state_dict()) == ["bias", "weight_g", "weight_v"]
    close(layer(x), expected)
    with tg.no_grad():
        layer.weight_g *= 2
    close(layer(x) - layer.bias, 2 * (expected - layer.bias))
    layer(x).sum().backward()
    assert layer.weight_g.grad is not None
    assert layer.weight_v.grad is not None
    with pytest.raises(RuntimeError, match="already"):
        nn.utils.weight_norm(layer)
    nn.utils.remove_weight_norm(layer)
    assert list(layer.state_dict()) == ["bias", "weight"]
    assert isinstance(layer.weight, nn.Parameter)
    close(layer.weight, before * 2)
    with pytest.raises(ValueError, match="no weight norm"):
        nn.utils.remove_weight_norm(layer)


@pytest.mark.parametrize("normalize", [nn.utils.weight_norm, nn.utils.spectral_norm])
def test_copies_of_normalized_layers(normalize: Any) -> None:
    layer = normalize(nn.Linear(3, 2)).eval()
    x = randn(4, 3)
    assert repr(layer) == repr(nn.Linear(3, 2))
    for other in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        close(other(x), layer(x))
        other.load_state_dict({k: v + 1 for k, v in layer.state_dict().items()})
        assert not other(x).equal(layer(x))
    with pytest.raises(AttributeError):
        layer.weight = tg.ones(2, 3)


def test_states_of_the_older_weight_norm_load() -> None:
    older = nn.Sequential(nn.utils.weight_norm(nn.Linear(3, 2)))
    newer = nn.Sequential(parametrizations.weight_norm(nn.Linear(3, 2)))
    newer.load_state_dict(older.state_dict())
    close(newer(randn(4, 3)), older(randn(4, 3)))


def test_spectral_norm_comes_and_goes() -> None:
    layer = nn.utils.spectral_norm(nn.Linear(3, 2))
    assert list(layer.state_dict()) == ["bias", "weight_orig", "weight_u", "weight_v"]
    x = randn(4, 3)
    out = layer(x)
    out.sum().backward()
    assert layer.weight_orig.grad is not None
    layer.eval()
    out = layer(x)
    nn.utils.remove_spectral_norm(layer)
    close(layer(x), out)
    assert list(layer.state_dict()) == ["bias", "weight"]
    with pytest.raises(ValueError, match="no spectral norm"):
        nn.utils.remove_spectral_norm(layer)
    with pytest.raises(ValueError, match="no parameter 'other'"):
        nn.utils.spectral_norm(layer, "other")
    with pytest.raises(ValueError, match="above 0"):
        nn.utils.spectral_norm(layer, n_power_iterations=0)


NORMALIZED: dict[str, Callable[[Any], Any]] = {
    "weight_norm": nn.utils.weight_norm,
    "spectral_norm": nn.utils.spectral_norm,
    "parametrized weight_norm": parametrizations.weight_norm,
    "parametrized spectral_norm": parametrizations.spectral_norm,
    "householder": parametrizations.orthogonal,
    "matrix_exp": lambda layer: parametrizations.orthogonal(layer, orthogonal_map="matrix_exp"),
}


@pytest.mark.parametrize("name", NORMALIZED)
def test_normalized_weights_in_a_compiled_step(name: str) -> None:
    pytest.importorskip("llvmlite")
    tg.manual_seed(0)
    first = NORMALIZED[name](nn.Linear(4, 3))
    second = copy.deepcopy(first)

    def training(layer: Any) -> Callable[[Any], Any]:
        optimizer = tg.optim.SGD(layer.parameters(), lr=0.1)

        def step(x: Any) -> Any:
            optimizer.zero_grad()
            loss = layer(x).square().sum()
            loss.backward()
            optimizer.step()
            return loss

        return step

    plain, fast = training(first), tg.compile(training(second))
    for seed in range(6):
        close(fast(randn(5, 4, seed=seed)), plain(randn(5, 4, seed=seed)), 1e-4)
    assert replayed(fast) >= 3
    for a, b in zip(first.state_dict().values(), second.state_dict().values(), strict=True):
        close(a, b, 1e-4)
    close(first(randn(2, 4)), second(randn(2, 4)), 1e-4)


# -- sequences ---------------------------------------------------------------------------------


def rows(*lengths: int) -> list[Tensor]:
    return [randn(n, 2, seed=i) for i, n in enumerate(lengths)]


def test_padded_sequences() -> None:
    given = rows(2, 4, 1)
    padded = pad_sequence(given, padding_value=7.0)
    assert padded.shape == (4, 3, 2)
    assert (padded[2:, 0] == 7).all()
    left = pad_sequence(given, batch_first=True, padding_side="left")
    assert not left[0, :2].any()
    close(left[0, 2:], given[0])
    for back in (unpad_sequence(padded, [2, 4, 1]), unpad_sequence(padded, tg.tensor([2, 4, 1]))):
        for a, b in zip(back, given, strict=True):
            close(a, b)
    leaf = given[0].requires_grad_()
    (g,) = tg.autograd.grad(pad_sequence(given).sum(), [leaf])
    assert g.tolist() == [[1.0, 1.0]] * 2
    with pytest.raises(RuntimeError, match="'left' or 'right'"):
        pad_sequence(given, padding_side="top")
    with pytest.raises(RuntimeError, match="at least one"):
        pad_sequence([])
    with pytest.raises(RuntimeError, match="2 lengths for 3"):
        unpad_sequence(padded, [2, 4])


@pytest.mark.parametrize("batch_first", [True, False])
def test_packed_sequences(batch_first: bool) -> None:
    given = rows(2, 4, 1)
    padded = pad_sequence(given, batch_first).requires_grad_()
    packed = pack_padded_sequence(padded, [2, 4, 1], batch_first, enforce_sorted=False)
    assert isinstance(packed, PackedSequence)
    assert packed.batch_sizes.tolist() == [3, 2, 1, 1]
    assert packed.data.shape == (7, 2)
    assert packed.sorted_indices.tolist() == [1, 0, 2]
    back, lengths = pad_packed_sequence(packed, batch_first, padding_value=-1.0)
    assert lengths.tolist() == [2, 4, 1]
    rest = back[0, 2:] if batch_first else back[2:, 0]
    assert (rest == -1).all()
    longer, _ = pad_packed_sequence(packed, batch_first, total_length=6)
    assert longer.shape == ((3, 6, 2) if batch_first else (6, 3, 2))
    (g,) = tg.autograd.grad(back.sum(), [padded])
    assert g.sum().item() == 14.0
    for a, b in zip(unpack_sequence(packed), given, strict=True):
        close(a, b)
    ordered = pack_sequence(rows(4, 2, 1))
    assert ordered.sorted_indices is None
    with pytest.raises(RuntimeError, match="enforce_sorted=False"):
        pack_sequence(given)
    with pytest.raises(ValueError, match="shorter than the longest"):
        pad_packed_sequence(packed, total_length=3)
    with pytest.raises(RuntimeError, match="between 1 and 4"):
        pack_padded_sequence(padded, [4, 1, 0], batch_first)
    with pytest.raises(RuntimeError, match="2 lengths for 3"):
        pack_padded_sequence(padded, [4, 1], batch_first)


# -- fusion, calls with other tensors, first values --------------------------------------------


def test_fused_layers() -> None:
    tg.manual_seed(0)
    for bias in (True, False):
        conv, norm = nn.Conv2d(3, 4, 2, bias=bias), nn.BatchNorm2d(4)
        x = randn(2, 3, 5, 5)
        norm(conv(x))
        nn.init.normal_(norm.weight)
        with pytest.raises(RuntimeError, match="evaluation"):
            nn.utils.fuse_conv_bn_eval(conv, norm)
        fused = nn.utils.fuse_conv_bn_eval(conv.eval(), norm.eval())
        close(fused(x), norm(conv(x)), 1e-4)
        linear, norm = nn.Linear(3, 4, bias=bias), nn.BatchNorm1d(4)
        y = randn(6, 3)
        norm(linear(y))
        fused = nn.utils.fuse_linear_bn_eval(linear.eval(), norm.eval())
        close(fused(y), norm(linear(y)), 1e-4)
    with pytest.raises(ValueError, match="features"):
        nn.utils.fuse_linear_bn_eval(nn.Linear(3, 5).eval(), norm)
    with pytest.raises(ValueError, match="running statistics"):
        nn.utils.fuse_linear_bn_eval(linear, nn.BatchNorm1d(4, track_running_stats=False).eval())


def test_calls_with_other_tensors() -> None:
    shared = nn.Linear(2, 2)
    net = nn.Sequential(shared, shared)
    before = net.state_dict(keep_vars=True)
    other = {"0.weight": tg.eye(2).requires_grad_(), "0.bias": tg.ones(2)}
    out = functional_call(net, other, (tg.zeros(1, 2),))
    assert out.tolist() == [[2.0, 2.0]]  # tied: both places
    out.sum().backward()
    assert other["0.weight"].grad is not None
    assert shared.weight.grad is None
    for name, value in net.state_dict(keep_vars=True).items():
        assert value is before[name]
    gradient = tg.func.grad(
        lambda w: tg.func.functional_call(shared, {"weight": w}, tg.ones(1, 2)).sum()
    )(tg.eye(2))
    assert gradient.tolist() == [[1.0, 1.0], [1.0, 1.0]]
    with pytest.raises(RuntimeError, match="'odd'"):
        functional_call(net, {"odd": tg.ones(1)}, tg.zeros(1, 2), strict=True)
    functional_call(net, {"odd": tg.ones(1)}, tg.zeros(1, 2))
    assert not hasattr(net, "odd")
    with pytest.raises(AttributeError, match="no module"):
        functional_call(net, {"7.weight": tg.ones(1)}, tg.zeros(1, 2))
    with pytest.raises(RuntimeError, match="property or method"):
        functional_call(net, {"forward": tg.ones(1)}, tg.zeros(1, 2))
    with pytest.raises(ValueError, match="one tensor"):
        functional_call(net, {"0.bias": tg.ones(2), "1.bias": tg.ones(2)}, tg.zeros(1, 2))
    functional_call(net, other, tg.zeros(1, 2), strict=True)  # tied: nothing is missing
    with pytest.raises(RuntimeError, match="missing"):
        functional_call(shared, {"weight": tg.eye(2)}, tg.zeros(1, 2), strict=True)
    with pytest.raises(ValueError, match="given twice"):
        functional_call(shared, (other, other), tg.zeros(1, 2))


def test_calls_with_names_that_are_no_parameters() -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.factor, self.count = tg.ones(1), 3

        def forward(self, x: tg.Tensor) -> tg.Tensor:
            shift = getattr(self, "shift", None)
            return x * self.factor if shift is None else x * self.factor + shift

    model = Scaled()
    given = {"factor": tg.full((1,), 5.0), "shift": tg.ones(1)}
    assert functional_call(model, given, tg.ones(1)).tolist() == [6]
    assert model(tg.ones(1)).tolist() == [1]
    assert not hasattr(model, "shift")
    for name, error in (("count", TypeError), ("part.weight", AttributeError), ("", KeyError)):
        with pytest.raises(error):
            functional_call(model, {"factor": tg.zeros(1), name: tg.ones(1)}, tg.ones(1))
        assert model.factor.tolist() == [1]


def test_calls_hand_back_what_the_module_replaced() -> None:
    class Counter(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", tg.zeros(1))

        def forward(self, x: Any) -> Any:
            self.count = self.count + 1
            return x + self.count

    counter, state = Counter(), {"count": tg.tensor([5.0])}
    assert functional_call(counter, state, tg.zeros(1)).tolist() == [6.0]
    assert state["count"].tolist() == [6.0]
    assert counter.count.tolist() == [0.0]


def test_skipped_first_values() -> None:
    tg.manual_seed(0)
    state = tg.get_rng_state()
    layer = nn.utils.skip_init(nn.Linear, 3, 2)
    assert tg.get_rng_state() == state
    assert layer.weight.shape == (2, 3)
    nn.Linear(3, 2)
    assert tg.get_rng_state() != state
    with pytest.raises(RuntimeError, match="'device'"):
        nn.utils.skip_init(nn.ReLU)
    with pytest.raises(RuntimeError, match="Module class"):
        nn.utils.skip_init(int)


def test_distributions_of_first_values() -> None:
    generator = tg.Generator().manual_seed(3)
    x = tg.empty(200, 300)
    fan_in, fan_out = 300, 200
    spreads = {
        "xavier_uniform_": math.sqrt(2 / (fan_in + fan_out)),
        "xavier_normal_": math.sqrt(2 / (fan_in + fan_out)),
        "kaiming_uniform_": math.sqrt(2 / fan_in),
        "kaiming_normal_": math.sqrt(2 / fan_in),
        "uniform_": math.sqrt(1 / 12),
        "normal_": 1.0,
        "trunc_normal_": 0.8796,
    }
    for name, spread in spreads.items():
        out = getattr(nn.init, name)(x, generator=generator)
        assert out is x
        assert x.std().item() == pytest.approx(spread, rel=0.02), name
        first = x.clone()
        getattr(nn.init, name)(x, generator=tg.Generator().manual_seed(5))
        second = x.clone()
        getattr(nn.init, name)(x, generator=tg.Generator().manual_seed(5))
        assert x.equal(second)
        assert not x.equal(first)
    nn.init.sparse_(x, 0.25, std=0.5, generator=generator)
    assert ((x == 0).sum(0) == 50).all()
    assert x[x != 0].std().item() == pytest.approx(0.5, rel=0.02)
    nn.init.orthogonal_(x, gain=2.0, generator=generator)
    close(x @ x.T, 4 * tg.eye(200), 1e-4)


def test_truncated_normal_numbers() -> None:
    x = nn.init.trunc_normal_(tg.empty(100000), std=0.02)
    assert x.abs().max().item() < 0.12  # no outliers at the limits
    with pytest.warns(UserWarning, match="more than 2 std"):
        nn.init.trunc_normal_(x, 0.0, 1.0, 30.0, 40.0)
    assert x.min().item() >= 30.0
    assert x.mean().item() == pytest.approx(30 + 1 / 30, abs=1e-3)
    with pytest.raises(ValueError, match="std > 0"):
        nn.init.trunc_normal_(x, std=0.0)


def test_weights_that_hand_channels_on() -> None:
    for dims in (1, 2, 3):
        x = tg.empty(4, 2, *[3] * dims)
        nn.init.dirac_(x, groups=2)
        assert x.sum().item() == 4.0
        assert x[(0, 0, *[1] * dims)].item() == x[(3, 1, *[1] * dims)].item() == 1.0
    with pytest.raises(ValueError, match="3, 4 or 5"):
        nn.init.dirac_(tg.empty(2, 2))
    with pytest.raises(ValueError, match="must divide"):
        nn.init.dirac_(x, groups=3)
    with pytest.raises(ValueError, match="needs a matrix"):
        nn.init.sparse_(tg.empty(3), 0.5)


def test_older_names() -> None:
    with pytest.warns(FutureWarning, match="nn.init.xavier_normal_"):
        nn.init.xavier_normal(tg.empty(2, 2))
    with pytest.warns(FutureWarning, match="clip_grad_norm_"):
        nn.utils.clip_grad_norm([], 1.0)
    assert nn.init._calculate_fan_in_and_fan_out(tg.empty(2, 3, 4)) == (12, 8)
    assert nn.init._calculate_correct_fan(tg.empty(2, 3), "fan_out") == 2
    assert nn.init.calculate_gain("conv_transpose2d") == 1.0
    with pytest.raises(ValueError, match="must be a number"):
        nn.init.calculate_gain("leaky_relu", "steep")  # type: ignore[arg-type]
