"""Worlds of training as people arrange it: trainers, logs, annealing, tasks, players, caches."""

from __future__ import annotations

import argparse
import collections
import copy
import dataclasses
import random
from typing import Any

from worlds import Config, Training, batch, case, mat, network

import tapegrad as tg
from tapegrad import nn
from tapegrad.utils.data import DataLoader, TensorDataset

F = nn.functional


def stepping(compile, loss_of, model=None, optimizer=None):
    """A compiled step for a loss of the model and a batch."""
    model = network() if model is None else model
    optimizer = tg.optim.SGD(model.parameters(), lr=0.1) if optimizer is None else optimizer

    @compile
    def step(*given):
        optimizer.zero_grad()
        loss = loss_of(model, *given)
        loss.backward()
        optimizer.step()
        return loss

    return model, step


# -- trainers and logs ---------------------------------------------------------------------------


class Trainer:
    """A trainer that counts, keeps metrics, and writes a history."""

    def __init__(self, compile, log_every=1000):
        self.model = network()
        self.optimizer = tg.optim.Adam(self.model.parameters(), lr=0.01)
        self.step_count, self.log_every = 0, log_every
        self.metrics: dict[str, Any] = {"seen": 0}
        self.history: list[Any] = []
        self.lines: list[str] = []
        self.step = compile(self.train_step)

    def train_step(self, x, y):
        self.optimizer.zero_grad()
        logits = self.model(x)
        loss = F.cross_entropy(logits, y)
        loss.backward()
        self.optimizer.step()
        self.step_count += 1
        self.metrics["seen"] += len(x)
        self.metrics["accuracy"] = (logits.argmax(1) == y).float().mean()
        self.history.append(loss.detach())
        if self.step_count % self.log_every == 0:
            self.lines.append(f"step {self.step_count}: {self.metrics['seen']}")
        return loss


@case
def trainer_with_counters_and_history(compile):
    trainer = Trainer(compile)
    for i in range(10):
        loss = trainer.step(*batch(i))
        yield loss, trainer.step_count, trainer.metrics, trainer.history, trainer.model


@case
def trainer_that_logs_every_third_step(compile):
    trainer = Trainer(compile, 3)
    for i in range(12):
        yield trainer.step(*batch(i)), trainer.lines, trainer.step_count, trainer.model


@case
def trainer_with_other_settings_midway(compile):
    trainer = Trainer(compile)
    for i in range(12):
        if i == 6:
            trainer.log_every = 2
        yield trainer.step(*batch(i)), trainer.lines, trainer.metrics


class Lightning(nn.Module):
    """A module whose steps log values by name."""

    def __init__(self):
        super().__init__()
        self.net = network()
        self.logged: dict[str, list[Any]] = collections.defaultdict(list)
        self.global_step = 0

    def log(self, name, value):
        self.logged[name].append(value.detach() if isinstance(value, tg.Tensor) else value)

    def training_step(self, batch, index):
        x, y = batch
        loss = F.cross_entropy(self.net(x), y)
        self.log("loss", loss)
        self.log("rows", len(x))
        return loss


@case
def module_that_logs_values(compile):
    module = Lightning()
    optimizer = tg.optim.SGD(module.parameters(), lr=0.1)

    @compile
    def step(given, index):
        optimizer.zero_grad()
        loss = module.training_step(given, index)
        loss.backward()
        optimizer.step()
        module.global_step += 1
        return loss

    for i in range(10):
        yield step(batch(i), 0), dict(module.logged), module.global_step, module


@case
def losses_as_numbers_inside(compile):
    numbers = []

    def loss_of(model, x, y):
        loss = F.cross_entropy(model(x), y)
        numbers.append(loss.item())
        return loss

    model, step = stepping(compile, loss_of)
    for i in range(8):
        yield step(*batch(i)), numbers, model


@case(replays=True)
def losses_as_numbers_outside(compile):
    t, numbers = Training(compile), []
    return t.run(after=lambda i, loss: numbers.append(loss.item()))


@case
def log_as_text(compile):
    class Bar:
        text, n = "", 0

        def update(self, **values):
            self.n += 1
            self.text = f"{self.n}: " + ", ".join(f"{k}={v}" for k, v in values.items())

    bar = Bar()

    def loss_of(model, x, y):
        bar.update(rows=len(x), training=model.training)
        return F.cross_entropy(model(x), y)

    model, step = stepping(compile, loss_of)
    for i in range(8):
        yield step(*batch(i)), bar.text, bar.n, model


