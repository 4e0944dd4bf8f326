"""Tensor parallelism: layers whose weights are divided among ranks, which all get the same inputs.

Each layer computes the same as the one-process layer of the same sizes: with the same seed on all
ranks it draws the whole weight and keeps its piece. Rank r has piece r. All ranks compute the same
loss, which counts once. So the gradient of a piece is a piece of the whole weight's gradient, and
gradients of parameters that are not divided (biases after a sum, norms) are equal on all ranks:
nothing has to be averaged.

`ParallelTransformerBlock` combines the layers, with one sum over ranks for attention and one for
the MLP. `tensor_styles.py` makes these layers from the layers of an existing model.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..core.modes import no_grad
from ..core.tensor import Tensor
from ..nn import functional as functions
from ..nn.embedding import Dropout, Embedding
from ..nn.linear import Linear
from ..nn.module import Module
from ..nn.norm import LayerNorm
from ..nn.parameter import Parameter
from ..ops.checks import check_range
from ..ops.collective.conjugate import copy_to, gather_from, reduce_from, split_to
from ..ops.collective.group import MAX
from ..ops.collective.reducing import all_reduce
from .layouts import gather_summed, reduce_pieces
from .members import group_or_self, own_piece, piece_size

# The functions of `nn.functional` come from the op table, which a type checker cannot follow here.
F: Any = functions


class ColumnParallelLinear(Module):
    """`Linear` with divided output features: each rank computes `out_features / ranks` of them.

    The input is the same on all ranks. The result is this rank's piece along the last dimension,
    or with `gather_output` the whole result.

    >>> import tapegrad
    >>> from tapegrad.parallel.tensor_parallel import ColumnParallelLinear
    >>> ColumnParallelLinear(4, 6)(tapegrad.ones(3, 4)).shape
    Size([3, 6])
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        gather_output: bool = False,
        group: Any = None,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self._divide(Linear(in_features, out_features, bias, device, dtype), gather_output, group)

    @classmethod
    def from_linear(
        cls,
        linear: Linear,
        gather_output: bool = False,
        group: Any = None,
        input_dim: int | None = None,
    ) -> ColumnParallelLinear:
        """Divide a layer that all ranks have.

        With `input_dim` each rank passes a piece of the input along that dimension.
        """
        layer = cls.__new__(cls)
        Module.__init__(layer)
        layer._divide(linear, gather_output, group, input_dim)
        return layer

    def _divide(
        self, whole: Linear, gather_output: bool, group: Any, input_dim: int | None = None
    ) -> None:
        self.group = group_or_self(group)
        self.input_dim = input_dim
        self.in_features, self.out_features = whole.in_features, whole.out_features
        self.gather_output = gather_output
        self.weight = _piece_of(whole.weight, 0, self.group, "out_features")
        bias = whole.bias
        piece = None if bias is None else _piece_of(bias, 0, self.group, "out_features")
        self.bias: Parameter | None
        self.register_parameter("bias", piece)
        self.train(whole.training)

    def forward(self, input: Tensor) -> Tensor:
        if self.input_dim is None:
            whole = copy_to(input, self.group)
        else:
            whole = gather_summed(input, self.input_dim, self.group)
        out: Tensor = F.linear(whole, self.weight, self.bias)
        return gather_from(out, -1, self.group) if self.gather_output else out

    def extra_repr(self) -> str:
        return _sizes(self) + f", gather_output={self.gather_output}"


