"""Optimizer steps as native code: the same as updates in Python, whatever changes in between."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tapegrad as tg
from tapegrad import Tensor, nn, optim
from tapegrad.replay.use.update import FEW_TENSORS, MOST_RECORDINGS, SMALL_UPDATE

pytest.importorskip("llvmlite")

#: more elements than native code needs
SHAPE = (90, 70)
STEPS = 5

OPTIMIZERS: dict[str, Callable[..., Any]] = {
    "sgd": lambda p: optim.SGD(p, lr=0.1),
    "sgd, decay, maximize": lambda p: optim.SGD(p, lr=0.1, weight_decay=0.1, maximize=True),
    "momentum": lambda p: optim.SGD(p, lr=0.1, momentum=0.9),
    "dampening": lambda p: optim.SGD(p, lr=0.1, momentum=0.9, dampening=0.3),
    "nesterov": lambda p: optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01),
    "adam": lambda p: optim.Adam(p, lr=0.1),
    "amsgrad": lambda p: optim.Adam(p, lr=0.1, amsgrad=True, weight_decay=0.1),
    "adamw": lambda p: optim.AdamW(p, lr=0.1, weight_decay=0.2, maximize=True),
    "rmsprop": lambda p: optim.RMSprop(p, lr=0.1),
    "rmsprop, all": lambda p: optim.RMSprop(
        p, lr=0.1, momentum=0.9, centered=True, weight_decay=0.1
    ),
    "adagrad": lambda p: optim.Adagrad(p, lr=0.1, lr_decay=0.1, initial_accumulator_value=0.1),
    "adadelta": lambda p: optim.Adadelta(p, lr=0.5, weight_decay=0.1),
    "adamax": lambda p: optim.Adamax(p, lr=0.1),
    "nadam": lambda p: optim.NAdam(p, lr=0.1, weight_decay=0.1, decoupled_weight_decay=True),
    "radam": lambda p: optim.RAdam(p, lr=0.1, betas=(0.9, 0.9)),
    "asgd": lambda p: optim.ASGD(p, lr=0.1, t0=2, lambd=0.1),
    "rprop": lambda p: optim.Rprop(p, lr=0.1),
    "adafactor": lambda p: optim.Adafactor(p, lr=0.1, weight_decay=0.1),
    "muon": lambda p: optim.Muon(p, lr=0.1),
}
each = pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=list(OPTIMIZERS))


def array(seed: int, dtype: Any = np.float32) -> Any:
    return np.random.default_rng(seed).standard_normal(SHAPE).astype(dtype)


def parameters(count: int = 3, dtype: Any = np.float32) -> list[Tensor]:
    return [tg.tensor(array(i, dtype), requires_grad=True) for i in range(count)]


def give_gradients(step: int, *given: Tensor) -> None:
    for i, p in enumerate(given):
        p.grad = tg.tensor(array(1000 + 10 * step + i, p.detach().numpy().dtype))


def in_python(optimizer: Any) -> Any:
    """An optimizer that is never native."""
    optimizer._is_own = lambda: False
    return optimizer


def recordings(optimizer: Any) -> int:
    return len(optimizer._updates.replays)


def replayed(optimizer: Any) -> int:
    return sum(r.count for r in optimizer._updates.replays.values())


def state_of(optimizer: Any) -> list[Any]:
    return [
        value.numpy() if isinstance(value, Tensor) else np.asarray(value)
        for _, values in sorted(optimizer.state_dict()["state"].items())
        for _, value in sorted(values.items())
    ]


def arrays(given: list[Tensor], optimizer: Any) -> list[Any]:
    return [*(p.detach().numpy().copy() for p in given), *map(np.copy, state_of(optimizer))]


def assert_close(got: list[Any], expected: list[Any], tolerance: float = 1e-5) -> None:
    assert len(got) == len(expected)
    for a, b in zip(got, expected, strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


class Pair:
    """The same training twice: native and in Python."""

    def __init__(self, make: Callable[..., Any], count: int = 3, dtype: Any = np.float32) -> None:
        self.mine, self.theirs = parameters(count, dtype), parameters(count, dtype)
        self.native, self.plain = make(self.mine), in_python(make(self.theirs))

    def both(self, change: Callable[[Any, list[Tensor]], None]) -> None:
        change(self.native, self.mine)
        change(self.plain, self.theirs)

    def step(self, number: int, *without: int) -> None:
        for optimizer, given in ((self.native, self.mine), (self.plain, self.theirs)):
            give_gradients(number, *given)
            for i in without:
                given[i].grad = None
            optimizer.step()
        self.compare()

    def compare(self) -> None:
        wide = self.mine[0].dtype is tg.float64
        assert_close(
            arrays(self.mine, self.native),
            arrays(self.theirs, self.plain),
            1e-12 if wide else 1e-5,
        )


# -- the same as in Python -----------------------------------------------------------------------


@each
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_steps_equal_those_in_python(make: Callable[..., Any], dtype: Any) -> None:
    pair = Pair(make, dtype=dtype)
    for number in range(STEPS):
        pair.step(number)
    assert replayed(pair.native) >= STEPS - 1
    assert recordings(pair.plain) == 0


@each
def test_options_change_between_steps(make: Callable[..., Any]) -> None:
    pair = Pair(make, dtype=np.float64)

    def change(number: int) -> Callable[[Any, list[Tensor]], None]:
        def apply(optimizer: Any, given: list[Tensor]) -> None:
            (group,) = optimizer.param_groups
            group["lr"] = [0.1, 0.05, 0.2, np.float64(0.3), 1][number]
            group["weight_decay"] = [0, 0.1, 0.2, 0.0, 0.3][number]
            if "betas" in group:
                group["betas"] = (0.9 - 0.1 * number, 0.99 - 0.01 * number)
            if group.get("momentum"):
                group["momentum"] = 0.9 - 0.1 * number
            group["maximize"] = number == 3

        return apply

    for number in range(5):
        pair.both(change(number))
        pair.step(number)
    assert replayed(pair.native) > 0


@pytest.mark.parametrize("kind", [float, int, np.float32, np.float64, np.int64])
def test_numbers_of_any_kind_are_read_in_every_step(kind: Any) -> None:
    p = tg.zeros(SHAPE, requires_grad=True)
    optimizer = optim.SGD([p], lr=kind(1))
    p.grad = tg.ones(SHAPE)
    for rate, expected in enumerate([0, -1, -3, -6]):
        optimizer.param_groups[0]["lr"] = kind(rate)
        optimizer.step()
        assert p[0, 0].item() == expected


@each
def test_gradients_that_are_missing_in_some_steps(make: Callable[..., Any]) -> None:
    pair = Pair(make)
    for number, without in enumerate([(), (1,), (0, 2), (), (0,), (0, 1, 2), (1,), ()]):
        pair.step(number, *without)


def test_groups_with_options_of_their_own() -> None:
    pair = Pair(
        lambda p: optim.Adam(
            [{"params": p[:1], "lr": 0.5}, {"params": p[1:], "betas": (0.5, 0.9), "amsgrad": True}]
        )
    )
    for number in range(4):
        pair.step(number)
        pair.both(lambda o, _: o.param_groups[0].update(lr=o.param_groups[0]["lr"] / 2))
    assert replayed(pair.native) >= 3


def test_a_group_that_is_added_later() -> None:
    pair = Pair(lambda p: optim.Adam(p[:2], lr=0.1))
    for number in range(3):
        pair.step(number)
    pair.both(lambda o, p: o.add_param_group({"params": p[2:], "lr": 1.0}))
    for number in range(3, 6):
        pair.step(number)


# -- tensors that change from outside ------------------------------------------------------------


@each
def test_loaded_state_is_the_state_that_is_updated(make: Callable[..., Any]) -> None:
    pair = Pair(make)
    for number in range(3):
        pair.step(number)
    saved = copy.deepcopy(pair.native.state_dict())
    for number in range(3, 5):
        pair.step(number)
    pair.both(lambda o, _: o.load_state_dict(saved))
    for number in range(5, 8):
        pair.step(number)
    for values in pair.native.state.values():
        for value in values.values():
            assert isinstance(value, Tensor)


def test_counts_and_gaps_in_loaded_state() -> None:
    """Steps as plain numbers, and None for what is not there yet."""
    for make, key, value in (
        (OPTIMIZERS["adam"], "step", 3),
        (OPTIMIZERS["rmsprop"], "step", 3),
        (OPTIMIZERS["momentum"], "momentum_buffer", None),
    ):
        pair = Pair(make)
        pair.step(0)

        def load(optimizer: Any, _: Any, key: str = key, value: Any = value) -> None:
            state = copy.deepcopy(optimizer.state_dict())
            for values in state["state"].values():
                values[key] = value
            optimizer.load_state_dict(state)

        pair.both(load)
        for number in range(1, 4):
            pair.step(number)
        if key == "step":
            assert pair.native.state[pair.mine[0]]["step"].item() == 6


def test_numbers_in_the_state_are_changed_by_python() -> None:
    p = tg.zeros(SHAPE, requires_grad=True)
    optimizer = optim.RMSprop([p], lr=0.1)
    p.grad = tg.ones(SHAPE)
    optimizer.step()
    optimizer.state[p]["step"] = 5
    for _ in range(3):
        optimizer.step()
    assert optimizer.state[p]["step"] == 8


def test_replaced_state_tensors() -> None:
    pair = Pair(OPTIMIZERS["momentum"])
    for number in range(3):
        pair.step(number)
    pair.both(lambda o, p: o.state[p[0]].update(momentum_buffer=tg.ones(SHAPE)))
    for number in range(3, 6):
        pair.step(number)


@each
def test_replaced_data_and_gradients_in_place(make: Callable[..., Any]) -> None:
    pair = Pair(make)
    for number in range(3):
        pair.step(number)

    def replace(optimizer: Any, given: list[Tensor]) -> None:
        given[0].data = tg.tensor(array(77))
        with tg.no_grad():
            given[1].copy_(tg.tensor(array(78)))

    pair.both(replace)
    for number in range(3, 6):
        pair.step(number)


def test_parameters_that_are_frozen_and_thawed() -> None:
    pair = Pair(OPTIMIZERS["adam"])
    for number in range(6):
        if number in (2, 4):
            pair.both(lambda _, p, on=number == 4: setattr(p[1], "requires_grad", on))
        pair.step(number)


def test_gradients_in_any_layout() -> None:
    for change in (
        lambda g: tg.from_numpy(np.asfortranarray(g.numpy())),
        lambda g: tg.from_numpy(np.repeat(g.numpy(), 2, 1)[:, ::2]),
        lambda g: g[:1].expand(*SHAPE),
    ):
        pair = Pair(OPTIMIZERS["adam"], count=2)
        for number in range(4):
            for optimizer, given in ((pair.native, pair.mine), (pair.plain, pair.theirs)):
                give_gradients(number, *given)
                if number != 2:
                    given[0].grad = change(given[0].grad)
                optimizer.step()
            pair.compare()


def test_parameters_in_any_layout() -> None:
    for view in (lambda a: np.asfortranarray(a), lambda a: np.repeat(a, 2, 1)[:, ::2]):
        mine, theirs = (tg.from_numpy(view(array(0))).requires_grad_() for _ in range(2))
        a, b = optim.Adam([mine], lr=0.1), in_python(optim.Adam([theirs], lr=0.1))
        for number in range(4):
            for optimizer, p in ((a, mine), (b, theirs)):
                give_gradients(number, p)
                optimizer.step()
            assert_close(arrays([mine], a), arrays([theirs], b))


def test_one_gradient_for_two_parameters_and_a_parameter_as_its_own() -> None:
    pair = Pair(OPTIMIZERS["momentum"])
    for _ in range(4):
        for optimizer, given in ((pair.native, pair.mine), (pair.plain, pair.theirs)):
            given[0].grad = given[1].grad = tg.tensor(array(5))
            given[2].grad = given[2].detach()
            optimizer.step()
        pair.compare()


def test_two_optimizers_share_a_parameter() -> None:
    mine, theirs = parameters(1), parameters(1)
    a = [optim.Adam(mine, lr=0.1), optim.SGD(mine, lr=0.1, momentum=0.9)]
    b = [in_python(optim.Adam(theirs, lr=0.1)), in_python(optim.SGD(theirs, lr=0.1, momentum=0.9))]
    for number in range(4):
        for optimizers, given in ((a, mine), (b, theirs)):
            give_gradients(number, *given)
            for optimizer in optimizers:
                optimizer.step()
        for x, y in zip(a, b, strict=True):
            assert_close(arrays(mine, x), arrays(theirs, y))


def test_gradients_stay_as_they_are() -> None:
    (p,) = parameters(1)
    optimizer = optim.Adam([p], lr=0.1, weight_decay=0.1)
    give_gradients(0, p)
    gradient = p.grad
    assert gradient is not None
    before = gradient.numpy().copy()
    for _ in range(3):
        optimizer.step()
    assert p.grad is gradient
    np.testing.assert_array_equal(gradient.numpy(), before)


# -- what stays Python ---------------------------------------------------------------------------


def test_own_updates_run_as_python() -> None:
    seen = []

    class Own(optim.SGD):
        def update(self, parameter: Tensor, gradient: Tensor, group: Any) -> None:
            seen.append(float(gradient[0, 0].item()))
            super().update(parameter, gradient, group)

    class Clipped(optim.SGD):
        def number(self, group: Any, key: str, index: int | None = None) -> Any:
            seen.append(key)
            return min(super().number(group, key, index), 0.01)

    for kind in (Own, Clipped):
        seen.clear()
        (p,) = parameters(1)
        optimizer = kind([p], lr=0.1)
        for number in range(3):
            give_gradients(number, p)
            optimizer.step()
        assert len(seen) == 3
        assert recordings(optimizer) == 0


def test_a_subclass_that_changes_nothing_is_native() -> None:
    class Named(optim.Adam):
        """Another name."""

    pair = Pair(lambda p: Named(p, lr=0.1))
    for number in range(3):
        pair.step(number)
    assert replayed(pair.native) == 2


def test_gradients_as_a_mapping() -> None:
    pair = Pair(OPTIMIZERS["adam"])
    for number in range(3):
        pair.step(number)
    for optimizer, given in ((pair.native, pair.mine), (pair.plain, pair.theirs)):
        loss = sum(((p * p).sum() for p in given[1:]), (given[0] ** 3).sum())
        optimizer.step(loss.backward())
    pair.compare()
    pair.step(4)


def test_small_updates_and_other_modes() -> None:
    small = tg.ones(SMALL_UPDATE - 1, requires_grad=True)
    optimizer = optim.SGD([small], lr=0.1)
    small.grad = tg.ones(SMALL_UPDATE - 1)
    optimizer.step()
    assert recordings(optimizer) == 0
    for mode in (tg.no_grad, tg.inference_mode, tg.enable_grad):
        pair = Pair(OPTIMIZERS["adam"])
        for number in range(3):
            with mode():
                pair.step(number)


def test_on_a_tape_the_operations_are_seen() -> None:
    (p,) = parameters(1)
    optimizer = optim.SGD([p], lr=0.1)
    for number in range(3):
        give_gradients(number, p)
        with tg.Tape() as tape:
            optimizer.step()
        assert len(tape) > 0


# -- around a step -------------------------------------------------------------------------------


def test_hooks_and_closures() -> None:
    (p,) = parameters(1)
    optimizer = optim.Adam([p], lr=0.1)
    seen: list[str] = []
    optimizer.register_step_pre_hook(lambda *_: seen.append("before"))
    optimizer.register_step_post_hook(lambda *_: seen.append("after"))

    def closure() -> Tensor:
        seen.append("closure")
        optimizer.zero_grad()
        loss = (p * p).sum()
        loss.backward()
        return loss

    losses = [optimizer.step(closure).item() for _ in range(4)]
    assert losses == sorted(losses, reverse=True)
    assert seen == ["before", "closure", "after"] * 4
    assert replayed(optimizer) == 3


def test_a_value_that_a_step_overwrites_is_noticed() -> None:
    (p,) = parameters(1)
    optimizer = optim.SGD([p], lr=0.1)
    for number in range(3):
        give_gradients(number, p)
        loss = (p * p).sum()
        optimizer.step()
        with pytest.raises(RuntimeError, match="test_native_update"):
            loss.backward()


@pytest.mark.parametrize(
    "copied", [copy.deepcopy, lambda pair: pickle.loads(pickle.dumps(pair))], ids=["copy", "pickle"]
)
@each
def test_copies_go_their_own_way(make: Callable[..., Any], copied: Callable[[Any], Any]) -> None:
    given = parameters(2)
    optimizer = make(given)
    for number in range(3):
        give_gradients(number, *given)
        optimizer.step()
    others, other = copied((given, optimizer))
    before = arrays(given, optimizer)
    for number in range(3, 6):
        give_gradients(number, *others)
        other.step()
    for a, b in zip(arrays(given, optimizer), before, strict=True):
        np.testing.assert_array_equal(a, b)
    for number in range(3, 6):
        give_gradients(number, *given)
        optimizer.step()
    for a, b in zip(arrays(given, optimizer), arrays(others, other), strict=True):
        np.testing.assert_array_equal(a, b)


@each
@pytest.mark.parametrize("interruption", [1, 2, 4])
def test_a_resumed_run_has_the_same_bits(make: Callable[..., Any], interruption: int) -> None:
    def model() -> Any:
        tg.manual_seed(0)
        # Without biases, since one of the optimizers takes nothing but matrices.
        layers = nn.Linear(70, 90, bias=False), nn.Tanh(), nn.Linear(90, 5, bias=False)
        return nn.Sequential(*layers)

    def train(net: Any, optimizer: Any, steps: range) -> list[float]:
        losses = []
        for number in steps:
            optimizer.zero_grad()
            x, y = tg.tensor(array(number)), tg.arange(SHAPE[0]) % 5
            loss = nn.functional.cross_entropy(net(x), y)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses

    whole = model()
    expected = train(whole, make(list(whole.parameters())), range(6))
    first = model()
    optimizer = make(list(first.parameters()))
    losses = train(first, optimizer, range(interruption))
    saved = copy.deepcopy((first.state_dict(), optimizer.state_dict()))
    second = model()
    resumed = make(list(second.parameters()))
    second.load_state_dict(saved[0])
    resumed.load_state_dict(saved[1])
    losses += train(second, resumed, range(interruption, 6))
    assert losses == expected
    for a, b in zip(whole.parameters(), second.parameters(), strict=True):
        np.testing.assert_array_equal(a.detach().numpy(), b.detach().numpy())


def test_recordings_do_not_pile_up() -> None:
    given = parameters(5)
    optimizer = optim.SGD(given, lr=0.1)
    for number in range(20):
        give_gradients(number, *given)
        for i, p in enumerate(given):
            if number >> i & 1:
                p.grad = None
        optimizer.step()
    assert 0 < recordings(optimizer) <= MOST_RECORDINGS
    optimizer.load_state_dict(optimizer.state_dict())
    assert recordings(optimizer) == 0


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("SGD", {"momentum": 0.9, "weight_decay": 0.1}),
        ("SGD", {"momentum": 0.9, "dampening": 0.5, "nesterov": False, "weight_decay": 0.1}),
        ("Adam", {"weight_decay": 0.1}),
        ("RMSprop", {"weight_decay": 0.1, "momentum": 0.9, "centered": True}),
        ("Adagrad", {"weight_decay": 0.1}),
        ("NAdam", {"weight_decay": 0.1}),
        ("ASGD", {"weight_decay": 0.1}),
    ],
)
def test_state_of_parameters_without_dimensions_keeps_their_dtype(
    name: str, options: dict[str, Any], compiled: bool
) -> None:
    """While a step is recorded, numbers are float64 tensors without dimensions, as these are."""
    parameters = [tg.tensor(0.5 + i, requires_grad=True) for i in range(FEW_TENSORS)]
    plain = [p.detach().clone().requires_grad_() for p in parameters]
    make = getattr(optim, name)
    fast = make(parameters, lr=0.05, **options)
    slow = [make([p], lr=0.05, **options) for p in plain]  # a tensor alone is updated in Python

    def step() -> None:
        fast.zero_grad()
        sum(p * p for p in parameters).backward()
        fast.step()

    step = tg.compile(step) if compiled else step
    for _ in range(5):
        step()
        for q, optimizer in zip(plain, slow, strict=True):
            optimizer.zero_grad()
            (q * q).backward()
            optimizer.step()
    for p, q, optimizer in zip(parameters, plain, slow, strict=True):
        assert p.dtype is tg.float32
        np.testing.assert_allclose(p.item(), q.item(), rtol=1e-5)
        assert fast.state[p].keys() == optimizer.state[q].keys()
        for key, value in optimizer.state[q].items():
            assert fast.state[p][key].dtype is value.dtype, key
