"""Every optimizer and schedule in a compiled training step: the same as eager, whatever changes."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from replaying import callbacks, randn, replayed

import tapegrad as tg
from tapegrad import Tensor, nn, optim
from tapegrad.optim import lr_scheduler, swa_utils

pytest.importorskip("llvmlite")

#: a maker of an optimizer, and options that change between calls
OPTIMIZERS: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "sgd": (lambda p: optim.SGD(p, lr=0.1), {}),
    "sgd, all": (
        lambda p: optim.SGD(p, lr=0.1, momentum=0.9, dampening=0.2, weight_decay=0.1),
        {"momentum": 0.5, "dampening": 0.4, "weight_decay": 0.2},
    ),
    "nesterov": (
        lambda p: optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, maximize=True),
        {"momentum": 0.5},
    ),
    "adam": (lambda p: optim.Adam(p, lr=0.05), {"betas": (0.5, 0.9), "eps": 1e-3}),
    "adam, all": (
        lambda p: optim.Adam(p, lr=0.05, amsgrad=True, weight_decay=0.1, maximize=True),
        {"weight_decay": 0.3},
    ),
    "adamw": (lambda p: optim.AdamW(p, lr=0.05, weight_decay=0.1), {"weight_decay": 0.3}),
    "rmsprop": (
        lambda p: optim.RMSprop(p, lr=0.05, momentum=0.9, centered=True, weight_decay=0.1),
        {"alpha": 0.9, "momentum": 0.5, "eps": 1e-3, "weight_decay": 0.2},
    ),
    "adagrad": (
        lambda p: optim.Adagrad(p, lr=0.1, lr_decay=0.1, weight_decay=0.1),
        {"lr_decay": 0.5, "weight_decay": 0.2, "eps": 1e-3},
    ),
    "adadelta": (
        lambda p: optim.Adadelta(p, lr=1.0, weight_decay=0.1),
        {"rho": 0.5, "eps": 1e-3, "weight_decay": 0.2},
    ),
    "adamax": (
        lambda p: optim.Adamax(p, lr=0.05, weight_decay=0.1),
        {"betas": (0.5, 0.9), "eps": 1e-3, "weight_decay": 0.2},
    ),
    "nadam": (
        lambda p: optim.NAdam(p, lr=0.05, weight_decay=0.1, momentum_decay=0.1),
        {"betas": (0.5, 0.9), "momentum_decay": 0.2, "weight_decay": 0.2},
    ),
    "nadam, decoupled": (
        lambda p: optim.NAdam(p, lr=0.05, weight_decay=0.1, decoupled_weight_decay=True),
        {"weight_decay": 0.2},
    ),
    # Squares are divided by from the sixth step on: the replay goes over from one to the other.
    "radam": (lambda p: optim.RAdam(p, lr=0.05, weight_decay=0.1), {"weight_decay": 0.2}),
    "radam, betas": (
        lambda p: optim.RAdam(p, lr=0.05, betas=(0.9, 0.9)),
        {"betas": (0.5, 0.6), "eps": 1e-3},
    ),
    # The mean begins in the fifth step.
    "asgd": (
        lambda p: optim.ASGD(p, lr=0.05, lambd=0.1, t0=4, weight_decay=0.1),
        {"lambd": 0.2, "alpha": 0.5, "weight_decay": 0.2},
    ),
    "rprop": (lambda p: optim.Rprop(p, lr=0.05), {"etas": (0.3, 1.5), "step_sizes": (1e-3, 0.06)}),
    "adafactor": (
        lambda p: optim.Adafactor(p, lr=0.1, weight_decay=0.1),
        {"beta2_decay": -0.5, "eps": (None, 0.1), "d": 2.0, "weight_decay": 0.2},
    ),
    "adafactor, eps": (
        lambda p: optim.Adafactor(p, lr=0.1, eps=(1e-2, 1e-2)),
        {"eps": (1e-1, 1e-3)},
    ),
    "muon": (
        lambda p: optim.Muon(p, lr=0.05),
        {"momentum": 0.5, "weight_decay": 0.3, "ns_coefficients": (3.0, -4.0, 2.0), "eps": 1e-3},
    ),
}
each = pytest.mark.parametrize("name", OPTIMIZERS)


def network() -> Any:
    """Layers of matrices, since one of the optimizers takes nothing else."""
    tg.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 8, bias=False), nn.Tanh(), nn.Linear(8, 3, bias=False))


class Training:
    """One model with its optimizer, trained by a compiled step or a plain one."""

    def __init__(self, make: Callable[..., Any], compiled: bool, dtype: Any = tg.float64) -> None:
        self.net = network().to(dtype)
        self.optimizer = make(list(self.net.parameters()))
        self.dtype = dtype
        self.run: Any = tg.compile(self.step) if compiled else self.step

    def step(self, x: Tensor, y: Tensor) -> Tensor:
        self.optimizer.zero_grad()
        loss = ((self.net(x) - y) ** 2).mean()
        loss.backward()
        self.optimizer.step()
        return loss

    def call(self, number: int) -> float:
        x, y = randn(6, 5, seed=number), randn(6, 3, seed=1000 + number)
        return float(self.run(x.to(self.dtype), y.to(self.dtype)).item())

    def arrays(self) -> list[Any]:
        state = self.optimizer.state_dict()["state"]
        values = [v for i in sorted(state) for _, v in sorted(state[i].items())]
        tensors = [*self.net.parameters(), *(v for v in values if isinstance(v, Tensor))]
        return [t.detach().numpy() for t in tensors]


class Pair:
    """The same training twice: compiled and eager."""

    def __init__(self, make: Callable[..., Any], dtype: Any = tg.float64) -> None:
        self.compiled, self.eager = Training(make, True, dtype), Training(make, False, dtype)
        self.tolerance = 1e-9 if dtype is tg.float64 else 2e-4
        self.number = 0

    def calls(self, count: int) -> None:
        for _ in range(count):
            losses = [t.call(self.number) for t in (self.compiled, self.eager)]
            self.number += 1
            assert losses[0] == pytest.approx(losses[1], rel=self.tolerance)
        for a, b in zip(self.compiled.arrays(), self.eager.arrays(), strict=True):
            assert a.dtype == b.dtype
            np.testing.assert_allclose(a, b, rtol=self.tolerance, atol=self.tolerance)

    def both(self, change: Callable[[Any], None]) -> None:
        change(self.compiled.optimizer)
        change(self.eager.optimizer)

    @property
    def replayed(self) -> int:
        return replayed(self.compiled.run)


# -- every optimizer -----------------------------------------------------------------------------


@each
@pytest.mark.parametrize("dtype", [tg.float32, tg.float64], ids=["float32", "float64"])
def test_several_steps(name: str, dtype: Any) -> None:
    pair = Pair(OPTIMIZERS[name][0], dtype)
    pair.calls(9)
    assert pair.replayed >= 5
    assert callbacks(pair.compiled.run) == []


@each
def test_options_are_read_in_every_call(name: str) -> None:
    """No change of a number needs another recording."""
    make, options = OPTIMIZERS[name]
    pair = Pair(make)
    pair.calls(5)
    before = pair.replayed
    for rate in (0.02, 0.2, np.float64(0.07)):
        pair.both(lambda o, rate=rate: o.param_groups[0].update(lr=rate))  # type: ignore[misc]
        pair.calls(2)
    for key, value in options.items():
        assert key in pair.eager.optimizer.param_groups[0]
        pair.both(lambda o, k=key, v=value: o.param_groups[0].update({k: v}))  # type: ignore[misc]
        pair.calls(1)
    assert pair.replayed == before + 6 + len(options)


@each
def test_what_decides_the_operations_is_noticed(name: str) -> None:
    pair = Pair(OPTIMIZERS[name][0])
    pair.calls(4)
    (group,) = pair.eager.optimizer.param_groups
    for key, value in (("maximize", True), ("weight_decay", 0.0), ("weight_decay", 0.1)):
        if key in group:
            pair.both(lambda o, k=key, v=value: o.param_groups[0].update({k: v}))  # type: ignore[misc]
            pair.calls(4)


def test_names_and_counts_are_noticed() -> None:
    pair = Pair(lambda p: optim.Muon(p, lr=0.05))
    for change in ({"ns_steps": 2}, {"adjust_lr_fn": "match_rms_adamw"}, {"nesterov": False}):
        pair.calls(4)
        pair.both(lambda o, c=change: o.param_groups[0].update(c))  # type: ignore[misc]
    pair.calls(4)
    pair = Pair(lambda p: optim.Adafactor(p, lr=0.05))
    for eps in ((None, 1e-3), (1e-1, 1e-3), (None, 1e-2)):
        pair.both(lambda o, eps=eps: o.param_groups[0].update(eps=eps))  # type: ignore[misc]
        pair.calls(4)
    assert pair.replayed >= 6


@each
def test_loaded_state_is_used(name: str) -> None:
    pair = Pair(OPTIMIZERS[name][0])
    pair.calls(3)
    saved = copy.deepcopy(pair.eager.optimizer.state_dict())
    pair.calls(3)
    pair.both(lambda o: o.load_state_dict(saved))
    pair.calls(4)


def test_replaced_and_cleared_state_is_noticed() -> None:
    pair = Pair(lambda p: optim.SGD(p, lr=0.1, momentum=0.9))

    def replace(optimizer: Any) -> None:
        for state in optimizer.state.values():
            state["momentum_buffer"] = state["momentum_buffer"] * 0.1

    changes: list[Callable[[Any], Any]] = [
        replace,
        lambda o: o.state.clear(),
        lambda o: [state.clear() for state in o.state.values()],
        lambda o: o.state.pop(o.param_groups[0]["params"][0]),
        lambda o: [state.pop("momentum_buffer") for state in o.state.values()],
        lambda o: [state.update(momentum_buffer=None) for state in o.state.values()],
    ]
    for change in changes:
        pair.calls(4)
        pair.both(change)
    pair.calls(4)
    assert pair.replayed > 0


def test_a_learning_rate_that_is_a_tensor() -> None:
    for name in ("SGD", "AdamW", "RAdam", "ASGD", "Rprop", "Adafactor", "Muon"):
        pair = Pair(
            lambda p, name=name: getattr(optim, name)(p, lr=tg.tensor([0.05], dtype=tg.float64))
        )  # type: ignore[misc]
        pair.calls(5)
        before = pair.replayed
        pair.both(lambda o: o.param_groups[0]["lr"].fill_(0.01))
        pair.calls(2)
        assert pair.replayed == before + 2


@pytest.mark.filterwarnings("ignore:compiled function .* runs eagerly")
@pytest.mark.parametrize("compiles", [False, True])
def test_a_gradient_that_shows_the_memory_of_a_tensor(compiles: bool) -> None:
    """What a step writes to would change while it still reads the gradient."""

    def trained(is_fast: bool) -> list[float]:
        parameters = [tg.tensor(1.5 + i, requires_grad=True) for i in range(4)]
        # One tensor alone is updated by Python, and several ones by native code.
        optimizers = [optim.Adam([p], lr=0.1, amsgrad=True, maximize=True) for p in parameters]
        if is_fast:
            optimizers = [optim.Adam(parameters, lr=0.1, amsgrad=True, maximize=True)]

        def step() -> None:
            for optimizer in optimizers:
                optimizer.step()

        run = tg.compile(step) if is_fast and compiles else step
        for call in range(8):
            for parameter in parameters:
                parameter.grad = parameter.detach() if call in (4, 5) else tg.tensor(1.0)
            run()
        averages = [s["exp_avg"] for o in optimizers for s in o.state.values()]
        return [t.item() for t in (*parameters, *averages)]

    np.testing.assert_allclose(trained(True), trained(False), rtol=1e-5)


@pytest.mark.filterwarnings("ignore:compiled function .* runs eagerly")
@pytest.mark.parametrize("of_argument", [False, True])
def test_a_gradient_that_shows_what_the_function_changes(of_argument: bool) -> None:
    def trained(is_fast: bool) -> list[Any]:
        parameter, buffer = tg.ones(3, requires_grad=True), tg.ones(6)

        def step(x: Any) -> None:
            gradient: Any = parameter.grad
            negative = -gradient
            x += negative.sum() * 0.1
            buffer.add_(negative.sum() * 0.2 + gradient.sum())
            x += (negative * negative).sum() * 0.01

        run = tg.compile(step) if is_fast else step
        given = tg.ones(6)
        for call in range(8):
            shown = given if of_argument else buffer
            parameter.grad = shown[:3] if call in (4, 5) else tg.full((3,), 0.5)
            run(given)
        return [*given.tolist(), *buffer.tolist()]

    np.testing.assert_allclose(trained(True), trained(False), rtol=1e-5)


def test_memory_does_not_grow() -> None:
    import gc

    for name, (make, _) in OPTIMIZERS.items():
        training = Training(make, True)
        for number in range(6):
            training.call(number)
        gc.collect()
        tensors = sum(issubclass(type(o), Tensor) for o in gc.get_objects())
        for number in range(6, 16):
            training.call(number)
        gc.collect()
        assert sum(issubclass(type(o), Tensor) for o in gc.get_objects()) <= tensors, name


# -- optimizers that decide from values ----------------------------------------------------------


def test_lbfgs_says_what_to_compile_instead() -> None:
    p = tg.tensor([1.0, 2.0], requires_grad=True)
    optimizer = optim.LBFGS([p], line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = ((p - 3) ** 2).sum()
        loss.backward()
        return loss

    with pytest.raises(RuntimeError, match="compile the closure"):
        tg.compile(lambda: optimizer.step(closure))()
    assert p.tolist() == [1.0, 2.0]
    fast = tg.compile(closure)
    for _ in range(3):
        optimizer.step(fast)
    np.testing.assert_allclose(p.detach().numpy(), [3.0, 3.0], rtol=1e-5)


def test_steps_of_lbfgs_do_not_disturb_compiled_functions() -> None:
    """Its state changes in every step, which is no reason to record anything anew."""
    p = tg.tensor([[1.0, 2.0]] * 4, requires_grad=True)
    optimizer = optim.LBFGS([p], lr=0.1, max_iter=3)

    @tg.compile
    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = ((p**2 - 3) ** 2).sum()
        loss.backward()
        return loss

    for _ in range(8):
        optimizer.step(closure)
    assert replayed(closure) >= 15


# -- optimizers that users write -----------------------------------------------------------------


class OwnAdam(optim.Optimizer):
    """In PyTorch's style: a step of its own, state and options as plain dicts."""

    def __init__(self, params: Any, lr: float = 1e-3, betas: Any = (0.9, 0.99), wd: float = 0.0):
        super().__init__(params, {"lr": lr, "betas": betas, "wd": wd, "on": True, "name": None})

    @tg.no_grad()
    def step(self, closure: Any = None) -> Any:
        loss = None
        if closure is not None:
            with tg.enable_grad():
                loss = closure()
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                grad = p.grad.data
                state = self.state[p]
                if len(state) == 0:
                    state["step"] = tg.zeros(())
                    state["exp_avg"] = tg.zeros_like(p.data)
                    state["exp_avg_sq"] = tg.zeros_like(p.data)
                if group["wd"] != 0:
                    p.mul_(1 - group["lr"] * group["wd"])
                state["step"] += 1
                state["exp_avg"].mul_(beta1).add_(grad, alpha=1 - beta1)
                state["exp_avg_sq"].mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
                scale = (1 - beta2 ** state["step"]).sqrt() / (1 - beta1 ** state["step"])
                denominator = state["exp_avg_sq"].sqrt().add_(1e-8)
                if group["on"] and group.get("name") is None:
                    p.add_(state["exp_avg"] / denominator * scale, alpha=-group["lr"])
        return loss


