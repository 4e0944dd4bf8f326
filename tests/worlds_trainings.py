"""Trainings with odd optimizers, hooks and modules."""

from __future__ import annotations

import copy
import functools

from worlds import Training, case

import tapegrad as tg
from tapegrad import nn

F = nn.functional


# -- training
def training(name, before=None, kind=tg.optim.SGD, steps=12, model=None, step=None, **options):
    """Register a training with something done before each step."""

    def program(compile):
        t = Training(lambda f: f, kind, **options)
        if model is not None:
            t.model = model(t)
            t.optimizer = kind(t.model.parameters(), **({"lr": 0.1} | options))
        t.step = compile(t.plain_step if step is None else functools.partial(step, t))
        yield from t.run(None if before is None else functools.partial(before, t), steps=steps)

    program.__name__ = f"training_{name}"
    case(program)


def lr(t, i):
    t.optimizer.param_groups[0]["lr"] = 0.1 / (i + 1)


training("rate_changes", lr)


training("rate_changes_adam", lr, tg.optim.Adam)


def lr_tensor(t, i):
    t.optimizer.param_groups[0]["lr"] = tg.tensor(0.1 / (i + 1), dtype=tg.float64)


training("rate_becomes_a_tensor", lr_tensor)


def lr_zero(t, i):
    t.optimizer.param_groups[0]["lr"] = 0.0 if i % 3 == 2 else 0.1


training("rate_zero_now_and_then", lr_zero, tg.optim.Adam)


def nesterov(t, i):
    t.optimizer.param_groups[0]["nesterov"] = i > 5


training("nesterov_switched", nesterov, momentum=0.9)


def mom(t, i):
    t.optimizer.param_groups[0]["momentum"] = 0.0 if i in (4, 8) else 0.9


training("momentum_off_and_on", mom, momentum=0.9)


def betas(t, i):
    t.optimizer.param_groups[0]["betas"] = (0.9, 0.99 if i % 2 else 0.999)


training("betas_changed", betas, tg.optim.Adam)


def clear_state(t, i):
    if i in (5, 8):
        t.optimizer.state.clear()


training("state_cleared", clear_state, tg.optim.Adam)


training("state_cleared_momentum", clear_state, momentum=0.9)


def step_changed(t, i):
    if i == 6:
        for s in t.optimizer.state.values():
            s["step"] = s["step"] * 0 + 1


training("step_count_set_back", step_changed, tg.optim.Adam)


def exp_avg(t, i):
    if i == 6:
        for s in t.optimizer.state.values():
            s["exp_avg"] = s["exp_avg"].clone() * 2


training("moments_replaced", exp_avg, tg.optim.Adam)


def groups_reversed(t, i):
    if i == 6:
        t.optimizer.param_groups[0]["params"].reverse()


training("parameters_of_the_group_reversed", groups_reversed, tg.optim.Adam)


def grad_preset(t, i):
    for p in t.model.parameters():
        p.grad = tg.ones_like(p) if i % 2 else None


def step_accumulating(t, x, y):
    loss = F.cross_entropy(t.model(x), y)
    loss.backward()
    t.optimizer.step()
    return loss


training("gradients_preset_and_none", grad_preset, step=step_accumulating)


def grad_shared(t, i):
    ps = list(t.model.parameters())
    if i % 4 == 3:
        g = tg.ones_like(ps[0])
        ps[0].grad = g
    for p in ps[1:]:
        p.grad = None


training("gradient_kept_on_one", grad_shared, step=step_accumulating)


def grad_is_param(t, i):
    for p in t.model.parameters():
        p.grad = p.detach() if i == 6 else None


training("gradient_that_is_the_weight", grad_is_param, step=step_accumulating)


def halve(t, i):
    if i == 6:
        t.model.float()


def step_half(t, x, y):
    t.optimizer.zero_grad()
    loss = F.cross_entropy(t.model(x.to(t.model[0].weight.dtype)), y)
    loss.backward()
    t.optimizer.step()
    return loss


training("model_of_another_precision", halve, step=step_half)


def deep(t, i):
    if i == 6:
        t.model = copy.deepcopy(t.model)
        t.optimizer = tg.optim.SGD(t.model.parameters(), lr=0.1)


training("model_deep_copied", deep)


