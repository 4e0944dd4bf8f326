"""Muon."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from ..core.dtypes import float32, promote_types
from ..core.tensor import Tensor
from ..ops.creation import zeros_like
from .optimizer import Group, Optimizer, ParamsT
from .options import check_not_negative

ADJUSTMENTS = (None, "original", "match_rms_adamw")


class Muon(Optimizer):
    """Steps along the momentum of a matrix, made nearly orthogonal.

    b = momentum b + (1 - momentum) g, and with `nesterov` the mean of g and b with the same
    weights. `ns_steps` of Newton and Schulz, x = a x + (b s + c s²) x with s = x xᵀ, bring its
    singular values near 1. PyTorch runs them in bfloat16, here they run in float32 at least.
    `weight_decay` subtracts lr weight_decay p from p. The rate is lr sqrt(max(1, rows / columns)),
    or 0.2 lr sqrt(max(rows, columns)) if `adjust_lr_fn` is "match_rms_adamw".
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-3,
        weight_decay: float = 0.1,
        momentum: float = 0.95,
        nesterov: bool = True,
        ns_coefficients: tuple[float, float, float] = (3.4445, -4.775, 2.0315),
        eps: float = 1e-7,
        ns_steps: int = 5,
        adjust_lr_fn: str | None = None,
    ) -> None:
        defaults = {
            "lr": lr,
            "weight_decay": weight_decay,
            "momentum": momentum,
            "nesterov": nesterov,
            "ns_coefficients": tuple(ns_coefficients),
            "eps": eps,
            "ns_steps": ns_steps,
            "adjust_lr_fn": adjust_lr_fn,
        }
        super().__init__(params, defaults)

    @staticmethod
    def check(options: Mapping[str, Any]) -> None:
        check_not_negative(
            options, lr="the learning rate", weight_decay="weight_decay", momentum="momentum"
        )
        if options["adjust_lr_fn"] not in ADJUSTMENTS:
            raise ValueError(
                f"adjust_lr_fn must be one of {ADJUSTMENTS}, got {options['adjust_lr_fn']!r}"
            )
        if len(options["ns_coefficients"]) != 3:
            raise ValueError(
                f"ns_coefficients must be three numbers, got {len(options['ns_coefficients'])}"
            )
        if options["ns_steps"] >= 100:
            raise ValueError(f"ns_steps must be below 100, got {options['ns_steps']}")

    def check_parameter(self, parameter: Tensor) -> None:
        if parameter.ndim != 2:
            raise ValueError(
                f"Muon is for matrices, but one of the parameters has shape "
                f"{tuple(parameter.shape)}; give that to another optimizer, AdamW for example"
            )

    def update(self, parameter: Tensor, gradient: Tensor, group: Group) -> None:
        state = self.state[parameter]
        if not state:
            state["momentum_buffer"] = zeros_like(parameter)
        momentum, lr = self.number(group, "momentum"), self.number(group, "lr")
        buffer = state["momentum_buffer"]
        buffer *= momentum
        buffer.add_(gradient, alpha=1 - momentum)
        change = buffer
        if self.decides(group, "nesterov"):
            change = gradient * (1 - momentum) + buffer * momentum
        change = self._orthogonal(change, group)
        parameter *= 1 - lr * self.number(group, "weight_decay")
        rows, columns = parameter.shape
        if self.setting(group, "adjust_lr_fn") == "match_rms_adamw":
            ratio = 0.2 * math.sqrt(max(rows, columns))
        else:
            ratio = math.sqrt(max(1, rows / columns))
        parameter.add_(change.to(parameter.dtype), alpha=-lr * ratio)

    def _orthogonal(self, x: Tensor, group: Group) -> Tensor:
        """A matrix with nearly the same singular vectors, and singular values near 1."""
        x = x.to(promote_types(x.dtype, float32))
        tall = x.shape[0] > x.shape[1]
        if tall:
            x = x.T
        a, b, c = (self.number(group, "ns_coefficients", i) for i in range(3))
        x = x / (x * x).sum().sqrt().clamp(min=self.number(group, "eps"))
        for _ in range(self.setting(group, "ns_steps")):
            gram = x @ x.T
            x = x * a + (gram * b + (gram @ gram) * c) @ x
        return x.T if tall else x
