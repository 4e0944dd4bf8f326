"""Checkpoint: interrupted and resumed training is the same to the last bit; damage is survived."""

import copy
import os
import random
import subprocess
import sys
import threading
import warnings

import numpy as np
import pytest
from kill_saving import ROOT, kill

import tapegrad as tg
from tapegrad import nn, optim
from tapegrad.nn import functional as F
from tapegrad.saving import atomic


class Loader:
    """Batches in an order drawn anew in every epoch, with a position that can be saved."""

    def __init__(self, count=12, size=4):
        rng = np.random.default_rng(3)
        self.x = tg.tensor(rng.normal(size=(count * size, 20)).astype(np.float32))
        self.y = tg.tensor(rng.integers(0, 5, count * size))
        self.count, self.size = count, size
        self.order, self.position = [], 0

    def next(self):
        if self.position == len(self.order):
            self.order = tg.randperm(self.count).tolist()
            self.position = 0
        rows = self.order[self.position] * self.size
        self.position += 1
        return self.x[rows : rows + self.size], self.y[rows : rows + self.size]

    def state_dict(self):
        return {"order": list(self.order), "position": self.position}

    def load_state_dict(self, state):
        self.order, self.position = list(state["order"]), state["position"]


class Training:
    """A model with dropout and batch statistics, AdamW, a schedule, shuffled data, noise."""

    def __init__(self, folder, compiled=False, **options):
        tg.manual_seed(1)
        self.model = nn.Sequential(
            nn.Linear(20, 64), nn.ReLU(), nn.Dropout(0.3), nn.BatchNorm1d(64), nn.Linear(64, 5)
        )
        self.optimizer = optim.AdamW(self.model.parameters(), lr=1e-2)
        self.scheduler = optim.lr_scheduler.CosineAnnealingLR(self.optimizer, 20)
        self.loader = Loader()
        self.noise = np.random.default_rng(5)
        self.step = tg.compile(self._step) if compiled else self._step
        self.checkpoint = tg.Checkpoint(
            folder,
            model=self.model,
            optimizer=self.optimizer,
            scheduler=self.scheduler,
            loader=self.loader,
            noise=self.noise,
            **options,
        )

    def _step(self, x, y):
        self.optimizer.zero_grad()
        loss = F.cross_entropy(self.model(x), y)
        loss.backward()
        self.optimizer.step()
        return loss

    def train(self, steps):
        """The losses of these steps."""
        losses = []
        for _ in steps:
            x, y = self.loader.next()
            jitter = random.random() + np.random.rand() + self.noise.random()
            losses.append(self.step(x + jitter * 0.01, y).item())
            self.scheduler.step()
        return losses

    def bits(self):
        """All that decides how the training goes on, as bytes."""
        state = {
            name: part.state_dict()
            for name, part in self.checkpoint.parts.items()
            if name != "noise"
        }
        tensors = [*state["model"].values()]
        tensors += [t for values in state["optimizer"]["state"].values() for t in values.values()]
        plain = (state["optimizer"]["param_groups"], state["scheduler"], state["loader"])
        randomness = (tg.get_rng_state(), random.getstate(), np.random.get_state()[1].tobytes())
        return [t._array.tobytes() for t in tensors], repr(plain), randomness


def seed_all(number):
    random.seed(number)
    np.random.seed(number)


@pytest.mark.parametrize("interruption", [0, 1, 2, 3, 7, 14])
@pytest.mark.parametrize("lives_on", [False, True], ids=["new-process", "same-objects"])
@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
def test_resumed_training_has_the_same_bits(tmp_path, interruption, lives_on, compiled):
    seed_all(0)
    whole = Training(tmp_path / "whole", compiled)
    expected = whole.train(range(16))
    bits = whole.bits()

    seed_all(0)
    first = Training(tmp_path / "parts", compiled)
    losses = first.train(range(interruption))
    first.checkpoint.save(interruption)
    if lives_on:
        first.train(range(4))
        second = first
    else:
        second = Training(tmp_path / "parts", compiled)
        seed_all(99)
    saved = second.checkpoint.restore()
    assert saved.step == interruption
    assert losses + second.train(range(saved.step, 16)) == expected
    assert second.bits() == bits


class ScaledTraining(Training):
    """The same in float16, with a scale that grows every few steps and clipped gradients."""

    def __init__(self, folder, compiled):
        self.scaler = tg.amp.GradScaler("cpu", init_scale=2.0**12, growth_interval=3)
        super().__init__(folder, compiled, scaler=self.scaler)

    def _step(self, x, y):
        self.optimizer.zero_grad()
        with tg.autocast("cpu", tg.float16):
            loss = F.cross_entropy(self.model(x), y)
        self.scaler.scale(loss).backward()
        self.scaler.unscale_(self.optimizer)
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return loss