class OwnSign(optim.Optimizer):
    """With numbers that enter Python's math, and a count that is a Python number."""

    def __init__(self, params: Any, lr: float = 0.1) -> None:
        super().__init__(params, {"lr": lr})

    def step(self, closure: Any = None) -> Any:
        for group in self.param_groups:
            for p in group["params"]:
                count = self.state[p].setdefault("count", 0)
                self.state[p]["count"] = count + 1
                p.data.add_(p.grad.sign(), alpha=-math.sqrt(group["lr"]) / 10)


def test_own_steps_read_the_options_in_every_call() -> None:
    # Its count is float32: the powers of the betas are rounded to that in eager code.
    pair = Pair(lambda p: OwnAdam(p, lr=0.05), tg.float32)
    pair.calls(6)
    before = pair.replayed
    for options in ({"lr": 0.01}, {"betas": (0.5, 0.8)}, {"betas": [0.6, 0.7], "lr": 0.2}):
        pair.both(lambda o, new=options: o.param_groups[0].update(new))  # type: ignore[misc]
        pair.calls(1)
    assert pair.replayed == before + 3
    for options in ({"wd": 0.1}, {"on": False}, {"on": True, "name": "x"}, {"name": None}):
        pair.both(lambda o, new=options: o.param_groups[0].update(new))  # type: ignore[misc]
        pair.calls(4)


