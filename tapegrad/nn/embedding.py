"""Embedding and dropout layers."""

from __future__ import annotations

from typing import Any, Self

from ..state import no_grad
from ..tensor import Tensor
from . import functional as F
from . import init
from .linear import checked_size, new_parameter
from .module import Module
from .parameter import Parameter


class Embedding(Module):
    """A table of vectors, looked up by number; the row `padding_idx` starts at 0 and stays.

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
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.num_embeddings = checked_size(num_embeddings, "num_embeddings", self)
        self.embedding_dim = checked_size(embedding_dim, "embedding_dim", self)
        if padding_idx is not None:
            if not -num_embeddings <= padding_idx < num_embeddings:
                raise ValueError(
                    f"padding_idx {padding_idx} is not among {num_embeddings} embeddings"
                )
            padding_idx %= num_embeddings
        self.padding_idx = padding_idx
        self.max_norm = max_norm
        self.norm_type = norm_type
        self.scale_grad_by_freq = scale_grad_by_freq
        self.sparse = sparse
        if _weight is None:
            self.weight = new_parameter(num_embeddings, embedding_dim, device=device, dtype=dtype)
            self.weight.requires_grad_(not _freeze)
            self.reset_parameters()
        else:
            if _weight.shape != (num_embeddings, embedding_dim):
                raise ValueError(
                    f"the weight must have shape {(num_embeddings, embedding_dim)}, got "
                    f"{tuple(_weight.shape)}"
                )
            self.weight = Parameter(_weight, requires_grad=not _freeze)

    def reset_parameters(self) -> None:
        """Normal with mean 0 and standard deviation 1, and 0 for padding."""
        init.normal_(self.weight)
        if self.padding_idx is not None:
            with no_grad():
                weight: Any = self.weight
                weight[self.padding_idx] = 0.0

    def forward(self, input: Any) -> Any:
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
        shown = f"{self.num_embeddings}, {self.embedding_dim}"
        if self.padding_idx is not None:
            shown += f", padding_idx={self.padding_idx}"
        if self.max_norm is not None:
            shown += f", max_norm={self.max_norm}"
        if self.norm_type != 2:
            shown += f", norm_type={self.norm_type}"
        if self.scale_grad_by_freq:
            shown += f", scale_grad_by_freq={self.scale_grad_by_freq}"
        return shown

    @classmethod
    def from_pretrained(cls, embeddings: Tensor, freeze: bool = True, **options: Any) -> Self:
        """An embedding with given vectors, not trained unless `freeze=False`."""
        if embeddings.ndim != 2:
            raise ValueError(f"embeddings must be a matrix, got shape {tuple(embeddings.shape)}")
        rows, size = embeddings.shape
        return cls(rows, size, _weight=embeddings, _freeze=freeze, **options)


class Dropout(Module):
    """In training, 0 with probability p, else x / (1 - p)."""

    def __init__(self, p: float = 0.5, inplace: bool = False) -> None:
        super().__init__()
        if not 0 <= p <= 1:
            raise ValueError(f"the probability p must lie between 0 and 1, got {p}")
        self.p = p
        self.inplace = inplace

    def forward(self, input: Any) -> Any:
        return F.dropout(input, self.p, self.training, self.inplace)

    def extra_repr(self) -> str:
        return f"p={self.p}, inplace={self.inplace}"


class Dropout1d(Dropout):
    """Dropout of whole channels of sequences."""

    def forward(self, input: Any) -> Any:
        return F.dropout1d(input, self.p, self.training, self.inplace)


class Dropout2d(Dropout):
    """Dropout of whole channels of images."""

    def forward(self, input: Any) -> Any:
        return F.dropout2d(input, self.p, self.training, self.inplace)
