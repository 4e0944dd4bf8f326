"""Losses: how far predictions are from targets.

Losses per element are elementwise composites, which save only their operands, followed by a
reduction. Losses on class labels are in `classification.py`, those with margins in `margin.py`.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ...core import numeric, source
from ...core.primitive import ELEMENTWISE, NO_PARAMS, OPAQUE, Primitive, define
from ...core.tensor import Tensor
from ...core.xp import F32, F64, is_plain, summed
from ..checks import checked, constant
from ..elementwise import comparison as c
from ..elementwise import exponentials as e
from ..elementwise.complexes import is_complex
from ..elementwise.extremes import clamp_numbers
from ..elementwise.rounding import abs, sign
from ..precision import as_floating, check_floating, rounded, widened
from ..reduce.reductions import mean, mean_, sum, sum_
from ..shape.expanding import expand_
from ..shape.reshaping import reshape_
from ..table import In, Sample, op

F = "nn.functional"


def check_reduction(reduction: Any) -> None:
    """Raise unless `reduction` is 'none', 'mean' or 'sum'."""
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(f"reduction must be 'none', 'mean' or 'sum', got {reduction!r}")


def as_reduction(reduction: str, size_average: bool | None, reduce: bool | None) -> str:
    """The reduction, by name or by PyTorch's two older arguments, which take precedence."""
    if size_average is None and reduce is None:
        check_reduction(reduction)
        return reduction
    chosen = "none" if reduce is False else "sum" if size_average is False else "mean"
    warnings.warn(
        f"size_average and reduce are deprecated; use reduction={chosen!r} instead",
        stacklevel=source.stacklevel(),
    )
    return chosen


def reduced(loss: Any, reduction: str) -> Any:
    """The losses themselves, their mean or their sum."""
    check_reduction(reduction)
    if reduction == "none":
        return loss
    if loss._array.dtype is F32:  # nothing to check or to cast
        primitive = mean_ if reduction == "mean" else sum_
        return primitive.direct(loss, {"dims": tuple(range(loss._array.ndim)), "keepdim": False})
    return mean(loss) if reduction == "mean" else sum(loss)


def reduction_samples(*args: Any, **keywords: Any) -> list[Sample]:
    """A sample for each reduction."""
    return [Sample(*args, **keywords, reduction=r) for r in ("none", "mean", "sum")]


def as_float(target: Any, input: Any) -> Any:
    """The target, cast to the dtype of the input if it is not floating."""
    return target if numeric.is_floating(target._array.dtype) else target.to(input.dtype)


def _pair_of(what: str, input: Any, target: Any) -> tuple[Any, Any]:
    """Check predictions and targets, and warn if they broadcast; return both."""
    for x in (input, target):
        if not isinstance(x, Tensor):
            raise TypeError(f"{what} needs tensors, got {type(x).__name__}")
    check_floating(input, what)
    ours, theirs = tuple(input._array.shape), tuple(target._array.shape)
    if ours != theirs:
        try:
            np.broadcast_shapes(ours, theirs)
        except ValueError:
            raise RuntimeError(
                f"{what}: the input of shape {ours} and the target of shape {theirs} do not fit"
            ) from None
        warnings.warn(
            f"{what}: the target of shape {theirs} is broadcast against the input of shape {ours}, "
            "which is seldom meant; reshape one of them",
            stacklevel=source.stacklevel(),
        )
    return input, as_float(target, input)


def equal_shapes(what: str, input: Any, target: Any) -> None:
    """Raise unless the target has the shape of the input."""
    ours, theirs = tuple(input._array.shape), tuple(target._array.shape)
    if ours != theirs:
        raise ValueError(
            f"{what}: the target must have the shape of the input {ours}, got {theirs}"
        )


# -- differences -------------------------------------------------------------------------------