class RowParallelLinear(Module):
    """`Linear` with divided input features: each rank has `in_features / ranks` of them.

    The result is the sum of all ranks' products plus the bias, the same on all ranks. Without
    `input_is_parallel` all ranks pass the whole input.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        input_is_parallel: bool = True,
        group: Any = None,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        whole = Linear(in_features, out_features, bias, device, dtype)
        self._divide(whole, input_is_parallel, group)

    @classmethod
    def from_linear(
        cls,
        linear: Linear,
        input_is_parallel: bool = True,
        group: Any = None,
        output_dim: int | None = None,
    ) -> RowParallelLinear:
        """Divide a layer that all ranks have.

        With `output_dim` each rank gets a piece of the result along that dimension.
        """
        layer = cls.__new__(cls)
        Module.__init__(layer)
        layer._divide(linear, input_is_parallel, group, output_dim)
        return layer

    def _divide(
        self, whole: Linear, input_is_parallel: bool, group: Any, output_dim: int | None = None
    ) -> None:
        self.group = group_or_self(group)
        self.output_dim = output_dim
        self.in_features, self.out_features = whole.in_features, whole.out_features
        self.input_is_parallel = input_is_parallel
        self.weight = _piece_of(whole.weight, 1, self.group, "in_features")
        self.bias: Parameter | None
        self.register_parameter("bias", whole.bias)
        self.train(whole.training)

    def forward(self, input: Tensor) -> Tensor:
        piece = input if self.input_is_parallel else split_to(input, -1, self.group)
        part: Tensor = F.linear(piece, self.weight)
        out = _summed(part, self.output_dim, self.group)
        if self.bias is None:
            return out
        if self.output_dim is None:
            return out + self.bias
        is_last = self.output_dim in (-1, out.ndim - 1)
        mine: Tensor = (split_to if is_last else copy_to)(self.bias, group=self.group)
        return out + mine

    def extra_repr(self) -> str:
        return _sizes(self) + f", input_is_parallel={self.input_is_parallel}"


def _summed(part: Tensor, dim: int | None, group: Any) -> Tensor:
    """The sum of all ranks' parts: whole, or this rank's piece along a dimension."""
    return reduce_from(part, group) if dim is None else reduce_pieces(part, dim, group)


def _piece_of(weight: Parameter, dim: int, group: Any, what: str) -> Parameter:
    return Parameter(own_piece(weight, dim, group, what), requires_grad=weight.requires_grad)


def _sizes(layer: Any) -> str:
    bias = layer.bias is not None
    ranks = layer.group.size
    return f"{layer.in_features}, {layer.out_features}, bias={bias}, ranks={ranks}"


class ParallelEmbedding(Module):
    """`Embedding` whose table is divided: each rank has `num_embeddings / ranks` of the rows.

    All ranks pass the same indices and get the same vectors: a rank contributes zeros for the rows
    that others have.
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        group: Any = None,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        whole = Embedding(num_embeddings, embedding_dim, padding_idx, device=device, dtype=dtype)
        self._divide(whole, group)

    @classmethod
    def from_embedding(
        cls, embedding: Embedding, group: Any = None, output_dim: int | None = None
    ) -> ParallelEmbedding:
        """Divide an embedding that all ranks have."""
        layer = cls.__new__(cls)
        Module.__init__(layer)
        layer._divide(embedding, group, output_dim)
        return layer

    def _divide(self, whole: Embedding, group: Any, output_dim: int | None = None) -> None:
        if whole.max_norm is not None or whole.scale_grad_by_freq:
            raise ValueError("a divided embedding has neither max_norm nor scale_grad_by_freq")
        self.group = group_or_self(group)
        self.num_embeddings, self.embedding_dim = whole.num_embeddings, whole.embedding_dim
        self.padding_idx = whole.padding_idx
        self.output_dim = output_dim
        self.weight = _piece_of(whole.weight, 0, self.group, "num_embeddings")
        self.train(whole.training)

    def forward(self, input: Tensor) -> Tensor:
        rows = self.weight.shape[0]
        message = f"index {{}} is out of range for {self.num_embeddings} embeddings"
        input = check_range(input, self.num_embeddings, message, IndexError)
        local, is_elsewhere = _local_numbers(input, rows, self.group)
        padding = None if self.padding_idx is None else self.padding_idx - self.group.rank * rows
        has_padding = padding is not None and 0 <= padding < rows
        found = F.embedding(local, self.weight, padding if has_padding else None)
        part = found.masked_fill(is_elsewhere.unsqueeze(-1), 0.0)
        return _summed(part, self.output_dim, self.group)

    def extra_repr(self) -> str:
        return f"{self.num_embeddings}, {self.embedding_dim}, ranks={self.group.size}"


def _local_numbers(numbers: Tensor, size: int, group: Any) -> tuple[Any, Any]:
    """Indices relative to this rank's piece (0 if outside), and a mask of those outside."""
    moved: Any = numbers - group.rank * size
    is_elsewhere = (moved < 0) | (moved >= size)
    return moved.masked_fill(is_elsewhere, 0), is_elsewhere


