"""DataLoader against PyTorch's: batches per second in the steady state.

Both libraries read the same datasets: small images with a NumPy transform, rows of tensors, and
texts, from two persistent workers or in the main process. A timed call takes `BATCHES` batches from
an endless iterator, so that no start of an epoch is measured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import numpy as np
import torch
import torch.utils.data

import tapegrad

from .measure import Report, interleaved

BATCHES = 20
#: largest ratio of seconds per batch to torch's: 0.9 of torch's batches per second
FED = 1 / 0.9
SAMPLES = 1024
ROUNDS = 6


class Images:
    """Images of 3x32x32 bytes, flipped at random and normalised; indices repeat after 1024."""

    def __init__(self) -> None:
        rng = np.random.default_rng(0)
        self.images = rng.integers(0, 256, (SAMPLES, 3, 32, 32), dtype=np.uint8)
        self.mean = np.array([0.49, 0.48, 0.45], np.float32).reshape(3, 1, 1)
        self.spread = np.array([0.25, 0.24, 0.26], np.float32).reshape(3, 1, 1)

    def __len__(self) -> int:
        return 1 << 20

    def __getitem__(self, index: int) -> tuple[Any, int]:
        image = self.images[index % SAMPLES].astype(np.float32) * np.float32(1 / 255)
        if np.random.random() < 0.5:
            image = image[:, :, ::-1]
        return (image - self.mean) / self.spread, index % 10


class Texts:
    """Dicts of tokens and a name."""

    def __init__(self) -> None:
        self.tokens = np.random.default_rng(0).integers(0, 50_000, (SAMPLES, 256))

    def __len__(self) -> int:
        return 1 << 20

    def __getitem__(self, index: int) -> dict[str, Any]:
        tokens = self.tokens[index % SAMPLES]
        return {"tokens": tokens[:-1], "targets": tokens[1:], "name": str(index), "length": 255}


def rows(lib: ModuleType) -> Any:
    """A TensorDataset of 3x32x32 floats and labels."""
    rng = np.random.default_rng(0)
    images = rng.standard_normal((SAMPLES, 3, 32, 32), np.float32)
    labels = rng.integers(0, 10, SAMPLES)
    return lib.utils.data.TensorDataset(lib.tensor(images), lib.tensor(labels))


def loader(lib: ModuleType, dataset: Any, workers: int, batch_size: int) -> Any:
    return lib.utils.data.DataLoader(
        dataset,
        batch_size=batch_size,
        sampler=Endless(SAMPLES),
        num_workers=workers,
        persistent_workers=workers > 0,
    )


class Endless:
    """An endless sampler: one random permutation of the indices after another."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __iter__(self) -> Iterator[int]:
        rng = np.random.default_rng(0)
        while True:
            yield from rng.permutation(self.size).tolist()


def taking(batches: Iterator[Any]) -> Callable[[], None]:
    """A call that takes `BATCHES` batches and reads a number of each, as a training step would."""

    def run() -> None:
        for _ in range(BATCHES):
            batch = next(batches)
            first = batch["tokens"] if isinstance(batch, dict) else batch[0]
            first[0].sum().item()

    return run


def measure(
    report: Report,
    what: str,
    dataset: Callable[[ModuleType], Any],
    workers: int,
    size: int,
    target: float,
) -> None:
    loaders = {
        "torch": loader(torch, dataset(torch), workers, size),
        "tapegrad": loader(tapegrad, dataset(tapegrad), workers, size),
    }
    calls = {name: taking(iter(made)) for name, made in loaders.items()}
    times = interleaved(calls, ROUNDS, settle_seconds=0.2, most_seconds=0.4)
    rates = {name: BATCHES / seconds for name, seconds in times.items()}
    figures = f"tapegrad {rates['tapegrad']:.0f}, torch {rates['torch']:.0f} batches/s"
    report.add(what, figures, times["tapegrad"] / times["torch"], target)


def run(report: Report) -> None:
    measure(report, "images, 2 workers, batch 64", lambda lib: Images(), 2, 64, FED)
    measure(report, "images, 2 workers, batch 128", lambda lib: Images(), 2, 128, FED)
    measure(report, "images, main process, batch 128", lambda lib: Images(), 0, 128, FED)
    measure(report, "texts, 2 workers, batch 64", lambda lib: Texts(), 2, 64, FED)
    measure(report, "TensorDataset, 2 workers, batch 128", rows, 2, 128, 0.5)
    measure(report, "TensorDataset, main process, batch 128", rows, 0, 128, 0.5)