@case(replays=True)
def settings_in_a_namespace(compile):
    args = argparse.Namespace(smoothing=0.0, penalty=0.0, verbose=False)

    def loss_of(model, x, y):
        loss = F.cross_entropy(model(x), y, label_smoothing=args.smoothing)
        if args.penalty:
            loss = loss + args.penalty * sum(p.abs().sum() for p in model.parameters())
        return loss

    model, step = stepping(compile, loss_of)
    for i in range(12):
        args.smoothing = 0.0 if i < 4 else 0.1
        args.penalty = 0.0 if i < 8 else 0.01
        args.verbose = i % 2 == 0
        yield step(*batch(i)), model


@case(replays=True)
def losses_in_a_dict(compile):
    model = network()
    optimizer = tg.optim.SGD(model.parameters(), lr=0.1)

    @compile
    def step(x, y):
        optimizer.zero_grad()
        logits = model(x)
        losses = {"class": F.cross_entropy(logits, y), "size": (logits**2).mean()}
        losses["total"] = losses["class"] + 0.1 * losses["size"]
        losses["total"].backward()
        optimizer.step()
        return {name: loss.detach() for name, loss in losses.items()}

    for i in range(8):
        yield step(*batch(i)), model


@case(replays=True)
def two_losses_and_two_backwards(compile):
    model = network()
    optimizer = tg.optim.SGD(model.parameters(), lr=0.1)

    @compile
    def step(x, y):
        optimizer.zero_grad()
        logits = model(x)
        first, second = F.cross_entropy(logits, y), (logits**2).mean()
        first.backward(retain_graph=True)
        second.backward()
        optimizer.step()
        return first, second

    for i in range(8):
        yield step(*batch(i)), model


@case(replays=True)
def early_stopping_and_the_best_model(compile):
    t = Training(compile, lr=1.0)
    best, kept, patience = float("inf"), None, 0
    for i in range(12):
        loss = t.step(*batch(i)).item()
        if loss < best:
            best, kept, patience = loss, copy.deepcopy(t.model), 0
        else:
            patience += 1
        yield loss, best, kept, patience
        if patience > 8:
            break


@case(replays=True)
def training_and_validation(compile):
    model = network()
    model.insert(1, nn.BatchNorm1d(5).double())
    model.insert(2, nn.Dropout(0.3))
    optimizer = tg.optim.SGD(model.parameters(), lr=0.1)

    @compile
    def step(x, y):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    @compile
    def evaluate(x, y):
        with tg.no_grad():
            return F.cross_entropy(model(x), y)

    for i in range(12):
        model.train(i % 4 != 3)
        yield (step if model.training else evaluate)(*batch(i)), model


