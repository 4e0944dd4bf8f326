"""Optimizers and schedules: updates against their formulas, groups, state, and bad input."""

import copy
import inspect
import pickle

import numpy as np
import pytest

import tapegrad as tg
from tapegrad import optim
from tapegrad.optim import lr_scheduler

ALL = ["SGD", "Adam", "AdamW", "RMSprop"]


def parameter(*values, dtype=None):
    return tg.tensor(list(values), requires_grad=True, dtype=dtype)


def set_gradient(p, *values):
    p.grad = tg.tensor(list(values), dtype=p.dtype)


def train(optimizer, p, steps):
    """Minimise sum((p - 3)²); returns the losses."""
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = ((p - 3) ** 2).sum()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


# -- formulas ----------------------------------------------------------------------------------


def test_sgd_by_hand():
    p = parameter(1.0, 2.0)
    optimizer = optim.SGD([p], lr=0.1)
    set_gradient(p, 1.0, -2.0)
    optimizer.step()
    np.testing.assert_allclose(p.detach().numpy(), [0.9, 2.2], rtol=1e-6)
    assert optimizer.state_dict()["state"] == {}


def test_momentum_by_hand():
    p = parameter(0.0)
    optimizer = optim.SGD([p], lr=1.0, momentum=0.5)
    for expected in (-1.0, -2.5, -4.25):
        set_gradient(p, 1.0)
        optimizer.step()
        assert p.item() == expected


def test_adam_moves_by_lr_in_its_first_step():
    p = parameter(1.0, 2.0, dtype=tg.float64)
    optimizer = optim.Adam([p], lr=0.25)
    set_gradient(p, 1e-3, -7.0)
    optimizer.step()
    np.testing.assert_allclose(p.detach().numpy(), [0.75, 2.25], rtol=1e-4)
    assert optimizer.state[p]["step"].item() == 1
    assert optimizer.state[p]["step"].dtype is tg.float32
    assert optimizer.state[p]["step"].shape == ()


def test_adamw_decays_the_parameter_and_adam_the_gradient():
    p, q = parameter(2.0), parameter(2.0)
    set_gradient(p, 0.0)
    set_gradient(q, 0.0)
    optim.AdamW([p], lr=0.1, weight_decay=0.5).step()
    optim.Adam([q], lr=0.1, weight_decay=0.5).step()
    assert p.item() == pytest.approx(2.0 * (1 - 0.05))
    assert q.item() == pytest.approx(1.9)


def test_rmsprop_by_hand():
    p = parameter(0.0)
    set_gradient(p, 3.0)
    optim.RMSprop([p], lr=0.1, alpha=0.75).step()
    assert p.item() == pytest.approx(-0.1 * 3 / 1.5)


@pytest.mark.parametrize("name", ALL)
def test_all_find_the_minimum(name):
    p = parameter(-1.0, 5.0)
    losses = train(getattr(optim, name)([p], lr=0.1), p, 200)
    assert losses[-1] < 0.2
    assert losses[-1] < losses[0] / 50


@pytest.mark.parametrize("name", ALL)
def test_parameters_stay_leaves_with_their_memory(name):
    p = parameter(1.0, 2.0)
    memory = p.detach().numpy()
    gradient = tg.tensor([1.0, 1.0])
    p.grad = gradient
    getattr(optim, name)([p], lr=0.1).step()
    assert p.requires_grad
    assert p.is_leaf
    np.testing.assert_array_equal(memory, p.detach().numpy())
    np.testing.assert_array_equal(gradient.numpy(), [1.0, 1.0])


@pytest.mark.parametrize("name", ALL)
def test_state_is_updated_in_place(name):
    p = parameter(1.0, 2.0)
    options = {"momentum": 0.9} if name in ("SGD", "RMSprop") else {"amsgrad": True}
    optimizer = getattr(optim, name)([p], lr=0.1, **options)
    set_gradient(p, 1.0, 2.0)
    optimizer.step()
    before = dict(optimizer.state[p])
    set_gradient(p, 1.0, 2.0)
    optimizer.step()
    assert all(optimizer.state[p][key] is value for key, value in before.items())


def test_parameters_without_gradient_are_left_alone():
    p, q = parameter(1.0), parameter(1.0)
    optimizer = optim.Adam([p, q], lr=0.1, weight_decay=1.0)
    set_gradient(p, 1.0)
    optimizer.step()
    assert q.item() == 1.0
    assert q not in optimizer.state