def test_own_steps_that_compute_with_python_numbers() -> None:
    pair = Pair(lambda p: OwnSign(p))
    with pytest.warns(UserWarning, match=r"'count'\] was \d+ and is \d+"):
        pair.calls(20)
    pair.both(lambda o: o.param_groups[0].update(lr=0.4))
    pair.calls(4)


def test_own_optimizers_are_saved_and_copied() -> None:
    training = Training(lambda p: OwnAdam(p, lr=0.05), False)
    training.call(0)
    twin = copy.deepcopy(training)
    assert type(twin.optimizer.state_dict()["param_groups"][0]) is dict
    twin.optimizer.load_state_dict(training.optimizer.state_dict())
    for t in (training, twin):
        t.call(1)
    for a, b in zip(training.arrays(), twin.arrays(), strict=True):
        np.testing.assert_array_equal(a, b)


# -- schedules -----------------------------------------------------------------------------------

SCHEDULES: dict[str, Callable[[Any], Any]] = {
    "LambdaLR": lambda o: lr_scheduler.LambdaLR(o, lambda e: 0.8**e),
    "MultiplicativeLR": lambda o: lr_scheduler.MultiplicativeLR(o, lambda e: 0.8),
    "StepLR": lambda o: lr_scheduler.StepLR(o, 2, 0.5),
    "MultiStepLR": lambda o: lr_scheduler.MultiStepLR(o, [1, 4], 0.5),
    "ConstantLR": lambda o: lr_scheduler.ConstantLR(o, 0.5, 4),
    "LinearLR": lambda o: lr_scheduler.LinearLR(o, 0.2),
    "ExponentialLR": lambda o: lr_scheduler.ExponentialLR(o, 0.8),
    "PolynomialLR": lambda o: lr_scheduler.PolynomialLR(o, 6, 2.0),
    "CosineAnnealingLR": lambda o: lr_scheduler.CosineAnnealingLR(o, 5),
    "CosineAnnealingWarmRestarts": lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, 3, 2),
    "CyclicLR": lambda o: lr_scheduler.CyclicLR(o, 0.01, 0.2, 3),
    "OneCycleLR": lambda o: lr_scheduler.OneCycleLR(o, 0.2, 20),
    "SequentialLR": lambda o: lr_scheduler.SequentialLR(
        o, [lr_scheduler.LinearLR(o), lr_scheduler.ExponentialLR(o, 0.7)], [4]
    ),
    "ChainedScheduler": lambda o: lr_scheduler.ChainedScheduler(
        [lr_scheduler.LinearLR(o), lr_scheduler.ExponentialLR(o, 0.7)]
    ),
    "SWALR": lambda o: swa_utils.SWALR(o, 0.01, 5),
}


