"""What surrounds the updates, beside PyTorch's: signatures, state dicts, errors, hooks, options."""

import copy
import inspect
import warnings

import numpy as np
import pytest
import torch

import tapegrad as tg

pytestmark = pytest.mark.oracle

#: options that give each optimizer all the state it can have
FULL = {
    "SGD": {"lr": 0.1, "momentum": 0.9},
    "Adam": {"lr": 0.1, "amsgrad": True},
    "AdamW": {"lr": 0.1},
    "RMSprop": {"lr": 0.1, "momentum": 0.5, "centered": True},
    "Adagrad": {"lr": 0.1, "lr_decay": 0.1},
    "Adadelta": {"lr": 1.0},
    "Adamax": {"lr": 0.1},
    "NAdam": {"lr": 0.1},
    "RAdam": {"lr": 0.1},
    "ASGD": {"lr": 0.1, "t0": 2},
    "Rprop": {"lr": 0.1},
    "Adafactor": {"lr": 0.1},
}
each = pytest.mark.parametrize("name", FULL)


def parameters(lib, dtype="float32"):
    rng = np.random.default_rng(0)
    return [
        lib.tensor(rng.standard_normal(s), dtype=getattr(lib, dtype), requires_grad=True)
        for s in ((3, 4), (5,))
    ]


def train(lib, given, optimizer, steps, start=0):
    for i in range(start, start + steps):
        rng = np.random.default_rng(100 + i)
        for p in given:
            p.grad = lib.tensor(rng.standard_normal(tuple(p.shape)), dtype=p.dtype)
        optimizer.step()


def same(ours, theirs, rtol=2e-5, atol=2e-6):
    for p, q in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(
            p.detach().float().numpy(), q.detach().float().numpy(), rtol, atol
        )


def converted(state_dict):
    """PyTorch's state dict with tapegrad's tensors."""

    def convert(value):
        if isinstance(value, torch.Tensor):
            return tg.tensor(value.detach().numpy())
        if isinstance(value, dict):
            return {k: convert(v) for k, v in value.items()}
        return [convert(v) for v in value] if isinstance(value, list) else value

    return {
        "state": convert(state_dict["state"]),
        "param_groups": copy.deepcopy(state_dict["param_groups"]),
    }


# -- names ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*FULL, "LBFGS", "Muon", "SparseAdam"])
def test_arguments(name):
    ours = inspect.signature(getattr(tg.optim, name)).parameters
    theirs = inspect.signature(getattr(torch.optim, name)).parameters
    assert list(ours) == list(theirs)
    for key, argument in theirs.items():
        assert ours[key].kind == argument.kind, key
        assert ours[key].default == argument.default, key


def test_schedules_and_averages_have_the_same_arguments():
    for module in ("lr_scheduler", "swa_utils"):
        ours, theirs = getattr(tg.optim, module), getattr(torch.optim, module)
        for name in theirs.__all__:
            expected = inspect.signature(getattr(theirs, name)).parameters
            found = inspect.signature(getattr(ours, name)).parameters
            assert {k: v.default for k, v in found.items()} == {
                k: v.default for k, v in expected.items()
            }, name


def test_nothing_is_missing():
    # A way to run an optimizer on other parameters, for distributed checkpoints.
    left_out = {"swap_in_optimizer_params_and_state"}
    assert set(torch.optim.__all__) - left_out <= set(tg.optim.__all__)
    assert set(torch.optim.lr_scheduler.__all__) <= set(tg.optim.lr_scheduler.__all__)
    assert set(torch.optim.swa_utils.__all__) <= set(tg.optim.swa_utils.__all__)


def test_modules_have_pytorchs_paths():
    import importlib

    for path, name in (
        ("adam", "Adam"),
        ("adamw", "AdamW"),
        ("sgd", "SGD"),
        ("rmsprop", "RMSprop"),
        ("adagrad", "Adagrad"),
        ("adadelta", "Adadelta"),
        ("adamax", "Adamax"),
        ("nadam", "NAdam"),
        ("radam", "RAdam"),
        ("asgd", "ASGD"),
        ("rprop", "Rprop"),
        ("lbfgs", "LBFGS"),
        ("sparse_adam", "SparseAdam"),
        ("optimizer", "Optimizer"),
        ("lr_scheduler", "_LRScheduler"),
        ("swa_utils", "AveragedModel"),
        ("optimizer", "required"),
        ("optimizer", "register_optimizer_step_pre_hook"),
    ):
        assert hasattr(importlib.import_module(f"torch.optim.{path}"), name)
        assert hasattr(importlib.import_module(f"tapegrad.optim.{path}"), name)


