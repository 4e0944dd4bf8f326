"""`tapegrad demo vae`: a variational autoencoder learns to draw digits.

Saves digits beside their reconstructions, and new digits made from random numbers.
"""

from __future__ import annotations

from typing import Any

from .. import manual_seed, nn, no_grad, optim, randn, randn_like
from ..core.tensor import Tensor
from .charts import Box, curves, gallery
from .data import shuffled, split_digits
from .digits import EPOCH
from .picture import GREY, INK, Picture
from .report import Report
from .training import DemoOptions, Run

DESCRIPTION = "a variational autoencoder that draws digits"
BATCH = 64
STEPS = 100 * EPOCH
CODE = 10  # numbers in the code of a digit


class Vae(nn.Module):
    """An image becomes a normal distribution of codes; a code becomes an image."""

    def __init__(self, hidden: int = 256) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(64, hidden), nn.ReLU(), nn.Linear(hidden, 2 * CODE))
        self.decoder = nn.Sequential(
            nn.Linear(CODE, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(),
            nn.Linear(hidden, 64),
        )  # fmt: skip

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        mean, log_variance = self.encoder(x).chunk(2, dim=1)
        code = mean + randn_like(mean) * (log_variance / 2).exp()
        return self.decoder(code), mean, log_variance


def loss_of(model: Vae, x: Tensor) -> Any:
    """The negative evidence bound of an image: its reconstruction error, plus the KL of its
    code."""
    logits, mean, log_variance = model(x)
    redrawn = nn.functional.binary_cross_entropy_with_logits(logits, x, reduction="sum")
    strayed = 0.5 * (mean**2 + log_variance.exp() - log_variance - 1).sum()
    return (redrawn + strayed) / len(x)


def run(options: DemoOptions, report: Report) -> dict[str, float]:
    """Train, print the bound on the test images, save what the model draws."""
    manual_seed(options.seed)
    (images, _), (test, _) = split_digits()
    model = Vae()
    optimizer = optim.Adam(model.parameters(), lr=2e-3)
    schedule = optim.lr_scheduler.CosineAnnealingLR(optimizer, options.steps)
    parameters = sum(p.numel() for p in model.parameters())
    report.say(f"1347 images to learn from, 450 to test on, {parameters} parameters")

    step = options.step(optimizer, lambda x: loss_of(model, x))
    run = Run()
    with report.progress("vae", options.steps) as advance:
        for batch in shuffled(len(images), BATCH, options.steps):
            advance(run.step(step, images[batch]))
            schedule.step()
    model.eval()
    with no_grad():
        loss = float(loss_of(model, test))
        redrawn = model.decoder(model.encoder(test[:10])[:, :CODE]).sigmoid()
        drawn = model.decoder(randn(40, CODE)).sigmoid()
        error = float((model.decoder(model.encoder(test)[:, :CODE]).sigmoid() - test).abs().mean())
    report.headline(
        f"test images: negative evidence bound {loss:.2f} nats, {error:.3f} mean error of a pixel; "
        f"{options.steps} steps in {run.total:.1f} s"
    )
    path = _draw(run, test[:10], redrawn, drawn).save(options.output / "vae.png")
    report.say(f"reconstructions and new digits are drawn in {path}")
    return {"loss": loss, "error": error, "seconds": run.total}


def _draw(run: Run, test: Tensor, redrawn: Tensor, drawn: Tensor) -> Picture:
    picture = Picture(1280, 632)
    curves(picture, Box(32, 32, 560, 610), "Negative evidence bound", {"": run.curve()}, "step")
    rows: list[tuple[Any, ...]] = [
        ("Test images", "above; below, the same after encoding and decoding", test, redrawn),
        ("Digits nobody wrote", "decoded from random numbers", drawn),
    ]
    top = 32
    for title, note, *blocks in rows:
        picture.text(612, top, title, INK, 20, bold=True)
        picture.text(612, top + 32, note, GREY, 14)
        top += 62
        for block in blocks:
            shape = block.reshape(-1, 8, 8).numpy()
            _, top = gallery(picture, 612, top, shape, 10, 7, gap=7)
            top += 7
        top += 34
    return picture