def parallel_cross_entropy(
    logits: Tensor,
    target: Tensor,
    group: Any = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """Cross entropy of logits whose classes are divided among ranks, without gathering them.

    `logits` (..., classes / ranks) is this rank's piece. `target` (...) has indices among all
    classes and is the same on all ranks, and so is the result. Ranks exchange three numbers for
    each row: the largest logit, the sum of exponentials and the logit of the target; with
    `label_smoothing` also the sum of logits. `reduction` is "mean" (over targets that are not
    `ignore_index`), "sum" or "none".
    """
    if reduction not in ("mean", "sum", "none"):
        raise ValueError(f"reduction must be mean, sum or none, got {reduction!r}")
    if tuple(logits.shape[:-1]) != tuple(target.shape):
        raise ValueError(
            f"logits of shape {tuple(logits.shape)} need a target for each row, got shape "
            f"{tuple(target.shape)}"
        )
    group = group_or_self(group)
    with no_grad():  # the result does not depend on it
        top = all_reduce(logits.detach().amax(-1, keepdim=True), MAX, group)
    shifted: Any = logits - top
    classes = logits.shape[-1] * group.size
    message = f"target {{}} is out of range for {classes} classes"
    target = check_range(target, classes, message, IndexError, besides=ignore_index)
    ignored: Any = target == ignore_index
    local, is_elsewhere = _local_numbers(target, logits.shape[-1], group)
    picked = shifted.gather(-1, local.unsqueeze(-1)).squeeze(-1)
    picked = picked.masked_fill(is_elsewhere, 0.0)
    sums: Any = reduce_from(shifted.exp().sum(-1), group)
    loss: Any = sums.log() - reduce_from(picked, group)
    if label_smoothing:
        even = sums.log() - reduce_from(shifted.sum(-1), group) / classes
        loss = loss * (1.0 - label_smoothing) + even * label_smoothing
    loss = loss.masked_fill(ignored, 0.0)
    if reduction == "mean":
        return loss.sum() / (~ignored).sum()  # type: ignore[no-any-return]
    return loss.sum() if reduction == "sum" else loss  # type: ignore[no-any-return]


class ParallelMLP(Module):
    """Linear, activation, Linear; the hidden units are divided among ranks."""

    def __init__(
        self,
        features: int,
        hidden: int,
        activation: Callable[[Tensor], Tensor] | None = None,
        bias: bool = True,
        group: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.activation = F.gelu if activation is None else activation
        self.up = ColumnParallelLinear(features, hidden, bias, group=group, dtype=dtype)
        self.down = RowParallelLinear(hidden, features, bias, group=group, dtype=dtype)

    def forward(self, input: Tensor) -> Tensor:
        out: Tensor = self.down(self.activation(self.up(input)))
        return out


class ParallelAttention(Module):
    """Self-attention of (batch, length, features) whose heads are divided among ranks."""

    def __init__(
        self,
        features: int,
        heads: int,
        bias: bool = True,
        is_causal: bool = False,
        group: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        group = group_or_self(group)
        if features % heads:
            raise ValueError(f"features = {features} cannot be divided among {heads} heads")
        self.local_heads = piece_size(heads, group, "heads")
        self.is_causal = is_causal
        self.query = ColumnParallelLinear(features, features, bias, group=group, dtype=dtype)
        self.key = ColumnParallelLinear(features, features, bias, group=group, dtype=dtype)
        self.value = ColumnParallelLinear(features, features, bias, group=group, dtype=dtype)
        self.out = RowParallelLinear(features, features, bias, group=group, dtype=dtype)

    def forward(self, input: Tensor) -> Tensor:
        def by_head(x: Any) -> Any:
            return x.unflatten(-1, (self.local_heads, -1)).transpose(-2, -3)

        q, k, v = (by_head(project(input)) for project in (self.query, self.key, self.value))
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=self.is_causal)
        out: Tensor = self.out(attended.transpose(-2, -3).flatten(-2))
        return out


class ParallelTransformerBlock(Module):
    """A divided transformer layer: x + attention(norm(x)), then x + mlp(norm(x))."""

    def __init__(
        self,
        features: int,
        heads: int,
        hidden: int,
        dropout: float = 0.0,
        is_causal: bool = False,
        group: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.norm1 = LayerNorm(features, dtype=dtype)
        self.attention = ParallelAttention(
            features, heads, is_causal=is_causal, group=group, dtype=dtype
        )
        self.norm2 = LayerNorm(features, dtype=dtype)
        self.mlp = ParallelMLP(features, hidden, group=group, dtype=dtype)
        self.dropout = Dropout(dropout)

    def forward(self, input: Tensor) -> Tensor:
        x = input + self.dropout(self.attention(self.norm1(input)))
        out: Tensor = x + self.dropout(self.mlp(self.norm2(x)))
        return out
