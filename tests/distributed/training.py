"""What the programs of divided models share: training, eager or compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tapegrad as tg
from tapegrad import optim

STEPS = 20


def trained(
    loss_of: Callable[..., Any], parameters: Any, batches: list[Any], compiled: bool
) -> Any:
    """The losses of 20 steps of SGD."""
    optimizer = optim.SGD(list(parameters), lr=0.1, momentum=0.9)

    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = loss_of(x, y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    run = tg.compile(step, fullgraph=True) if compiled else step
    return [float(run(x, y)) for x, y in batches]
