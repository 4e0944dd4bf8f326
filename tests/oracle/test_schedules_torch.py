"""Learning-rate schedules beside PyTorch's: rates and momenta, saving, resuming, warnings."""

import warnings

import numpy as np
import pytest
import torch

import tapegrad as tg

pytestmark = pytest.mark.oracle

STEPS = 60


class Slowing:
    """A callable object: its attributes are saved."""

    def __init__(self, factor):
        self.factor = factor

    def __call__(self, epoch):
        return self.factor**epoch


#: names with options; `build` makes schedules of either library from them
SIMPLE = [
    ("StepLR", {"step_size": 3, "gamma": 0.5}),
    ("StepLR", {"step_size": 1}),
    ("MultiStepLR", {"milestones": [2, 5, 5, 9], "gamma": 0.3}),
    ("ConstantLR", {}),
    ("ConstantLR", {"factor": 0.25, "total_iters": 12}),
    ("ConstantLR", {"factor": 0.5, "total_iters": 0}),
    ("LinearLR", {}),
    ("LinearLR", {"start_factor": 0.1, "end_factor": 0.0, "total_iters": 8}),
    ("LinearLR", {"start_factor": 1.0, "end_factor": 0.2, "total_iters": 30}),
    ("ExponentialLR", {"gamma": 0.9}),
    ("PolynomialLR", {}),
    ("PolynomialLR", {"total_iters": 25, "power": 2.5}),
    ("CosineAnnealingLR", {"T_max": 5}),
    ("CosineAnnealingLR", {"T_max": 7, "eta_min": 0.01}),
    ("CosineAnnealingLR", {"T_max": 100, "eta_min": 0.01}),
    ("CosineAnnealingWarmRestarts", {"T_0": 7}),
    ("CosineAnnealingWarmRestarts", {"T_0": 4, "T_mult": 2, "eta_min": 0.02}),
    ("CosineAnnealingWarmRestarts", {"T_0": 1, "T_mult": 3}),
    ("LambdaLR", {"lr_lambda": lambda epoch: 0.95**epoch}),
    ("LambdaLR", {"lr_lambda": [lambda epoch: 0.95**epoch, lambda epoch: 1 / (epoch + 1)]}),
    ("LambdaLR", {"lr_lambda": Slowing(0.9)}),
    ("MultiplicativeLR", {"lr_lambda": lambda epoch: 0.95}),
    ("MultiplicativeLR", {"lr_lambda": [lambda epoch: 0.95, lambda epoch: 1 - 0.1 / (epoch + 1)]}),
    ("CyclicLR", {"base_lr": 0.01, "max_lr": 0.2, "step_size_up": 5}),
    (
        "CyclicLR",
        {
            "base_lr": [0.01, 0.02],
            "max_lr": [0.1, 0.3],
            "step_size_up": 4,
            "step_size_down": 9,
            "mode": "triangular2",
        },
    ),
    (
        "CyclicLR",
        {
            "base_lr": 0.01,
            "max_lr": 0.2,
            "step_size_up": 5,
            "mode": "exp_range",
            "gamma": 0.97,
            "base_momentum": [0.5, 0.6],
            "max_momentum": 0.99,
        },
    ),
    (
        "CyclicLR",
        {
            "base_lr": 0.01,
            "max_lr": 0.2,
            "step_size_up": 5,
            "scale_fn": Slowing(0.99),
            "scale_mode": "iterations",
            "cycle_momentum": False,
        },
    ),
    (
        "CyclicLR",
        {"base_lr": 0.01, "max_lr": 0.2, "step_size_up": 5, "scale_fn": lambda x: 1 / (1 + x)},
    ),
    ("OneCycleLR", {"max_lr": 0.4, "total_steps": 70}),
    ("OneCycleLR", {"max_lr": [0.4, 0.2], "epochs": 7, "steps_per_epoch": 10, "pct_start": 0.5}),
    ("OneCycleLR", {"max_lr": 0.4, "total_steps": 61, "anneal_strategy": "linear"}),
    (
        "OneCycleLR",
        {
            "max_lr": 0.4,
            "total_steps": 60,
            "three_phase": True,
            "div_factor": 10.0,
            "final_div_factor": 100.0,
            "base_momentum": 0.6,
            "max_momentum": [0.9, 0.8],
        },
    ),
    ("OneCycleLR", {"max_lr": 0.4, "total_steps": 60, "cycle_momentum": False}),
]


def sequence(module, optimizer):
    parts = [
        module.ConstantLR(optimizer, factor=0.1, total_iters=10),
        module.ExponentialLR(optimizer, gamma=0.9),
        module.CosineAnnealingLR(optimizer, T_max=9),
    ]
    return module.SequentialLR(optimizer, parts, milestones=[10, 33])