def test_a_closure_is_run_with_gradients_and_its_loss_returned():
    p = parameter(1.0)
    optimizer = optim.SGD([p], lr=0.1)

    def closure():
        optimizer.zero_grad()
        loss = (p * p).sum()
        loss.backward()
        return loss

    with tg.no_grad():
        loss = optimizer.step(closure)
    assert loss.item() == 1.0
    assert p.item() == pytest.approx(0.8)


def test_step_leaves_the_gradient_mode_as_it_was():
    p = parameter(1.0)
    set_gradient(p, 1.0)
    optim.SGD([p], lr=0.1).step()
    assert tg.is_grad_enabled()
    with tg.no_grad():
        optim.SGD([p], lr=0.1).step()
        assert not tg.is_grad_enabled()


def test_zero_grad():
    p = parameter(1.0)
    optimizer = optim.SGD([p], lr=0.1)
    set_gradient(p, 4.0)
    optimizer.zero_grad(set_to_none=False)
    assert p.grad.item() == 0.0
    optimizer.zero_grad()
    assert p.grad is None


def test_a_step_under_a_tape_is_recorded_and_gives_the_same_result():
    results = []
    for taped in (False, True):
        p = parameter(1.0, 2.0)
        optimizer = optim.Adam([p], lr=0.1)
        tape = tg.Tape()
        for _ in range(3):
            set_gradient(p, 1.0, -2.0)
            if taped:
                with tape:
                    optimizer.step()
            else:
                optimizer.step()
        assert bool(len(tape)) == taped
        assert p.requires_grad
        assert p.is_leaf
        results.append(p.detach().numpy())
    np.testing.assert_allclose(results[0], results[1], rtol=1e-6)


def test_numbers_come_from_the_groups_at_every_step():
    p = parameter(0.0)
    optimizer = optim.SGD([p], lr=1.0)
    set_gradient(p, 1.0)
    optimizer.step()
    optimizer.param_groups[0]["lr"] = 0.5
    optimizer.step()
    assert p.item() == -1.5


def test_all_numbers_are_read_through_one_accessor():
    """What compiles a step replaces `number`; nothing may read the group past it."""
    seen = set()

    def watch(base):
        class Watching(base):
            def number(self, group, key, index=None):
                seen.add((key, index))
                return super().number(group, key, index)

        return Watching

    for name, options, expected in (
        ("SGD", {"momentum": 0.9, "dampening": 0.1, "weight_decay": 0.1}, {"lr", "momentum"}),
        ("Adam", {"weight_decay": 0.1}, {"lr", "betas", "eps", "weight_decay"}),
        ("RMSprop", {"momentum": 0.9}, {"lr", "alpha", "eps", "momentum"}),
    ):
        seen.clear()
        p = parameter(1.0)
        optimizer = watch(getattr(optim, name))([p], lr=0.1, **options)
        for _ in range(2):
            set_gradient(p, 1.0)
            optimizer.step()
        assert expected <= {key for key, _ in seen}


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("SGD", {"momentum": 0.9, "dampening": 0.1, "weight_decay": 0.1}),
        ("SGD", {"momentum": 0.9, "nesterov": True}),
        ("Adam", {"weight_decay": 0.1, "amsgrad": True}),
        ("AdamW", {}),
        ("RMSprop", {"momentum": 0.9, "centered": True}),
    ],
)
def test_updates_read_no_values_while_a_step_is_captured(name, options):
    """With numbers that are tensors, on a tape that lets nobody read them, to the same result."""

    class Capturing(tg.Tape):
        captures = True

        def refuse_read(self, tensor, what):
            raise RuntimeError(f"{what} during capture")

    class WithSlots(getattr(optim, name)):
        def number(self, group, key, index=None):
            return tg.tensor(super().number(group, key, index), dtype=tg.float64)

    results = []
    for kind in (getattr(optim, name), WithSlots):
        p, q = parameter(1.0, 2.0), tg.tensor(3.0, requires_grad=True)
        optimizer = kind([p, q], lr=0.1, **options)
        for k in range(3):
            p.grad, q.grad = tg.tensor([1.0 + k, -2.0]), tg.tensor(1.0)
            if kind is WithSlots:
                with Capturing():
                    optimizer.step()
            else:
                optimizer.step()
        results.append([*p.tolist(), q.item()])
    np.testing.assert_allclose(results[0], results[1], rtol=1e-6)


# -- the spellings of the documents ------------------------------------------------------------