@pytest.mark.parametrize("interruption", [1, 2, 7, 14])
@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
def test_resumed_training_with_a_scaler_has_the_same_bits(tmp_path, interruption, compiled):
    seed_all(0)
    whole = ScaledTraining(tmp_path / "whole", compiled)
    expected = whole.train(range(16))
    seed_all(0)
    first = ScaledTraining(tmp_path / "parts", compiled)
    losses = first.train(range(interruption))
    first.checkpoint.save(interruption)
    second = ScaledTraining(tmp_path / "parts", compiled)
    second.checkpoint.restore()
    assert losses + second.train(range(interruption, 16)) == expected
    assert second.bits() == whole.bits()
    assert second.scaler.state_dict() == whole.scaler.state_dict()
    assert whole.scaler.get_scale() > 2.0**12


def test_generators_are_parts(tmp_path):
    parts = {
        "ours": tg.Generator().manual_seed(1),
        "numpys": np.random.default_rng(2),
        "pythons": random.Random(3),
    }

    def draw():
        return (
            tg.rand(3, generator=parts["ours"]).tolist(),
            parts["numpys"].random(3).tolist(),
            parts["pythons"].random(),
            tg.rand(2).tolist(),
            np.random.rand(),
            random.random(),
        )

    checkpoint = tg.Checkpoint(tmp_path, **parts)
    draw()
    checkpoint.save(1)
    expected = draw()
    assert draw() != expected
    checkpoint.restore()
    assert draw() == expected


def test_global_random_states_are_left_alone_if_not_wanted(tmp_path):
    checkpoint = tg.Checkpoint(tmp_path, random_state=False)
    checkpoint.save(1)
    seed_all(3)
    tg.manual_seed(3)
    state = random.getstate(), tg.get_rng_state()
    checkpoint.restore()
    assert (random.getstate(), tg.get_rng_state()) == state


# -- what is kept ------------------------------------------------------------------------------


def steps_in(folder):
    return sorted(int(name.split("-step-")[1].split(".")[0]) for name in os.listdir(folder))


def test_the_last_ones_are_kept(tmp_path):
    checkpoint = tg.Checkpoint(tmp_path / "a" / "b", keep=3, model=nn.Linear(1, 1))
    assert checkpoint.restore() is None
    assert checkpoint.latest() is None
    assert list(checkpoint) == []
    for step in (1, 2, 10, 11, 12):
        path = checkpoint.save(step, loss=1 / step)
    assert steps_in(tmp_path / "a" / "b") == [10, 11, 12]
    assert [s.step for s in checkpoint] == [10, 11, 12]
    assert len(checkpoint) == 3
    assert checkpoint.latest() == (12, {"loss": 1 / 12}, path, None)


def test_the_best_one_is_kept_too(tmp_path):
    checkpoint = tg.Checkpoint(tmp_path, keep=2, best="loss", model=nn.Linear(1, 1))
    for step, loss in enumerate([3.0, 1.0, tg.tensor(2.0), 5, float("nan"), 4]):
        checkpoint.save(step, loss=loss)
    assert steps_in(tmp_path) == [1, 4, 5]
    assert checkpoint.best().step == 1
    assert checkpoint.restore(1).metrics == {"loss": 1.0}
    checkpoint.save(6, loss=0.5)
    assert steps_in(tmp_path) == [5, 6]
    assert tg.Checkpoint(tmp_path, best="loss", mode="max").best().step == 5
    with pytest.raises(ValueError, match="loss"):
        checkpoint.save(7)


def test_all_are_kept(tmp_path):
    checkpoint = tg.Checkpoint(tmp_path, keep=None)
    for step in range(8):
        checkpoint.save(step)
    assert steps_in(tmp_path) == list(range(8))


def test_going_back_makes_the_later_ones_the_past(tmp_path):
    model = nn.Linear(1, 1)
    checkpoint = tg.Checkpoint(tmp_path, keep=4, model=model)
    for step in (10, 20, 30):
        checkpoint.save(step)
    assert checkpoint.restore(10).step == 10
    checkpoint.save(11)
    assert checkpoint.latest().step == 11
    assert tg.Checkpoint(tmp_path, keep=4, model=model).restore().step == 11
    checkpoint.save(20)
    assert sorted(steps_in(tmp_path)) == [10, 11, 20, 30]
    assert checkpoint.latest().step == 20


def test_extra_and_the_names_in_the_file(tmp_path):
    model = nn.Linear(2, 1)
    checkpoint = tg.Checkpoint(tmp_path, model=model)
    path = checkpoint.save(3, extra={"history": [1.0, 2.0], "best": tg.ones(2)})
    saved = checkpoint.restore()
    assert saved.extra["history"] == [1.0, 2.0]
    assert saved.path == path
    loaded = tg.load(path)
    assert loaded["model"]["weight"].tolist() == model.weight.tolist()
    assert checkpoint.load()["checkpoint"]["step"] == 3


