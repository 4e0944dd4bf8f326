"""Losses with margins: for signs, rankings, distances and several labels per sample.

Each consists of elementwise operations and a reduction; gradients at kinks are those of PyTorch.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from ...core import numeric, xp
from ...core.dtypes import int64
from ...core.tensor import wrap
from ..checks import checked
from ..elementwise import comparison as c
from ..elementwise import exponentials as e
from ..elementwise import extremes
from ..index.gather import gather_, scatter_add_, zeros_as
from ..index.indexing import take_
from ..linalg.distance import pairwise_distance
from ..nn.activation import logsigmoid
from ..precision import check_floating, rounded, widened
from ..reduce.cumulative import cumprod
from ..reduce.reductions import mean_, sum_
from ..shape.reshaping import reshape_
from ..table import In, Sample, op
from .regression import (
    as_float,
    as_reduction,
    bce_logits_,
    check_reduction,
    equal_shapes,
    reduced,
    reduction_samples,
)

if TYPE_CHECKING:
    from ...core.tensor import Tensor

F = "nn.functional"

_LABELS = In(values=[2, 0, 3], kind="int")
_LISTED = In(values=[[2, 0, -1, 1], [-1, 1, 2, 3]], kind="int")

# -- signs and distances -----------------------------------------------------------------------


def _signs(*shape: int) -> In:
    values = np.where(np.arange(math.prod(shape)) % 3 == 1, -1.0, 1.0).reshape(shape)
    return In(values=values.tolist(), grad=False)


@op(module=F, samples=lambda: reduction_samples((3, 4), _signs(3, 4)), autocast="full")
def soft_margin_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Any:
    """log(1 + exp(-target * input)) for targets 1 and -1.

    >>> import tapegrad
    >>> from tapegrad.nn import functional as F
    >>> F.soft_margin_loss(tapegrad.tensor([0.0, 2.0]), tapegrad.tensor([1.0, -1.0]))
    tensor(1.4100)
    """
    reduction = as_reduction(reduction, size_average, reduce)
    equal_shapes("soft_margin_loss", input, target)
    return reduced(-logsigmoid(as_float(target, input) * input), reduction)


@op(
    module=F,
    samples=lambda: reduction_samples(In(3, 4, distinct=True), _signs(3, 4)),
    autocast="full",
)
def hinge_embedding_loss(
    input: Tensor,
    target: Tensor,
    margin: float = 1.0,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Any:
    """input where the target is 1, max(0, margin - input) where it is -1.

    >>> import tapegrad
    >>> from tapegrad.nn import functional as F
    >>> F.hinge_embedding_loss(tapegrad.tensor([0.5, 0.25]), tapegrad.tensor([1.0, -1.0]))
    tensor(0.6250)
    """
    reduction = as_reduction(reduction, size_average, reduce)
    if numeric.is_boolean(input._array.dtype):
        raise RuntimeError("hinge_embedding_loss needs numbers, got a bool tensor")
    away = margin - input if input.dtype.is_floating_point else int(margin) - input
    far = c.where(c.equal(target, 1), 0, extremes.clamp(away, min=0))
    near = c.where(c.equal(target, -1), 0, input)
    return reduced(far + near, reduction)


@op(
    module=F,
    samples=lambda: [
        *reduction_samples(In(4, distinct=True), In(4, distinct=True), _signs(4)),
        Sample(In(4, distinct=True), In(4, distinct=True), _signs(4), 0.3),
    ],
    autocast="full",
)
def margin_ranking_loss(
    input1: Tensor,
    input2: Tensor,
    target: Tensor,
    margin: float = 0.0,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Any:
    """max(0, -target (input1 - input2) + margin); with target 1, input1 should be larger.

    >>> import tapegrad
    >>> from tapegrad.nn import functional as F
    >>> first, second = tapegrad.tensor([1.0, 3.0]), tapegrad.tensor([2.0, 2.0])
    >>> F.margin_ranking_loss(first, second, tapegrad.ones(2))
    tensor(0.5000)
    """
    reduction = as_reduction(reduction, size_average, reduce)
    return reduced(extremes.clamp(-target * (input1 - input2) + margin, min=0.0), reduction)


@op(module=F, samples=lambda: reduction_samples((3, 4), (3, 4), _signs(3)), autocast="full")
def cosine_embedding_loss(
    input1: Tensor,
    input2: Tensor,
    target: Tensor,
    margin: float = 0.0,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Any:
    """1 - cos for targets 1, max(0, cos - margin) for targets -1.

    cos is the cosine of the angle between rows of the inputs (samples, features).

    >>> import tapegrad
    >>> from tapegrad.nn import functional as F
    >>> x, y = tapegrad.tensor([[1.0, 0.0]]), tapegrad.tensor([[0.0, 2.0]])
    >>> F.cosine_embedding_loss(x, y, tapegrad.tensor([1.0]))
    tensor(1.)
    """
    reduction = as_reduction(reduction, size_average, reduce)
    dims = target._array.ndim
    if dims > 1 or any(v._array.ndim != dims + 1 for v in (input1, input2)):
        raise RuntimeError(
            "cosine_embedding_loss needs a target (samples,) with inputs (samples, features), or "
            f"one label with inputs (features,); got shapes {tuple(target.shape)}, "
            f"{tuple(input1.shape)} and {tuple(input2.shape)}"
        )
    x, y = (v if v.dtype.is_floating_point else v.float() for v in (input1, input2))
    wide, other = widened(x), widened(y)
    # As in PyTorch, and unlike in cosine_similarity: a small number is added to squared norms.
    small = float(np.float32(1e-12))
    squares = ((wide * wide).sum(-1) + small) * ((other * other).sum(-1) + small)
    cosine = rounded((wide * other).sum(-1) / e.sqrt(squares), x)
    far = c.where(c.equal(target, -1), extremes.clamp(cosine - margin, min=0.0), 0.0)
    return reduced(c.where(c.equal(target, 1), 1 - cosine, far), reduction)


@op(
    module=F,
    samples=lambda: [
        *reduction_samples((3, 4), (3, 4), (3, 4)),
        Sample((3, 4), (3, 4), (3, 4), 0.5, swap=True),
    ],
    autocast="full",
)
def triplet_margin_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    margin: float = 1.0,
    p: float = 2,
    eps: float = 1e-6,
    swap: bool = False,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Any:
    """max(0, |anchor - positive| - |anchor - negative| + margin).

    The tensors are (samples, features); `p` is the norm of the distances. With `swap`, the
    distance to the negative is that from the anchor or the positive, whichever is smaller.

    >>> import tapegrad
    >>> from tapegrad.nn import functional as F
    >>> anchor, near, far = tapegrad.zeros(1, 1), tapegrad.ones(1, 1), tapegrad.ones(1, 1) * 1.5
    >>> F.triplet_margin_loss(anchor, near, far)
    tensor(0.5000)
    """
    reduction = as_reduction(reduction, size_average, reduce)
    _check_triplet("triplet_margin_loss", anchor, positive, negative, margin)
    near = pairwise_distance(anchor, positive, p, eps)
    far = pairwise_distance(anchor, negative, p, eps)
    if swap:
        far = extremes.minimum(far, pairwise_distance(positive, negative, p, eps))
    return reduced(extremes.clamp(near - far + margin, min=0.0), reduction)


@op(
    module=F,
    samples=lambda: [
        *reduction_samples((3, 4), In(3, 4, kind="int", low=0, high=2)),
        Sample((3, 4), In(3, 4, kind="int", low=0, high=2), In(4, low=0.5, grad=False)),
    ],
)
def multilabel_soft_margin_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Any:
    """The mean over classes of binary cross entropies with logits.

    >>> import tapegrad
    >>> from tapegrad.nn import functional as F
    >>> F.multilabel_soft_margin_loss(tapegrad.zeros(1, 2), tapegrad.tensor([[1.0, 0.0]]))
    tensor(0.6931)
    """
    reduction = as_reduction(reduction, size_average, reduce)
    equal_shapes("multilabel_soft_margin_loss", input, target)
    loss = bce_logits_(input, as_float(target, input), None)
    loss = loss if weight is None else loss * weight
    return reduced(mean_(loss, dims=(loss._array.ndim - 1,), keepdim=False), reduction)


@op(
    module=F,
    samples=lambda: [
        *reduction_samples((3, 4), (3, 4), (3, 4)),
        Sample((3, 4), (3, 4), (3, 4), margin=0.5, swap=True),
    ],
)
def triplet_margin_with_distance_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    *,
    distance_function: Callable[[Any, Any], Any] | None = None,
    margin: float = 1.0,
    swap: bool = False,
    reduction: str = "mean",
) -> Any:
    """max(0, d(anchor, positive) - d(anchor, negative) + margin) for any distance d.

    >>> import tapegrad
    >>> from tapegrad.nn import functional as F
    >>> anchor, near, far = tapegrad.zeros(1, 1), tapegrad.ones(1, 1), tapegrad.ones(1, 1) * 1.5
    >>> distance = F.pairwise_distance
    >>> F.triplet_margin_with_distance_loss(anchor, near, far, distance_function=distance)
    tensor(0.5000)
    """
    check_reduction(reduction)
    _check_triplet("triplet_margin_with_distance_loss", anchor, positive, negative, margin)
    distance = pairwise_distance if distance_function is None else distance_function
    near, far = distance(anchor, positive), distance(anchor, negative)
    if swap:
        far = extremes.minimum(far, distance(positive, negative))
    return reduced(extremes.clamp(near - far + margin, min=0.0), reduction)


def _check_triplet(what: str, anchor: Any, positive: Any, negative: Any, margin: float) -> None:
    if margin <= 0:
        raise ValueError(f"{what}: margin must be above 0, got {margin}")
    ranks = [len(x._array.shape) for x in (anchor, positive, negative)]
    if len(set(ranks)) > 1:
        raise RuntimeError(
            f"{what}: anchor, positive and negative need as many dimensions as each other, got "
            f"{ranks[0]}, {ranks[1]} and {ranks[2]}"
        )


# -- classes -----------------------------------------------------------------------------------


def _rows(what: str, input: Any) -> Any:
    """Scores as a matrix (samples, classes); a single sample may be (classes,)."""
    check_floating(input, what)
    shape = input._array.shape
    if len(shape) > 2 or (len(shape) == 2 and not shape[1]) or shape == (0,):
        raise RuntimeError(
            f"{what} needs scores (samples, classes) or (classes), got shape {tuple(shape)}"
        )
    return reshape_(input, shape=(1, input._array.size)) if len(shape) < 2 else input


def _positive_part(x: Any) -> Any:
    return c.where(c.greater(x, 0), x, 0.0)


def _numbers_of(x: Any, count: int) -> Any:
    return wrap(xp.module(x._array).arange(count))


@op(
    module=F,
    samples=lambda: [
        *reduction_samples(In(3, 4, low=-2.0, high=2.3, distinct=True), _LABELS),
        Sample(
            In(3, 4, low=-2.0, high=2.3, distinct=True), _LABELS, 2, 0.7, In(4, low=0.5, grad=False)
        ),
        Sample(In(4, low=-2.0, high=2.3, distinct=True), In(values=2, kind="int")),
    ],
    autocast="full",
)
def multi_margin_loss(
    input: Tensor,
    target: Tensor,
    p: int = 1,
    margin: float = 1.0,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Any:
    """The mean over classes of max(0, margin - input[label] + input)^p, with 0 for the label.

    `weight` is (classes,): the loss of a sample is multiplied by the weight of its label.

    >>> import tapegrad
    >>> from tapegrad.nn import functional as F
    >>> F.multi_margin_loss(tapegrad.tensor([[1.0, 0.5, -1.0]]), tapegrad.tensor([0]))
    tensor(0.1667)
    """
    reduction = as_reduction(reduction, size_average, reduce)
    what = "multi_margin_loss"
    if p not in (1, 2):
        raise ValueError(f"{what}: p must be 1 or 2, got {p}")
    scores = _rows(what, input)
    samples, classes = scores._array.shape
    if not numeric.is_integer(target._array.dtype) or target._array.size != samples:
        raise RuntimeError(
            f"{what}: an input of shape {tuple(input.shape)} needs {samples} integer labels, got "
            f"{target.dtype} of shape {tuple(target.shape)}"
        )
    if weight is not None and tuple(weight._array.shape) != (classes,):
        raise ValueError(
            f"{what}: weight needs one value for each of the {classes} classes, got shape "
            f"{tuple(weight.shape)}"
        )
    xp.check_index(target._array, classes, what, RuntimeError)
    labels = reshape_(target, shape=(samples, 1))
    away = _positive_part(margin - gather_(scores, labels, dim=1) + scores)
    terms = away * away if p == 2 else away
    if weight is not None:
        terms = terms * take_(weight, labels, dims=(0,))
    others = c.not_equal(labels, _numbers_of(target, classes))
    loss = sum_(c.where(others, terms, 0.0), dims=(1,), keepdim=False) / classes
    alone = input._array.ndim < 2 and not target._array.ndim
    return reduced(reshape_(loss, shape=()) if alone else loss, reduction)


@op(
    module=F,
    samples=lambda: [
        *reduction_samples(In(2, 4, low=-2.0, high=2.3, distinct=True), _LISTED),
        Sample(In(4, low=-2.0, high=2.3, distinct=True), In(values=[1, 3, -1, 0], kind="int")),
    ],
    autocast="full",
)
def multilabel_margin_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Any:
    """The sum over labels j and other classes i of max(0, 1 - input[j] + input[i]) / classes.

    Each row of `target` lists the labels of a sample, from the left up to the first -1.

    >>> import tapegrad
    >>> from tapegrad.nn import functional as F
    >>> F.multilabel_margin_loss(tapegrad.tensor([[1.0, 0.5]]), tapegrad.tensor([[0, -1]]))
    tensor(0.2500)
    """
    reduction = as_reduction(reduction, size_average, reduce)
    what = "multilabel_margin_loss"
    scores = _rows(what, input)
    if target._array.shape != input._array.shape or not numeric.is_integer(target._array.dtype):
        raise RuntimeError(
            f"{what} needs integer labels of the input's shape {tuple(input.shape)}, got "
            f"{target.dtype} of shape {tuple(target.shape)}"
        )
    samples, classes = scores._array.shape
    listed = reshape_(target, shape=(samples, classes))
    message = (
        f"{what}: label {{}} is out of range: labels are at least -1 and at most {classes - 1}"
    )
    listed = checked(listed, low=-1, high=classes - 1, message=message)
    before_end = cumprod(c.not_equal(listed, -1).to(int64), 1)
    valid = c.greater(before_end, 0)
    index = c.where(valid, listed, 0)
    chosen = gather_(scores, index, dim=1)
    is_label = c.greater(
        scatter_add_(zeros_as(before_end, shape=(samples, classes)), index, before_end, dim=1), 0
    )
    counted = c.logical_and(valid.unsqueeze(2), c.logical_not(is_label).unsqueeze(1))
    away = _positive_part(1 - chosen.unsqueeze(2) + scores.unsqueeze(1))
    terms = c.where(counted, away, 0.0)
    loss = sum_(terms, dims=(1, 2), keepdim=False) / classes
    return reduced(loss if input._array.ndim == 2 else reshape_(loss, shape=()), reduction)
