"""Embedding lookups, one-hot vectors and the dropout family."""

from __future__ import annotations

import math
import operator
import warnings
from typing import Any

import numpy as np

from ...core import inplace as inplace_
from ...core import numeric, xp
from ...core.batch_rules import leading
from ...core.complexes import OWN
from ...core.dtypes import int64
from ...core.modes import GRAD, STATE, TRANSFORM, no_grad
from ...core.primitive import ELEMENTWISE, OPAQUE, Primitive, define
from ...core.sparse import refuse_capture
from ...core.tensor import Tensor, not_recorded
from ..checks import check_range, constant
from ..drawing import random_array
from ..elementwise import comparison as c
from ..elementwise.copies import cast
from ..index.indexing import put_add_, take_
from ..precision import check_floating
from ..reduce.statistics import norm
from ..shape.reshaping import reshape_
from ..table import In, Sample, op

F = "nn.functional"

# -- lookups -----------------------------------------------------------------------------------


def _by_count(g: Any, index: Any, rows: int) -> Any:
    """Each looked-up row's gradient, divided by how often the row was looked up."""
    ones = cast(c.equal(index, index), dtype=g.dtype)
    counts = take_(put_add_(ones, index, dims=(0,), shape=(rows,)), index, dims=(0,))
    return g / reshape_(counts, shape=(*index.shape, 1))


def _embedding(weight: Any, index: Any, *, padding: int | None, by_count: bool) -> Any:
    return take_(weight, index, dims=(0,))


def _embedding_gradient(
    g: Any, weight_shape: Any, index: Any, padding: int | None, by_count: bool
) -> Any:
    """Scatter gradients into the looked-up rows, except the padding row."""
    if by_count:
        g = _by_count(g, index, weight_shape[0])
    if padding is not None:  # selected, because NaN times 0 would stay NaN
        g = c.where(reshape_(c.equal(index, padding), shape=(*index.shape, 1)), 0.0, g)
    return put_add_(g, index, dims=(0,), shape=tuple(weight_shape))


embedding_ = define(
    "embedding",
    _embedding,
    kind=OPAQUE,
    composite=True,
    vjp=(_embedding_gradient, None),
    complex=OWN,
    stores=True,
)


def _rows_gradient(
    g: Any, weight_shape: Any, index: Any, padding: int | None, by_count: bool
) -> Any:
    """The gradient of each token with its row, as a sparse tensor, except those of padding."""
    from ..sparse.creation import as_rows

    if by_count:
        raise RuntimeError("embedding: scale_grad_by_freq does not go with sparse gradients")
    tokens = index._array if isinstance(index, Tensor) else index
    tokens = tokens.reshape(-1)
    values = reshape_(g, shape=(tokens.size, weight_shape[1]))
    if padding is not None:
        kept = np.flatnonzero(tokens != padding)
        values, tokens = take_(values, kept, dims=(0,)), tokens[kept]
    return as_rows(values, tokens, tuple(weight_shape))


#: the same with a sparse gradient. Programs never contain it, because its size depends on data.
embedding_rows_: Primitive = define(
    "embedding_rows",
    _embedding,
    kind=OPAQUE,
    vjp=(_rows_gradient, None),
    complex=OWN,
    stores=True,
)


def looked_up(
    weight: Tensor, tokens: Tensor, padding: int | None, by_count: bool, sparse: bool
) -> Any:
    """Rows by checked indices. If `sparse`, the gradient of a leaf is sparse."""
    recorded = STATE.mode & GRAD and not STATE.mode & TRANSFORM
    if sparse and recorded and weight.requires_grad and weight.is_leaf:
        refuse_capture("the gradients of an embedding")
        return embedding_rows_(weight, tokens, padding=padding, by_count=by_count)
    return embedding_(weight, tokens, padding=padding, by_count=by_count)


_TOKENS = In(values=[[0, 2, 2], [1, 4, 0]], kind="int")