def test_other_files_in_the_folder_are_left_alone(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "checkpoint-x-step-3.safetensors").write_text("mine")
    checkpoint = tg.Checkpoint(tmp_path, keep=1)
    checkpoint.save(1)
    checkpoint.save(2)
    assert len(os.listdir(tmp_path)) == 3


# -- damage ------------------------------------------------------------------------------------


def damage(path, at=-3):
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def test_a_damaged_file_is_left_out_with_a_warning(tmp_path):
    model = nn.Linear(3, 3)
    checkpoint = tg.Checkpoint(tmp_path, model=model)
    checkpoint.save(1)
    weight = model.weight.tolist()
    with tg.no_grad():
        model.weight.zero_()
    damage(checkpoint.save(2))
    with pytest.raises(tg.SavingError, match=r"step-2.*damaged"):
        checkpoint.restore(skip_damaged=False)
    with pytest.raises(tg.SavingError, match=r"step-2.*damaged"):
        checkpoint.restore(2)
    assert (model.weight == 0).all()
    with pytest.warns(UserWarning, match=r"going back to step 1.*step-2.safetensors"):
        assert checkpoint.restore().step == 1
    assert model.weight.tolist() == weight
    checkpoint.save(3)
    assert checkpoint.restore().step == 3


def test_a_damaged_header_is_left_out_of_the_list(tmp_path):
    checkpoint = tg.Checkpoint(tmp_path)
    checkpoint.save(1)
    damage(checkpoint.save(2), 100)
    with pytest.warns(UserWarning, match=r"step-2.*header is damaged"):
        assert [s.step for s in checkpoint] == [1]
    with pytest.warns(UserWarning, match="step-2"):
        assert checkpoint.latest().step == 1


def test_if_all_are_damaged_training_does_not_begin_anew(tmp_path):
    checkpoint = tg.Checkpoint(tmp_path)
    for step in (1, 2):
        damage(checkpoint.save(step), 50)
    with pytest.raises(tg.SavingError, match=r"no checkpoint can be read:\n.*step-2.*\n.*step-1"):
        checkpoint.restore()


def test_every_changed_byte_of_a_checkpoint_is_noticed(tmp_path):
    model = nn.Linear(2, 2)
    optimizer = optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    model(tg.ones(1, 2)).sum().backward()
    optimizer.step()
    checkpoint = tg.Checkpoint(tmp_path, model=model, optimizer=optimizer, random_state=False)
    path = checkpoint.save(1, loss=0.5)
    data = path.read_bytes()
    assert len(data) < 4000
    for i in range(len(data)):
        path.write_bytes(data[:i] + bytes([data[i] ^ 1 << i % 8]) + data[i + 1 :])
        with pytest.raises(tg.SavingError, match="step-1"):
            checkpoint.restore(1)


class Stubborn:
    """A part that refuses its state."""

    def __init__(self):
        self.value = 1
        self.stubborn = False

    def state_dict(self):
        return {"value": self.value}

    def load_state_dict(self, state):
        if self.stubborn and state["value"] == 1:
            raise ValueError("no")
        self.value = state["value"]


def test_what_does_not_fit_changes_nothing(tmp_path):
    seed_all(0)
    training = Training(tmp_path)
    part = Stubborn()
    training.checkpoint.parts["part"] = part
    training.train(range(3))
    training.checkpoint.save(3)
    training.train(range(2))
    part.value, part.stubborn = 2, True
    bits = training.bits()
    with pytest.raises(ValueError, match="no"):
        training.checkpoint.restore()
    assert training.bits() == bits
    expected = copy.deepcopy(training.model)
    assert expected.state_dict().keys() == training.model.state_dict().keys()
    other = tg.Checkpoint(tmp_path, model=nn.Linear(2, 2))
    with pytest.raises(tg.SavingError, match=r"holds .*'optimizer'.*restore\(strict=False\)"):
        other.restore()
    with pytest.raises(RuntimeError, match="nothing was changed"):
        other.restore(strict=False)


def test_parts_that_are_in_both(tmp_path):
    model = nn.Linear(2, 2)
    tg.Checkpoint(tmp_path, model=model, scheduler=Stubborn()).save(4)
    other, loader = nn.Linear(2, 2), Loader()
    assert tg.Checkpoint(tmp_path, model=other, loader=loader).restore(strict=False).step == 4
    assert other.weight.tolist() == model.weight.tolist()