class Loss(NamedTuple):
    """A loss per element, and its mean or sum as a single entry, for operands of one shape."""

    each: Primitive
    total: Primitive

    def reduced(self, x: Any, y: Any, reduction: str, limit: float) -> Any:
        """The losses, their mean or their sum."""
        if _has_total(x, y, reduction):
            return self.total.direct(x, y, {"limit": limit, "mean": reduction == "mean"})
        return reduced(self.each.direct(x, y, {"limit": limit}), reduction)


def _has_total(x: Any, y: Any, reduction: str) -> bool:
    """Whether the mean or sum of the losses of these operands can be a single entry."""
    dtype = x._array.dtype
    return (
        (reduction == "mean" or reduction == "sum")
        and (dtype is F32 or dtype is F64)
        and x._array.shape == y._array.shape
    )


def _with_total(
    each: Primitive,
    gradients: tuple[Callable[..., Any], Callable[..., Any]],
    kernel: Callable[..., Any],
) -> Loss:
    """A loss and its total; `kernel` takes x, y and `limit`, the gradients g before them."""

    def total(x: Any, y: Any, *, limit: float, mean: bool) -> Any:
        losses = kernel(x, y, limit)
        dims = tuple(range(len(losses.shape)))
        if is_plain(losses):
            out = summed(losses, dims, False)
            return out / losses.size if mean else out
        return (mean_ if mean else sum_)(losses, dims=dims, keepdim=False)

    def rule(gradient: Callable[..., Any]) -> Callable[..., Any]:
        def pulled(g: Any, x: Any, y: Any, limit: float, mean: bool) -> Any:
            return gradient(g / max(math.prod(x.shape), 1) if mean else g, x, y, limit)

        return pulled

    first, second = gradients
    primitive = define(
        f"{each.name}_total",
        total,
        kind=OPAQUE,
        promote="same",
        composite=True,
        vjp=(rule(first), rule(second)),
    )
    return Loss(each, primitive)


def _of_difference(name: str, value: Callable[..., Any], slope: Callable[..., Any]) -> Loss:
    """A loss that is a function of input - target; `slope` is its derivative."""

    def kernel(x: Any, y: Any, *, limit: float) -> Any:
        if x.dtype is F32 or x.dtype is F64:
            return value(x - y, limit=limit)
        return rounded(value(widened(x) - widened(y), limit=limit), x)

    def rule(sign: int) -> Callable[..., Any]:
        def gradient(g: Any, x: Any, y: Any, limit: float) -> Any:
            part = rounded(g * slope(widened(x) - widened(y), limit=limit), x)
            return part if sign > 0 else -part

        return gradient

    rules = (rule(1), rule(-1))
    each = define(
        name,
        kernel,
        kind=ELEMENTWISE,
        inputs=("x", "y"),
        promote="same",
        composite=True,
        vjp=rules,
    )
    return _with_total(each, rules, lambda x, y, limit: kernel(x, y, limit=limit))


squared_error = _of_difference(
    "squared_error", lambda d, *, limit: d * d, lambda d, *, limit: 2 * d
)
absolute_error = _of_difference(
    "absolute_error", lambda d, *, limit: abs(d), lambda d, *, limit: sign(d)
)


def _smooth(d: Any, *, limit: float) -> Any:
    if is_plain(d):
        size = np.abs(d)
        part = np.minimum(size, limit)
        size -= 0.5 * part
        return np.multiply(part if limit == 1 else part / limit, size, size)
    return c.where(c.less(abs(d), limit), d * d * (0.5 / limit), abs(d) - 0.5 * limit)


# Quadratic within `limit` of 0 and linear beyond; the slope is between -1 and 1.
smooth_error = _of_difference(
    "smooth_error",
    _smooth,
    lambda d, *, limit: clamp_numbers(d / limit, low=-1.0, high=1.0),
)


def _weighted(loss: Any, weight: Any, reduction: str, what: str) -> Any:
    """Multiply losses by weights and reduce; "mean" divides by the sum of the weights."""
    check_reduction(reduction)
    if weight is None:
        return reduced(loss, reduction)
    equal_shapes(f"{what}: weight", loss, weight)
    total = loss * weight
    if reduction == "mean":
        return reduced(total, "sum") / weight.sum()
    return reduced(total, reduction)