@op(
    module=F,
    samples=lambda: [
        Sample(_TOKENS, (5, 3)),
        # With padding or counts, gradients by design differ from the derivative.
        Sample(_TOKENS, In(5, 3, grad=False), padding_idx=2),
        Sample(_TOKENS, In(5, 3, grad=False), scale_grad_by_freq=True, padding_idx=-1),
        Sample(In(values=3, kind="int"), (5, 3)),
    ],
)
def embedding(
    input: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Any:
    """Rows of `weight` by index; the row `padding_idx` gets no gradient.

    `input` holds integers of any shape (...), `weight` is (rows, features), the result is
    (..., features). With `max_norm`, rows that are looked up are first scaled down to that norm, in
    place. `scale_grad_by_freq` divides the gradient of a row by its number of occurrences. With
    `sparse`, the gradient of a leaf is a sparse tensor with one element for each token.

    >>> import tapegrad
    >>> from tapegrad.nn import functional as F
    >>> table = tapegrad.tensor([[0.0, 0.0], [1.0, 2.0], [3.0, 4.0]])
    >>> F.embedding(tapegrad.tensor([2, 1]), table)
    tensor([[3., 4.],
            [1., 2.]])
    """
    if not isinstance(input, Tensor) or not numeric.is_integer(input._array.dtype):
        found = input.dtype if isinstance(input, Tensor) else type(input).__name__
        raise RuntimeError(f"embedding needs integer tokens, got {found}; use .long()")
    if weight._array.ndim != 2:
        raise RuntimeError(f"embedding needs a matrix of rows, got shape {tuple(weight.shape)}")
    rows = weight._array.shape[0]
    padding = check_padding("embedding", padding_idx, rows)
    input = check_tokens("embedding", input, rows)
    if max_norm is not None:
        limit_rows(input, weight, float(max_norm), norm_type)
    return looked_up(weight, input, padding, bool(scale_grad_by_freq), bool(sparse))


def check_padding(what: str, padding_idx: int | None, rows: int) -> int | None:
    """The row of padding counted from the front, or an error if there is no such row."""
    if padding_idx is None:
        return None
    if not -rows <= padding_idx < rows:
        raise RuntimeError(f"{what}: padding_idx {padding_idx} is not among {rows} rows")
    return int(padding_idx) % rows


def check_tokens(what: str, tokens: Any, rows: int, error: type[Exception] = IndexError) -> Any:
    """The tokens, checked to be valid row indices."""
    message = f"{what}: token {{}} is out of range for {rows} rows (0 to {rows - 1})"
    return check_range(tokens, rows, message, error)


def limit_rows(input: Any, weight: Any, limit: float, norm_type: float) -> None:
    """Scale looked-up rows with a larger norm down to `limit`, in place.

    Gradients and tangents of the table ignore it, as in PyTorch.
    """
    with no_grad():
        used, weight = input.reshape(-1), weight.detach()
        picked = take_(weight, used, dims=(0,))
        sizes = norm(picked, norm_type, 1, True)
        scaled = picked * c.where(c.greater(sizes, limit), limit / (sizes + 1e-7), sizes * 0 + 1)
        weight[used] = scaled


@op(
    module=F,
    samples=lambda: [
        Sample(In(values=[0, 2, 1], kind="int")),
        Sample(In(values=[[0, 2], [1, 0]], kind="int"), 4),
        Sample(In(values=1, kind="int"), num_classes=3),
    ],
    differentiable=False,
)
def one_hot(tensor: Tensor, num_classes: int = -1) -> Any:
    """A vector for each label, with 1 at the label and 0 elsewhere, of type int64.

    Labels (...) give (..., num_classes); -1 takes the largest label plus 1.

    >>> import tapegrad
    >>> from tapegrad.nn import functional as F
    >>> F.one_hot(tapegrad.tensor([0, 2]), num_classes=3)
    tensor([[1, 0, 0],
            [0, 0, 1]])
    """
    if tensor.dtype is not int64:
        raise RuntimeError(
            f"one_hot needs integer labels of int64, got {tensor.dtype}; use .long()"
        )
    labels = tensor._array
    if num_classes == -1:
        not_recorded(tensor, "one_hot without num_classes (give num_classes)")
        if labels.size == 0:
            raise RuntimeError("one_hot cannot count the classes of no labels; give num_classes")
        num_classes = int(labels.max()) + 1
    classes = operator.index(num_classes)
    if classes < 1:
        raise RuntimeError(f"one_hot needs num_classes above 0, or -1, got {num_classes}")
    return one_hot_(tensor, classes=classes)


def _one_hot(x: Any, *, classes: int) -> Any:
    if x.size and (int(x.min()) < 0 or int(x.max()) >= classes):
        worst = int(x.min()) if int(x.min()) < 0 else int(x.max())
        raise RuntimeError(f"one_hot: label {worst} is out of range for {classes} classes")
    return np.equal(x[..., None], xp.module(x).arange(classes)).astype(np.int64)


def _one_hot_in_loops(b: Any, out: Any, x: Any, *, classes: int) -> None:
    body = b.over(out.shape)
    label, position = body.read(x[..., None]), body.along(-1)
    text = f"as_int64(label(as_int64(x), {classes}) == position)"
    body.store(out, body.compute(text, np.int64, x=label, position=position))
    body.done()


one_hot_: Primitive = define(
    "one_hot",
    _one_hot,
    kind=OPAQUE,
    lower=_one_hot_in_loops,
    batch=leading,
)


# -- dropout -----------------------------------------------------------------------------------

dropout_: Primitive = define(
    "dropout",
    lambda x, mask, *, scale: np.where(mask, x * scale, 0.0).astype(x.dtype, copy=False),
    kind=ELEMENTWISE,
    vjp=(lambda g, mask, scale: dropout_(g, mask, scale=scale), None),
    expression="where(mask, x * scale, 0)",
)


def _dropped(
    what: str, input: Any, shape: tuple[int, ...], p: float, training: bool, in_place: bool
) -> Any:
    """Drop with one random choice for each element of `shape`, which broadcasts to the input."""
    p = constant(p, f"{what}: p")
    if not 0.0 <= p <= 1.0:
        raise ValueError(f"{what}: the probability p must lie between 0 and 1, got {p}")
    if p == 0 or not training or input._array.size == 0:
        return input
    check_floating(input, what)
    drawn = random_array("uniform", shape, np.float32, device=input.device)
    mask = c.greater_equal(drawn, p)
    out = dropout_(input, mask, scale=1.0 / (1.0 - p) if p < 1 else 0.0)
    return inplace_.assign(input, out, f"{what}(inplace=True)") if in_place else out


@op(
    method=False,
    random=True,
    samples=lambda: [
        Sample((3, 4)),
        Sample((3, 4), 0.2),
        Sample((3, 4), p=0.3, training=False),
        Sample((), 0.0),
        Sample((4,), 1.0),
    ],
)
def dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
    """0 with probability p, else x / (1 - p); the input itself when not training.

    Each element is drawn independently; the division keeps the expected value.

    >>> import tapegrad
    >>> from tapegrad.nn import functional as F
    >>> F.dropout(tapegrad.ones(3), p=0.5, training=False)
    tensor([1., 1., 1.])
    >>> out = F.dropout(tapegrad.ones(100), p=0.5)
    >>> ((out == 0) | (out == 2)).all()
    tensor(True)
    """
    return _dropped("dropout", input, tuple(input._array.shape), p, training, inplace)


@op(module=F, random=True, samples=lambda: [Sample((2, 3, 4)), Sample((3, 4), 0.2)])
def dropout1d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
    """Dropout of whole channels of (batch, channels, length) or (channels, length).

    >>> import tapegrad
    >>> from tapegrad.nn import functional as F
    >>> out = F.dropout1d(tapegrad.ones(2, 3, 4), p=0.5)
    >>> (out == out[..., :1]).all()
    tensor(True)
    """
    shape = tuple(input._array.shape)
    if len(shape) not in (2, 3):
        raise RuntimeError(f"dropout1d needs 2 or 3 dimensions, got shape {shape}")
    return _dropped("dropout1d", input, (*shape[:-1], 1), p, training, inplace)


@op(module=F, random=True, samples=lambda: [Sample((2, 3, 2, 2)), Sample((2, 3, 1, 4), 0.2)])
def dropout2d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
    """Dropout of whole channels of (batch, channels, height, width).

    >>> import tapegrad
    >>> from tapegrad.nn import functional as F
    >>> out = F.dropout2d(tapegrad.ones(2, 3, 4, 4), p=0.5)
    >>> (out == out[..., :1, :1]).all()
    tensor(True)
    """
    shape = tuple(input._array.shape)
    if len(shape) < 2:
        raise RuntimeError(f"dropout2d needs at least 2 dimensions, got shape {shape}")
    if len(shape) == 3:
        warnings.warn(
            "dropout2d takes an input of 3 dimensions as (batch, channels, length) and drops "
            "whole channels",
            stacklevel=2,
        )
    elif len(shape) != 4:
        warnings.warn(
            f"dropout2d is meant for 3 or 4 dimensions, got {len(shape)}",
            stacklevel=2,
        )
    return _dropped("dropout2d", input, (*shape[:2], *[1] * (len(shape) - 2)), p, training, inplace)


@op(
    module=F,
    random=True,
    samples=lambda: [Sample((2, 3, 2, 1, 2)), Sample((2, 3, 2, 2), 0.2)],
)
def dropout3d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
    """Dropout of whole channels of (batch, channels, depth, height, width).

    >>> import tapegrad
    >>> from tapegrad.nn import functional as F
    >>> out = F.dropout3d(tapegrad.ones(2, 3, 4, 4, 4), p=0.5)
    >>> (out == out[..., :1, :1, :1]).all()
    tensor(True)
    """
    shape = tuple(input._array.shape)
    if len(shape) not in (4, 5):
        warnings.warn(
            f"dropout3d is meant for 4 or 5 dimensions, got {len(shape)}",
            stacklevel=2,
        )
    chosen = 1 if len(shape) == 4 else 2
    sizes = (*shape[:chosen], *[1] * (len(shape) - chosen))
    return _dropped("dropout3d", input, sizes, p, training, inplace)


#: dropped elements become minus this: the limit of SELU at -infinity
_ALPHA = 1.7580993408473766


def _alpha_dropped(
    what: str, input: Any, shape: tuple[int, ...], p: float, training: bool, in_place: bool
) -> Any:
    """Replace by SELU's lowest value, and scale so that mean and variance stay 0 and 1."""
    p = constant(p, f"{what}: p")
    if not 0.0 <= p <= 1.0:
        raise ValueError(f"{what}: the probability p must lie between 0 and 1, got {p}")
    if p == 0 or not training or input._array.size == 0:
        return input
    check_floating(input, what)
    if p == 1:
        out = input * 0.0
    else:
        scale = 1.0 / math.sqrt((_ALPHA * _ALPHA * p + 1.0) * (1.0 - p))
        drawn = random_array("uniform", shape, np.float32, device=input.device)
        kept = c.greater_equal(drawn, p)
        low = _ALPHA * scale
        shift = c.where(kept, low * p, low * p - low).to(input.dtype)
        out = dropout_(input, kept, scale=scale) + shift
    return inplace_.assign(input, out, f"{what}(inplace=True)") if in_place else out


@op(
    module=F,
    random=True,
    samples=lambda: [Sample((3, 4), training=True), Sample((3, 4), 0.2, True), Sample((3, 4), 0.2)],
)
def alpha_dropout(
    input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False
) -> Any:
    """Dropout that keeps mean 0 and variance 1 of the inputs of a SELU.

    >>> import tapegrad
    >>> from tapegrad.nn import functional as F
    >>> F.alpha_dropout(tapegrad.ones(2, 3), p=0.5, training=True).shape
    Size([2, 3])
    """
    shape = tuple(input._array.shape)
    return _alpha_dropped("alpha_dropout", input, shape, p, training, inplace)


@op(
    module=F,
    random=True,
    samples=lambda: [Sample((2, 3, 4), training=True), Sample((2, 3), 0.2, True)],
)
def feature_alpha_dropout(
    input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False
) -> Any:
    """Alpha dropout of whole channels of (batch, channels, ...).

    >>> import tapegrad
    >>> from tapegrad.nn import functional as F
    >>> out = F.feature_alpha_dropout(tapegrad.ones(2, 3, 4), p=0.5, training=True)
    >>> (out == out[..., :1]).all()
    tensor(True)
    """
    shape = tuple(input._array.shape)
    if len(shape) < 2 and training and p:
        raise RuntimeError(f"feature_alpha_dropout needs at least 2 dimensions, got shape {shape}")
    chosen = (*shape[:2], *[1] * (len(shape) - 2))
    return _alpha_dropped("feature_alpha_dropout", input, chosen, p, training, inplace)
