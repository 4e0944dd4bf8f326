"""Losses on classes: negative log-likelihood and cross entropy.

Cross entropy on labels is one composite that saves the log-probabilities and the labels. The
log-probabilities are its second output, so that the vjp rule needs no second softmax, and second
derivatives flow through them.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...core import numeric, xp
from ...core.modes import GRAD, STATE, TAPE
from ...core.primitive import OPAQUE, define
from ...core.tensor import Tensor
from ...core.wrapped import whole_of
from ..checks import check_range
from ..elementwise import comparison as c
from ..elementwise import exponentials as e
from ..elementwise.copies import cast, detach
from ..index.gather import gather_
from ..index.indexing import take_
from ..linalg.matmul import linear
from ..nn.softmax import log_softmax_, nothing
from ..precision import check_floating, in_dtype, rounded, widened
from ..reduce.largest import amax_
from ..reduce.reductions import sum_
from ..shape.reshaping import reshape_
from ..table import In, Sample, op
from .regression import as_reduction, reduced, reduction_samples

F = "nn.functional"


def _label_weights(
    labels: Any, weight: Any, like: Any, ignored: int | None, dim: int
) -> tuple[Any, Any, Any]:
    """Labels as an index along `dim`, their weights, and a mask of labels that are not ignored.

    The mask is None if `ignored` is None; the weights are None if `weight` is None too.
    """
    shape = tuple(labels.shape)
    column = (*shape[:dim], 1, *shape[dim:])
    if ignored is None:
        weights = None if weight is None else take_(weight, labels, dims=(0,))
        return reshape_(labels, shape=column), weights, None
    counted = c.not_equal(labels, ignored)
    index = c.where(counted, labels, 0)
    if weight is None:
        weights = cast(counted, dtype=like.dtype)
    else:
        weights = c.where(counted, take_(weight, index, dims=(0,)), 0.0)
    return reshape_(index, shape=column), weights, counted


def _total_weight(weights: Any, shape: Any) -> Any:
    if weights is None:
        return math.prod(shape)
    return sum_(weights, dims=tuple(range(len(shape))), keepdim=False)


def _reduce_labels(loss: Any, weights: Any, reduction: str) -> Any:
    if reduction == "none":
        return loss
    total = sum_(loss, dims=tuple(range(len(loss.shape))), keepdim=False)
    if reduction == "sum":
        return total
    count = _total_weight(weights, loss.shape)
    # The mean over no labels is NaN; with weights it is 0 / 0.
    return total * math.nan if weights is None and count == 0 else total / count


def _is_short(x: Any, labels: Any, weight: Any, dim: int, ignored: int | None) -> bool:
    """Whether labels index rows of a NumPy matrix, with no weights and no ignored label."""
    return (
        weight is None
        and ignored is None
        and dim == 1
        and xp.is_plain(x)
        and x.ndim == 2
        and labels.__class__ is np.ndarray
    )


def _nll(x: Any, labels: Any, weight: Any, *, dim: int, ignored: int | None, reduction: str) -> Any:
    if _is_short(x, labels, weight, dim, ignored):
        loss = -x[np.arange(len(labels)), labels]
        if reduction == "none":
            return loss
        total = xp.summed(loss, (0,), False)
        return total if reduction == "sum" else total / len(labels)
    index, weights, counted = _label_weights(labels, weight, x, ignored, dim)
    loss = -reshape_(gather_(x, index, dim=dim), shape=tuple(labels.shape))
    return _of_labels(loss, weights, counted, reduction)


def _of_labels(loss: Any, weights: Any, counted: Any, reduction: str) -> Any:
    """Multiply the losses by weights, mask ignored labels, and reduce."""
    if weights is not None:
        loss = loss * weights
    if counted is not None:
        loss = c.where(counted, loss, 0.0)
    return _reduce_labels(loss, weights, reduction)


def _label_gradients(
    g: Any, weights: Any, counted: Any, reduction: str, dim: int, shape: Any
) -> Any:
    """The gradient of each label's -log-probability, with a dimension for the classes."""
    each = g if weights is None else g * weights
    if reduction == "mean":
        each = each / _total_weight(weights, shape)
        if counted is not None:
            # If all labels are ignored, the mean is NaN but its gradient is 0.
            each = c.where(counted, each, 0.0)
    if weights is None and reduction != "none":
        return each  # one value for all labels
    return reshape_(each, shape=(*shape[:dim], 1, *shape[dim:]))


def _at_label(index: Any, classes: int, dim: int, ndim: int) -> Any:
    """The labels as one-hot masks."""
    raw = index._array if isinstance(index, Tensor) else index
    numbers = xp.module(raw).arange(classes).reshape(-1, *[1] * (ndim - dim - 1))
    return c.equal(index, numbers)