def warmup_and_restarts(module, optimizer):
    parts = [
        module.LinearLR(optimizer, total_iters=6),
        module.CosineAnnealingWarmRestarts(optimizer, T_0=8, T_mult=2),
    ]
    return module.SequentialLR(optimizer, parts, milestones=[6])


def polynomial_after_steps(module, optimizer):
    parts = [module.StepLR(optimizer, 3), module.PolynomialLR(optimizer, total_iters=20)]
    return module.SequentialLR(optimizer, parts, milestones=[12])


def chain(module, optimizer):
    parts = [
        module.ConstantLR(optimizer, factor=0.1, total_iters=4),
        module.ExponentialLR(optimizer, gamma=0.95),
        module.StepLR(optimizer, 10),
    ]
    return module.ChainedScheduler(parts, optimizer)


def chain_in_a_sequence(module, optimizer):
    first = module.ChainedScheduler(
        [module.LinearLR(optimizer, total_iters=9), module.ExponentialLR(optimizer, gamma=0.97)]
    )
    second = module.MultiStepLR(optimizer, [5, 11], gamma=0.5)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the parts of the chain take their first step twice
        return module.SequentialLR(optimizer, [first, second], milestones=[20])


def made(name, options):
    return lambda module, optimizer: getattr(module, name)(optimizer, **options)


BUILDS = [
    *[pytest.param(made(name, o), id=f"{name}-{i}") for i, (name, o) in enumerate(SIMPLE)],
    *[
        pytest.param(build, id=build.__name__)
        for build in (
            sequence,
            warmup_and_restarts,
            polynomial_after_steps,
            chain,
            chain_in_a_sequence,
        )
    ],
]
each = pytest.mark.parametrize("build", BUILDS)


def optimizers(lib, name="SGD"):
    parameters = [lib.zeros(2, requires_grad=True), lib.zeros(3, requires_grad=True)]
    options = {"momentum": 0.9} if name == "SGD" else {}
    return getattr(lib.optim, name)(
        [{"params": parameters[:1]}, {"params": parameters[1:], "lr": 0.5}], lr=0.1, **options
    )


def row(optimizer):
    """What a schedule may change."""
    return [
        [group["lr"], group["betas"][0] if "betas" in group else group["momentum"]]
        for group in optimizer.param_groups
    ]


def rows(lib, build, steps=STEPS, name="SGD"):
    optimizer = optimizers(lib, name)
    scheduler = build(lib.optim.lr_scheduler, optimizer)
    found = [row(optimizer)]
    for _ in range(steps):
        optimizer.step()
        scheduler.step()
        found.append(row(optimizer))
        assert scheduler.get_last_lr() == [rate for rate, _ in found[-1]]
    return np.array(found)


def same(ours, theirs):
    np.testing.assert_allclose(ours, theirs, rtol=1e-10, atol=1e-14)


@each
def test_sixty_steps(build):
    same(rows(tg, build), rows(torch, build))


@pytest.mark.parametrize("build", BUILDS[-14:])
def test_with_betas(build):
    same(rows(tg, build, name="AdamW"), rows(torch, build, name="AdamW"))


@each
@pytest.mark.parametrize("before", [1, 13])
def test_state_dicts_go_on(build, before):
    """A schedule that was loaded, as PyTorch advises: made first, then both states are loaded."""
    found = []
    for lib in (tg, torch):
        first = optimizers(lib)
        scheduler = build(lib.optim.lr_scheduler, first)
        for _ in range(before):
            first.step()
            scheduler.step()
        second = optimizers(lib)
        resumed = build(lib.optim.lr_scheduler, second)
        saved = scheduler.state_dict()
        keys = set(saved)
        resumed.load_state_dict(saved)
        assert lib is torch or set(saved) == keys
        second.load_state_dict(first.state_dict())
        after = [row(second)]
        for _ in range(STEPS - before):
            second.step()
            resumed.step()
            after.append(row(second))
        found.append(after)
    same(*found)
    same(found[0], rows(tg, build)[before:])


@pytest.mark.parametrize(("name", "options"), SIMPLE)
def test_state_dicts_have_the_same_keys(name, options):
    keys = []
    for lib in (tg, torch):
        optimizer = optimizers(lib)
        scheduler = getattr(lib.optim.lr_scheduler, name)(optimizer, **options)
        optimizer.step()
        scheduler.step()
        keys.append(set(scheduler.state_dict()))
    assert keys[0] == keys[1]