# -- state ---------------------------------------------------------------------------------------


@each
def test_a_state_dict_of_pytorchs_goes_on_here(name):
    theirs = parameters(torch)
    optimizer = getattr(torch.optim, name)(theirs, **FULL[name])
    train(torch, theirs, optimizer, 4)
    ours = [tg.tensor(p.detach().numpy().copy(), requires_grad=True) for p in theirs]
    resumed = getattr(tg.optim, name)(ours)
    resumed.load_state_dict(converted(optimizer.state_dict()))
    train(torch, theirs, optimizer, 4, 4)
    train(tg, ours, resumed, 4, 4)
    same(ours, theirs)
    mine, others = resumed.state_dict(), optimizer.state_dict()
    assert mine["param_groups"] == others["param_groups"]
    for i, values in others["state"].items():
        assert set(values) == set(mine["state"][i])


@each
def test_a_state_dict_of_ours_goes_on_there(name):
    ours = parameters(tg)
    optimizer = getattr(tg.optim, name)(ours, **FULL[name])
    train(tg, ours, optimizer, 4)
    saved = optimizer.state_dict()
    state = {
        i: {k: torch.tensor(v.numpy()) for k, v in values.items()}
        for i, values in saved["state"].items()
    }
    theirs = [torch.tensor(p.detach().numpy().copy(), requires_grad=True) for p in ours]
    resumed = getattr(torch.optim, name)(theirs)
    resumed.load_state_dict({"state": state, "param_groups": saved["param_groups"]})
    train(tg, ours, optimizer, 4, 4)
    train(torch, theirs, resumed, 4, 4)
    same(ours, theirs)


def test_the_history_of_lbfgs_goes_on():
    found = []
    for resumes in (False, True):
        (p, _) = parameters(tg, "float64")

        def closure(p=p):
            p.grad = None
            loss = ((p**2 - 1) ** 2).sum()
            loss.backward()
            return loss

        optimizer = tg.optim.LBFGS([p], max_iter=3, line_search_fn="strong_wolfe")
        for i in range(4):
            if i == 2 and resumes:
                saved = copy.deepcopy(optimizer.state_dict())
                optimizer = tg.optim.LBFGS([p])
                optimizer.load_state_dict(saved)
            optimizer.step(closure)
        found.append(p.detach().numpy())
    np.testing.assert_array_equal(*found)


@each
def test_state_before_the_first_step(name):
    ours = getattr(tg.optim, name)(parameters(tg)).state_dict()
    theirs = getattr(torch.optim, name)(parameters(torch)).state_dict()
    assert ours["param_groups"] == theirs["param_groups"]
    assert {i: set(v) for i, v in ours["state"].items()} == {
        i: set(v) for i, v in theirs["state"].items()
    }


# -- options -------------------------------------------------------------------------------------


BAD = [
    *[(name, {"lr": -1.0}) for name in [*FULL, "LBFGS", "Muon"]],
    *[
        (name, {"weight_decay": -1.0})
        for name in FULL
        if "weight_decay" in inspect.signature(getattr(torch.optim, name)).parameters
    ],
    *[(name, {"eps": -1.0}) for name in FULL if name not in ("SGD", "ASGD", "Rprop", "Adafactor")],
    *[
        (name, {"betas": betas})
        for name in ("Adam", "AdamW", "Adamax", "NAdam", "RAdam")
        for betas in ((1.0, 0.9), (-0.1, 0.9), (0.9, 1.0), (0.9, -0.1))
    ],
    ("SGD", {"momentum": -0.1}),
    ("SGD", {"nesterov": True}),
    ("SGD", {"nesterov": True, "momentum": 0.9, "dampening": 0.1}),
    ("RMSprop", {"momentum": -0.1}),
    ("RMSprop", {"alpha": -0.1}),
    ("Adagrad", {"lr_decay": -0.1}),
    ("Adagrad", {"initial_accumulator_value": -0.1}),
    ("Adadelta", {"rho": 1.1}),
    ("Adadelta", {"rho": -0.1}),
    ("NAdam", {"momentum_decay": -0.1}),
    ("Rprop", {"etas": (1.5, 1.2)}),
    ("Rprop", {"etas": (0.5, 0.9)}),
    ("Rprop", {"etas": (0.0, 1.2)}),
    ("Adafactor", {"beta2_decay": 0.5}),
    ("Adafactor", {"eps": (-1.0, 1e-3)}),
    ("Adafactor", {"eps": (None, -1.0)}),
    ("Adafactor", {"d": 0.5}),
    ("Muon", {"momentum": -0.1}),
    ("Muon", {"adjust_lr_fn": "some"}),
    *[
        (name, {"fused": True, "differentiable": True})
        for name in ("SGD", "Adam", "AdamW", "Adagrad")
    ],
    *[(name, {"fused": True, "foreach": True}) for name in ("SGD", "Adam", "AdamW", "Adagrad")],
    *[
        (name, {"lr": "tensor", "foreach": True})  # others take it in PyTorch too
        for name in ("Adam", "AdamW")
    ],
    *[(name, {"lr": "tensors"}) for name in FULL],
]