def _nll_gradient(
    g: Any, x_shape: Any, labels: Any, weight: Any, dim: int, ignored: int | None, reduction: str
) -> Any:
    index, weights, counted = _label_weights(labels, weight, g, ignored, dim)
    each = _label_gradients(g, weights, counted, reduction, dim, tuple(labels.shape))
    return c.where(_at_label(index, x_shape[dim], dim, len(x_shape)), -each, 0.0)


nll_ = define("nll_loss", _nll, kind=OPAQUE, composite=True, vjp=(_nll_gradient, None, None))


def _cross_entropy(
    x: Any, labels: Any, weight: Any, *, dim: int, ignored: int | None, reduction: str
) -> Any:
    if _is_short(x, labels, weight, dim, ignored) and x.size:
        log_p = log_softmax_.kernel(x, dims=(1,))
        return _nll(log_p, labels, weight, dim=dim, ignored=ignored, reduction=reduction), log_p
    wide = widened(x)
    top = amax_(detach(wide), dims=(dim,), keepdim=True)
    lower = wide - top
    log_sum = e.log(sum_(e.exp(lower), dims=(dim,), keepdim=True))
    # Gather from `x`, so that a program does not have to store `log_p`.
    index, weights, counted = _label_weights(labels, weight, wide, ignored, dim)
    found = widened(gather_(x, index, dim=dim)) - top - log_sum
    loss = _of_labels(-reshape_(found, shape=tuple(labels.shape)), weights, counted, reduction)
    return rounded(loss, x), lower - log_sum


def _cross_entropy_gradient(
    g: Any,
    labels: Any,
    weight: Any,
    log_p: Any,
    x_dtype: Any,
    dim: int,
    ignored: int | None,
    reduction: str,
    needs: list[bool],
) -> tuple[Any, ...]:
    """(softmax - one-hot) times the labels' gradients, plus the gradient of output `log_p`."""
    g_loss, g_log_p = g
    p = e.exp(log_p)
    g_x = None
    if g_loss is not None:
        index, weights, counted = _label_weights(labels, weight, log_p, ignored, dim)
        each = _label_gradients(g_loss, weights, counted, reduction, dim, tuple(labels.shape))
        here = _at_label(index, log_p.shape[dim], dim, len(log_p.shape))
        g_x = (p - cast(here, dtype=p.dtype)) * each
    if g_log_p is not None:
        through = g_log_p - p * sum_(g_log_p, dims=(dim,), keepdim=True)
        g_x = through if g_x is None else g_x + through
    return None if g_x is None else in_dtype(g_x, x_dtype), None, None


cross_entropy_ = define(
    "cross_entropy",
    _cross_entropy,
    kind=OPAQUE,
    composite=True,
    outputs=("out", "log_p"),
    joint=_cross_entropy_gradient,
)


_LABEL_DTYPES = (np.dtype(np.int64), np.dtype(np.uint8))


def _check_labels(
    what: str, input: Any, target: Any, weight: Any, ignored: int, reduction: str
) -> tuple[Any, dict[str, Any]]:
    """Check shapes and values of labels; return the labels and the primitives' parameters."""
    shape, given = input._array.shape, target._array.shape
    if not shape:
        raise RuntimeError(f"{what} needs an input with a dimension of classes, got a 0-d tensor")
    dim = 0 if len(shape) == 1 else 1
    expected = shape[:1] if len(shape) == 2 else shape[:dim] + shape[dim + 1 :]
    if given != expected:
        kind = ValueError if given[:1] != expected[:1] else RuntimeError
        raise kind(
            f"{what}: an input of shape {shape} has labels of shape {expected}, got {given}"
            + (
                ""
                if numeric.is_integer(target._array.dtype)
                else "; class probabilities need the input's own shape"
            )
        )
    if target._array.dtype not in _LABEL_DTYPES:
        raise RuntimeError(
            f"{what} needs integer labels, int64 or uint8, got {target.dtype}; use .long()"
        )
    classes = shape[dim]
    if weight is not None and tuple(weight._array.shape) != (classes,):
        raise RuntimeError(
            f"{what}: weight needs one value for each of the {classes} classes, got shape "
            f"{tuple(weight.shape)}"
        )
    if weight is not None and weight.requires_grad and STATE.mode & GRAD:
        raise RuntimeError(f"{what} has no gradient for its weight; detach() it")
    labels = whole_of(target)._array
    # On a tape, later runs may have other labels, so `ignored` stays a number.
    taped = STATE.mode & TAPE
    outside = taped or (labels.size and not _lie_below(labels, classes))
    if outside:
        target = check_range(
            target,
            classes,
            f"{what}: label {{}} is out of range for {classes} classes (0 to {classes - 1}; "
            f"ignore_index is {ignored})",
            IndexError,
            besides=int(ignored),
        )
    all_count = not outside and not 0 <= ignored < classes
    ignored_label = None if all_count else int(ignored)
    return target, {"dim": dim, "ignored": ignored_label, "reduction": reduction}


