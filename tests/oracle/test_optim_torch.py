"""Optimizers and schedules, step by step beside PyTorch's."""

import itertools

import numpy as np
import pytest
import torch

import tapegrad as tg

pytestmark = pytest.mark.oracle

SHAPES = [(3, 4), (5,), (), (2, 1, 3)]
STEPS = 8


def choices(**options):
    """Every combination of options, as keyword dicts."""
    names = list(options)
    return [
        dict(zip(names, values, strict=True)) for values in itertools.product(*options.values())
    ]


CASES = [
    *[
        ("SGD", {"lr": 0.05, **o})
        for o in choices(
            momentum=[0, 0.9], dampening=[0, 0.3], weight_decay=[0, 0.1], maximize=[False, True]
        )
    ],
    *[
        ("SGD", {"lr": 0.05, "momentum": 0.8, "nesterov": True, **o})
        for o in choices(weight_decay=[0, 0.1], maximize=[False, True])
    ],
    *[
        (name, {"lr": 0.03, **o})
        for name in ("Adam", "AdamW")
        for o in choices(
            betas=[(0.9, 0.999), (0.5, 0.8)],
            weight_decay=[0, 0.2],
            amsgrad=[False, True],
            maximize=[False, True],
        )
    ],
    ("Adam", {"lr": 0.03, "weight_decay": 0.2, "decoupled_weight_decay": True}),
    ("Adam", {"lr": 0.03, "eps": 0.1}),
    ("AdamW", {}),
    ("Adam", {}),
    ("SGD", {}),
    ("RMSprop", {}),
    *[
        ("RMSprop", {"lr": 0.02, **o})
        for o in choices(
            alpha=[0.99, 0.5],
            weight_decay=[0, 0.1],
            momentum=[0, 0.7],
            centered=[False, True],
            maximize=[False, True],
        )
    ],
    *[
        ("Adagrad", {"lr": 0.05, **o})
        for o in choices(
            lr_decay=[0, 0.3],
            weight_decay=[0, 0.1],
            initial_accumulator_value=[0, 0.5],
            maximize=[False, True],
        )
    ],
    ("Adagrad", {"eps": 0.1}),
    *[
        ("Adadelta", {"lr": 0.5, **o})
        for o in choices(rho=[0.9, 0.3], weight_decay=[0, 0.1], maximize=[False, True])
    ],
    ("Adadelta", {"eps": 1e-3}),
    *[
        ("Adamax", {"lr": 0.05, **o})
        for o in choices(
            betas=[(0.9, 0.999), (0.5, 0.8)], weight_decay=[0, 0.2], maximize=[False, True]
        )
    ],
    ("Adamax", {"eps": 0.1}),
    *[
        ("NAdam", {"lr": 0.03, **o})
        for o in choices(
            betas=[(0.9, 0.999), (0.5, 0.8)],
            weight_decay=[0, 0.2],
            momentum_decay=[4e-3, 0.2],
            decoupled_weight_decay=[False, True],
            maximize=[False, True],
        )
    ],
    *[
        ("RAdam", {"lr": 0.03, **o})
        for o in choices(
            # With 0.6 and below, squares are never divided by; with 0.999 from the sixth step on.
            betas=[(0.9, 0.999), (0.5, 0.8), (0.9, 0.6), (0.9, 0.5)],
            weight_decay=[0, 0.2],
            decoupled_weight_decay=[False, True],
            maximize=[False, True],
        )
    ],
    ("RAdam", {"eps": 0.1}),
    *[
        ("ASGD", {"lr": 0.05, **o})
        for o in choices(
            lambd=[1e-4, 0.3],
            alpha=[0.75, 0.2],
            t0=[1e6, 2, 0],
            weight_decay=[0, 0.1],
            maximize=[False, True],
        )
    ],
    *[
        ("Rprop", {"lr": 0.05, **o})
        for o in choices(
            etas=[(0.5, 1.2), (0.1, 3.0)],
            step_sizes=[(1e-6, 50), (0.04, 0.06)],
            maximize=[False, True],
        )
    ],
    *[
        ("Adafactor", {"lr": 0.3, **o})
        for o in choices(
            beta2_decay=[-0.8, -0.3],
            eps=[(None, 1e-3), (1e-2, 0.5)],
            d=[1.0, 3.0],
            weight_decay=[0, 0.1],
            maximize=[False, True],
        )
    ],
    *[(name, {}) for name in ("Adagrad", "Adadelta", "Adamax", "NAdam", "RAdam", "ASGD", "Rprop")],
    ("Adafactor", {}),
]
NAMES = sorted({name for name, _ in CASES})


