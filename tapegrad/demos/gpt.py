"""`tapegrad demo gpt`: a small transformer learns to write like Lewis Carroll, letter by letter.

Trains a decoder-only transformer on *Alice's Adventures in Wonderland*, prints the loss on the part
of the text that it never saw, and lets it write.
"""

from __future__ import annotations

import math
from typing import Any

from .. import (
    arange,
    compile,
    int64,
    manual_seed,
    multinomial,
    nn,
    no_grad,
    optim,
    randint,
    tensor,
    zeros,
)
from ..core.tensor import Tensor
from .charts import Box, curves
from .data import load_text
from .picture import Picture
from .report import Report
from .training import DemoOptions, Run

DESCRIPTION = "a character-level transformer on Alice's Adventures in Wonderland"
STEPS = 800
BATCH = 16
LENGTH = 64
WARM_UP = 50


class Block(nn.Module):
    """Attention to earlier letters, and a feed-forward network at each letter."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def attend(self, x: Tensor) -> Any:
        batch, length, width = x.shape
        split = self.qkv(x).reshape(batch, length, 3, self.heads, width // self.heads)
        q, k, v = split.permute(2, 0, 3, 1, 4).unbind(0)
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(batch, length, width))

    def forward(self, x: Tensor) -> Any:
        x = x + self.attend(self.norm1(x))
        return x + self.down(nn.functional.gelu(self.up(self.norm2(x))))


class Gpt(nn.Module):
    """Maps letters to the scores of the next letter, at each position."""

    def __init__(self, letters: int, width: int = 96, heads: int = 4, layers: int = 3) -> None:
        super().__init__()
        self.letters, self.places = nn.Embedding(letters, width), nn.Embedding(LENGTH, width)
        self.blocks = nn.Sequential(*[Block(width, heads) for _ in range(layers)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, letters)

    def forward(self, x: Tensor) -> Any:
        x = self.letters(x) + self.places.weight[: x.shape[1]]
        return self.head(self.norm(self.blocks(x)))


class Alphabet:
    """Texts as numbers."""

    def __init__(self, text: str) -> None:
        self.letters = sorted(set(text))
        self.numbers = {letter: i for i, letter in enumerate(self.letters)}

    def encode(self, text: str) -> Tensor:
        return tensor([self.numbers[letter] for letter in text])

    def decode(self, numbers: list[int]) -> str:
        return "".join(self.letters[i] for i in numbers)


def loss_of(model: Gpt, x: Tensor, y: Tensor) -> Any:
    return nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten())


def batch_of(text: Tensor) -> tuple[Tensor, Tensor]:
    """Random pieces of the text, and the same pieces shifted by one letter."""
    places = randint(0, len(text) - LENGTH, (BATCH, 1)) + arange(LENGTH)
    return text[places], text[places + 1]


def learning_rate(step: int, steps: int) -> float:
    """A factor that rises linearly, then falls along a cosine to a tenth."""
    if step < WARM_UP:
        return (step + 1) / WARM_UP
    return 0.55 + 0.45 * math.cos(math.pi * step / steps)


def held_out_loss(model: Gpt, text: Tensor) -> float:
    """The mean loss on all whole pieces of a text."""
    count = (len(text) - 1) // LENGTH
    x, y = text[: count * LENGTH], text[1 : count * LENGTH + 1]
    with no_grad():
        return float(loss_of(model, x.reshape(count, LENGTH), y.reshape(count, LENGTH)))


def write(model: Gpt, start: Tensor, count: int, temperature: float = 0.8) -> list[int]:
    """Continue a text; each letter is drawn from the model's distribution."""

    @compile
    def following(window: Tensor, last: Tensor) -> Any:
        scores = model(window)[0].index_select(0, last)
        return (scores / temperature).softmax(dim=1)

    written: list[int] = start.tolist()
    window = zeros(1, LENGTH, dtype=int64)
    with no_grad():
        for _ in range(count):
            seen = written[-LENGTH:]
            window[0, : len(seen)] = tensor(seen)  # no position attends to the rest of the window
            chances = following(window, tensor([len(seen) - 1]))
            written.append(int(multinomial(chances, 1).item()))
    return written


def run(options: DemoOptions, report: Report) -> dict[str, float]:
    """Train, print the loss on the held-out text and a sample, save the curve."""
    manual_seed(options.seed)
    text = load_text()
    alphabet = Alphabet(text)
    split = len(text) * 9 // 10
    train, test = alphabet.encode(text[:split]), alphabet.encode(text[split:])
    model = Gpt(len(alphabet.letters))
    optimizer = optim.AdamW(model.parameters(), lr=4e-3, weight_decay=0.05)
    schedule = optim.lr_scheduler.LambdaLR(optimizer, lambda i: learning_rate(i, options.steps))
    parameters = sum(p.numel() for p in model.parameters())
    report.say(
        f"{len(train)} letters to learn from, {len(test)} to test on, {parameters} parameters"
    )

    step = options.step(optimizer, lambda x, y: loss_of(model, x, y))
    run = Run()
    with report.progress("gpt", options.steps) as advance:
        for _ in range(options.steps):
            advance(run.step(step, *batch_of(train)))
            schedule.step()
    model.eval()
    loss = held_out_loss(model, test)
    report.headline(
        f"loss {loss:.3f} for each letter of the held-out text ({loss / math.log(2):.2f} bits; "
        f"guessing at random {math.log(len(alphabet.letters)):.2f}); "
        f"{options.steps} steps in {run.total:.1f} s"
    )
    sample = write(model, alphabet.encode("Alice "), min(400, 2 * options.steps))
    report.quote(alphabet.decode(sample))
    picture = Picture(960, 560)
    title = f"Loss for each letter: {loss:.2f} on text it never saw"
    curves(picture, Box(32, 32, 920, 540), title, {"": run.curve()}, "step")
    path = picture.save(options.output / "gpt.png")
    report.say(f"the loss is drawn in {path}")
    return {"loss": loss, "seconds": run.total}