#: values whose differences stay away from the kinks of the losses below
_UNEVEN = In(3, 4, low=-2.0, high=2.3, distinct=True)


@op(
    module=F,
    samples=lambda: reduction_samples((3, 4), (3, 4)) + reduction_samples((), ()),
    autocast="full",
)
def mse_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    weight: Tensor | None = None,
) -> Any:
    """The mean squared error: (input - target)^2.

    `reduction` is "mean", "sum" or "none" (a loss for each element). `weight`
    multiplies the elements, and "mean" then divides by the sum of the weights.

    >>> import tapegrad
    >>> from tapegrad.nn import functional as F
    >>> F.mse_loss(tapegrad.tensor([1.0, 2.0]), tapegrad.tensor([1.0, 4.0]))
    tensor(2.)
    """
    reduction = as_reduction(reduction, size_average, reduce)
    x, y = _pair_of("mse_loss", input, target)
    if weight is None:
        return squared_error.reduced(x, y, reduction, 1.0)
    return _weighted(squared_error.each(x, y, limit=1.0), weight, reduction, "mse_loss")


@op(
    module=F,
    samples=lambda: reduction_samples(In(3, 4, distinct=True), In(3, 4, distinct=True)),
    autocast="full",
)
def l1_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    weight: Tensor | None = None,
) -> Any:
    """The mean absolute error: |input - target|.

    `reduction` is "mean", "sum" or "none" (a loss for each element). `weight`
    multiplies the elements, and "mean" then divides by the sum of the weights.

    >>> import tapegrad
    >>> from tapegrad.nn import functional as F
    >>> F.l1_loss(tapegrad.tensor([1.0, 2.0]), tapegrad.tensor([1.0, 4.0]))
    tensor(1.)
    """
    reduction = as_reduction(reduction, size_average, reduce)
    if numeric.is_integer(input._array.dtype) and numeric.is_integer(target._array.dtype):
        return reduced(abs(input - target), reduction)
    if weight is None and (is_complex(input) or is_complex(target)):
        return reduced(abs(input - target), reduction)
    x, y = _pair_of("l1_loss", input, target)
    if weight is None:
        return absolute_error.reduced(x, y, reduction, 1.0)
    return _weighted(absolute_error.each(x, y, limit=1.0), weight, reduction, "l1_loss")


@op(
    module=F,
    samples=lambda: [
        *reduction_samples(_UNEVEN, _UNEVEN),
        Sample(_UNEVEN, _UNEVEN, beta=0.5),
        Sample(_UNEVEN, _UNEVEN, beta=0.0),
    ],
    autocast="full",
)
def smooth_l1_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    beta: float = 1.0,
) -> Any:
    """d^2 / (2 beta) where d = |input - target| is below beta, else d - beta / 2.

    >>> import tapegrad
    >>> from tapegrad.nn import functional as F
    >>> F.smooth_l1_loss(tapegrad.tensor([1.0, 2.0]), tapegrad.tensor([1.5, 4.0]), reduction="none")
    tensor([0.1250, 1.5000])
    """
    reduction = as_reduction(reduction, size_average, reduce)
    beta = constant(beta, "smooth_l1_loss: beta")
    if beta < 0:
        raise RuntimeError(f"smooth_l1_loss: beta must be at least 0, got {beta}")
    if beta == 0:
        return l1_loss(input, target, reduction=reduction)
    x, y = _pair_of("smooth_l1_loss", input, target)
    return smooth_error.reduced(x, y, reduction, beta)