class Pair:
    """The same parameters, here and in PyTorch, with the same random gradients."""

    def __init__(self, dtype="float32", shapes=SHAPES, seed=0):
        self.rng = np.random.default_rng(seed)
        arrays = [self.rng.standard_normal(s) for s in shapes]
        self.ours = [tg.tensor(a, dtype=getattr(tg, dtype), requires_grad=True) for a in arrays]
        self.theirs = [
            torch.tensor(a, dtype=getattr(torch, dtype), requires_grad=True) for a in arrays
        ]

    def gradients(self, skip=()):
        for i, (p, q) in enumerate(zip(self.ours, self.theirs, strict=True)):
            g = self.rng.standard_normal(p.shape)
            p.grad = None if i in skip else tg.tensor(g, dtype=p.dtype)
            q.grad = None if i in skip else torch.tensor(g, dtype=q.dtype)

    def check(self, rtol, atol):
        for p, q in zip(self.ours, self.theirs, strict=True):
            assert p.requires_grad
            assert p.is_leaf
            np.testing.assert_allclose(p.detach().numpy(), q.detach().numpy(), rtol, atol)


def same_state(ours, theirs, rtol=1e-5, atol=1e-6):
    """Two state dicts with the same keys and values."""
    assert set(ours) == set(theirs)
    assert set(ours["state"]) == set(theirs["state"])
    for number, values in theirs["state"].items():
        mine = ours["state"][number]
        assert set(mine) == set(values)
        for key, value in values.items():
            if isinstance(value, torch.Tensor):
                assert str(mine[key].dtype).rsplit(".", 1)[-1] == str(value.dtype).split(".")[1]
                assert tuple(mine[key].shape) == tuple(value.shape)
                np.testing.assert_allclose(
                    mine[key].numpy(), value.detach().numpy(), rtol, atol, err_msg=key
                )
            else:
                assert mine[key] == value
    assert ours["param_groups"] == theirs["param_groups"]


@pytest.mark.parametrize(
    ("name", "options"), CASES, ids=[f"{n}-{i}" for i, (n, _) in enumerate(CASES)]
)
def test_every_step_is_pytorchs(name, options):
    pair = Pair()
    ours = getattr(tg.optim, name)(pair.ours, **options)
    theirs = getattr(torch.optim, name)(pair.theirs, **options)
    for step in range(STEPS):
        pair.gradients(skip=(1,) if step == 2 else ())
        ours.step()
        theirs.step()
        pair.check(2e-5, 2e-6)
        same_state(ours.state_dict(), theirs.state_dict())


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("SGD", {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.1}),
        ("Adam", {"lr": 0.1}),
        ("AdamW", {"lr": 0.1, "amsgrad": True}),
        ("RMSprop", {"lr": 0.1, "centered": True, "momentum": 0.5}),
        ("Adagrad", {"lr": 0.1, "lr_decay": 0.1}),
        ("Adadelta", {"weight_decay": 0.1}),
        ("Adamax", {"lr": 0.1}),
        ("RAdam", {"lr": 0.1}),
        ("NAdam", {"lr": 0.1}),
        ("ASGD", {"lr": 0.1, "t0": 2, "lambd": 0.1}),
        ("Rprop", {"lr": 0.1}),
        ("Adafactor", {"lr": 0.1}),
    ],
)
def test_float64_agrees_to_the_last_digits(name, options):
    pair = Pair("float64")
    ours = getattr(tg.optim, name)(pair.ours, **options)
    theirs = getattr(torch.optim, name)(pair.theirs, **options)
    for _ in range(STEPS):
        pair.gradients()
        ours.step()
        theirs.step()
        pair.check(1e-12, 1e-13)