def test_parameters_given_to_step():
    p, q = parameter(1.0), parameter(1.0)
    optimizer = optim.SGD(learning_rate=0.5, momentum=0.5)
    for _ in range(2):
        set_gradient(p, 1.0)
        set_gradient(q, 1.0)
        optimizer.step([p])
    assert p.item() == 1.0 - 0.5 - 0.75
    assert q.item() == 1.0
    optimizer.step([p, q])
    assert q.item() == 0.5
    optimizer.zero_grad([p])
    assert p.grad is None
    assert q.grad is not None
    assert len(list(optimizer.param_groups)) == 2


def test_the_learning_rate_alone():
    assert optim.SGD(0.25).defaults["lr"] == 0.25
    assert optim.Adam(learning_rate=0.25).defaults["lr"] == 0.25
    assert optim.RMSprop([parameter(1.0)], learning_rate=0.25).param_groups[0]["lr"] == 0.25
    with pytest.raises(TypeError, match="LBFGS needs its parameters"):
        optim.LBFGS(0.25)


@pytest.mark.parametrize("name", [n for n in optim.__all__ if n[0].isupper()])
def test_signatures_are_those_of_pytorch(name):
    arguments = inspect.signature(getattr(optim, name)).parameters
    assert "learning_rate" not in arguments
    assert arguments["params"].default is inspect.Parameter.empty


def test_gradients_given_to_step():
    p, q = parameter(1.0), parameter(1.0)
    optimizer = optim.SGD([p, q], lr=0.5)
    grads = (p * 2).sum().backward()
    p.grad = None
    optimizer.step(grads)
    assert p.item() == 0.0
    assert q.item() == 1.0
    optimizer.step({q.id: tg.tensor([2.0])})
    assert q.item() == 0.0
    with pytest.raises(RuntimeError, match="same shape"):
        optimizer.step({p.id: tg.tensor([1.0]), q.id: tg.tensor([1.0, 2.0])})
    assert p.item() == 0.0


def test_step_without_any_parameters():
    with pytest.raises(RuntimeError, match=r"step\(parameters\)"):
        optim.SGD(learning_rate=0.1).step()


# -- bad input ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("SGD", {"lr": -1.0}),
        ("SGD", {"lr": float("nan")}),
        ("SGD", {"lr": "fast"}),
        ("SGD", {"momentum": -0.1}),
        ("SGD", {"weight_decay": -0.1}),
        ("SGD", {"nesterov": True}),
        ("SGD", {"nesterov": True, "momentum": 0.9, "dampening": 0.1}),
        ("Adam", {"lr": -1.0}),
        ("Adam", {"eps": -1.0}),
        ("Adam", {"betas": (1.0, 0.9)}),
        ("Adam", {"betas": (0.9, -0.1)}),
        ("Adam", {"betas": (0.9,)}),
        ("AdamW", {"weight_decay": -1.0}),
        ("RMSprop", {"alpha": -1.0}),
        ("RMSprop", {"momentum": -1.0}),
    ],
)
def test_options_that_make_no_sense(name, options):
    p = parameter(1.0)
    with pytest.raises(ValueError, match=r"must|needs|are two"):
        getattr(optim, name)([p], **options)
    optimizer = getattr(optim, name)([p])
    with pytest.raises(ValueError, match=r"must|needs|are two"):
        optimizer.add_param_group({"params": [parameter(2.0)], **options})
    assert len(optimizer.param_groups) == 1


def test_parameters_that_make_no_sense():
    p = parameter(1.0)
    with pytest.raises(ValueError, match="empty"):
        optim.SGD([])
    with pytest.raises(TypeError, match="one Tensor"):
        optim.SGD(p)
    with pytest.raises(TypeError, match="set"):
        optim.SGD({p})
    with pytest.raises(TypeError, match="float"):
        optim.SGD([p, 1.0])
    with pytest.raises(ValueError, match="result of an operation"):
        optim.SGD([p * 2])
    with pytest.raises(ValueError, match="two groups"):
        optim.SGD([{"params": [p]}, {"params": [p]}])
    with pytest.raises(ValueError, match="'params'"):
        optim.SGD([{"lr": 1.0}])
    with pytest.raises(TypeError, match="dict"):
        optim.SGD([p]).add_param_group([parameter(1.0)])
    with pytest.raises(ValueError, match="names"):
        optim.SGD([("p", p), parameter(1.0)])
    with pytest.raises(TypeError, match="both"):
        optim.SGD([p], 0.1, learning_rate=0.1)
    with pytest.raises(TypeError, match="name them"):
        optim.SGD(0.1, 0.9)
    with pytest.raises(TypeError, match="iterable"):
        optim.SGD([p]).step(3)


# -- state -------------------------------------------------------------------------------------


