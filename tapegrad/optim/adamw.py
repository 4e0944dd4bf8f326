"""AdamW."""

from __future__ import annotations

from typing import Any, ClassVar

from ..core.tensor import Tensor
from .adam import Adam
from .optimizer import ParamsT


class AdamW(Adam):
    """Adam with `weight_decay` applied to the parameter itself, not added to its gradient."""

    always: ClassVar[dict[str, Any]] = {"decoupled_weight_decay": True}

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        super().__init__(
            params,
            lr,
            betas,
            eps,
            weight_decay,
            amsgrad,
            foreach=foreach,
            maximize=maximize,
            capturable=capturable,
            differentiable=differentiable,
            fused=fused,
            decoupled_weight_decay=True,
        )
