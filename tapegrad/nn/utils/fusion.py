"""Folds the batch norm of a trained model into the layer before it."""

from __future__ import annotations

import copy
from typing import Any

from ...core.modes import no_grad
from ..parameter import Parameter


def _folded(
    weight: Any, bias: Any, bn: Any, spread: tuple[int, ...]
) -> tuple[Parameter, Parameter]:
    """Weight and bias that include the statistics, scale and shift of a batch norm."""
    mean, var, eps, scale, shift = bn
    with no_grad():
        factor = (var + eps).rsqrt()
        factor = factor if scale is None else factor * scale
        start = -mean if bias is None else bias - mean
        moved = start * factor
        moved = moved if shift is None else moved + shift
        made = weight * factor.to(weight.dtype).reshape(spread)
    wanted = weight.requires_grad
    needs = wanted if bias is None else bias.requires_grad
    return Parameter(made, wanted), Parameter(moved.to(weight.dtype), needs)


def fuse_conv_bn_weights(
    conv_w: Any,
    conv_b: Any,
    bn_rm: Any,
    bn_rv: Any,
    bn_eps: float,
    bn_w: Any,
    bn_b: Any,
    transpose: bool = False,
) -> tuple[Parameter, Parameter]:
    """Weight and bias of one convolution that equals a convolution and a batch norm."""
    ones = (1,) * (conv_w.ndim - 2)
    spread = (1, -1, *ones) if transpose else (-1, 1, *ones)
    return _folded(conv_w, conv_b, (bn_rm, bn_rv, bn_eps, bn_w, bn_b), spread)


def fuse_linear_bn_weights(
    linear_w: Any, linear_b: Any, bn_rm: Any, bn_rv: Any, bn_eps: float, bn_w: Any, bn_b: Any
) -> tuple[Parameter, Parameter]:
    """Weight and bias of one linear map that equals a linear map and a batch norm."""
    return _folded(linear_w, linear_b, (bn_rm, bn_rv, bn_eps, bn_w, bn_b), (-1, 1))


def _copied(layer: Any, bn: Any) -> Any:
    if layer.training or bn.training:
        raise RuntimeError("fusion is for evaluation: call .eval() on both layers first")
    if bn.running_mean is None or bn.running_var is None:
        raise ValueError("fusion needs the running statistics of the batch norm")
    return copy.deepcopy(layer)


def fuse_conv_bn_eval(conv: Any, bn: Any, transpose: bool = False) -> Any:
    """A convolution that equals `bn(conv(x))` in evaluation."""
    fused = _copied(conv, bn)
    fused.weight, fused.bias = fuse_conv_bn_weights(
        fused.weight,
        fused.bias,
        bn.running_mean,
        bn.running_var,
        bn.eps,
        bn.weight,
        bn.bias,
        transpose,
    )
    return fused


def fuse_linear_bn_eval(linear: Any, bn: Any) -> Any:
    """A linear map that equals `bn(linear(x))` in evaluation."""
    fused = _copied(linear, bn)
    if linear.out_features != bn.num_features and bn.num_features != 1:
        raise ValueError(
            f"the batch norm has {bn.num_features} features, the linear map {linear.out_features}"
        )
    fused.weight, fused.bias = fuse_linear_bn_weights(
        fused.weight, fused.bias, bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias
    )
    return fused
