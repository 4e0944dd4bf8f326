"""Embedding and dropout layers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from ..core.modes import no_grad
from ..core.tensor import Tensor
from . import functional as F
from . import init
from .linear import checked_size, new_parameter
from .module import Module
from .parameter import Parameter

if TYPE_CHECKING:
    from ..ops.annotations import DeviceLike, DTypeLike


def _row_of_padding(padding_idx: int | None, rows: int) -> int | None:
    """The index of the padding row, counted from the front."""
    if padding_idx is None:
        return None
    if not -rows <= padding_idx < rows:
        raise AssertionError(
            f"padding_idx {padding_idx} is not a row of a table of {rows} embeddings"
        )
    return padding_idx % rows


def _check_weight(weight: Tensor, rows: int, size: int) -> None:
    if tuple(weight.shape) != (rows, size):
        raise ValueError(f"the weight must have shape {(rows, size)}, got {tuple(weight.shape)}")


def _matrix(embeddings: Tensor) -> Tensor:
    if embeddings.ndim != 2:
        raise ValueError(f"embeddings must be a matrix, got shape {tuple(embeddings.shape)}")
    return embeddings


def _sizes(layer: Any) -> str:
    return f"{layer.num_embeddings}, {layer.embedding_dim}"


def _limits(layer: Any) -> str:
    """Lookup options that differ from their defaults, for `repr`."""
    shown = "" if layer.max_norm is None else f", max_norm={layer.max_norm}"
    if layer.norm_type != 2:
        shown += f", norm_type={layer.norm_type}"
    if layer.scale_grad_by_freq:
        shown += f", scale_grad_by_freq={layer.scale_grad_by_freq}"
    return shown


def _reset_rows(weight: Any, padding_idx: int | None) -> None:
    init.normal_(weight)
    if padding_idx is not None:
        with no_grad():
            weight[padding_idx] = 0.0


class Embedding(Module):
    """A table of vectors, looked up by number; the row `padding_idx` starts at 0 and stays.

    Integers of shape (...) give (..., embedding_dim); `weight` is (num_embeddings, embedding_dim).

    >>> import tapegrad
    >>> table = tapegrad.nn.Embedding(10, 4)
    >>> table(tapegrad.tensor([[1, 2, 4], [4, 3, 9]])).shape
    Size([2, 3, 4])
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
        _weight: Tensor | None = None,
        _freeze: bool = False,
        device: DeviceLike | None = None,
        dtype: DTypeLike | None = None,
    ) -> None:
        super().__init__()
        self.num_embeddings = checked_size(num_embeddings, "num_embeddings", self)
        self.embedding_dim = checked_size(embedding_dim, "embedding_dim", self)
        self.padding_idx = _row_of_padding(padding_idx, num_embeddings)
        self.max_norm = max_norm
        self.norm_type = norm_type
        self.scale_grad_by_freq = scale_grad_by_freq
        self.sparse = sparse
        if _weight is None:
            self.weight = new_parameter(num_embeddings, embedding_dim, device=device, dtype=dtype)
            self.weight.requires_grad_(not _freeze)
            self.reset_parameters()
        else:
            _check_weight(_weight, num_embeddings, embedding_dim)
            self.weight = Parameter(_weight, requires_grad=not _freeze)

    def reset_parameters(self) -> None:
        """Normal with mean 0 and standard deviation 1, and 0 for padding."""
        _reset_rows(self.weight, self.padding_idx)

    def forward(self, input: Tensor) -> Tensor:
        return F.embedding(
            input,
            self.weight,
            self.padding_idx,
            self.max_norm,
            self.norm_type,
            self.scale_grad_by_freq,
            self.sparse,
        )

    def extra_repr(self) -> str:
        padding = "" if self.padding_idx is None else f", padding_idx={self.padding_idx}"
        return _sizes(self) + padding + _limits(self)

    @classmethod
    def from_pretrained(
        cls,
        embeddings: Tensor,
        freeze: bool = True,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
    ) -> Self:
        """An embedding with given vectors, not trained unless `freeze=False`."""
        rows, size = _matrix(embeddings).shape
        return cls(
            rows,
            size,
            padding_idx,
            max_norm,
            norm_type,
            scale_grad_by_freq,
            sparse,
            embeddings,
            freeze,
        )


