"""A training problem: a loss, its inputs, its parameters and how a step updates them.

Comes in: a library with PyTorch's names (torch or tapegrad) and a loss written with it. Goes out: a
`Problem`, whose `step` the benchmarks time and the tests compare. NumPy draws the numbers, so a
problem starts from the same state in every library.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any

import numpy as np

Parameters = dict[str, Any]


class Problem:
    """One training step, or forward and backward if no optimizer is given.

    `change` modifies the gradients before the optimizer uses them (clipping).
    """

    def __init__(
        self,
        loss: Callable[..., Any],
        inputs: Iterable[Any],
        parameters: Parameters,
        optimizer: Any = None,
        change: Callable[[Parameters], Any] | None = None,
    ) -> None:
        self.loss = loss
        self.inputs = tuple(inputs)
        self.parameters = parameters
        self.optimizer = optimizer
        self.change = change

    def step(self, *inputs: Any) -> Any:
        """Gradients of the loss and, with an optimizer, an update; returns the loss."""
        for p in self.parameters.values():
            p.grad = None
        loss = self.loss(*inputs)
        loss.backward()
        if self.change is not None:
            self.change(self.parameters)
        if self.optimizer is not None:
            self.optimizer.step()
        return loss

    def __call__(self) -> Any:
        return self.step(*self.inputs)

    def arrays(self) -> dict[str, Any]:
        """Copies of the parameters as NumPy arrays."""
        return {name: p.detach().numpy().copy() for name, p in self.parameters.items()}


def generator() -> np.random.Generator:
    """A fresh generator for the inputs of a problem."""
    return np.random.default_rng(1)


def normal(lib: ModuleType, *shape: int, seed: int = 1) -> Any:
    """A tensor of normal random numbers, the same in every library."""
    return lib.tensor(np.random.default_rng(seed).standard_normal(shape).astype(np.float32))


def leaf(lib: ModuleType, *shape: int, seed: int, scale: float = 1.0) -> Any:
    """A tensor of normal random numbers that requires a gradient."""
    return (normal(lib, *shape, seed=seed) * scale).detach().requires_grad_(True)


def filled(lib: ModuleType, model: Any) -> Parameters:
    """The parameters of a model by name, filled with the same numbers in every library.

    Weights of two or more dimensions get normal numbers divided by the root of their fan-in, biases
    zeros; the weights of norms keep their ones.
    """
    rng = np.random.default_rng(0)
    parameters = dict(model.named_parameters())
    with lib.no_grad():
        for name, p in parameters.items():
            if p.ndim > 1:
                value = rng.standard_normal(tuple(p.shape)) / np.prod(p.shape[1:]) ** 0.5
                p.copy_(lib.tensor(value.astype(np.float32)))
            elif name.rpartition(".")[2].startswith("bias"):  # an LSTM has bias_ih_l0
                p.zero_()
    return parameters


def training(
    lib: ModuleType,
    model: Any,
    inputs: Iterable[Any],
    loss: Callable[..., Any],
    optimizer: str = "SGD",
    **options: Any,
) -> Problem:
    """A problem that trains a module with an optimizer of the library."""
    parameters = filled(lib, model)
    updates = getattr(lib.optim, optimizer)(parameters.values(), **options)
    return Problem(loss, inputs, parameters, updates)
