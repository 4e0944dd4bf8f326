"""Worlds of training in which something happens midway: layers, optimizers, batches, errors."""

from __future__ import annotations

import copy
import random

from worlds import Config, Training, attempt, batch, case, network

import tapegrad as tg
from tapegrad import nn

F = nn.functional


def changed(compile, change, when=(4,), **options):
    """A training with a change before some of its steps."""
    t = Training(compile, **options)
    return t.run(lambda i: change(t, i) if i in when else None, steps=12)


@case
def layer_frozen_and_unfrozen(compile):
    def change(t, i):
        t.model[0].requires_grad_(i == 8)

    return changed(compile, change, (4, 8))


@case
def layers_unfrozen_one_by_one(compile):
    def change(t, i):
        t.model.requires_grad_(False)
        for layer in list(t.model)[-1 - i // 4 :]:
            layer.requires_grad_(True)

    return changed(compile, change, (0, 4, 8))


@case
def optimizer_replaced(compile):
    def change(t, i):
        t.optimizer = tg.optim.Adam(t.model.parameters(), lr=0.01)

    return changed(compile, change, momentum=0.9)


@case(replays=True)
def states_loaded(compile):
    saved = {}

    def change(t, i):
        if i == 3:
            saved["model"] = copy.deepcopy(t.model.state_dict())
            saved["optimizer"] = copy.deepcopy(t.optimizer.state_dict())
        else:
            t.model.load_state_dict(saved["model"])
            t.optimizer.load_state_dict(saved["optimizer"])

    return changed(compile, change, (3, 7), momentum=0.9)


@case
def group_added(compile):
    t = Training(compile)
    t.optimizer = tg.optim.SGD(t.model[2].parameters(), lr=0.1)

    def before(i):
        if i == 4:
            t.optimizer.add_param_group({"params": list(t.model[0].parameters()), "lr": 0.01})

    return t.run(before)


@case(replays=True)
def layer_replaced_in_the_middle(compile):
    def change(t, i):
        t.model[2] = network(9)[2]
        t.optimizer = tg.optim.SGD(t.model.parameters(), lr=0.1)

    return changed(compile, change)


@case
def activation_replaced_in_the_middle(compile):
    def change(t, i):
        t.model[1] = nn.ReLU() if i == 4 else nn.Identity()

    return changed(compile, change, (4, 8))


@case(replays=True)
def seeds_set_again(compile):
    def change(t, i):
        tg.manual_seed(3)
        random.seed(3)

    t = Training(compile)
    t.model[1] = nn.Dropout(0.5)
    t.optimizer = tg.optim.SGD(t.model.parameters(), lr=0.1)
    return t.run(lambda i: change(t, i) if i in (4, 8) else None, steps=12)


@case(replays=True)
def last_batch_smaller(compile):
    t = Training(compile, momentum=0.9)
    for i in range(12):
        yield t.step(*batch(i, 2 if i % 4 == 3 else 6)), t.model, t.optimizer


@case
def size_of_batches_grows(compile):
    t = Training(compile)
    for i in range(12):
        yield t.step(*batch(i, 2 + i // 3)), t.model


@case
def bad_batch_in_the_middle(compile):
    t = Training(compile, momentum=0.9)
    for i in range(10):
        x, y = batch(i)
        x = x[:, :3] if i == 4 else x
        y = y + 7 if i == 6 else y
        yield attempt(t.step, x, y), t.model, t.optimizer


def interrupted(compile, error):
    """A step that raises in its fifth call, between backward and update."""
    t, c = Training(compile, momentum=0.9), Config(0)

    def plain_step(x, y):
        t.optimizer.zero_grad()
        loss = F.cross_entropy(t.model(x), y)
        loss.backward()
        c.rate += 1
        if c.rate == 5:
            raise error
        t.optimizer.step()
        return loss

    step = compile(plain_step)
    for i in range(10):
        yield attempt(step, *batch(i)), t.model, t.optimizer, c.rate


@case
def exception_in_the_middle(compile):
    return interrupted(compile, ValueError("bad batch"))


@case
def interrupt_in_the_middle(compile):
    return interrupted(compile, KeyboardInterrupt())


@case(replays=True)
def pruning_mask_changed(compile):
    model = network()
    model.register_buffer("mask", tg.ones(5, 4).double())
    optimizer = tg.optim.SGD(model.parameters(), lr=0.1)

    @compile
    def step(x, y):
        optimizer.zero_grad()
        h = tg.tanh(F.linear(x, model[0].weight * model.mask, model[0].bias))
        loss = F.cross_entropy(model[2](h), y)
        loss.backward()
        optimizer.step()
        return loss

    for i in range(10):
        if i in (3, 5):
            model.mask[i - 3, :2] = 0
        elif i == 7:
            model.mask = (model[0].weight.abs() > 0.1).double()
        yield step(*batch(i)), model


@case
def attribute_deleted_in_the_middle(compile):
    t = Training(compile)
    t.penalty = 0.1

    def plain_step(x, y):
        t.optimizer.zero_grad()
        loss = F.cross_entropy(t.model(x), y)
        if hasattr(t, "penalty"):
            loss = loss + t.penalty * sum((p**2).sum() for p in t.model.parameters())
        loss.backward()
        t.optimizer.step()
        return loss

    t.step = compile(plain_step)

    def before(i):
        if i == 4:
            del t.penalty
        elif i == 8:
            t.penalty = 0.2

    return t.run(before, steps=12)