def run(optimizer, p, steps):
    for k in range(steps):
        set_gradient(p, 1.0 + k, -2.0)
        optimizer.step()


@pytest.mark.parametrize("name", ALL)
def test_saved_state_goes_on_as_before(name):
    options = {"momentum": 0.9} if name in ("SGD", "RMSprop") else {}
    p, q = parameter(1.0, 2.0), parameter(1.0, 2.0)
    first = getattr(optim, name)([p], lr=0.1, **options)
    run(first, p, 3)
    second = getattr(optim, name)([q], lr=7.0)
    second.load_state_dict(first.state_dict())
    with tg.no_grad():
        q.copy_(p)
    assert second.param_groups[0]["lr"] == 0.1
    run(first, p, 2)
    run(second, q, 2)
    np.testing.assert_array_equal(p.detach().numpy(), q.detach().numpy())


def test_loaded_state_has_memory_of_its_own_and_fits_the_parameter():
    p, q = parameter(1.0, 2.0), parameter(1.0, 2.0, dtype=tg.float64)
    first = optim.Adam([p], lr=0.1)
    run(first, p, 1)
    second = optim.Adam([q], lr=0.1)
    second.load_state_dict(first.state_dict())
    assert second.state[q]["exp_avg"].dtype is tg.float64
    assert second.state[q]["step"].dtype is tg.float32
    run(second, q, 1)
    assert first.state[p]["step"].item() == 1


def test_loading_what_does_not_fit_changes_nothing():
    p = parameter(1.0, 2.0)
    optimizer = optim.SGD([p], lr=0.1, momentum=0.9)
    run(optimizer, p, 1)
    before = copy.deepcopy(optimizer.state_dict())
    other = optim.SGD([parameter(1.0), parameter(2.0)], lr=0.3)
    with pytest.raises(ValueError, match="2 parameters"):
        optimizer.load_state_dict(other.state_dict())
    two = optim.SGD([{"params": [parameter(1.0)]}, {"params": [parameter(2.0)]}], lr=0.3)
    with pytest.raises(ValueError, match="2 parameter groups"):
        optimizer.load_state_dict(two.state_dict())
    wrong = optim.SGD([parameter(1.0, 2.0)], lr=0.3, momentum=0.9)
    bad = copy.deepcopy(before)
    bad["state"][0]["momentum_buffer"] = tg.zeros(3)
    with pytest.raises(ValueError, match="momentum_buffer"):
        wrong.load_state_dict(bad)
    bad = copy.deepcopy(before)
    bad["param_groups"][0]["lr"] = -1.0
    with pytest.raises(ValueError, match="learning rate"):
        optimizer.load_state_dict(bad)
    after = optimizer.state_dict()
    assert after["param_groups"] == before["param_groups"]
    np.testing.assert_array_equal(
        after["state"][0]["momentum_buffer"].numpy(), before["state"][0]["momentum_buffer"].numpy()
    )


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda o: pickle.loads(pickle.dumps(o))])
def test_copies_and_pickles(duplicate):
    p = parameter(1.0, 2.0)
    optimizer = optim.Adam([p], lr=0.1)
    run(optimizer, p, 2)
    twin = duplicate(optimizer)
    (q,) = twin.param_groups[0]["params"]
    assert q is not p
    run(optimizer, p, 2)
    run(twin, q, 2)
    np.testing.assert_array_equal(p.detach().numpy(), q.detach().numpy())


def test_step_hooks():
    p = parameter(1.0)
    optimizer = optim.SGD([p], lr=0.1)
    calls = []
    before = optimizer.register_step_pre_hook(lambda o, args, kwargs: calls.append("before"))
    after = optimizer.register_step_post_hook(lambda o, args, kwargs: calls.append("after"))
    set_gradient(p, 1.0)
    optimizer.step()
    before.remove()
    optimizer.step()
    after.remove()
    optimizer.step()
    assert calls == ["before", "after", "after"]


def test_an_optimizer_of_ones_own():
    class SignDescent(optim.Optimizer):
        def __init__(self, params, lr=0.1):
            super().__init__(params, {"lr": lr})

        def update(self, parameter, gradient, group):
            parameter -= gradient.sign() * self.number(group, "lr")

    p = parameter(1.0, -1.0)
    optimizer = SignDescent([p], lr=0.5)
    set_gradient(p, 3.0, -2.0)
    optimizer.step()
    np.testing.assert_array_equal(p.detach().numpy(), [0.5, -0.5])
    with pytest.raises(NotImplementedError, match="update"):
        optim.Optimizer([p], {}).step()


# -- schedules ---------------------------------------------------------------------------------