@pytest.mark.parametrize(("name", "options"), BAD)
def test_bad_options_raise_the_same_type(name, options):
    kinds = []
    for lib in (tg, torch):
        given = dict(options)
        if given.get("lr") == "tensor":
            given["lr"] = lib.tensor(0.1)
        elif given.get("lr") == "tensors":
            given["lr"] = lib.tensor([0.1, 0.2])
        try:
            getattr(lib.optim, name)(parameters(lib)[:1], **given)
        except (ValueError, RuntimeError) as error:
            kinds.append(type(error))
        else:
            kinds.append(None)
    # Where PyTorch finds out in its first step, or never, tapegrad says so at once.
    assert kinds[0] is not None
    assert kinds[0] is kinds[1] or kinds[1] is None


@pytest.mark.parametrize("way", ["foreach", "capturable", "fused"])
@each
def test_ways_to_run_are_accepted(name, way):
    accepts = way in inspect.signature(getattr(torch.optim, name)).parameters
    ours, theirs = parameters(tg), parameters(torch)
    if not accepts:
        with pytest.raises(TypeError):
            getattr(tg.optim, name)(ours, **{way: True})
        return
    ours = parameters(tg)
    optimizer = getattr(tg.optim, name)(ours, lr=0.1, **{way: True})
    assert optimizer.defaults[way] is True
    plain = getattr(torch.optim, name)(theirs, lr=0.1)
    train(tg, ours, optimizer, 3)
    train(torch, theirs, plain, 3)
    same(ours, theirs)


@each
def test_a_learning_rate_that_is_a_tensor(name):
    found = []
    for lib in (tg, torch):
        given = parameters(lib)
        rate = lib.tensor(0.05)
        optimizer = getattr(lib.optim, name)(given, **{**FULL[name], "lr": rate})
        train(lib, given, optimizer, 3)
        rate.fill_(0.2)
        train(lib, given, optimizer, 3, 3)
        found.append(given)
    same(*found)


@each
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision(name, dtype):
    """One step from the same state: rounding would grow."""
    ours, theirs = parameters(tg, dtype), parameters(torch, dtype)
    options = dict(FULL[name])
    optimizer = getattr(tg.optim, name)(ours, **options)
    other = getattr(torch.optim, name)(theirs, **options)
    train(tg, ours, optimizer, 1)
    train(torch, theirs, other, 1)
    tolerance = 0.02 if dtype == "float16" else 0.1
    if name != "Adadelta" or dtype != "float16":  # its eps is below what float16 has
        same(ours, theirs, tolerance, tolerance)
    assert all(p.dtype is getattr(tg, dtype) for p in ours)
    for p in ours:
        for key, value in optimizer.state[p].items():
            expected = other.state[theirs[0]][key].dtype if p is ours[0] else None
            if expected is not None:
                assert str(value.dtype).split(".")[1] == str(expected).split(".")[1], key


@pytest.mark.parametrize(
    "name", ["Adagrad", "Adadelta", "Adamax", "NAdam", "RAdam", "ASGD", "Rprop"]
)
def test_differentiable_steps(name):
    """The derivative of a parameter after steps by its start and by the gradients."""
    # PyTorch's Adamax and Rprop change in place what backward needs, in the second step.
    factors = [1.0] if name in ("Adamax", "Rprop") else [1.0, 2.0]
    found = []
    for lib in (tg, torch):
        start = lib.tensor([1.0, -2.0, 0.5], dtype=lib.float64, requires_grad=True)
        scale = lib.tensor([0.3, 0.7, -1.1], dtype=lib.float64, requires_grad=True)
        parameter = start.clone()
        optimizer = getattr(lib.optim, name)([parameter], lr=0.1, differentiable=True)
        for k in factors:
            parameter.grad = scale * k + scale * scale
            optimizer.step()
        found.append([g.numpy() for g in lib.autograd.grad(parameter.sum(), [start, scale])])
    for ours, theirs in zip(*found, strict=True):
        # PyTorch's differentiable updates round their corrections to float32.
        np.testing.assert_allclose(ours, theirs, rtol=1e-4)