@case(replays=True)
def model_compiled_and_loop_outside(compile):
    model = network()
    fast = compile(model)
    optimizer = tg.optim.Adam(model.parameters(), lr=0.01)
    for i in range(10):
        x, y = batch(i)
        if i % 5 == 4:
            fast.eval()
            with tg.no_grad():
                yield fast(x), model
            continue
        fast.train()
        loss = F.cross_entropy(fast(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss, model


# -- what is annealed ----------------------------------------------------------------------------


def annealed(compile, told):
    """A loss with a weight that shrinks; `told(c, weight)` says how the step hears of it."""
    c = Config(1.0)

    def loss_of(model, x, y, *weight):
        logits = model(x)
        return F.cross_entropy(logits, y) + (weight or (c.rate,))[0] * (logits**2).mean()

    model, step = stepping(compile, loss_of)
    for i in range(10):
        yield step(*batch(i), *told(c, 0.9**i)), model


@case
def weight_annealed_by_an_attribute(compile):
    return annealed(compile, lambda c, weight: (setattr(c, "rate", weight),)[1:])


@case
def weight_annealed_by_an_argument(compile):
    return annealed(compile, lambda c, weight: (weight,))


@case(replays=True)
def weight_annealed_by_a_tensor(compile):
    return annealed(compile, lambda c, weight: (tg.tensor(weight, dtype=tg.float64),))


@case
def divergence_annealed_by_a_counter(compile):
    class Vae(nn.Module):
        def __init__(self):
            super().__init__()
            self.encoder, self.decoder = nn.Linear(4, 4), nn.Linear(2, 4)
            self.steps, self.warmup = 0, 5

        def forward(self, x):
            mean, spread = self.encoder(x).chunk(2, 1)
            z = mean + tg.randn_like(mean) * (spread / 2).exp()
            divergence = -0.5 * (1 + spread - mean**2 - spread.exp()).mean()
            self.steps += 1
            beta = min(1.0, self.steps / self.warmup)
            return ((self.decoder(z) - x) ** 2).mean() + beta * divergence

    vae, step = stepping(compile, lambda model, x: model(x), Vae().double())
    for i in range(12):
        yield step(batch(i)[0]), vae, vae.steps


@case
def temperature_halved_every_fourth_step(compile):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = network()
            self.temperature, self.calls = 2.0, 0

        def forward(self, x):
            self.calls += 1
            if self.calls % 4 == 0:
                self.temperature /= 2
            return self.net(x) / self.temperature

    model, step = stepping(compile, lambda model, x, y: F.cross_entropy(model(x), y), Model())
    for i in range(12):
        yield step(*batch(i)), model, model.temperature


@case(replays=True)
def tasks_chosen_by_a_string(compile):
    def loss_of(model, x, y, task):
        logits = model(x)
        if task == "classify":
            return F.cross_entropy(logits, y)
        return {"shrink": (logits**2).mean(), "spread": -logits.std()}[task]

    model, step = stepping(compile, loss_of)
    for i in range(12):
        yield step(*batch(i), ("classify", "shrink", "spread")[i % 3]), model


@case
def teacher_forcing(compile):
    cell = nn.RNNCell(4, 4).double()

    def loss_of(model, xs):
        h, x, loss = xs[0] * 0, xs[0], 0
        for t in range(1, len(xs)):
            h = model(x, h)
            loss = loss + ((h - xs[t]) ** 2).mean()
            x = xs[t] if random.random() < 0.5 else h
        return loss

    model, step = stepping(compile, loss_of, cell)
    for i in range(8):
        yield step(mat(i, 12).double().reshape(3, 4, 4)), model


@case
def scheduled_sampling(compile):
    c = Config(1.0)

    def loss_of(model, x, y):
        noisy = x + tg.randn_like(x) if random.random() > c.rate else x
        return F.cross_entropy(model(noisy), y)

    model, step = stepping(compile, loss_of)
    for i in range(12):
        c.rate = 1 - i / 12
        yield step(*batch(i)), model


# -- several networks ----------------------------------------------------------------------------


@case(replays=True)
def two_players(compile):
    tg.manual_seed(0)
    maker, judge = nn.Linear(2, 4), nn.Linear(4, 1)
    for_maker = tg.optim.Adam(maker.parameters(), lr=0.01)
    for_judge = tg.optim.Adam(judge.parameters(), lr=0.01)

    @compile
    def judge_step(real, z):
        for_judge.zero_grad()
        loss = F.softplus(-judge(real)).mean() + F.softplus(judge(maker(z).detach())).mean()
        loss.backward()
        for_judge.step()
        return loss

    @compile
    def maker_step(z):
        for_maker.zero_grad()
        loss = F.softplus(-judge(maker(z))).mean()
        loss.backward()
        for_maker.step()
        return loss

    for i in range(10):
        losses = [judge_step(mat(i), mat(i + 50, 4, 2))]
        if i % 2:
            losses.append(maker_step(mat(i + 90, 4, 2)))
        yield losses, maker, judge


@case
def penalty_on_gradients_every_other_step(compile):
    judge, c = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1)).double(), Config(0)

    def loss_of(model, x):
        x = x.detach().requires_grad_()
        out = model(x).sum()
        c.rate += 1
        if c.rate % 2:
            return out
        (g,) = tg.autograd.grad(out, x, create_graph=True)
        return out + ((g.norm(dim=1) - 1) ** 2).mean()

    model, step = stepping(compile, loss_of, judge)
    for i in range(10):
        yield step(batch(i)[0]), model, c.rate


