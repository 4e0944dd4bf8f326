"""SparseAdam, which is refused: there are no sparse gradients here."""

from __future__ import annotations

from ..core.tensor import Tensor
from .optimizer import Optimizer, ParamsT


class SparseAdam(Optimizer):
    """Adam for sparse gradients. tapegrad's gradients are dense, so making one is an error."""

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        maximize: bool = False,
    ) -> None:
        raise NotImplementedError(
            "SparseAdam updates sparse gradients, and all gradients of tapegrad are dense; "
            "use tapegrad.optim.Adam"
        )