def losses_of(lib, problem):
    """A function of parameters in either library, with many valleys or with one."""
    if problem == "rosenbrock":
        return lambda x: (100 * (x[0][1:] - x[0][:-1] ** 2) ** 2 + (1 - x[0][:-1]) ** 2).sum()
    if problem == "two":
        return lambda x: ((x[0] * x[1].sum() - 1) ** 4).sum() + (x[1] ** 2).sum()
    return lambda x: (x[0] ** 2 * lib.tensor([1.0, 30.0, 0.1], dtype=lib.float64)).sum()


@pytest.mark.parametrize("problem", ["rosenbrock", "two", "bowl"])
@pytest.mark.parametrize(
    "options",
    [
        {"lr": 0.01},
        {"lr": 0.01, "max_iter": 3, "history_size": 2},
        {"line_search_fn": "strong_wolfe"},
        {"line_search_fn": "strong_wolfe", "max_iter": 4, "history_size": 2},
        {"line_search_fn": "strong_wolfe", "max_iter": 4, "lr": 20.0, "max_eval": 30},
        {"line_search_fn": "strong_wolfe", "max_iter": 4, "lr": 1e-3},
        {"line_search_fn": "strong_wolfe", "tolerance_grad": 1e-1, "tolerance_change": 1e-2},
        {"line_search_fn": "strong_wolfe", "max_eval": 3},
    ],
)
def test_lbfgs(problem, options):
    start = {"rosenbrock": [[-1.2, 1.0, 0.4]], "two": [[1.0, 2.0], [0.3]], "bowl": [[1.0, 2.0, 3]]}
    found = []
    for lib in (tg, torch):
        given = [lib.tensor(v, dtype=lib.float64, requires_grad=True) for v in start[problem]]
        loss_of = losses_of(lib, problem)
        optimizer = lib.optim.LBFGS(given, **options)
        seen = []

        def closure(optimizer=optimizer, loss_of=loss_of, given=given, seen=seen):
            optimizer.zero_grad()
            loss = loss_of(given)
            loss.backward()
            seen.append(loss.item())
            return loss

        rows = []
        for _ in range(4):
            loss = optimizer.step(closure).item()
            state = optimizer.state_dict()["state"][0]
            rows.append(
                [
                    loss,
                    state["func_evals"],
                    state["n_iter"],
                    float(state["t"]),
                    *[v for p in given for v in p.tolist()],
                ]
            )
        found.append((rows, seen, set(state), len(state["old_dirs"])))
    (ours, seen, keys, kept), (theirs, others, their_keys, their_kept) = found
    assert len(seen) == len(others)
    assert (keys, kept) == (their_keys, their_kept)
    # Rounding grows from step to step, the more the less the function is a bowl.
    np.testing.assert_allclose(seen[:20], others[:20], rtol=1e-8, atol=1e-12)
    np.testing.assert_allclose(seen, others, rtol=1e-4, atol=1e-7)
    np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-7)


def orthogonal_in_float64(x, steps=5, coefficients=(3.4445, -4.775, 2.0315)):
    """Newton's and Schulz's steps as the documentation of Muon has them."""
    a, b, c = coefficients
    x = x.T if x.shape[0] > x.shape[1] else x
    x = x / np.linalg.norm(x)
    for _ in range(steps):
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x


@pytest.mark.parametrize(
    "options",
    [
        {},
        *choices(nesterov=[False, True], weight_decay=[0, 0.3], momentum=[0.95, 0.5]),
        *choices(adjust_lr_fn=["original", "match_rms_adamw"], ns_steps=[1, 5]),
        {"ns_coefficients": (2.0, -1.5, 0.5)},
    ],
)
def test_muon(options):
    """PyTorch makes the momentum orthogonal in bfloat16, which has three digits."""
    pair = Pair(shapes=[(6, 4), (4, 9), (5, 5)])
    ours = tg.optim.Muon(pair.ours, lr=0.02, **options)
    theirs = torch.optim.Muon(pair.theirs, lr=0.02, **options)
    for _ in range(STEPS):
        pair.gradients()
        before = [p.detach().numpy().copy() for p in pair.ours]
        ours.step()
        theirs.step()
        pair.check(0, 0.02 * 0.1)
        same_state(ours.state_dict(), theirs.state_dict(), 1e-5, 1e-6)
        for p, q, start in zip(pair.ours, pair.theirs, before, strict=True):
            with torch.no_grad():  # one step at a time: the noise would grow
                q.copy_(torch.tensor(p.detach().numpy()))
            if options == {"nesterov": False, "weight_decay": 0, "momentum": 0.5}:
                rows, columns = p.shape
                change = (start - p.detach().numpy()) / (0.02 * max(1, rows / columns) ** 0.5)
                expected = orthogonal_in_float64(ours.state[p]["momentum_buffer"].double().numpy())
                expected = expected.T if rows > columns else expected
                np.testing.assert_allclose(change, expected, atol=2e-4)


