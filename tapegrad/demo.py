"""The demonstration: a small network learns to read handwritten digits.

The data ships with the package: 1797 images of 8x8 pixels (see data/README.md).
"""

from __future__ import annotations

import time
from importlib.resources import files
from typing import Any

import numpy as np

from . import manual_seed, nn, no_grad, optim, randperm, tensor
from .tensor import Tensor


def load_digits() -> tuple[Tensor, Tensor]:
    """All images, scaled to 0..1 and flat, and their labels."""
    with (files("tapegrad") / "data" / "digits.npz").open("rb") as file, np.load(file) as data:
        images = data["images"].reshape(-1, 64).astype(np.float32) / 16
        labels = data["labels"].astype(np.int64)
    return tensor(images), tensor(labels)


def make_model() -> Any:
    return nn.Sequential(
        nn.Linear(64, 64),
        nn.ReLU(),
        nn.Linear(64, 32),
        nn.ReLU(),
        nn.Linear(32, 10),
    )


def accuracy(model: Any, images: Tensor, labels: Tensor) -> float:
    """The share of images whose most likely class is the right one."""
    with no_grad():
        right = (model(images).argmax(dim=1) == labels).float().mean()
    return float(right)


def digits(epochs: int, seed: int) -> float:
    """Train on three quarters of the digits, print the accuracy on the rest, and return it."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    manual_seed(seed)
    images, labels = load_digits()
    order = randperm(len(images))
    images, labels = images[order], labels[order]
    split = len(images) * 3 // 4
    model = make_model()
    optimizer = optim.Adam(model.parameters(), lr=3e-3)
    console = Console()
    console.print(
        f"{split} images to learn from, {len(images) - split} to test on; "
        f"{sum(p.numel() for p in model.parameters())} parameters"
    )
    start = time.perf_counter()
    columns = (
        TextColumn("epoch"),
        MofNCompleteColumn(),
        BarColumn(),
        TextColumn("loss {task.fields[loss]:.4f}"),
    )
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("", total=epochs, loss=float("nan"))
        for _ in range(epochs):
            for batch in randperm(split).split(64):
                optimizer.zero_grad()
                loss = nn.functional.cross_entropy(model(images[batch]), labels[batch])
                loss.backward()
                optimizer.step()
            progress.update(task, advance=1, loss=float(loss))
    seconds = time.perf_counter() - start
    reached = accuracy(model, images[split:], labels[split:])
    console.print(f"test accuracy {reached:.1%} after {epochs} epochs in {seconds:.1f} s")
    return reached