@pytest.mark.parametrize("name", [*SCHEDULES, "ReduceLROnPlateau"])
def test_schedules_beside_a_compiled_step(name: str) -> None:
    pair = Pair(lambda p: optim.AdamW(p, lr=0.1))
    if name == "ReduceLROnPlateau":
        both = [
            lr_scheduler.ReduceLROnPlateau(t.optimizer, patience=0, factor=0.5)
            for t in (pair.compiled, pair.eager)
        ]
    else:
        both = [SCHEDULES[name](t.optimizer) for t in (pair.compiled, pair.eager)]
    rates = set()
    for number in range(9):
        pair.calls(1)
        for scheduler in both:
            if isinstance(scheduler, lr_scheduler.ReduceLROnPlateau):
                scheduler.step(float(number))
            else:
                scheduler.step()
        rates.add(pair.compiled.optimizer.param_groups[0]["lr"])
    assert len(rates) > 1
    assert pair.replayed >= 6


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_schedule_inside_a_compiled_function_is_refused(name: str) -> None:
    p = tg.zeros(2, requires_grad=True)
    optimizer = optim.SGD([p], lr=0.1, momentum=0.9)
    scheduler = SCHEDULES[name](optimizer)
    before = optimizer.param_groups[0]["lr"]

    @tg.compile
    def step(x: Tensor) -> Tensor:
        scheduler.step()
        return x * 2

    optimizer.step()
    with pytest.warns(UserWarning, match=r"step\(\) at .*test_replay_optim.py:.*outside"):
        step(tg.ones(2))
    other = optim.SGD([p], lr=0.1, momentum=0.9)
    expected = SCHEDULES[name](other)
    other.step()
    expected.step()
    assert scheduler.get_last_lr() == expected.get_last_lr()
    assert before > 0
    with pytest.raises(RuntimeError, match="outside"):
        tg.compile(step.function, fullgraph=True)(tg.ones(2))