def deep_eval(t, i):
    if i == 6:
        t.backup = copy.deepcopy(t.model.state_dict())
    if i == 9:
        t.model.load_state_dict(t.backup)


training("state_saved_and_loaded", deep_eval)


def assign(t, i):
    if i == 6:
        t.model.load_state_dict(
            {k: v.clone() * 2 for k, v in t.model.state_dict().items()}, assign=True
        )


training("state_assigned", assign)


def swap_modules(t, i):
    if i == 6:
        t.model[1] = nn.ReLU()
    if i == 9:
        t.model[1] = nn.Tanh()


training("module_swapped_by_index", swap_modules)


def freeze(t, i):
    t.model[0].weight.requires_grad_(i % 4 != 3)


training("weight_frozen_now_and_then", freeze)


def eval_mode(t, i):
    t.model.train(i % 4 != 3)


def with_dropout(t):
    return nn.Sequential(nn.Linear(4, 5), nn.Dropout(0.5), nn.Linear(5, 3)).double()


training("dropout_in_turn", eval_mode, model=with_dropout)


def with_norm(t):
    return nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Linear(5, 3)).double()


training("batch_norm_in_turn", eval_mode, model=with_norm)


def norm_reset(t, i):
    if i == 6:
        t.model[1].reset_running_stats()
    if i == 9:
        t.model[1].momentum = None


training("batch_norm_reset", norm_reset, model=with_norm)


def norm_buffers(t, i):
    if i == 6:
        t.model[1].running_mean = tg.ones(5, dtype=tg.float64)
    if i == 9:
        t.model[1].num_batches_tracked = tg.tensor(0)


training("batch_norm_buffers_replaced", norm_buffers, model=with_norm)


def tied(t):
    m = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4), nn.Linear(4, 3)).double()
    m[2].weight = m[0].weight
    return m


def untie(t, i):
    if i == 6:
        t.model[2].weight = nn.Parameter(t.model[0].weight.detach().clone())


training("weights_untied", untie, model=tied)


def weight_norm(t):
    return nn.Sequential(
        nn.utils.parametrizations.weight_norm(nn.Linear(4, 5)), nn.Tanh(), nn.Linear(5, 3)
    ).double()


def unparam(t, i):
    if i == 6:
        nn.utils.parametrize.remove_parametrizations(t.model[0], "weight")


if hasattr(nn.utils, "parametrizations"):
    training("weight_norm", None, model=weight_norm)
    training("weight_norm_removed", unparam, model=weight_norm)


if hasattr(nn.utils, "parametrizations") and hasattr(nn.utils.parametrizations, "spectral_norm"):

    def spectral(t):
        return nn.Sequential(
            nn.utils.parametrizations.spectral_norm(nn.Linear(4, 5)), nn.Tanh(), nn.Linear(5, 3)
        ).double()

    training("spectral_norm", eval_mode, model=spectral)


def hooks_that_count(t, i):
    if i == 4:
        t.n = 0

        def hook(m, a, o):
            t.n += 1

        t.handle = t.model[0].register_forward_hook(hook)
    if i == 8:
        t.handle.remove()


training("hook_that_counts_added", hooks_that_count)


def optimizer_hooks(t, i):
    if i == 4 and hasattr(t.optimizer, "register_step_post_hook"):

        def hook(o, a, k):
            for p in t.model.parameters():
                p.detach().mul_(0.9)

        t.handle = t.optimizer.register_step_post_hook(hook)
    if i == 8 and hasattr(t, "handle"):
        t.handle.remove()


training("hook_of_the_optimizer", optimizer_hooks)


def pre_hooks(t, i):
    if i == 4:
        t.handle = t.optimizer.register_step_pre_hook(
            lambda o, a, k: [p.grad.mul_(0.5) for p in t.model.parameters()] and None
        )
    if i == 8:
        t.handle.remove()


if hasattr(tg.optim.Optimizer, "register_step_pre_hook"):
    training("hook_before_the_step_of_the_optimizer", pre_hooks)


def patched_step(t, i):
    if i == 4:
        t.old = t.optimizer.step
        t.optimizer.step = lambda: None
    if i == 8:
        t.optimizer.step = t.old


training("step_of_the_optimizer_patched", patched_step)