@pytest.mark.parametrize("name", ["SGD", "Adam", "RMSprop"])
def test_float16_parameters(name):
    pair = Pair("float16", shapes=[(4, 5)])
    ours = getattr(tg.optim, name)(pair.ours, lr=0.01)
    theirs = getattr(torch.optim, name)(pair.theirs, lr=0.01, foreach=False)
    for _ in range(3):
        pair.gradients()
        ours.step()
        theirs.step()
    pair.check(1e-2, 1e-2)
    assert pair.ours[0].dtype is tg.float16


def test_groups_with_their_own_options():
    pair = Pair()
    ours = tg.optim.SGD(
        [{"params": pair.ours[:2]}, {"params": pair.ours[2:3], "lr": 0.3, "momentum": 0.5}], lr=0.1
    )
    theirs = torch.optim.SGD(
        [{"params": pair.theirs[:2]}, {"params": pair.theirs[2:3], "lr": 0.3, "momentum": 0.5}],
        lr=0.1,
    )
    ours.add_param_group({"params": pair.ours[3], "weight_decay": 0.5})
    theirs.add_param_group({"params": pair.theirs[3], "weight_decay": 0.5})
    for _ in range(3):
        pair.gradients()
        ours.step()
        theirs.step()
        pair.check(1e-5, 1e-6)
        same_state(ours.state_dict(), theirs.state_dict())


def test_named_parameters_keep_their_names():
    pair = Pair()
    ours = tg.optim.SGD([(f"p{i}", p) for i, p in enumerate(pair.ours)], lr=0.1)
    theirs = torch.optim.SGD([(f"p{i}", p) for i, p in enumerate(pair.theirs)], lr=0.1)
    assert ours.state_dict() == theirs.state_dict()


@pytest.mark.parametrize("name", NAMES)
def test_repr(name):
    pair = Pair()
    ours = getattr(tg.optim, name)(pair.ours, lr=0.1)
    theirs = getattr(torch.optim, name)(pair.theirs, lr=0.1)
    assert repr(ours) == repr(theirs)


def test_a_training_run_in_both_libraries():
    rng = np.random.default_rng(1)
    x, y = rng.standard_normal((20, 3)), rng.standard_normal((20, 1))
    w = rng.standard_normal((3, 1))
    finals = []
    for lib in (tg, torch):
        a, b = lib.tensor(x), lib.tensor(y)
        weight = lib.tensor(w, requires_grad=True)
        optimizer = lib.optim.AdamW([weight], lr=0.05)
        scheduler = lib.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=30)
        for _ in range(30):
            optimizer.zero_grad()
            ((a @ weight - b) ** 2).mean().backward()
            optimizer.step()
            scheduler.step()
        finals.append(weight.detach().numpy())
    np.testing.assert_allclose(finals[0], finals[1], rtol=1e-10)


@pytest.mark.parametrize("name", ["SGD", "Adam", "RMSprop"])
def test_differentiable_steps(name):
    """The derivative of a parameter after two steps by its start and by the first gradient."""
    options = {"lr": 0.1, "differentiable": True}
    if name != "Adam":
        options["momentum"] = 0.5
    found = []
    for lib in (tg, torch):
        start = lib.tensor([1.0, -2.0, 0.5], dtype=lib.float64, requires_grad=True)
        scale = lib.tensor([0.3, 0.7, -1.1], dtype=lib.float64, requires_grad=True)
        parameter = start.clone()
        optimizer = getattr(lib.optim, name)([parameter], **options)
        for k in (1.0, 2.0):
            parameter.grad = scale * k + scale * scale
            optimizer.step()
        found.append([g.numpy() for g in lib.autograd.grad(parameter.sum(), [start, scale])])
    # PyTorch's differentiable Adam rounds its bias corrections to float32.
    tolerance = 3e-5 if name == "Adam" else 1e-9
    for ours, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=tolerance)
