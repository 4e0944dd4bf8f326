"""Worlds of training: optimizers, schedules, accumulation, clipping, averages of weights."""

from __future__ import annotations

import copy

from worlds import Config, Training, batch, case, network

import tapegrad as tg
from tapegrad import nn
from tapegrad.optim import lr_scheduler, swa_utils

F = nn.functional
STEP = 0


# -- optimizers ----------------------------------------------------------------------------------


@case(replays=True)
def plain_sgd(compile):
    return Training(compile).run()


@case(replays=True)
def sgd_with_momentum(compile):
    return Training(compile, momentum=0.9, nesterov=True, weight_decay=0.01).run()


@case(replays=True)
def adam(compile):
    return Training(compile, tg.optim.Adam, lr=0.01).run()


@case(replays=True)
def adamw_with_amsgrad(compile):
    return Training(compile, tg.optim.AdamW, lr=0.01, amsgrad=True).run()


@case(replays=True)
def rmsprop(compile):
    return Training(compile, tg.optim.RMSprop, lr=0.01).run()


@case(replays=True)
def rates_of_layers(compile):
    t = Training(compile)
    t.optimizer = tg.optim.SGD(
        [{"params": t.model[0].parameters(), "lr": 0.01}, {"params": t.model[2].parameters()}],
        lr=0.1,
    )

    def before(i):
        t.optimizer.param_groups[0]["lr"] = 0.01 * (i + 1)

    return t.run(before)


@case
def lbfgs_with_a_compiled_closure(compile):
    model = network()
    optimizer = tg.optim.LBFGS(model.parameters(), lr=0.1, max_iter=3)
    x, y = batch(0)

    @compile
    def closure():
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        return loss

    for _ in range(6):
        yield optimizer.step(closure), model


class Counted(tg.optim.Optimizer):
    """An optimizer of one's own, whose state has a Python number."""

    def __init__(self, params, lr=0.1):
        super().__init__(params, {"lr": lr})

    @tg.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if not state:
                    state["step"] = 0
                    state["mean"] = tg.zeros_like(p)
                state["step"] += 1
                state["mean"].mul_(0.9).add_(p.grad, alpha=0.1)
                correction = 1 - 0.9 ** state["step"]
                p.add_(state["mean"] / correction, alpha=-group["lr"])


@case
def own_optimizer_with_a_number_in_its_state(compile):
    return Training(compile, Counted).run(steps=12)


class Lookahead:
    """Slow weights that follow the fast ones every third step."""

    def __init__(self, optimizer, k=3):
        self.optimizer, self.k, self.count = optimizer, k, 0
        self.slow = [
            p.detach().clone() for group in optimizer.param_groups for p in group["params"]
        ]

    def step(self):
        self.optimizer.step()
        self.count += 1
        if self.count % self.k == 0:
            fast = [p for group in self.optimizer.param_groups for p in group["params"]]
            with tg.no_grad():
                for slow, p in zip(self.slow, fast, strict=True):
                    slow.lerp_(p, 0.5)
                    p.copy_(slow)


@case
def lookahead(compile):
    model = network()
    optimizer = tg.optim.SGD(model.parameters(), lr=0.1)
    ahead = Lookahead(optimizer)

    @compile
    def step(x, y):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        ahead.step()
        return loss

    for i in range(12):
        yield step(*batch(i)), model, ahead.count


@case(replays=True)
def sharpness_aware(compile):
    model = network()
    optimizer = tg.optim.SGD(model.parameters(), lr=0.1)

    @compile
    def step(x, y):
        F.cross_entropy(model(x), y).backward()
        with tg.no_grad():
            norm = sum((p.grad**2).sum() for p in model.parameters()).sqrt()
            moves = [p.grad * (0.05 / (norm + 1e-8)) for p in model.parameters()]
            for p, move in zip(model.parameters(), moves, strict=True):
                p.add_(move)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        with tg.no_grad():
            for p, move in zip(model.parameters(), moves, strict=True):
                p.sub_(move)
        optimizer.step()
        optimizer.zero_grad()
        return loss

    for i in range(8):
        yield step(*batch(i)), model


