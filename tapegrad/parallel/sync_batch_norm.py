"""SyncBatchNorm: batch norm with the statistics of all ranks' batches.

Each rank computes the mean of its own batch and the sum of squared deviations from it; one
`all_gather` sends these and the counts to all ranks, which combine them. No squares of large
numbers are subtracted, and batches may have different sizes. Gradients flow back through the
`all_gather`, so they equal those of one process with the whole batch. Public as `nn.SyncBatchNorm`.
"""

from __future__ import annotations

from typing import Any

from ..core.dtypes import float32
from ..core.modes import no_grad
from ..core.tensor import Tensor
from ..nn.module import Module
from ..nn.norm import _BatchNorm
from ..ops.collective.moving import all_gather
from ..ops.creation import CREATION
from ..ops.nn.normalization import _track
from ..ops.shape.joining import cat
from .members import group_or_self


class SyncBatchNorm(_BatchNorm):
    """Batch norm of (batch, channels, ...) over the batches of all ranks of a group.

    In evaluation, with one rank, or without a process group it is plain batch norm.

    >>> import tapegrad
    >>> layer = tapegrad.nn.SyncBatchNorm(3)
    >>> layer(tapegrad.ones(2, 3, 4)).shape
    Size([2, 3, 4])
    """

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        process_group: Any = None,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__(
            num_features, eps, momentum, affine, track_running_stats, device, dtype, bias=bias
        )
        self.process_group = process_group

    def _check_rank(self, input: Tensor) -> None:
        if input.ndim < 2:
            raise ValueError(
                f"SyncBatchNorm expects an input (batch, channels, ...), got shape "
                f"{tuple(input.shape)}"
            )

    def forward(self, input: Tensor) -> Tensor:
        group = group_or_self(self.process_group)
        is_plain = not self.training and self.running_mean is not None
        if is_plain or group.size == 1:
            return super().forward(input)
        self._check_rank(input)
        factor = self._factor()
        wide: Any = input if input.dtype.itemsize >= 4 else input.to(float32)
        mean, squares, count = _combined(wide, group)
        spread = (1, -1, *[1] * (input.ndim - 2))
        scale = (squares / count + self.eps).rsqrt()
        if self.weight is not None:
            scale = scale * self.weight
        out = (wide - mean.reshape(spread)) * scale.reshape(spread)
        if self.bias is not None:
            out = out + self.bias.reshape(spread)
        if self.training and self.running_mean is not None:
            with no_grad():
                _track(self.running_mean, mean.detach(), factor)
                unbiased = squares.detach() / (count - 1.0).clamp(min=1.0)
                _track(self.running_var, unbiased, factor)
            self.num_batches_tracked.add_(1)
        return out.to(input.dtype)  # type: ignore[no-any-return]

    @classmethod
    def convert_sync_batchnorm(cls, module: Module, process_group: Any = None) -> Module:
        """Replace every batch norm of a model by a SyncBatchNorm; returns the model.

        Parameters and running statistics stay the same tensors.
        """
        made: Module = module
        if isinstance(module, _BatchNorm) and not isinstance(module, SyncBatchNorm):
            made = cls(
                module.num_features,
                module.eps,
                module.momentum,
                module.affine,
                module.track_running_stats,
                process_group,
            )
            made.weight, made.bias = module.weight, module.bias
            made.running_mean, made.running_var = module.running_mean, module.running_var
            made.num_batches_tracked = module.num_batches_tracked
            made.training = module.training
        for name, child in list(module.named_children()):
            setattr(made, name, cls.convert_sync_batchnorm(child, process_group))
        return made


def _combined(x: Any, group: Any) -> tuple[Any, Any, Any]:
    """Mean, sum of squared deviations from it, and count, of each channel over all ranks."""
    dims = (0, *range(2, x.ndim))
    own = x.numel() // max(x.shape[1], 1)
    mean = x.sum(dims) / max(own, 1)
    spread = (1, -1, *[1] * (x.ndim - 2))
    squares = (x - mean.reshape(spread)).square().sum(dims)
    count = CREATION["full"]((1,), float(own), dtype=x.dtype)
    rows: Any = all_gather(cat([mean, squares, count]), group)
    channels = x.shape[1]
    means, many, counts = rows[:, :channels], rows[:, channels:-1], rows[:, -1:]
    total = counts.sum().clamp(min=1.0)
    whole = (means * counts).sum(0) / total
    between = ((means - whole).square() * counts).sum(0)
    return whole, many.sum(0) + between, total