def rates(scheduler, steps):
    found = [scheduler.get_last_lr()[0]]
    for _ in range(steps):
        scheduler.optimizer.step()
        scheduler.step()
        found.append(scheduler.get_last_lr()[0])
    return found


def test_schedules_by_hand():
    def optimizer():
        return optim.SGD([parameter(1.0)], lr=1.0)

    np.testing.assert_allclose(
        rates(lr_scheduler.StepLR(optimizer(), 2, 0.1), 4), [1, 1, 0.1, 0.1, 0.01]
    )
    np.testing.assert_allclose(
        rates(lr_scheduler.MultiStepLR(optimizer(), [1, 3], 0.5), 4), [1, 0.5, 0.5, 0.25, 0.25]
    )
    np.testing.assert_allclose(
        rates(lr_scheduler.ExponentialLR(optimizer(), 0.5), 3), [1, 0.5, 0.25, 0.125]
    )
    np.testing.assert_allclose(
        rates(lr_scheduler.CosineAnnealingLR(optimizer(), 2), 4), [1, 0.5, 0, 0.5, 1], atol=1e-12
    )
    np.testing.assert_allclose(
        rates(lr_scheduler.LambdaLR(optimizer(), lambda e: 1 / (e + 1)), 2), [1, 1 / 2, 1 / 3]
    )
    np.testing.assert_allclose(
        rates(lr_scheduler.LinearLR(optimizer(), 0.5, total_iters=2), 3), [0.5, 0.75, 1, 1]
    )


def test_plateau_by_hand():
    optimizer = optim.SGD([parameter(1.0)], lr=1.0)
    scheduler = lr_scheduler.ReduceLROnPlateau(optimizer, patience=1)
    for metric in (3.0, 2.0, 2.0, 2.0, 2.0):
        scheduler.step(metric)
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.1)
    with pytest.raises(TypeError, match="metric"):
        scheduler.step()


def test_schedules_that_make_no_sense():
    optimizer = optim.SGD([parameter(1.0)], lr=1.0)
    with pytest.raises(TypeError, match="Optimizer"):
        lr_scheduler.StepLR(parameter(1.0), 2)
    with pytest.raises(ValueError, match="start_factor"):
        lr_scheduler.LinearLR(optimizer, start_factor=0.0)
    with pytest.raises(ValueError, match="end_factor"):
        lr_scheduler.LinearLR(optimizer, end_factor=2.0)
    with pytest.raises(ValueError, match="lr_lambdas"):
        lr_scheduler.LambdaLR(optimizer, [abs, abs])
    with pytest.raises(ValueError, match="factor"):
        lr_scheduler.ReduceLROnPlateau(optimizer, factor=1.0)
    with pytest.raises(ValueError, match="mode"):
        lr_scheduler.ReduceLROnPlateau(optimizer, mode="least")
    with pytest.raises(KeyError, match="initial_lr"):
        lr_scheduler.StepLR(optimizer, 2, last_epoch=3)


class Around(optim.Optimizer):
    """An optimizer around another one, which never calls `__init__` of its class."""

    def __init__(self, inner):
        self.inner = inner
        self.param_groups = inner.param_groups
        self.state = inner.state

    def step(self, closure=None):
        return self.inner.step(closure)


def test_an_optimizer_around_another():
    w = tg.ones(2, requires_grad=True)
    outer = Around(optim.SGD([w], lr=0.5))
    schedule = lr_scheduler.StepLR(outer.inner, 1)
    w.sum().backward()
    outer.step()
    schedule.step()
    outer.zero_grad()
    assert w.tolist() == [0.5, 0.5]
    assert w.grad is None


def test_an_optimizer_of_ones_own_keeps_its_state():
    class Factored(tg.optim.Optimizer):
        def __init__(self, params):
            super().__init__(params, {"lr": 0.1})

        def __setstate__(self, state):
            super().__setstate__(state)
            for group in self.param_groups:
                group.setdefault("added", True)

        def step(self, closure=None):
            for p in self.param_groups[0]["params"]:
                state = self.state[p]
                state["step"] = state.get("step", 0) + 1
                state["rows"] = p.grad.square().mean(1)

    x = tg.ones(3, 2, requires_grad=True)
    optimizer = Factored([x])
    x.sum().backward()
    optimizer.step()
    other = Factored([x])
    other.load_state_dict(optimizer.state_dict())
    assert other.state[x]["step"] == 1
    assert type(other.state[x]["step"]) is int
    assert other.state[x]["rows"].shape == (3,)
    assert other.param_groups[0]["added"] is True