def test_a_save_that_fails_leaves_the_others(tmp_path, monkeypatch):
    checkpoint = tg.Checkpoint(tmp_path, keep=1, model=nn.Linear(2, 2))
    checkpoint.save(1)

    def fail(*args):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(atomic.os, "fsync", fail)
        with pytest.raises(OSError, match=r"No space left.*step-2"):
            checkpoint.save(2)
    assert steps_in(tmp_path) == [1]
    assert checkpoint.restore().step == 1


def test_arguments_that_make_no_sense(tmp_path):
    with pytest.raises(TypeError, match="model has no state_dict"):
        tg.Checkpoint(tmp_path, model=3)
    with pytest.raises(ValueError, match="keep"):
        tg.Checkpoint(tmp_path, keep=0)
    with pytest.raises(ValueError, match="mode"):
        tg.Checkpoint(tmp_path, mode="best")
    with pytest.raises(ValueError, match="take another"):
        tg.Checkpoint(tmp_path, checkpoint=nn.Linear(1, 1))
    checkpoint = tg.Checkpoint(tmp_path)
    for step in (-1, True, 1.5, "1"):
        with pytest.raises(ValueError, match="step"):
            checkpoint.save(step)
    with pytest.raises(ValueError, match="by which metric"):
        checkpoint.best()
    with pytest.raises(FileNotFoundError, match="no checkpoint of step 3"):
        checkpoint.restore(3)


def test_an_extra_that_cannot_be_saved(tmp_path):
    checkpoint = tg.Checkpoint(tmp_path)
    with pytest.raises(tg.SavingError, match=r"\['checkpoint'\]\['extra'\]\['f'\]: builtin"):
        checkpoint.save(1, extra={"f": len})
    assert os.listdir(tmp_path) == []


# -- processes ---------------------------------------------------------------------------------


def test_what_killed_processes_have_not_removed(tmp_path, monkeypatch):
    for step in range(5):  # as if each had been killed after its save
        tg.Checkpoint(tmp_path, keep=None).save(step)
    checkpoint = tg.Checkpoint(tmp_path, keep=2)

    def interrupted(*args):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("tapegrad.saving.checkpoint.write", interrupted)
        with pytest.raises(KeyboardInterrupt):
            checkpoint.save(5)
    assert [saved.step for saved in checkpoint] == [3, 4]
    checkpoint.save(5)
    assert [saved.step for saved in checkpoint] == [4, 5]


def test_killed_while_saving():
    counts = kill(20)
    assert counts["kills"] == 20
    assert counts["saves"] > 0


def test_leftovers_of_the_living_stay(tmp_path):
    path = tmp_path / "file"
    with atomic.replacing(str(path)):
        assert atomic.remove_leftovers(tmp_path) == []
        assert len(os.listdir(tmp_path)) == 1
    left = tmp_path / ".file.abc.unfinished"
    left.write_bytes(b"half")
    assert atomic.remove_leftovers(tmp_path) == [left]
    assert os.listdir(tmp_path) == ["file"]


def test_trainings_that_share_a_folder(tmp_path):
    """Nobody should do that, but it must not break anything."""
    failures = []

    def work(number):
        try:
            model = nn.Linear(4, 4)
            checkpoint = tg.Checkpoint(tmp_path, keep=2, model=model)
            for step in range(10):
                checkpoint.save(number * 100 + step)
                checkpoint.latest()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert tg.Checkpoint(tmp_path, model=nn.Linear(4, 4)).restore() is not None


SCRIPT = """
import hashlib, os, sys
import tapegrad as tg
from tapegrad import nn, optim

folder, stop = sys.argv[1], int(sys.argv[2])
tg.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Dropout(0.2), nn.Linear(32, 3))
optimizer = optim.AdamW(model.parameters(), lr=0.01)
scheduler = optim.lr_scheduler.StepLR(optimizer, 3, 0.5)

@tg.compile
def step(x, y):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    return loss

checkpoint = tg.Checkpoint(folder, model=model, optimizer=optimizer, scheduler=scheduler)
saved = checkpoint.restore()
for number in range(saved.step + 1 if saved else 0, 10):
    if number == stop:
        os._exit(0)
    x = tg.randn(16, 8)
    step(x, (x.sum(1) > 0).long())
    scheduler.step()
    checkpoint.save(number)
for value in model.state_dict().values():
    print(hashlib.sha256(value.numpy().tobytes()).hexdigest())
"""


def run(folder, stop):
    command = [sys.executable, "-c", SCRIPT, str(folder), str(stop)]
    environment = {**os.environ, "PYTHONPATH": os.fspath(ROOT)}
    done = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    return done.stdout


def test_processes_that_end_and_begin_again(tmp_path):
    expected = run(tmp_path / "whole", -1)
    assert len(expected.split()) == 4
    for stop in (1, 4):
        assert run(tmp_path / "parts", stop) == ""
    assert run(tmp_path / "parts", -1) == expected