# -- averages ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"use_buffers": True},
        {"avg_fn": swa_utils.get_ema_avg_fn(0.8)},
        {"multi_avg_fn": swa_utils.get_ema_multi_avg_fn(0.8)},
        {"multi_avg_fn": swa_utils.get_swa_multi_avg_fn(), "use_buffers": True},
    ],
    ids=["mean", "buffers", "ema", "ema of lists", "swa of lists"],
)
def test_averages_in_a_compiled_step(options: dict[str, Any]) -> None:
    """The first weights are taken as they are, in a replay too."""
    found = []
    for compiled in (True, False):
        tg.manual_seed(0)
        net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
        optimizer = optim.SGD(net.parameters(), lr=0.1)
        averaged = swa_utils.AveragedModel(net, **options)

        def step(x: Tensor, net: Any = net, o: Any = optimizer, a: Any = averaged) -> Tensor:
            o.zero_grad()
            loss = (net(x) ** 2).mean()
            loss.backward()
            o.step()
            a.update_parameters(net)
            return loss

        run: Any = tg.compile(step) if compiled else step
        for number in range(7):
            if number == 5:
                averaged.n_averaged.zero_()
            run(randn(6, 3, seed=number))
        if compiled:
            assert replayed(run) >= 4
        found.append([v.numpy() for v in averaged.state_dict().values()])
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