@pytest.mark.parametrize(("name", "options"), SIMPLE)
def test_a_state_dict_of_pytorchs_goes_on_here(name, options):
    theirs = optimizers(torch)
    scheduler = getattr(torch.optim.lr_scheduler, name)(theirs, **options)
    for _ in range(11):
        theirs.step()
        scheduler.step()
    ours = optimizers(tg)
    resumed = getattr(tg.optim.lr_scheduler, name)(ours, **options)
    resumed.load_state_dict(scheduler.state_dict())
    ours.load_state_dict({"state": {}, "param_groups": theirs.state_dict()["param_groups"]})
    for _ in range(20):
        ours.step()
        theirs.step()
        resumed.step()
        scheduler.step()
        same(row(ours), row(theirs))


@pytest.mark.parametrize(("name", "options"), SIMPLE)
@pytest.mark.parametrize("last_epoch", [0, 7])
def test_resuming_by_the_last_epoch(name, options, last_epoch):
    found = []
    for lib in (tg, torch):
        first = optimizers(lib)
        scheduler = getattr(lib.optim.lr_scheduler, name)(first, **options)
        for _ in range(last_epoch):
            first.step()
            scheduler.step()
        second = optimizers(lib)
        second.load_state_dict(first.state_dict())
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            resumed = getattr(lib.optim.lr_scheduler, name)(
                second, **options, last_epoch=last_epoch
            )
            after = [row(second)]
            for _ in range(30):
                second.step()
                resumed.step()
                after.append(row(second))
        found.append(after)
    same(*found)


@pytest.mark.parametrize(("name", "options"), SIMPLE)
def test_epochs_that_are_given(name, options):
    found = []
    for lib in (tg, torch):
        optimizer = optimizers(lib)
        scheduler = getattr(lib.optim.lr_scheduler, name)(optimizer, **options)
        optimizer.step()
        after = []
        warm = name == "CosineAnnealingWarmRestarts"
        for epoch in [0.5, 3.25, 1.75, 20.5] if warm else [1, 2, 8, 8, 3, 40, 0]:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                scheduler.step(epoch)
            after.append(row(optimizer))
            scheduler.step()
            after.append(row(optimizer))
        found.append(after)
    same(*found)


def test_two_schedules_multiply():
    found = []
    for lib in (tg, torch):
        optimizer = optimizers(lib)
        module = lib.optim.lr_scheduler
        both = [module.ExponentialLR(optimizer, 0.9), module.StepLR(optimizer, 4)]
        after = []
        for _ in range(20):
            optimizer.step()
            for scheduler in both:
                scheduler.step()
            after.append(row(optimizer))
        found.append(after)
    same(*found)


@pytest.mark.parametrize(("name", "options"), SIMPLE)
def test_rates_that_are_tensors(name, options):
    found = []
    for lib in (tg, torch):
        parameter = lib.zeros(2, requires_grad=True)
        rate = lib.tensor(0.1, dtype=lib.float64)
        optimizer = lib.optim.SGD(
            [{"params": [parameter]}, {"params": [lib.zeros(1)], "lr": lib.tensor(0.5)}],
            lr=rate,
            momentum=0.9,
        )
        scheduler = getattr(lib.optim.lr_scheduler, name)(optimizer, **options)
        after = []
        for _ in range(15):
            optimizer.step()
            scheduler.step()
            assert optimizer.param_groups[0]["lr"] is rate
            after.append([rate.item(), optimizer.param_groups[1]["lr"].item()])
            assert [r.item() for r in scheduler.get_last_lr()] == after[-1]
        found.append(after)
    np.testing.assert_allclose(*found, rtol=2e-5, atol=1e-12)


@pytest.mark.parametrize(
    "options",
    [
        {"patience": 1},
        {"patience": 0, "factor": 0.5, "cooldown": 2},
        {"mode": "max", "patience": 1, "threshold": 0.1},
        {"patience": 1, "threshold": 0.05, "threshold_mode": "abs"},
        {"mode": "max", "patience": 1, "threshold": 0.05, "threshold_mode": "abs"},
        {"patience": 0, "min_lr": [0.01, 0.2]},
        {"patience": 0, "eps": 0.01},
    ],
)
def test_reduce_on_plateau(options):
    metrics = np.abs(np.random.default_rng(3).standard_normal(40)).cumsum()[::-1] / 10
    metrics[10:20] = 1.5
    metrics[25] = np.nan
    found = []
    for lib in (tg, torch):
        optimizer = optimizers(lib)
        scheduler = lib.optim.lr_scheduler.ReduceLROnPlateau(optimizer, **options)
        after = []
        for i, metric in enumerate(metrics):
            if i == 15:
                saved, scheduler = (
                    scheduler.state_dict(),
                    lib.optim.lr_scheduler.ReduceLROnPlateau(optimizer),
                )
                scheduler.load_state_dict(saved)
            if i == 30 and "min_lr" not in options:
                optimizer.add_param_group({"params": [lib.zeros(1)], "lr": 0.5})
            scheduler.step(lib.tensor(float(metric)))
            after += [group["lr"] for group in optimizer.param_groups]
            assert scheduler.get_last_lr() == [g["lr"] for g in optimizer.param_groups]
        found.append((after, set(saved)))
    same(found[0][0], found[1][0])
    assert found[0][1] == found[1][1]