@case(replays=True)
def update_and_decay_by_hand(compile):
    model, c = network(), Config(0.1)

    @compile
    def step(x, y):
        model.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        with tg.no_grad():
            for p in model.parameters():
                p.mul_(1 - c.rate * 0.01)
                p -= c.rate * p.grad
        return loss

    for i in range(10):
        c.rate = 0.1 if i < 4 else 0.05
        yield step(*batch(i)), model


# -- schedules -----------------------------------------------------------------------------------


def scheduled(compile, make, every=1, kind=tg.optim.SGD, **options):
    """A training whose schedule steps after every so many batches."""
    t = Training(compile, kind, **options)
    schedule = make(t.optimizer)

    def after(i, loss):
        if (i + 1) % every == 0:
            schedule.step()

    return t.run(after=after)


@case(replays=True)
def schedule_by_steps(compile):
    return scheduled(compile, lambda o: lr_scheduler.StepLR(o, 2, 0.5))


@case(replays=True)
def schedule_by_epochs(compile):
    return scheduled(compile, lambda o: lr_scheduler.ExponentialLR(o, 0.5), every=4)


@case(replays=True)
def schedule_by_cosine(compile):
    return scheduled(compile, lambda o: lr_scheduler.CosineAnnealingLR(o, 10), momentum=0.9)


@case(replays=True)
def schedule_of_one_cycle(compile):
    def make(optimizer):
        return lr_scheduler.OneCycleLR(optimizer, max_lr=0.2, total_steps=12)

    return scheduled(compile, make, kind=tg.optim.Adam)


@case(replays=True)
def schedule_by_a_function(compile):
    return scheduled(compile, lambda o: lr_scheduler.LambdaLR(o, lambda i: 1 / (i + 1)))


@case(replays=True)
def schedule_in_a_sequence(compile):
    def make(o):
        warm, cold = lr_scheduler.LinearLR(o, 0.1, 1, 3), lr_scheduler.ExponentialLR(o, 0.9)
        return lr_scheduler.SequentialLR(o, [warm, cold], [3])

    return scheduled(compile, make)


@case(replays=True)
def schedule_on_a_plateau(compile):
    t = Training(compile)
    schedule = lr_scheduler.ReduceLROnPlateau(t.optimizer, patience=1, factor=0.5)
    return t.run(after=lambda i, loss: schedule.step(loss.item()))


@case
def schedule_inside_the_step(compile):
    t = Training(compile)
    schedule = lr_scheduler.StepLR(t.optimizer, 2, 0.5)

    def plain_step(x, y):
        loss = t.plain_step(x, y)
        schedule.step()
        return loss

    t.step = compile(plain_step)
    return t.run()


@case(replays=True)
def warm_up_by_hand(compile):
    t = Training(compile)

    def before(i):
        for group in t.optimizer.param_groups:
            group["lr"] = 0.1 * min(1, (i + 1) / 5)

    return t.run(before)


@case
def warm_up_inside_the_step(compile):
    t, c = Training(compile), Config(0)

    def plain_step(x, y):
        c.rate += 1
        for group in t.optimizer.param_groups:
            group["lr"] = 0.1 * min(1, c.rate / 5)
        return t.plain_step(x, y)

    t.step = compile(plain_step)
    return t.run()


@case
def weight_decay_and_momentum_changed(compile):
    t = Training(compile, momentum=0.9)

    def before(i):
        t.optimizer.param_groups[0]["momentum"] = 0.9 if i < 4 else 0.5
        t.optimizer.param_groups[0]["weight_decay"] = 0.0 if i < 7 else 0.1

    return t.run(before)


# -- accumulation, clipping, averages ------------------------------------------------------------