def _lie_below(labels: Any, classes: int) -> bool:
    """Whether all labels are between 0 and classes - 1."""
    if labels.size <= xp.FEW_INDICES:
        low, high = xp.ends(labels)
        return bool(low >= 0 and high < classes)
    # Viewed as unsigned, negative labels are huge, so one maximum checks both bounds.
    return bool(labels.view(f"u{labels.dtype.itemsize}").max() < classes)


_CHANCES = In(3, 4, low=0.1, high=0.9)
_LABELS = In(values=[2, 0, 3], kind="int")
_SOME = In(values=[2, -100, 3], kind="int")
_PLANES = In(values=[[[1, 0], [2, 2]], [[0, 1], [1, 0]]], kind="int")


@op(
    module=F,
    samples=lambda: [
        *reduction_samples((3, 4), _LABELS),
        *reduction_samples((3, 4), _SOME, In(4, low=0.5, grad=False)),
        Sample((2, 3, 2, 2), _PLANES),
        Sample((2, 3, 2, 2), _PLANES, reduction="none", ignore_index=1),
        Sample((4,), In(values=1, kind="int")),
    ],
    autocast="full",
)
def nll_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Any:
    """-input[label]: the negative log-likelihood of labels, for log-probabilities `input`.

    `input` is (batch, classes, ...), `target` (batch, ...) with integer labels. `weight` is
    (classes,); "mean" divides by the sum of the weights of the labels. Labels equal to
    `ignore_index` are ignored.

    >>> import tapegrad
    >>> from tapegrad.nn import functional as F
    >>> log_p = tapegrad.tensor([[0.5, 0.5], [0.2, 0.8]]).log()
    >>> F.nll_loss(log_p, tapegrad.tensor([0, 1]), reduction="none")
    tensor([0.6931, 0.2231])
    """
    reduction = as_reduction(reduction, size_average, reduce)
    check_floating(input, "nll_loss")
    target, params = _check_labels("nll_loss", input, target, weight, ignore_index, reduction)
    return nll_.direct(input, target, weight, params)


@op(
    module=F,
    samples=lambda: [
        *reduction_samples((3, 4), _LABELS),
        *reduction_samples((3, 4), _SOME, In(4, low=0.5, grad=False)),
        Sample((2, 3, 2, 2), _PLANES),
        Sample((2, 3, 2, 2), _PLANES, reduction="sum", ignore_index=1),
        Sample((4,), In(values=1, kind="int")),
        *reduction_samples((3, 4), _SOME, label_smoothing=0.2),
        *reduction_samples((3, 4), _SOME, In(4, low=0.5, grad=False), label_smoothing=0.2),
        *reduction_samples((3, 4), _CHANCES),
        Sample((3, 4), _CHANCES, In(4, low=0.5, grad=False), label_smoothing=0.1),
        Sample((2, 3, 2), In(2, 3, 2, low=0.1, high=0.9)),
        Sample((4,), In(4, low=0.1, high=0.9)),
    ],
    autocast="full",
)
def cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Any:
    """-log(softmax(input)) at the labels, or weighted by class probabilities.

    The classes are dimension 1 (dimension 0 of a single sample). `target` holds integer labels, or
    floating-point class probabilities (also one-hot) in the shape of the input.

    `weight` is (classes,); "mean" divides by the sum of the weights of the labels. Labels equal to
    `ignore_index` are ignored. `label_smoothing` is the share of the uniform distribution that is
    mixed into the target.

    >>> import tapegrad
    >>> from tapegrad.nn import functional as F
    >>> logits = tapegrad.tensor([[2.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
    >>> F.cross_entropy(logits, tapegrad.tensor([0, 2]), reduction="none")
    tensor([0.2395, 1.0986])
    """
    reduction = as_reduction(reduction, size_average, reduce)
    check_floating(input, "cross_entropy")
    if not 0.0 <= label_smoothing <= 1.0:
        raise RuntimeError(f"label_smoothing must lie between 0 and 1, got {label_smoothing}")
    if numeric.is_floating(target._array.dtype) and target._array.shape == input._array.shape:
        return _soft_cross_entropy(input, target, weight, reduction, label_smoothing)
    target, params = _check_labels("cross_entropy", input, target, weight, ignore_index, reduction)
    if label_smoothing == 0:
        return cross_entropy_.direct(input, target, weight, params)[0]
    return _smooth_cross_entropy(input, target, weight, params, label_smoothing)