@case(replays=True)
def inner_steps_of_meta_learning(compile):
    w, c = nn.Parameter(mat().double()), Config(0.1)
    optimizer = tg.optim.SGD([w], lr=0.1)

    @compile
    def step(x, y):
        optimizer.zero_grad()
        fast = w
        for _ in range(2):
            inner = ((x @ fast - y) ** 2).mean()
            (g,) = tg.autograd.grad(inner, fast, create_graph=True)
            fast = fast - c.rate * g
        loss = ((y @ fast - x) ** 2).mean()
        loss.backward()
        optimizer.step()
        return loss

    for i in range(10):
        c.rate = 0.1 if i < 5 else 0.05
        yield step(mat(i).double(), mat(i + 1).double()), w


@case(replays=True)
def two_compiled_steps_in_turn(compile):
    model = network()
    first = tg.optim.SGD(model[0].parameters(), lr=0.1)
    second = tg.optim.SGD(model[2].parameters(), lr=0.1, momentum=0.9)
    steps = [
        stepping(compile, lambda m, x, y: F.cross_entropy(m(x), y), model, optimizer)[1]
        for optimizer in (first, second)
    ]
    for i in range(12):
        yield steps[i % 2](*batch(i)), model


@case(replays=True)
def target_network_that_follows(compile):
    online = network()
    target = copy.deepcopy(online).requires_grad_(False)

    def loss_of(model, x):
        with tg.no_grad():
            best = target(x).max(1).values
        return ((model(x).max(1).values - 0.9 * best) ** 2).mean()

    model, step = stepping(compile, loss_of, online)
    for i in range(12):
        loss = step(batch(i)[0])
        if i % 4 == 3:
            target.load_state_dict(model.state_dict())
        yield loss, model, target


@case(replays=True)
def policy_with_choices_outside(compile):
    policy, c = network(), Config(1.0)
    act = compile(lambda x: policy(x).softmax(1))

    def loss_of(model, x, actions, gains):
        logs = model(x).log_softmax(1).gather(1, actions.unsqueeze(1)).squeeze(1)
        return -(logs * gains).mean() * c.rate

    policy, step = stepping(compile, loss_of, policy)
    for i in range(8):
        x, _ = batch(i)
        actions = act(x).argmax(1)
        gains = [1.0 if a == i % 3 else -0.5 for a in actions.tolist()]
        yield step(x, actions, tg.tensor(gains, dtype=tg.float64)), policy


@case(replays=True)
def nested_compiled_functions(compile):
    model = network()
    forward = compile(lambda x: model(x))
    loss_of = compile(lambda x, y: F.cross_entropy(forward(x), y))
    _, step = stepping(compile, lambda m, x, y: loss_of(x, y), model)
    for i in range(8):
        yield step(*batch(i)), model, forward(batch(i)[0])


# -- batches -------------------------------------------------------------------------------------


@dataclasses.dataclass
class Batch:
    x: Any
    y: Any
    weight: float = 1.0


def weighted(model, given):
    return given.weight * F.cross_entropy(model(given.x), given.y)


@case
def batches_as_fresh_dataclasses(compile):
    model, step = stepping(compile, weighted)
    for i in range(10):
        yield step(Batch(*batch(i), 1.0 if i < 5 else 0.5)), model


@case
def batches_as_one_dataclass_refilled(compile):
    given = Batch(*batch(0))
    model, step = stepping(compile, weighted)
    for i in range(10):
        given.x, given.y = batch(i)
        given.weight = 1.0 if i < 5 else 0.5
        yield step(given), model


@case(replays=True)
def batches_as_dicts(compile):
    def loss_of(model, given):
        return given.get("weight", 1.0) * F.cross_entropy(model(given["x"]), given["y"])

    model, step = stepping(compile, loss_of)
    for i in range(12):
        x, y = batch(i)
        yield step({"x": x, "y": y} | ({"weight": 0.5} if i % 2 else {})), model


@case(replays=True)
def batches_of_a_loader(compile):
    x, y = batch(0, 14)
    t = Training(compile)
    for _ in range(3):
        for given in DataLoader(TensorDataset(x, y), batch_size=4, shuffle=True):
            yield t.step(*given), t.model


@case(replays=True)
def batches_as_slices_of_the_data(compile):
    x, y = batch(0, 24)
    t = Training(compile)
    for i in range(12):
        k = 4 * (i % 6)
        yield t.step(x[k : k + 4], y[k : k + 4]), t.model