def accumulating(compile, index):
    """A step that updates every second time; `index(i)` says what the step is told."""
    model = network()
    optimizer = tg.optim.SGD(model.parameters(), lr=0.1)
    told = Config(0)

    @compile
    def step(x, y, i=None):
        i = told.rate if i is None else i
        loss = F.cross_entropy(model(x), y) / 2
        loss.backward()
        if (i + 1) % 2 == 0:
            optimizer.step()
            optimizer.zero_grad()
        return loss

    for i in range(12):
        yield step(*batch(i), *index(told, i)), model


@case
def accumulation_by_an_argument(compile):
    return accumulating(compile, lambda told, i: (i,))


@case(replays=True)
def accumulation_by_a_flag(compile):
    return accumulating(compile, lambda told, i: (i % 2,))


@case
def accumulation_by_an_attribute(compile):
    return accumulating(compile, lambda told, i: (setattr(told, "rate", i),)[1:])


@case
def accumulation_by_a_global(compile):
    global STEP
    model = network()
    optimizer = tg.optim.SGD(model.parameters(), lr=0.1)
    STEP = 0

    @compile
    def step(x, y):
        global STEP
        loss = F.cross_entropy(model(x), y) / 2
        loss.backward()
        STEP += 1
        if STEP % 2 == 0:
            optimizer.step()
            optimizer.zero_grad()
        return loss

    for i in range(12):
        yield step(*batch(i)), model, STEP


@case(replays=True)
def accumulation_outside(compile):
    model = network()
    optimizer = tg.optim.SGD(model.parameters(), lr=0.1)

    @compile
    def backward(x, y):
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        return loss

    for i in range(12):
        loss = backward(*batch(i))
        if i % 3 == 2:
            optimizer.step()
            optimizer.zero_grad()
        yield loss, model


@case(replays=True)
def clipping(compile):
    model, c = network(), Config(1.0)
    optimizer = tg.optim.SGD(model.parameters(), lr=0.1)

    @compile
    def step(x, y):
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), c.rate)
        nn.utils.clip_grad_value_(model.parameters(), 0.1)
        optimizer.step()
        return norm

    for i in range(10):
        c.rate = 0.1 if 3 <= i < 6 or i == 8 else 1.0
        yield step(*batch(i)), model


@case(replays=True)
def average_of_weights_by_hand(compile):
    t = Training(compile)
    average = copy.deepcopy(t.model)

    @tg.no_grad()
    def update(decay=0.9):
        for a, p in zip(average.parameters(), t.model.parameters(), strict=True):
            a.mul_(decay).add_(p, alpha=1 - decay)

    def plain_step(x, y):
        loss = t.plain_step(x, y)
        update()
        return loss

    t.step = compile(plain_step)
    for seen in t.run():
        yield seen, average


@case
def average_of_weights_warming_up(compile):
    t, c = Training(compile), Config(0)
    average = copy.deepcopy(t.model)

    def plain_step(x, y):
        loss = t.plain_step(x, y)
        c.rate += 1
        decay = min(0.99, (1 + c.rate) / (10 + c.rate))
        with tg.no_grad():
            for a, p in zip(average.parameters(), t.model.parameters(), strict=True):
                a.lerp_(p, 1 - decay)
        return loss

    t.step = compile(plain_step)
    for seen in t.run():
        yield seen, average


@case
def averaged_model_of_the_library(compile):
    t = Training(compile)
    average = swa_utils.AveragedModel(t.model)

    def plain_step(x, y):
        loss = t.plain_step(x, y)
        average.update_parameters(t.model)
        return loss

    t.step = compile(plain_step)
    for seen in t.run(steps=6):
        yield seen, average


@case(replays=True)
def averaging_from_the_fifth_step_on(compile):
    t = Training(compile)
    average = swa_utils.AveragedModel(t.model)
    schedule = swa_utils.SWALR(t.optimizer, swa_lr=0.05, anneal_epochs=2)

    def after(i, loss):
        if i >= 5:
            average.update_parameters(t.model)
            schedule.step()

    for seen in t.run(after=after):
        yield seen, average