def _smooth_cross_entropy(
    input: Any, target: Any, weight: Any, params: dict[str, Any], smoothing: float
) -> Any:
    """Cross entropy on labels with label smoothing."""
    dim, classes = params["dim"], input._array.shape[params["dim"]]
    log_p = log_softmax_(input, dims=(dim,))
    sharp = nll_(log_p, target, weight, **params)
    if weight is not None:
        log_p = log_p * _over_classes(weight, input._array.ndim, dim)
    _, weights, counted = _label_weights(target, weight, input, params["ignored"], dim)
    even = -sum_(log_p, dims=(dim,), keepdim=False)
    if counted is not None:
        even = c.where(counted, even, 0.0)
    even = _reduce_labels(even, weights, params["reduction"])
    return sharp * (1.0 - smoothing) + even * (smoothing / classes)


def _over_classes(weight: Any, ndim: int, dim: int) -> Any:
    return reshape_(weight, shape=(-1, *[1] * (ndim - dim - 1)))


def _soft_cross_entropy(
    input: Any, target: Any, weight: Any, reduction: str, smoothing: float
) -> Any:
    """Cross entropy with class probabilities as targets."""
    shape = input._array.shape
    dim = 0 if len(shape) == 1 else 1
    classes = shape[dim]
    if smoothing:
        target = target * (1.0 - smoothing) + smoothing / classes
    log_p = log_softmax_(input, dims=(dim,)) if input._array.size else nothing(input)
    terms = target * log_p
    if weight is not None:
        terms = terms * _over_classes(weight, len(shape), dim)
    loss = -sum_(terms, dims=(dim,), keepdim=False)
    return reduced(loss, reduction)


@op(
    module=F,
    samples=lambda: [
        *reduction_samples((3, 5), (4, 5), _LABELS),
        Sample((3, 5), (4, 5), _SOME, linear_bias=In(4), label_smoothing=0.2),
        Sample((2, 5), (3, 2, 2, 5), _PLANES, linear_bias=In(3, 2, 2), ignore_index=1),
        Sample((3, 5), (4, 5), _CHANCES, weight=In(4, low=0.5, grad=False)),
        Sample((5,), (4, 5), In(values=1, kind="int")),
    ],
)
def linear_cross_entropy(
    input: Tensor,
    linear_weight: Tensor,
    target: Tensor,
    *,
    linear_bias: Tensor | None = None,
    weight: Tensor | None = None,
    reduction: str = "mean",
    ignore_index: int | None = None,
    label_smoothing: float = 0.0,
    options: Any = None,
) -> Any:
    """The cross entropy of input @ linear_weight.T + linear_bias.

    Weights (classes, ..., features) give logits (samples, classes, ...). In PyTorch, `options`
    control how the work is split to save memory; here they have no effect.

    >>> import tapegrad
    >>> from tapegrad.nn import functional as F
    >>> F.linear_cross_entropy(tapegrad.ones(2, 3), tapegrad.ones(4, 3), tapegrad.tensor([0, 3]))
    tensor(1.3863)
    """
    what = "linear_cross_entropy"
    shape, kernel = tuple(input._array.shape), tuple(linear_weight._array.shape)
    if len(shape) not in (1, 2) or len(kernel) < 2 or shape[-1] != kernel[-1]:
        raise RuntimeError(
            f"{what} needs an input (samples, features) or (features) and a weight "
            f"(classes, ..., features), got shapes {shape} and {kernel}"
        )
    if len(kernel) > 2 and len(shape) == 1:
        raise RuntimeError(f"{what}: a weight of shape {kernel} needs an input (samples, features)")
    if linear_bias is not None and tuple(linear_bias._array.shape) != kernel[:-1]:
        raise RuntimeError(
            f"{what}: linear_bias must have shape {kernel[:-1]}, got {tuple(linear_bias.shape)}"
        )
    logits_shape = (*shape[:-1], *kernel[:-1])
    if tuple(target._array.shape) == logits_shape and ignore_index is not None:
        raise RuntimeError(f"{what}: class probabilities have no ignore_index")
    rows = math.prod(kernel[:-1])
    logits = linear(
        input,
        reshape_(linear_weight, shape=(rows, kernel[-1])),
        None if linear_bias is None else reshape_(linear_bias, shape=(rows,)),
    )
    return cross_entropy(
        reshape_(logits, shape=logits_shape),
        target,
        weight,
        ignore_index=-100 if ignore_index is None else ignore_index,
        reduction=reduction,
        label_smoothing=label_smoothing,
    )