@op(
    module=F,
    samples=lambda: [
        *reduction_samples(_UNEVEN, _UNEVEN),
        Sample(_UNEVEN, _UNEVEN, delta=0.6),
    ],
    autocast="full",
)
def huber_loss(
    input: Tensor,
    target: Tensor,
    reduction: str = "mean",
    delta: float = 1.0,
    weight: Tensor | None = None,
) -> Any:
    """d^2 / 2 where d = |input - target| is below delta, else delta (d - delta / 2).

    >>> import tapegrad
    >>> from tapegrad.nn import functional as F
    >>> F.huber_loss(tapegrad.zeros(2), tapegrad.tensor([1.0, 4.0]), reduction="none", delta=2.0)
    tensor([0.5000, 6.0000])
    """
    delta = constant(delta, "huber_loss: delta")
    if delta <= 0:
        raise RuntimeError(f"huber_loss: delta must be above 0, got {delta}")
    check_reduction(reduction)
    x, y = _pair_of("huber_loss", input, target)
    if weight is None and delta == 1:
        return smooth_error.reduced(x, y, reduction, 1.0)
    loss = smooth_error.each(x, y, limit=delta) * delta
    return _weighted(loss, weight, reduction, "huber_loss")


# -- probabilities -----------------------------------------------------------------------------

_LOG_FLOOR = -100.0


def _log_at_least(x: Any) -> Any:
    return clamp_numbers(x, low=_LOG_FLOOR, high=math.inf)


def _bce(x: Any, y: Any) -> Any:
    if is_plain(x):
        out = (y - 1) * np.maximum(np.log1p(-x), _LOG_FLOOR)
        out -= y * np.maximum(np.log(x), _LOG_FLOOR)
        return out
    p, t = widened(x), widened(y)
    return rounded((t - 1) * _log_at_least(e.log1p(-p)) - t * _log_at_least(e.log(p)), x)


bce_ = define(
    "binary_cross_entropy",
    _bce,
    kind=ELEMENTWISE,
    promote="same",
    composite=True,
    vjp=(
        lambda g, x, y: g * ((x - y) / clamp_numbers((1 - x) * x, low=1e-12, high=math.inf)),
        lambda g, x: g * (_log_at_least(e.log1p(-x)) - _log_at_least(e.log(x))),
    ),
)


def _chances(**more: Any) -> In:
    return In(3, 4, low=0.1, high=0.9, **more)


@op(
    module=F,
    samples=lambda: [
        *reduction_samples(_chances(), _chances()),
        Sample(_chances(), _chances(), In(4, low=0.5, grad=False)),
    ],
    autocast={"cpu": "full", "cuda": "refuse"},
)
def binary_cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Any:
    """-(t log(p) + (1 - t) log(1 - p)) of probabilities p; logarithms are clamped at -100.

    >>> import tapegrad
    >>> from tapegrad.nn import functional as F
    >>> F.binary_cross_entropy(tapegrad.tensor([0.5, 0.9]), tapegrad.tensor([0.0, 1.0]))
    tensor(0.3993)
    """
    reduction = as_reduction(reduction, size_average, reduce)
    check_floating(input, "binary_cross_entropy")
    equal_shapes("binary_cross_entropy", input, target)
    message = "binary_cross_entropy needs probabilities between 0 and 1; for logits use "
    message += "binary_cross_entropy_with_logits"
    input = checked(input, low=0, high=1, message=message)
    loss = bce_.direct(input, as_float(target, input), NO_PARAMS)
    return reduced(loss if weight is None else loss * weight, reduction)


def _bce_logits(x: Any, y: Any, positive: Any) -> Any:
    if is_plain(x) and positive is None:
        out = (1 - y) * x
        out += np.log1p(np.exp(-np.abs(x)))
        out -= np.minimum(x, 0.0)
        return out
    logit, t = widened(x), widened(y)
    softplus = e.log1p(e.exp(-abs(logit))) - clamp_numbers(logit, low=-math.inf, high=0.0)
    if positive is None:
        return rounded((1 - t) * logit + softplus, x)
    return rounded((1 - t) * logit + ((positive - 1) * t + 1) * softplus, x)


