"""Normalization: one composite for batch, layer, group and instance norm, another for RMS norm.

`standardize` takes the mean and variance over `dims` and scales by weights. Their dimensions lie
where `spread` has `ALONG`; it has no sizes, so that one native program serves all. Mean and
variance are separate outputs: the gradient rule reads them instead of recomputing them, and second
derivatives flow through them. It saves the input, the weight and the statistics.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from ...core import inplace, xp
from ...core.casting import ON_GPU
from ...core.dtypes import finfo
from ...core.modes import no_grad
from ...core.outputs import put
from ...core.primitive import OPAQUE, define
from ...core.tensor import Tensor
from ..checks import constant
from ..elementwise import exponentials as e
from ..elementwise import extremes
from ..elementwise.complexes import is_complex
from ..precision import check_floating, check_parameters, in_dtype, rounded, widened
from ..reduce.reductions import count, mean_, sum_
from ..reduce.statistics import norm
from ..shape.dims import as_shape, normal_dim
from ..shape.expanding import expand_
from ..shape.reshaping import reshape_
from ..table import In, Sample, op

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..annotations import Dims

F = "nn.functional"
Shape = tuple[int, ...]

#: a dimension along which weights differ; along others (1) they repeat
ALONG = -1


def _over(weight: Any, spread: Shape, x: Any) -> Any:
    """A weight with as many dimensions as `spread`, and the sizes of x along some of them."""
    sizes = x.shape[len(x.shape) - len(spread) :]
    shape = tuple([n if s == ALONG else 1 for s, n in zip(spread, sizes, strict=True)])
    return weight if weight.shape == shape else reshape_(weight, shape=shape)


# -- mean and variance -------------------------------------------------------------------------


def _standardize(x: Any, weight: Any, bias: Any, *, dims: Shape, spread: Shape, eps: float) -> Any:
    if xp.is_plain(x):
        return _standardize_array(x, weight, bias, dims, spread, eps)
    wide = widened(x)
    mean = mean_(wide, dims=dims, keepdim=True)
    centred = wide - mean
    var = mean_(centred * centred, dims=dims, keepdim=True)
    out = _affine(centred * e.rsqrt(var + eps), weight, bias, spread)
    return rounded(out, x), mean, var


def _standardize_array(
    x: Any, weight: Any, bias: Any, dims: Shape, spread: Shape, eps: float
) -> Any:
    """The same for a NumPy array of float32 or float64."""
    n = count(x.shape, dims)
    mean = xp.summed(x, dims, True) / n
    out = xp.spread(mean, x.shape)
    np.subtract(x, out, out)
    var = xp.summed(out * out, dims, True) / n
    out *= xp.spread(np.reciprocal(np.sqrt(var + eps)), x.shape)
    if weight is not None:
        out *= xp.spread(_over(weight, spread, x), x.shape)
    if bias is not None:
        out += xp.spread(_over(bias, spread, x), x.shape)
    return out, mean, var


def _affine(x: Any, weight: Any, bias: Any, spread: Shape) -> Any:
    if weight is not None:
        x = x * _over(weight, spread, x)
    return x if bias is None else x + _over(bias, spread, x)


def _standardize_gradient(
    g: Any,
    x: Any,
    weight: Any,
    mean: Any,
    var: Any,
    bias_shape: Any,
    bias_dtype: Any,
    dims: Shape,
    spread: Shape,
    eps: float,
    needs: list[bool],
) -> tuple[Any, ...]:
    """Gradients of x, weight and bias; the statistics have gradients in second derivatives."""
    g_out, g_mean, g_var = g
    n = count(x.shape, dims)
    centred = widened(x) - mean
    g_x = g_weight = g_bias = None
    if g_out is not None:
        scale = e.rsqrt(var + eps)
        normal = centred * scale
        if needs[0]:
            inner = g_out if weight is None else g_out * _over(weight, spread, x)
            along = mean_(inner * normal, dims=dims, keepdim=True)
            g_x = (inner - mean_(inner, dims=dims, keepdim=True) - normal * along) * scale
        if needs[1]:
            g_weight = rounded(_summed(g_out * normal, spread, weight.shape), weight)
        if needs[2]:
            g_bias = in_dtype(_summed(widened(g_out), spread, bias_shape), bias_dtype)
    if needs[0] and g_mean is not None:
        g_x = _plus(g_x, expand_(g_mean / n, shape=tuple(x.shape)))
    if needs[0] and g_var is not None:
        g_x = _plus(g_x, g_var * (centred * (2.0 / n)))
    return None if g_x is None else rounded(g_x, x), g_weight, g_bias


def _plus(a: Any, b: Any) -> Any:
    return b if a is None else a + b


def _summed(g: Any, spread: Shape, shape: Any) -> Any:
    """Sum a gradient over the dimensions along which a weight was broadcast."""
    extra = len(g.shape) - len(spread)
    dims = tuple(range(extra)) + tuple(i + extra for i, s in enumerate(spread) if s != ALONG)
    return reshape_(sum_(g, dims=dims, keepdim=False), shape=tuple(shape))


def _ordered(input: Any) -> Any:
    """The input in C order, as in PyTorch, so that the result can be viewed."""
    return input if input._array.flags.c_contiguous else input.contiguous()


standardize_ = define(
    "standardize",
    _standardize,
    kind=OPAQUE,
    composite=True,
    outputs=("out", "mean", "var"),
    joint=_standardize_gradient,
)

# -- RMS ---------------------------------------------------------------------------------------


def _rms_norm(x: Any, weight: Any, *, dims: Shape, spread: Shape, eps: float) -> Any:
    wide = widened(x)
    scale = e.rsqrt(mean_(wide * wide, dims=dims, keepdim=True) + eps)
    return rounded(_affine(wide * scale, weight, None, spread), x), scale


def _rms_norm_gradient(
    g: Any,
    x: Any,
    weight: Any,
    scale: Any,
    dims: Shape,
    spread: Shape,
    needs: list[bool],
) -> tuple[Any, ...]:
    g_out, g_scale = g
    n = count(x.shape, dims)
    wide = widened(x)
    g_x = g_weight = None
    if g_out is not None:
        normal = wide * scale
        if needs[0]:
            inner = g_out if weight is None else g_out * _over(weight, spread, x)
            along = mean_(inner * normal, dims=dims, keepdim=True)
            g_x = (inner - normal * along) * scale
        if needs[1]:
            g_weight = rounded(_summed(g_out * normal, spread, weight.shape), weight)
    if needs[0] and g_scale is not None:
        g_x = _plus(g_x, (g_scale * (scale * scale * scale)) * (wide * (-1.0 / n)))
    return None if g_x is None else rounded(g_x, x), g_weight


rms_norm_ = define(
    "rms_norm",
    _rms_norm,
    kind=OPAQUE,
    composite=True,
    outputs=("out", "scale"),
    joint=_rms_norm_gradient,
)

# -- over the last dimensions ------------------------------------------------------------------


def _last_dims(what: str, input: Any, normalized_shape: Any, **weights: Any) -> tuple[Shape, Shape]:
    """The normalized shape and its dims, checked against the input and the weights."""
    check_floating(input, what, complex=what == "rms_norm")
    sizes = normalized_shape if isinstance(normalized_shape, (tuple, list)) else [normalized_shape]
    shape = as_shape((tuple(sizes),))
    given = tuple(input._array.shape)
    if not shape or given[-len(shape) :] != shape:
        raise RuntimeError(
            f"{what}: an input of shape {given} does not end in the normalized shape {shape}"
        )
    for name, weight in weights.items():
        if weight is not None and tuple(weight._array.shape) != shape:
            raise RuntimeError(
                f"{what}: the {name} must have the normalized shape {shape}, got "
                f"{tuple(weight.shape)}"
            )
    return shape, tuple(range(len(given) - len(shape), len(given)))


@op(
    method=False,
    samples=lambda: [
        Sample((3, 4), [4]),
        Sample((2, 3, 4), [3, 4], (3, 4), (3, 4)),
        Sample((2, 3, 4), [4], (4,), eps=1e-3),
        Sample((2, 4), [4], None, (4,)),
        Sample((0, 4), [4], (4,), (4,)),
    ],
    autocast=ON_GPU,
)
def layer_norm(
    input: Tensor,
    normalized_shape: int | Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Any:
    """(x - mean) / sqrt(var + eps) * weight + bias, with statistics over the last dimensions.

    `normalized_shape` is the shape of the last dimensions, those of each sample that are
    normalized; `weight` and `bias` have that shape. The variance is the biased one.

    >>> import tapegrad
    >>> from tapegrad.nn import functional as F
    >>> F.layer_norm(tapegrad.tensor([[1.0, 3.0], [10.0, 30.0]]), (2,))
    tensor([[-1.0000,  1.0000],
            [-1.0000,  1.0000]])
    """
    shape, dims = _last_dims("layer_norm", input, normalized_shape, weight=weight, bias=bias)
    check_parameters("layer_norm", input, weight=weight, bias=bias)
    input = _ordered(input)
    params = {
        "dims": dims,
        "spread": (ALONG,) * len(shape),
        "eps": constant(eps, "layer_norm: eps"),
    }
    return standardize_.direct(input, weight, bias, params)[0]


@op(
    method=False,
    samples=lambda: [
        Sample((3, 4), [4], eps=1e-5),
        Sample((2, 3, 4), [3, 4], (3, 4)),
        Sample((2, 4), [4], (4,), 1e-3),
    ],
    autocast=ON_GPU,
)
def rms_norm(
    input: Tensor,
    normalized_shape: int | Sequence[int],
    weight: Tensor | None = None,
    eps: float | None = None,
) -> Any:
    """x / sqrt(mean(x^2) + eps) * weight, over the last dimensions.

    `normalized_shape` is the shape of those dimensions and of `weight`. Without `eps`, it is the
    smallest step of the data type at 1.

    >>> import tapegrad
    >>> from tapegrad.nn import functional as F
    >>> F.rms_norm(tapegrad.tensor([[3.0, 4.0]]), (2,))
    tensor([[0.8485, 1.1314]])
    """
    shape, dims = _last_dims("rms_norm", input, normalized_shape, weight=weight)
    small = finfo(input.dtype).eps if eps is None else constant(eps, "rms_norm: eps")
    if is_complex(input):
        out = input * e.rsqrt(mean_(input * input, dims=dims, keepdim=True) + small)
        return out if weight is None else out * weight
    return rms_norm_(input, weight, dims=dims, spread=(ALONG,) * len(shape), eps=small)[0]


# -- over channels -----------------------------------------------------------------------------


def _check_channels(what: str, input: Any, **weights: Any) -> int:
    """The number of channels (dimension 1), checked against the weights."""
    check_floating(input, what)
    shape = tuple(input._array.shape)
    if len(shape) < 2:
        raise RuntimeError(f"{what} needs an input (batch, channels, ...), got shape {shape}")
    for name, weight in weights.items():
        if weight is not None and tuple(weight._array.shape) != shape[1:2]:
            raise RuntimeError(
                f"{what}: the {name} needs one value for each of the {shape[1]} channels of an "
                f"input of shape {shape}, got shape {tuple(weight.shape)}"
            )
    return int(shape[1])


@op(
    method=False,
    samples=lambda: [
        Sample((2, 4, 3), 2),
        Sample((2, 6, 2, 2), 3, (6,), (6,)),
        Sample((3, 4), 1, (4,), eps=1e-3),
    ],
    autocast=ON_GPU,
)
def group_norm(
    input: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Any:
    """(x - mean) / sqrt(var + eps) * weight + bias, with statistics over groups of channels.

    `input` is (batch, channels, ...); the channels of each sample are split into `num_groups`
    groups of equal size. `weight` and `bias` are (channels,).

    >>> import tapegrad
    >>> from tapegrad.nn import functional as F
    >>> F.group_norm(tapegrad.tensor([[1.0, 3.0, 10.0, 30.0]]), num_groups=2)
    tensor([[-1.0000,  1.0000, -1.0000,  1.0000]])
    """
    channels = _check_channels("group_norm", input, weight=weight, bias=bias)
    check_parameters("group_norm", input, weight=weight, bias=bias)
    if num_groups < 1 or channels % num_groups:
        raise RuntimeError(
            f"group_norm: num_groups = {num_groups} must be positive and divide the {channels} "
            "channels"
        )
    shape = input._array.shape
    each = channels // num_groups
    if shape[0] * each * math.prod(shape[2:]) == 1:
        raise ValueError(
            "group_norm needs more than 1 value for each group, got an input of shape "
            f"{tuple(shape)} and {num_groups} groups"
        )
    grouped = reshape_(input, shape=(shape[0], num_groups, each, *shape[2:]))
    rest = len(shape) - 2
    out, _, _ = standardize_(
        grouped,
        weight,
        bias,
        dims=tuple(range(2, rest + 3)),
        spread=(1, ALONG, ALONG, *[1] * rest),
        eps=constant(eps, "group_norm: eps"),
    )
    return reshape_(out, shape=shape)


def _track(running: Any, value: Any, momentum: Any, factor: float = 1.0) -> None:
    """Move a running statistic towards factor * value, by a number or a 0-d tensor."""
    if isinstance(momentum, (int, float)) and inplace.move_towards(
        running, value, momentum, factor
    ):
        return
    value = value.reshape(-1)
    if factor != 1.0:
        value = value * factor
    if value._array.dtype is not running._array.dtype:
        value = value.to(running.dtype)
    if isinstance(momentum, Tensor):
        running.mul_((1.0 - momentum).to(running.dtype))
        running.add_(value * momentum.to(running.dtype))
        return
    running.mul_(1.0 - momentum)
    running.add_(value, alpha=momentum)


def _track_batch(
    running_mean: Any, running_var: Any, mean: Any, var: Any, n: int, momentum: Any
) -> None:
    """Move running statistics, if given, towards those of a batch of n values per channel."""
    with no_grad():
        if running_mean is not None:
            _track(running_mean, mean, momentum)
        if running_var is not None:
            _track(running_var, var, momentum, n / (n - 1))


def _with_statistics(input: Any, mean: Any, var: Any, weight: Any, bias: Any, eps: float) -> Any:
    """Normalize by given statistics: one multiplication and one addition for each element."""
    spread = (-1, *[1] * (input._array.ndim - 2))
    scale = e.rsqrt(var + eps)
    if weight is not None:
        scale = scale * weight
    shift = -mean * scale if bias is None else bias - mean * scale
    out = input * scale.reshape(spread).to(input.dtype)
    return out + shift.reshape(spread).to(input.dtype)


def _statistics_given(what: str, running_mean: Any, running_var: Any) -> None:
    for name, value in (("running_mean", running_mean), ("running_var", running_var)):
        if value is None:
            raise RuntimeError(f"{what} without statistics of the input needs {name}")


def _scaled_nothing(input: Any, weight: Any, bias: Any) -> Any:
    """An empty input: no statistics change, and weights get gradients of 0."""
    out = input.clone()
    if weight is not None and weight._array.size:
        out = out * weight[0]
    return out if bias is None or not bias._array.size else out + bias[0]


@op(
    module=F,
    samples=lambda: [
        Sample((4, 3), None, None, training=True),
        Sample(In(0, 3), None, None, (3,), (3,), training=True),
        Sample((3, 2, 4), None, None, (2,), (2,), True),
        Sample((2, 3, 2, 2), None, None, (3,), (3,), training=True, eps=1e-3),
        Sample((2, 3, 2, 2), In(3, grad=False), In(3, low=0.5, grad=False), (3,), (3,)),
        Sample((4, 3), In(3, grad=False), In(3, low=0.5, grad=False)),
    ],
)
def batch_norm(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Any:
    """(x - mean) / sqrt(var + eps) * weight + bias, with statistics of each channel.

    `input` is (batch, channels, ...), the other tensors are (channels,). The statistics are those
    of the batch in training, else the running ones.

    In training the running statistics, if given, move towards those of the batch, in place:
    running = (1 - momentum) * running + momentum * batch, with the unbiased variance.

    >>> import tapegrad
    >>> from tapegrad.nn import functional as F
    >>> mean, var = tapegrad.zeros(1), tapegrad.ones(1)
    >>> F.batch_norm(tapegrad.tensor([[1.0], [3.0]]), mean, var, training=True)
    tensor([[-1.0000],
            [ 1.0000]])
    >>> mean
    tensor([0.2000])
    """
    if input._array.size == 0:
        return _scaled_nothing(input, weight, bias)
    _check_channels(
        "batch_norm",
        input,
        weight=weight,
        bias=bias,
        running_mean=running_mean,
        running_var=running_var,
    )
    eps = constant(eps, "batch_norm: eps")
    if not training:
        _statistics_given("batch_norm in evaluation", running_mean, running_var)
        return _with_statistics(input, running_mean, running_var, weight, bias, eps)
    shape = input._array.shape
    dims = (0, *range(2, len(shape)))
    n = count(shape, dims)
    if n <= 1:
        raise ValueError(
            "batch_norm in training needs more than 1 value for each channel, got an input of "
            f"shape {tuple(shape)}"
        )
    spread = (1, ALONG, *[1] * (len(shape) - 2))
    input = _ordered(input)
    params = {"dims": dims, "spread": spread, "eps": eps}
    out, mean, var = standardize_.direct(input, weight, bias, params)
    _track_batch(running_mean, running_var, mean, var, n, momentum)
    return out


@op(
    module=F,
    samples=lambda: [
        Sample((2, 3, 4)),
        Sample((2, 3, 2, 3), weight=In(3), bias=In(3), eps=1e-3),
        Sample((2, 3, 4), In(3, grad=False), In(3, low=0.5, grad=False), use_input_stats=False),
    ],
)
def instance_norm(
    input: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Any:
    """(x - mean) / sqrt(var + eps) * weight + bias, with statistics of each channel of each sample.

    `input` is (batch, channels, ...), the other tensors are (channels,). Without `use_input_stats`
    the running statistics are used.

    >>> import tapegrad
    >>> from tapegrad.nn import functional as F
    >>> F.instance_norm(tapegrad.tensor([[[1.0, 3.0], [10.0, 30.0]]]))
    tensor([[[-1.0000,  1.0000],
             [-1.0000,  1.0000]]])
    """
    channels = _check_channels(
        "instance_norm",
        input,
        weight=weight,
        bias=bias,
        running_mean=running_mean,
        running_var=running_var,
    )
    eps = constant(eps, "instance_norm: eps")
    if not use_input_stats:
        _statistics_given("instance_norm", running_mean, running_var)
        return _with_statistics(input, running_mean, running_var, weight, bias, eps)
    shape = input._array.shape
    dims = tuple(range(2, len(shape)))
    n = count(shape, dims)
    if n <= 1:
        raise ValueError(
            "instance_norm needs more than 1 place in each channel, got an input of shape "
            f"{tuple(shape)}"
        )
    spread = (1, ALONG, *[1] * len(dims))
    input = _ordered(input)
    out, mean, var = standardize_(input, weight, bias, dims=dims, spread=spread, eps=eps)
    with no_grad():
        if running_mean is not None:
            _track(running_mean, mean.reshape(-1, channels).mean(0), momentum)
        if running_var is not None:
            unbiased = var.reshape(-1, channels).mean(0) * (n / (n - 1))
            _track(running_var, unbiased, momentum)
    return out


@op(
    casts=True,
    module=F,
    samples=lambda: [Sample((3, 4)), Sample((3, 4), p=1.0, dim=0), Sample((2, 3, 4), 3.0, -1)],
)
def normalize(
    input: Tensor, p: float = 2.0, dim: Dims = 1, eps: float = 1e-12, out: Tensor | None = None
) -> Any:
    """x / max(|x|_p, eps), with the p-norm along a dimension.

    >>> import tapegrad
    >>> from tapegrad.nn import functional as F
    >>> F.normalize(tapegrad.tensor([[3.0, 4.0]]), dim=1)
    tensor([[0.6000, 0.8000]])
    """
    check_floating(input, "normalize", complex=True)
    if not isinstance(dim, (tuple, list)):
        dim = normal_dim(dim, input._array.ndim)
    low = constant(eps, "normalize: eps")
    size = extremes.clamp_numbers(norm(input, p, dim, True), low=low, high=math.inf)
    result = input / size
    return result if out is None else put("normalize", out, result)