# -- groups and hooks ----------------------------------------------------------------------------


def test_a_parameter_twice_in_a_group_is_a_warning():
    for lib in (tg, torch):
        p = parameters(lib)[0]
        with pytest.warns(UserWarning, match="group"):
            lib.optim.SGD([p, p], lr=0.1)
        with pytest.raises(ValueError, match="group"):
            lib.optim.SGD([{"params": [p]}, {"params": [p]}], lr=0.1)


def test_options_without_a_default():
    import importlib

    for lib in (tg, torch):
        module = importlib.import_module(f"{lib.__name__}.optim.optimizer")
        kind = type("Own", (lib.optim.Optimizer,), {})
        with pytest.raises(ValueError, match="lr"):
            kind(parameters(lib), {"lr": module.required})
        kind([{"params": parameters(lib), "lr": 0.1}], {"lr": module.required})


def hooked(lib, module):
    """What hooks are given, in order, in either library."""
    seen = []
    given = parameters(lib)
    optimizer = lib.optim.SGD(given, lr=0.1, momentum=0.9)
    handles = [
        module.register_optimizer_step_pre_hook(
            lambda o, args, kwargs: seen.append(("all before", o is optimizer, len(args)))
        ),
        module.register_optimizer_step_post_hook(
            lambda o, args, kwargs: seen.append(("all after", o is optimizer, len(args)))
        ),
        optimizer.register_step_pre_hook(
            lambda o, args, kwargs: seen.append(("before", args[0] is optimizer, len(args)))
        ),
        optimizer.register_step_post_hook(
            lambda o, args, kwargs: seen.append(("after", args[0] is optimizer, sorted(kwargs)))
        ),
        optimizer.register_state_dict_pre_hook(lambda o: seen.append(("saving", o is optimizer))),
        optimizer.register_state_dict_post_hook(lambda o, s: {**s, "extra": len(s)}),
        optimizer.register_state_dict_post_hook(
            lambda o, s: seen.append(("saved first", sorted(s))), prepend=True
        ),
        optimizer.register_load_state_dict_pre_hook(
            lambda o, s: {k: v for k, v in s.items() if k != "extra"}
        ),
        optimizer.register_load_state_dict_pre_hook(
            lambda o, s: seen.append(("loading first", sorted(s))), prepend=True
        ),
        optimizer.register_load_state_dict_post_hook(
            lambda o: seen.append(("loaded", o is optimizer))
        ),
    ]
    train(lib, given, optimizer, 1)
    optimizer.step(closure=lambda: seen.append("closure"))
    saved = optimizer.state_dict()
    seen.append(sorted(saved))
    optimizer.load_state_dict(saved)
    for handle in handles:
        handle.remove()
    optimizer.step()
    seen.append(sorted(optimizer.state_dict()))
    optimizer.register_step_pre_hook(lambda o, args, kwargs: 3)
    with pytest.raises(RuntimeError, match="args"):
        optimizer.step()
    return seen


def test_hooks():
    import importlib

    theirs = hooked(torch, importlib.import_module("torch.optim.optimizer"))
    assert hooked(tg, tg.optim.optimizer) == theirs
    assert len(theirs) > 10


def test_hooks_around_own_steps():
    found = []
    for lib in (tg, torch):

        class Own(lib.optim.Optimizer):
            def __init__(self, params):
                super().__init__(params, {"lr": 0.1})

            @lib.no_grad()
            def step(self, closure=None):
                for group in self.param_groups:
                    for p in group["params"]:
                        p.add_(p.grad, alpha=-group["lr"])
                        self.state[p]["count"] = self.state[p].get("count", 0) + 1
                        self.state["all"] = {"total": 3}

        seen = []
        given = parameters(lib)
        optimizer = Own(given)
        optimizer.register_step_pre_hook(lambda *_, seen=seen: seen.append("before"))
        optimizer.register_step_post_hook(lambda *_, seen=seen: seen.append("after"))
        train(lib, given, optimizer, 3)
        saved = optimizer.state_dict()
        optimizer.load_state_dict(saved)
        seen.append(str(optimizer.state_dict()["state"]))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            scheduler = lib.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
            optimizer.step()
            scheduler.step()
        train(lib, given, optimizer, 1)
        found.append((seen, [p.detach().numpy() for p in given]))
    assert found[0][0] == found[1][0]
    for ours, theirs in zip(found[0][1], found[1][1], strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)