def _bce_logits_gradient(g: Any, x: Any, y: Any, positive: Any) -> Any:
    if positive is None:
        return g * (e.sigmoid(x) - y)
    weighted = positive * y
    return g * ((weighted + (1 - y)) * e.sigmoid(x) - weighted)


def _bce_target_gradient(g: Any, x: Any, positive: Any) -> Any:
    if positive is None:
        return -g * x
    softplus = -logsigmoid_of(x)
    return g * ((positive - 1) * softplus - x)


def logsigmoid_of(x: Any) -> Any:
    """log(sigmoid(x)) of a Tensor or a raw array."""
    return clamp_numbers(x, low=-math.inf, high=0.0) - e.log1p(e.exp(-abs(x)))


bce_logits_ = define(
    "binary_cross_entropy_with_logits",
    _bce_logits,
    kind=ELEMENTWISE,
    promote="same",
    composite=True,
    vjp=(
        _bce_logits_gradient,
        _bce_target_gradient,
        lambda g, x, y: g * (y * -logsigmoid_of(x)),
    ),
)
bce_logits_total = _with_total(
    bce_logits_,
    (
        lambda g, x, y, limit: _bce_logits_gradient(g, x, y, None),
        lambda g, x, y, limit: _bce_target_gradient(g, x, None),
    ),
    lambda x, y, limit: _bce_logits(x, y, None),
).total


@op(
    module=F,
    samples=lambda: [
        *reduction_samples(In(3, 4, distinct=True), _chances()),
        Sample(In(3, 4, distinct=True), _chances(), In(4, low=0.5, grad=False)),
        Sample(In(3, 4, distinct=True), _chances(), pos_weight=In(4, low=0.5, grad=False)),
    ],
    autocast="full",
)
def binary_cross_entropy_with_logits(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    pos_weight: Tensor | None = None,
) -> Any:
    """Binary cross entropy of sigmoid(input); `pos_weight` multiplies the terms t log(p).

    It is accurate for large logits, unlike `binary_cross_entropy` of a sigmoid. `weight` and
    `pos_weight` broadcast to the shape of the input.

    >>> import tapegrad
    >>> from tapegrad.nn import functional as F
    >>> F.binary_cross_entropy_with_logits(tapegrad.tensor([0.0, 2.0]), tapegrad.tensor([0.0, 1.0]))
    tensor(0.4100)
    """
    reduction = as_reduction(reduction, size_average, reduce)
    check_floating(input, "binary_cross_entropy_with_logits")
    equal_shapes("binary_cross_entropy_with_logits", input, target)
    target = as_float(target, input)
    if weight is None and pos_weight is None and _has_total(input, target, reduction):
        return bce_logits_total.direct(input, target, {"limit": 1.0, "mean": reduction == "mean"})
    loss = bce_logits_.direct(input, target, pos_weight, NO_PARAMS)
    return reduced(loss if weight is None else loss * weight, reduction)


@op(
    module=F,
    samples=lambda: [
        # PyTorch warns about the mean, so the sweeps leave it out.
        Sample((3, 4), _chances(), reduction="none"),
        Sample((3, 4), _chances(), reduction="sum"),
        Sample((3, 4), _chances(), reduction="batchmean"),
        Sample((3, 4), (3, 4), reduction="sum", log_target=True),
    ],
    autocast="full",
)
def kl_div(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    log_target: bool = False,
) -> Any:
    """target (log(target) - input), for log-probabilities `input`.

    "batchmean" divides the sum by the batch size, as the definition does.

    >>> import tapegrad
    >>> from tapegrad.nn import functional as F
    >>> log_p = tapegrad.tensor([[0.5, 0.5]]).log()
    >>> F.kl_div(log_p, tapegrad.tensor([[0.25, 0.75]]), reduction="batchmean")
    tensor(0.1308)
    """
    if reduction != "batchmean" or size_average is not None or reduce is not None:
        reduction = as_reduction(reduction, size_average, reduce)
    check_floating(input, "kl_div")
    if log_target:
        loss = e.exp(target) * (target - input)
    else:
        loss = e.xlogy(target, target) - target * input
    if reduction == "batchmean" and loss._array.ndim:
        return reduced(loss, "sum") / max(loss._array.shape[0], 1)
    return reduced(loss, "mean" if reduction == "batchmean" else reduction)


