"""Losses with parameters: a linear map before cross entropy, and the adaptive softmax."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from ..core.modes import STATE, TAPE
from ..core.tensor import Tensor
from ..ops.checks import check_range
from ..ops.elementwise.comparison import where_ as where
from ..ops.shape.joining import cat
from . import functional as F
from .containers import ModuleList, Sequential
from .linear import Linear
from .loss import _WeightedLoss
from .module import Module

if TYPE_CHECKING:
    from ..ops.annotations import DeviceLike, DTypeLike


@dataclass(slots=True, frozen=True)
class LinearCrossEntropyOptions:
    """How PyTorch splits `linear_cross_entropy` to save memory; without effect here."""

    allow_retain_graph: bool = False
    batch_chunk_size: int | None = None
    chunking_method: str | None = "auto"
    acc_policy: str = "auto"
    acc_dtype: Any = None

    def __post_init__(self) -> None:
        if self.acc_policy not in ("auto", "accurate", "balanced", "compact"):
            raise ValueError(
                "acc_policy must be 'auto', 'accurate', 'balanced' or 'compact', got "
                f"{self.acc_policy!r}"
            )
        method, _, factor = (self.chunking_method or "auto").partition(":")
        known = method == "auto" and not factor
        if not known and (method != "aspect_ratio" or not (factor or "1").isdigit()):
            raise ValueError(
                "chunking_method must be None, 'auto', 'aspect_ratio' or 'aspect_ratio:N', got "
                f"{self.chunking_method!r}"
            )
        size = self.batch_chunk_size
        if size is not None and (not isinstance(size, int) or size < 1):
            raise ValueError(f"batch_chunk_size must be a positive integer or None, got {size!r}")


class LinearCrossEntropyLoss(_WeightedLoss):
    """The cross entropy of a linear map of the input; the map is part of the loss."""

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        *,
        out_features: tuple[int, ...] = (),
        bias: bool = False,
        device: DeviceLike | None = None,
        dtype: DTypeLike | None = None,
        reduction: str = "mean",
        weight: Tensor | None = None,
        ignore_index: int | None = None,
        label_smoothing: float = 0.0,
        options: LinearCrossEntropyOptions | None = None,
    ) -> None:
        if weight is not None and tuple(weight.shape) != (num_classes,):
            raise RuntimeError(
                f"weight needs one value for each of {num_classes} classes, got shape "
                f"{tuple(weight.shape)}"
            )
        if not 0.0 <= label_smoothing <= 1.0:
            raise RuntimeError(f"label_smoothing must lie between 0 and 1, got {label_smoothing}")
        super().__init__(weight, reduction=reduction)
        self.num_classes = num_classes
        self.out_features = tuple(out_features)
        self.ignore_index = ignore_index
        self.label_smoothing = label_smoothing
        rows = math.prod(self.out_features, start=num_classes)
        self.linear = Linear(in_features, rows, bias, device, dtype)
        self.options = options

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        shape = (self.num_classes, *self.out_features)
        weight: Any = self.linear.weight
        bias: Any = self.linear.bias
        return F.linear_cross_entropy(
            input,
            weight.reshape(*shape, self.linear.in_features),
            target,
            linear_bias=None if bias is None else bias.reshape(shape),
            weight=self.weight,
            reduction=self.reduction,
            ignore_index=self.ignore_index,
            label_smoothing=self.label_smoothing,
            options=self.options,
        )

    def extra_repr(self) -> str:
        return (
            f"in_features={self.linear.in_features}, num_classes={self.num_classes}, "
            f"out_features={self.out_features}, bias={self.linear.bias is not None}, "
            f"reduction={self.reduction}, ignore_index={self.ignore_index}, "
            f"label_smoothing={self.label_smoothing}, options={self.options}"
        )


class ASMoutput(NamedTuple):
    """The log-probability of each target, and the loss: minus their mean."""

    output: Any
    loss: Any


class AdaptiveLogSoftmaxWithLoss(Module):
    """A softmax over many classes of which few are frequent (Grave et al., 2016).

    The head scores the first `cutoffs[0]` classes and one cluster for each further range; a tail
    with fewer features scores the classes of a cluster.
    """

    head: Linear
    tail: ModuleList

    def __init__(
        self,
        in_features: int,
        n_classes: int,
        cutoffs: Sequence[int],
        div_value: float = 4.0,
        head_bias: bool = False,
        device: DeviceLike | None = None,
        dtype: DTypeLike | None = None,
    ) -> None:
        super().__init__()
        ends = list(cutoffs)
        fits = ends and ends[0] > 0 and ends[-1] <= n_classes - 1
        if not fits or any(int(b) != b or a >= b for a, b in itertools.pairwise([0, *ends])):
            raise ValueError(
                "cutoffs must be integers that increase, each between 1 and n_classes - 1 = "
                f"{n_classes - 1}, got {ends}"
            )
        self.in_features = in_features
        self.n_classes = n_classes
        self.cutoffs = [*ends, n_classes]
        self.div_value = div_value
        self.head_bias = head_bias
        self.shortlist_size = ends[0]
        self.n_clusters = len(ends)
        self.head_size = self.shortlist_size + self.n_clusters
        options: dict[str, Any] = {"device": device, "dtype": dtype}
        self.head = Linear(in_features, self.head_size, bias=head_bias, **options)
        self.tail = ModuleList()
        for i, (low, high) in enumerate(itertools.pairwise(self.cutoffs)):
            inner = int(in_features // div_value ** (i + 1))
            self.tail.append(
                Sequential(
                    Linear(in_features, inner, bias=False, **options),
                    Linear(inner, high - low, bias=False, **options),
                )
            )

    def reset_parameters(self) -> None:
        """Initialise the head and all tails again."""
        self.head.reset_parameters()
        for first, second in self.tail:
            first.reset_parameters()
            second.reset_parameters()

    def forward(self, input_: Tensor, target_: Tensor) -> ASMoutput:
        if target_.ndim > 1 or input_.ndim != target_.ndim + 1:
            raise RuntimeError(
                "expected an input (samples, features) and targets (samples), or one of each "
                f"without samples, got shapes {tuple(input_.shape)} and {tuple(target_.shape)}"
            )
        if target_.ndim and len(input_) != len(target_):
            raise RuntimeError(f"got {len(input_)} inputs for {len(target_)} targets")
        input = input_ if target_.ndim else input_.unsqueeze(0)
        target = target_ if target_.ndim else target_.unsqueeze(0)
        message = f"targets must lie between 0 and {self.n_classes - 1}, got {{}}"
        target = check_range(target, self.n_classes, message, RuntimeError)
        head = F.log_softmax(self.head(input), 1)
        place = target.clamp(max=self.shortlist_size - 1)
        for i, low in enumerate(self.cutoffs[:-1]):
            place = where(target >= low, self.shortlist_size + i, place)
        output = head.gather(1, place.unsqueeze(1)).squeeze(1)
        for i, (low, high) in enumerate(itertools.pairwise(self.cutoffs)):
            output = output + self._in_cluster(i, input, target, low, high)
        loss = (-output).mean()
        return ASMoutput(output if target_.ndim else output.squeeze(0), loss)

    def _in_cluster(self, i: int, input: Any, target: Any, low: int, high: int) -> Any:
        """The log-probability of targets within their cluster, and 0 for those of others."""
        here = (target >= low) & (target < high)
        if STATE.mode & TAPE:
            # The number of rows in a cluster may differ in a replay, so all rows are computed.
            log_p = F.log_softmax(self.tail[i](input), 1)
            own = log_p.gather(1, (target - low).clamp(0, high - low - 1).unsqueeze(1)).squeeze(1)
            return where(here, own, 0.0)
        rows = here.nonzero().squeeze(1)
        zeros = input.new_zeros(len(input))
        if not len(rows):
            return zeros
        log_p = F.log_softmax(self.tail[i](input[rows]), 1)
        own = log_p.gather(1, (target[rows] - low).unsqueeze(1)).squeeze(1)
        return zeros.index_copy(0, rows, own)

    def _full_log_prob(self, input: Any, head: Any) -> Any:
        log_p = F.log_softmax(head, 1)
        parts = [log_p[:, : self.shortlist_size]]
        for i, tail in enumerate(self.tail):
            column = self.shortlist_size + i
            parts.append(F.log_softmax(tail(input), 1) + log_p[:, column : column + 1])
        return cat(parts, 1)

    def log_prob(self, input: Any) -> Any:
        """The log-probabilities of all classes, (samples, n_classes)."""
        return self._full_log_prob(input, self.head(input))

    def predict(self, input: Any) -> Any:
        """The most probable class of each sample; tails run only where the head chooses them."""
        head = self.head(input)
        first = head.argmax(1)
        full = self._full_log_prob(input, head).argmax(1)
        return where(first < self.shortlist_size, first, full)