def test_warnings_come_when_pytorchs_do():
    def steps_first(module, optimizer):
        scheduler = module.StepLR(optimizer, 2)
        scheduler.step()
        optimizer.step()
        scheduler.step()

    def in_order(module, optimizer):
        scheduler = module.StepLR(optimizer, 2)
        optimizer.step()
        scheduler.step()

    def asks_for_the_next(module, optimizer):
        module.ExponentialLR(optimizer, 0.5).get_lr()

    def gives_an_epoch(module, optimizer):
        scheduler = module.StepLR(optimizer, 2)
        optimizer.step()
        scheduler.step(3)

    def plateau_with_an_epoch(module, optimizer):
        module.ReduceLROnPlateau(optimizer).step(1.0, 3)

    def sequence_first(module, optimizer):
        scheduler = sequence(module, optimizer)
        for _ in range(40):
            scheduler.step()

    for act in (
        steps_first,
        in_order,
        asks_for_the_next,
        gives_an_epoch,
        plateau_with_an_epoch,
        sequence_first,
    ):
        found = []
        for lib in (tg, torch):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                act(lib.optim.lr_scheduler, optimizers(lib))
            found.append([w.category for w in caught])
        assert found[0] == found[1], act.__name__
        assert bool(found[0]) == (act is not in_order)


@pytest.mark.parametrize(
    ("name", "arguments", "options"),
    [
        ("LinearLR", (), {"start_factor": 0.0}),
        ("LinearLR", (), {"end_factor": 1.5}),
        ("ConstantLR", (), {"factor": -0.1}),
        ("LambdaLR", ([abs],), {}),
        ("MultiplicativeLR", ([abs],), {}),
        ("MultiplicativeLR", (3,), {}),
        ("CosineAnnealingWarmRestarts", (0,), {}),
        ("CosineAnnealingWarmRestarts", (2.5,), {}),
        ("CosineAnnealingWarmRestarts", (2,), {"T_mult": 0}),
        ("CosineAnnealingWarmRestarts", (2,), {"eta_min": "low"}),
        ("CyclicLR", ([0.1], 0.2), {}),
        ("CyclicLR", (0.1, 0.2), {"mode": "round"}),
        ("OneCycleLR", (0.1,), {}),
        ("OneCycleLR", (0.1,), {"total_steps": -1}),
        ("OneCycleLR", (0.1,), {"epochs": 2}),
        ("OneCycleLR", (0.1,), {"epochs": 2, "steps_per_epoch": 1.5}),
        ("OneCycleLR", (0.1, 10), {"pct_start": 2.0}),
        ("OneCycleLR", (0.1, 10), {"anneal_strategy": "tan"}),
        ("OneCycleLR", ([0.1], 10), {}),
        ("ReduceLROnPlateau", (), {"factor": 1.0}),
        ("ReduceLROnPlateau", (), {"mode": "least"}),
        ("ReduceLROnPlateau", (), {"threshold_mode": "some"}),
        ("ReduceLROnPlateau", (), {"min_lr": [0.1]}),
        ("SequentialLR", ([], []), {}),
        ("StepLR", (3,), {"last_epoch": 2}),
    ],
)
def test_errors_have_the_same_type(name, arguments, options):
    kinds = []
    for lib in (tg, torch):
        optimizer = optimizers(lib)
        before = row(optimizer)
        with pytest.raises((ValueError, TypeError, KeyError)) as caught:
            getattr(lib.optim.lr_scheduler, name)(optimizer, *arguments, **options)
        kinds.append(caught.type)
        if lib is tg:
            assert row(optimizer) == before
    assert kinds[0] is kinds[1]


def test_momentum_needs_an_optimizer_that_has_it():
    for lib in (tg, torch):
        optimizer = lib.optim.Adagrad([lib.zeros(1, requires_grad=True)])
        with pytest.raises(ValueError, match="cycle_momentum"):
            lib.optim.lr_scheduler.CyclicLR(optimizer, 0.1, 0.2)
        with pytest.raises(ValueError, match="cycle_momentum"):
            lib.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, 10)


def test_too_many_steps():
    for lib in (tg, torch):
        optimizer = optimizers(lib)
        scheduler = lib.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=3)
        for _ in range(3):
            optimizer.step()
            scheduler.step()
        with pytest.raises(ValueError, match="3"):
            scheduler.step()