# -- distributions -----------------------------------------------------------------------------


@op(
    module=F,
    samples=lambda: [
        *reduction_samples((3, 4), In(3, 4, low=0.0, high=4.0)),
        Sample(In(3, 4, low=0.3), In(3, 4, low=1.5, high=4.0), log_input=False, full=True),
    ],
    autocast="full",
)
def poisson_nll_loss(
    input: Tensor,
    target: Tensor,
    log_input: bool = True,
    full: bool = False,
    size_average: bool | None = None,
    eps: float = 1e-8,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Any:
    """exp(input) - target * input; `full` adds Stirling's term for targets above 1.

    >>> import tapegrad
    >>> from tapegrad.nn import functional as F
    >>> F.poisson_nll_loss(tapegrad.tensor([0.0, 1.0]), tapegrad.tensor([1.0, 2.0]))
    tensor(0.8591)
    """
    reduction = as_reduction(reduction, size_average, reduce)
    x = as_floating(input, "poisson_nll_loss")
    target = as_float(target, x)
    loss = e.exp(x) - target * x if log_input else x - target * e.log(x + eps)
    if full:
        large = c.greater(target, 1)
        t = c.where(large, target, 1.0)
        loss = loss + c.where(large, t * e.log(t) - t + 0.5 * e.log(2 * math.pi * t), 0.0)
    return reduced(loss, reduction)


def _variances(var: Any, shape: tuple[int, ...]) -> Any:
    """Check the shape of variances, and return them so that they broadcast to the input."""
    given = tuple(var._array.shape)
    if given != shape and given == shape[:-1]:
        return reshape_(var, shape=(*given, 1))
    others = [m for n, m in zip(shape, given, strict=False) if n != m]
    if given != shape and (len(given) != len(shape) or others != [1]):
        raise ValueError(
            f"gaussian_nll_loss: variances of shape {given} do not fit an input of shape {shape}: "
            "one dimension may have size 1, or the last one be missing"
        )
    return var


@op(
    module=F,
    samples=lambda: [
        *reduction_samples((3, 4), (3, 4), In(3, 4, low=0.4)),
        Sample((3, 4), (3, 4), In(3, low=0.4)),
        Sample((3, 4), (3, 4), In(3, 1, low=0.4), full=True),
    ],
)
def gaussian_nll_loss(
    input: Tensor,
    target: Tensor,
    var: Tensor | float,
    full: bool = False,
    eps: float = 1e-6,
    reduction: str = "mean",
) -> Any:
    """(log(var) + (input - target)^2 / var) / 2, with var at least eps.

    >>> import tapegrad
    >>> from tapegrad.nn import functional as F
    >>> F.gaussian_nll_loss(tapegrad.zeros(2), tapegrad.ones(2), tapegrad.ones(2))
    tensor(0.5000)
    """
    check_reduction(reduction)
    check_floating(input, "gaussian_nll_loss")
    if isinstance(var, (int, float)):
        var = expand_(input.new_tensor(float(var)), shape=tuple(input._array.shape))
    message = "gaussian_nll_loss needs variances of at least 0"
    var = checked(var, c.less(var, 0), high=0, message=message, error=ValueError)
    variances: Any = _variances(var, tuple(input._array.shape))
    # Only the value is clamped: the gradient passes unchanged, as in PyTorch.
    low = constant(eps, "gaussian_nll_loss: eps")
    limited = clamp_numbers(variances.detach(), low=low, high=math.inf)
    spread = variances + (limited - variances.detach())
    away = input - as_float(target, input)
    loss = 0.5 * (e.log(spread) + away * away / spread)
    return reduced(loss + 0.5 * math.log(2 * math.pi) if full else loss, reduction)