def patched_zero(t, i):
    if i == 4:
        t.optimizer.zero_grad = lambda *a: None
    if i == 8:
        del t.optimizer.zero_grad


training("zero_grad_patched", patched_zero)


def step_zeroing(t, x, y):
    t.optimizer.zero_grad(set_to_none=False)
    loss = F.cross_entropy(t.model(x), y)
    loss.backward()
    t.optimizer.step()
    return loss


training("gradients_set_to_zero", None, step=step_zeroing)


def step_seen(t, x, y):
    loss = step_zeroing(t, x, y)
    return loss, [p.grad for p in t.model.parameters()]


training("gradients_returned", None, step=step_seen)


def step_closure(t, x, y):
    def closure():
        t.optimizer.zero_grad()
        loss = F.cross_entropy(t.model(x), y)
        loss.backward()
        return loss

    return t.optimizer.step(closure)


training("closure", lr, step=step_closure)


def step_reading_rate(t, x, y):
    t.optimizer.zero_grad()
    loss = F.cross_entropy(t.model(x), y) * t.optimizer.param_groups[0]["lr"]
    loss.backward()
    t.optimizer.step()
    return loss


training("rate_read_in_the_loss", lr, step=step_reading_rate)


def lr3(t, i):
    t.optimizer.param_groups[0]["lr"] = 0.1 if i % 6 < 3 else 0.2


training("rate_read_in_the_loss_in_turn", lr3, step=step_reading_rate)


def step_deciding_rate(t, x, y):
    t.optimizer.zero_grad()
    loss = F.cross_entropy(t.model(x), y)
    if t.optimizer.param_groups[0]["lr"] > 0.15:
        loss = loss * 2
    loss.backward()
    t.optimizer.step()
    return loss


training("rate_decides", lr3, step=step_deciding_rate)


def step_setting_rate(t, x, y):
    loss = t.plain_step(x, y)
    for g in t.optimizer.param_groups:
        g["lr"] = g["lr"] * 0.9
    return loss


training("rate_set_inside", None, step=step_setting_rate)


def step_defaults(t, x, y):
    t.optimizer.zero_grad()
    loss = F.cross_entropy(t.model(x), y) * t.optimizer.defaults["lr"]
    loss.backward()
    t.optimizer.step()
    return loss


def dflt(t, i):
    t.optimizer.defaults["lr"] = 0.1 if i % 6 < 3 else 0.2


training("defaults_read", dflt, step=step_defaults)


def step_state(t, x, y):
    loss = t.plain_step(x, y)
    return loss, [s["step"] for s in t.optimizer.state.values()]


training("step_count_returned", None, tg.optim.Adam, step=step_state)


def step_state_dict(t, x, y):
    loss = t.plain_step(x, y)
    t.saved = t.model.state_dict()
    return loss, t.saved


training("state_dict_inside", None, step=step_state_dict)


def step_params_list(t, x, y):
    loss = t.plain_step(x, y)
    return loss, sum((p.detach() ** 2).sum() for p in t.model.parameters())


training("norm_of_the_weights", None, step=step_params_list)


def step_named(t, x, y):
    t.optimizer.zero_grad()
    loss = F.cross_entropy(t.model(x), y) + sum(
        (p**2).sum() for n, p in t.model.named_parameters() if n.endswith(t.suffix)
    )
    loss.backward()
    t.optimizer.step()
    return loss


def suffix(t, i):
    t.suffix = "weight" if i % 6 < 3 else "bias"


training("penalty_by_name", suffix, step=step_named)


def step_buffers(t, x, y):
    loss = t.plain_step(x, y)
    for _n, b in t.model.named_buffers():
        loss = loss + b.sum() * 0.01
    return loss


def buffers(t, i):
    if i == 4:
        t.model.register_buffer("extra", tg.ones(3, dtype=tg.float64))
    if i == 8:
        del t.model.extra


training("buffers_come_and_go", buffers, step=step_buffers)


def step_func(t, x, y):
    params = {k: v * 1.5 for k, v in t.model.named_parameters()}
    t.optimizer.zero_grad()
    loss = F.cross_entropy(tg.func.functional_call(t.model, params, (x,)), y)
    loss.backward()
    t.optimizer.step()
    return loss


if hasattr(tg, "func") and hasattr(tg.func, "functional_call"):
    training("functional_call", None, step=step_func)
