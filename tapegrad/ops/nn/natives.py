"""Normalizations with their statistics, and the gradient of softmax, by PyTorch's internal names.

Made of the composites in `normalization.py`. Imported at first use (`late.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...core.tensor import Tensor
from ..elementwise import exponentials as e
from ..elementwise.complexes import refuse_complex
from ..precision import check_floating, rounded
from ..reduce.reductions import count, sum
from ..shape.dims import normal_dim
from ..shape.reshaping import reshape_
from ..table import In, Sample, op
from .normalization import (
    ALONG,
    _last_dims,
    _ordered,
    _track_batch,
    _with_statistics,
    standardize_,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..annotations import DTypeLike

_TRIPLE = "tuple[Tensor, Tensor, Tensor]"


def _of_statistics(input: Tensor, *parameters: Tensor | None) -> Tensor:
    """The tensor that gives the dtype of statistics: a parameter, if there is one."""
    return next((p for p in parameters if p is not None), input)


# -- statistics of samples ---------------------------------------------------------------------


@op(
    method=False,
    samples=lambda: [
        Sample((2, 3, 4), [4], (4,), (4,), 1e-5),
        Sample((3, 4), [4], None, None, 1e-3),
    ],
    autocast={"cuda": "full"},
    result=_TRIPLE,
)
def native_layer_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float,
) -> Any:
    """`nn.functional.layer_norm` with means and reciprocal standard deviations, without history.

    >>> import tapegrad
    >>> tapegrad.native_layer_norm(tapegrad.tensor([[1.0, 3.0]]), [2], None, None, 0.0)
    (tensor([[-1.,  1.]]), tensor([[2.]]), tensor([[1.]]))
    """
    shape, dims = _last_dims("native_layer_norm", input, normalized_shape, weight=weight, bias=bias)
    x = _ordered(input)
    spread = (ALONG,) * len(shape)
    out, mean, var = standardize_(x, weight, bias, dims=dims, spread=spread, eps=float(eps))
    mean, var = mean.detach(), var.detach()
    like = _of_statistics(input, weight, bias)
    return out, rounded(mean, like), rounded(e.rsqrt(var + eps), like)


@op(
    method=False,
    samples=lambda: [
        Sample((2, 6, 4), (6,), (6,), 2, 6, 4, 3, 1e-5),
        Sample((2, 6, 2, 2), None, None, 2, 6, 4, 2, 1e-3),
    ],
    result=_TRIPLE,
)
def native_group_norm(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    N: int,
    C: int,
    HxW: int,
    group: int,
    eps: float,
) -> Any:
    """`nn.functional.group_norm` with the means and the reciprocal deviations of all groups.

    `N`, `C` and `HxW` are the numbers of samples, channels and places.

    >>> import tapegrad
    >>> x = tapegrad.tensor([[1.0, 3.0]])
    >>> tapegrad.native_group_norm(x, None, None, 1, 2, 1, 1, 0.0)
    (tensor([[-1.,  1.]]), tensor([[2.]]), tensor([[1.]]))
    """
    if input._array.size != N * C * HxW or group < 1 or C % group:
        raise RuntimeError(
            f"native_group_norm: {N} samples of {C} channels in {group} groups with {HxW} places "
            f"do not fit shape {tuple(input.shape)}"
        )
    grouped = reshape_(input, shape=(N, group, C // group, HxW))
    out, mean, var = standardize_(
        grouped, weight, bias, dims=(2, 3), spread=(1, ALONG, ALONG, 1), eps=float(eps)
    )
    mean, var = (reshape_(x, shape=(N, group)) for x in (mean, var))
    out = reshape_(out, shape=tuple(input._array.shape))
    like = _of_statistics(input, weight, bias)
    return out, rounded(mean, like), rounded(e.rsqrt(var + eps), like)


# -- statistics of batches ---------------------------------------------------------------------


def _batch_samples() -> list[Sample]:
    running = In(3, low=0.5, grad=False)
    return [
        Sample((4, 3), (3,), (3,), None, None, True, 0.1, 1e-5),
        Sample((2, 3, 2), None, None, In(3, grad=False), running, False, 0.1, 1e-3),
    ]


def _batch_norm(
    input: Any, weight: Any, bias: Any, mean: Any, var: Any, training: bool, momentum: Any, eps: Any
) -> tuple[Any, Any, Any]:
    refuse_complex(input, "native_batch_norm")
    like = _of_statistics(input, weight, bias, mean, var)
    if not training:
        out = _with_statistics(input, mean, var, weight, bias, eps)
        return out, like.new_zeros(0), like.new_zeros(0)
    check_floating(input, "native_batch_norm")
    shape = input._array.shape
    dims = (0, *range(2, len(shape)))
    spread = (1, ALONG, *[1] * len(shape[2:]))
    x = _ordered(input)
    out, now, spread_now = standardize_(x, weight, bias, dims=dims, spread=spread, eps=float(eps))
    now, spread_now = (reshape_(v.detach(), shape=(shape[1],)) for v in (now, spread_now))
    _track_batch(mean, var, now, spread_now, count(shape, dims), momentum)
    return out, rounded(now, like), rounded(e.rsqrt(spread_now + eps), like)


@op(method=False, samples=_batch_samples, result=_TRIPLE)
def native_batch_norm(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
) -> Any:
    """`nn.functional.batch_norm` with the means and reciprocal deviations of a training batch.

    These two have no history.

    >>> import tapegrad
    >>> x = tapegrad.tensor([[1.0], [3.0]])
    >>> tapegrad.native_batch_norm(x, None, None, None, None, True, 0.1, 0.0)[1:]
    (tensor([2.]), tensor([1.]))
    """
    return _batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps)


@op(
    method=False,
    samples=lambda: [
        _batch_samples()[1],
        Sample((4, 3), (3,), (3,), True, 0.1, 1e-5),
    ],
    result=_TRIPLE,
)
def _native_batch_norm_legit(
    input: Tensor, weight: Tensor | None, bias: Tensor | None, *rest: Tensor | bool | float | None
) -> Any:
    """`native_batch_norm`, whose running statistics may be left out.

    >>> import tapegrad
    >>> x = tapegrad.tensor([[1.0], [3.0]])
    >>> tapegrad._native_batch_norm_legit(x, None, None, True, 0.1, 0.0)[1:]
    (tensor([2.]), tensor([1.]))
    """
    given: Any = (None, None, *rest) if len(rest) == 3 else rest
    return _batch_norm(input, weight, bias, *given)


# -- rules of softmax --------------------------------------------------------------------------


@op(
    method=False,
    samples=lambda: [Sample((3, 4), (3, 4), 1), Sample((3, 4), (3, 4), 0, None)],
    torch=None,
)
def _softmax_backward_data(
    grad_output: Tensor, output: Tensor, dim: int, input_dtype: DTypeLike | None = None
) -> Any:
    """The gradient of softmax: (g - sum(g * output)) * output.

    >>> import tapegrad
    >>> y = tapegrad.tensor([0.5, 0.5])
    >>> tapegrad._softmax_backward_data(tapegrad.tensor([1.0, 0.0]), y, 0)
    tensor([ 0.2500, -0.2500])
    """
    d = normal_dim(dim, output._array.ndim)
    product = grad_output * output
    out = product - output * (sum(product, d, True) if output._array.ndim else product)
    return out if input_dtype is None else out.to(input_dtype)