class EmbeddingBag(Module):
    """Sums, means or maxima of rows of a table, for bags of tokens.

    >>> import tapegrad
    >>> table = tapegrad.nn.EmbeddingBag(10, 3, mode="sum")
    >>> table(tapegrad.tensor([1, 2, 4, 5]), tapegrad.tensor([0, 3])).shape
    Size([2, 3])
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        mode: str = "mean",
        sparse: bool = False,
        _weight: Tensor | None = None,
        include_last_offset: bool = False,
        padding_idx: int | None = None,
        device: DeviceLike | None = None,
        dtype: DTypeLike | None = None,
    ) -> None:
        super().__init__()
        self.num_embeddings = checked_size(num_embeddings, "num_embeddings", self)
        self.embedding_dim = checked_size(embedding_dim, "embedding_dim", self)
        self.max_norm = max_norm
        self.norm_type = norm_type
        self.scale_grad_by_freq = scale_grad_by_freq
        self.padding_idx = _row_of_padding(padding_idx, num_embeddings)
        if _weight is None:
            self.weight = new_parameter(num_embeddings, embedding_dim, device=device, dtype=dtype)
            self.reset_parameters()
        else:
            _check_weight(_weight, num_embeddings, embedding_dim)
            self.weight = Parameter(_weight)
        self.mode = mode
        self.sparse = sparse
        self.include_last_offset = include_last_offset

    def reset_parameters(self) -> None:
        """Normal with mean 0 and standard deviation 1, and 0 for padding."""
        _reset_rows(self.weight, self.padding_idx)

    def forward(
        self, input: Tensor, offsets: Tensor | None = None, per_sample_weights: Tensor | None = None
    ) -> Tensor:
        return F.embedding_bag(
            input,
            self.weight,
            offsets,
            self.max_norm,
            self.norm_type,
            self.scale_grad_by_freq,
            self.mode,
            self.sparse,
            per_sample_weights,
            self.include_last_offset,
            self.padding_idx,
        )

    def extra_repr(self) -> str:
        shown = _sizes(self) + _limits(self) + f", mode={self.mode!r}"
        return shown if self.padding_idx is None else f"{shown}, padding_idx={self.padding_idx}"

    @classmethod
    def from_pretrained(
        cls,
        embeddings: Tensor,
        freeze: bool = True,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        mode: str = "mean",
        sparse: bool = False,
        include_last_offset: bool = False,
        padding_idx: int | None = None,
    ) -> Self:
        """A bag with given vectors, not trained unless `freeze=False`."""
        rows, size = _matrix(embeddings).shape
        made = cls(
            rows,
            size,
            max_norm,
            norm_type,
            scale_grad_by_freq,
            mode,
            sparse,
            embeddings,
            include_last_offset,
            padding_idx,
        )
        made.weight.requires_grad_(not freeze)
        return made


class _DropoutNd(Module):
    """Base of the dropouts."""

    def __init__(self, p: float = 0.5, inplace: bool = False) -> None:
        super().__init__()
        if not 0 <= p <= 1:
            raise ValueError(f"the probability p must lie between 0 and 1, got {p}")
        self.p = p
        self.inplace = inplace

    def extra_repr(self) -> str:
        return f"p={self.p}, inplace={self.inplace}"


class Dropout(_DropoutNd):
    """In training, 0 with probability p, else x / (1 - p).

    >>> import tapegrad
    >>> layer = tapegrad.nn.Dropout(0.5)
    >>> layer.eval()(tapegrad.ones(3))
    tensor([1., 1., 1.])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.dropout(input, self.p, self.training, self.inplace)


class Dropout1d(_DropoutNd):
    """Dropout of whole channels of sequences."""

    def forward(self, input: Tensor) -> Tensor:
        return F.dropout1d(input, self.p, self.training, self.inplace)


class Dropout2d(_DropoutNd):
    """Dropout of whole channels of images."""

    def forward(self, input: Tensor) -> Tensor:
        return F.dropout2d(input, self.p, self.training, self.inplace)


class Dropout3d(_DropoutNd):
    """Dropout of whole channels of volumes."""

    def forward(self, input: Tensor) -> Tensor:
        return F.dropout3d(input, self.p, self.training, self.inplace)


class AlphaDropout(_DropoutNd):
    """Dropout that keeps mean 0 and variance 1 of the inputs of a SELU."""

    def forward(self, input: Tensor) -> Tensor:
        return F.alpha_dropout(input, self.p, self.training)


class FeatureAlphaDropout(_DropoutNd):
    """Alpha dropout of whole channels."""

    def forward(self, input: Tensor) -> Tensor:
        return F.feature_alpha_dropout(input, self.p, self.training)
