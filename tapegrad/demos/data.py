"""The data that comes with the package, as tensors (sources and licences: data/README.md).

>>> images, labels = load_digits()
>>> images.shape, labels.shape
(Size([1797, 64]), Size([1797]))
>>> len(load_text())
148476
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.resources import files

import numpy as np

from .. import randperm, tensor
from ..core.tensor import Tensor


def load_digits() -> tuple[Tensor, Tensor]:
    """1797 handwritten digits: images (1797, 64) from 0 to 1, and labels."""
    with (files("tapegrad") / "data" / "digits.npz").open("rb") as file, np.load(file) as data:
        images = data["images"].reshape(-1, 64).astype(np.float32) / 16
        labels = data["labels"].astype(np.int64)
    return tensor(images), tensor(labels)


def load_text() -> str:
    """*Alice's Adventures in Wonderland*."""
    return (files("tapegrad") / "data" / "alice.txt").read_text("ascii")


def split_digits() -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """The digits in a random order: three quarters for training, the rest for testing."""
    images, labels = load_digits()
    order = randperm(len(images))
    images, labels = images[order], labels[order]
    count = len(images) * 3 // 4
    return (images[:count], labels[:count]), (images[count:], labels[count:])


def shuffled(count: int, size: int, steps: int) -> Iterator[Tensor]:
    """Indices of `steps` batches; each pass over the data has its own order and drops the rest."""
    made = 0
    while made < steps:
        for batch in randperm(count)[: count // size * size].split(size):
            if made == steps:
                return
            yield batch
            made += 1
