"""`tapegrad demo digits`: a small convolutional network learns to read handwritten digits.

Trains twice from the same weights with the same batches, eagerly and by replay, and compares the
times. Saves the losses and the digits that the network gets wrong.
"""

from __future__ import annotations

from statistics import median
from typing import Any

from .. import manual_seed, nn, no_grad, optim
from ..core.tensor import Tensor
from .charts import Box, curves, gallery
from .data import load_digits, shuffled, split_digits
from .picture import GREY, INK, Picture
from .report import Report
from .training import FIRST, DemoOptions, Run, training_step

DESCRIPTION = "handwritten digits with a convolutional network, eager and replay compared"
BATCH = 64
EPOCH = 1797 * 3 // 4 // BATCH  # steps in one pass over the training images
STEPS = 20 * EPOCH


def make_model() -> Any:
    return nn.Sequential(
        nn.Unflatten(1, (1, 8, 8)),
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Dropout(0.3),
        nn.Linear(32 * 4 * 4, 10),
    )


def loss_of(model: Any, x: Tensor, y: Tensor) -> Any:
    return nn.functional.cross_entropy(model(x), y)


def train(options: DemoOptions, report: Report) -> tuple[Run, Any, tuple[Tensor, Tensor]]:
    """One training run from the seed: its losses and times, the model, the test data."""
    manual_seed(options.seed)
    (images, labels), test = split_digits()
    model = make_model()
    optimizer = optim.AdamW(model.parameters(), lr=5e-3)
    schedule = optim.lr_scheduler.CosineAnnealingLR(optimizer, options.steps)

    step = options.step(optimizer, lambda x, y: loss_of(model, x, y))
    run = Run()
    title = "eager " if options.eager else "replay"
    with report.progress(title, options.steps) as advance:
        for batch in shuffled(len(images), BATCH, options.steps):
            advance(run.step(step, images[batch], labels[batch]))
            schedule.step()
    model.eval()
    return run, model, test


def run(options: DemoOptions, report: Report) -> dict[str, float]:
    """Train in both modes (or only eagerly), print accuracy and times, save a picture."""
    modes = [True] if options.eager else [True, False]
    runs: dict[str, Run] = {}
    figures: dict[str, float] = {}
    model: Any = make_model()
    parameters = sum(p.numel() for p in model.parameters())
    report.say(f"1347 images to learn from, 450 to test on, {parameters} parameters")
    _warm_up(options)
    for eager in modes:
        name = "eager" if eager else "replay"
        chosen = DemoOptions(options.steps, options.output, eager, options.seed)
        runs[name], model, test = train(chosen, report)
        with no_grad():
            guesses = model(test[0]).argmax(dim=1)
        accuracy = float((guesses == test[1]).float().mean())
        figures[f"{name} accuracy"] = accuracy
        figures[f"{name} seconds"] = runs[name].total
        report.headline(
            f"{name}: test accuracy {accuracy:.1%}, loss {runs[name].losses[-1]:.4f}, "
            f"{options.steps} steps in {runs[name].total:.1f} s"
        )
    if len(runs) == 2 and options.steps > FIRST:
        figures["speedup"] = _compare(runs["eager"], runs["replay"], report)
    path = options.output / "digits.png"
    _draw(runs, test, guesses, accuracy).save(path)
    report.say(f"losses and mistakes are drawn in {path}")
    return figures


def _warm_up(options: DemoOptions) -> None:
    """A few eager steps of another model, so that one-time work is in neither time."""
    images, labels = load_digits()
    model = make_model()
    step = training_step(optim.AdamW(model.parameters()), lambda x, y: loss_of(model, x, y))
    for _ in range(min(options.steps, FIRST)):
        step(images[:BATCH], labels[:BATCH])


def _compare(eager: Run, replay: Run, report: Report) -> float:
    """The speedup of the replayed run, with all its calls counted."""
    slow, fast = median(eager.seconds[FIRST:]), median(replay.seconds[FIRST:])
    report.headline(
        f"replay was {eager.total / replay.total:.1f} times as fast, its first {FIRST} calls "
        f"included, which record and compile the step ({sum(replay.seconds[:FIRST]):.2f} s)"
    )
    report.say(
        f"after those, a step took {fast * 1e3:.2f} ms, and {slow * 1e3:.2f} ms eagerly (medians)"
    )
    return eager.total / replay.total


def _draw(runs: dict[str, Run], test: Any, guesses: Tensor, accuracy: float) -> Picture:
    picture = Picture(1280, 560)
    lines = {name: run.curve_over_time() for name, run in runs.items()}
    curves(picture, Box(32, 32, 660, 540), "Loss while training", lines, "seconds", log=True)
    wrong = (guesses != test[1]).nonzero().flatten().tolist()
    left = wrong[:12]
    right = [i for i in range(len(guesses)) if i not in wrong][: 24 - len(left)]
    picture.text(720, 32, f"Test accuracy {accuracy:.1%}", INK, 20, bold=True)
    picture.text(720, 68, f"{len(wrong)} of {len(guesses)} digits are read wrongly", GREY, 14)
    images = test[0].reshape(-1, 8, 8).numpy()
    marks = [f"{test[1][i].item()} as {guesses[i].item()}" for i in left]
    marks += [f"{guesses[i].item()}" for i in right]
    gallery(picture, 720, 100, images[[*left, *right]], 6, 9, gap=14, marks=marks)
    return picture
