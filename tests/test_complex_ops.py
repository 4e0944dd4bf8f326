"""Every operation of the table on complex numbers: right derivatives, or an error.

The samples are those of real numbers, with imaginary parts added to what is differentiated.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sweep import (
    NAMES,
    Arguments,
    array_of,
    call,
    cases,
    differentiated,
    gradients,
    mapped,
    tensors,
    weighted_sum,
    with_array,
)
from test_ops import as_arrays, check_derivative

import tapegrad
from tapegrad import Tensor
from tapegrad.ops import TABLE

#: operations of PyTorch that take complex numbers
TAKEN = [
    *("abs", "acos", "acosh", "add", "addbmm", "addcdiv", "addcmul", "addmm", "addmv", "addr"),
    *("adjoint", "angle", "asin", "asinh", "atan", "atanh", "baddbmm", "bmm", "cat", "clone"),
    *("conj", "conj_physical", "conv1d", "conv2d", "conv3d", "conv_transpose1d"),
    *("conv_transpose2d", "conv_transpose3d", "corrcoef", "cos", "cosh", "count_nonzero", "cov"),
    *("cross", "cumprod", "cumsum", "diag", "diagonal", "diff", "dist", "div", "dot", "einsum"),
    *("eq", "exp", "exp2", "expand", "expm1", "flip", "float_power", "gather", "gradient"),
    *("hstack", "index_add", "index_copy", "index_fill", "index_put", "index_select", "inner"),
    *("isclose", "isfinite", "isinf", "isnan", "isreal", "kron", "lerp", "linalg.cross"),
    *("linalg.diagonal", "linalg.multi_dot", "linalg.vecdot", "linalg.vector_norm", "log"),
    *("log10", "log1p", "log2", "logaddexp", "logcumsumexp", "logsumexp", "masked_fill"),
    *("masked_scatter", "matmul", "mean", "mm", "movedim", "mul", "mv", "nan_to_num", "narrow"),
    *("ne", "neg", "nn.functional.l1_loss", "nn.functional.linear", "nn.functional.normalize"),
    *("nn.functional.pad", "pairwise_distance", "nn.functional.silu"),
    *("nn.functional.softsign", "nn.functional.tanhshrink", "nn.functional.unfold", "norm"),
    *("outer", "permute", "pixel_shuffle", "positive", "pow", "prod", "reciprocal", "renorm"),
    *("repeat", "reshape", "rms_norm", "roll", "rot90", "rsqrt", "rsub", "scatter", "scatter_add"),
    *("select", "sgn", "sigmoid", "sin", "sinc", "sinh", "split", "sqrt", "square", "stack"),
    *("std", "std_mean", "sub", "sum", "take", "tan", "tanh", "tensordot", "tile", "trace"),
    *("transpose", "trapezoid", "tril", "triu", "unbind", "unfold", "var", "var_mean", "vdot"),
    *("where",),
]

#: operations that no order of complex numbers gives a meaning to
REFUSED = [
    *("amax", "amin", "aminmax", "argmax", "argmin", "argsort", "atan2", "bucketize", "ceil"),
    *("clamp", "cummax", "cummin", "erf", "erfc", "erfinv", "floor", "floor_divide", "fmax"),
    *("fmin", "fmod", "frac", "ge", "gt", "heaviside", "hypot", "isneginf", "isposinf"),
    *("kthvalue", "layer_norm", "le", "lgamma", "logit", "lt", "max", "max_pool2d", "maximum"),
    *("median", "min", "minimum", "msort", "nanmean", "nansum", "nn.functional.gelu"),
    *("nn.functional.hardtanh", "nn.functional.leaky_relu", "nn.functional.mse_loss"),
    *("nn.functional.relu", "quantile", "remainder", "round", "searchsorted", "sign", "signbit"),
    *("sort", "topk", "trunc", "xlogy"),
]


def with_imaginary_parts(arguments: Arguments) -> Arguments:
    """The arguments with complex numbers in place of those that are differentiated."""
    rng = np.random.default_rng(5)

    def changed(x: Tensor) -> Tensor:
        if not x.dtype.is_floating_point:
            return x
        array = x._array + 1j * rng.uniform(-1, 1, x.shape)
        return with_array(x, np.asarray(array, np.complex128))

    return mapped(changed, arguments)


REFUSALS = (
    *(RuntimeError, TypeError, ValueError, NotImplementedError, AssertionError),
    UserWarning,  # of imaginary parts that are lost
)


def complex_cases(name: str) -> Any:
    """The calls with complex arguments that do not raise, with their results."""
    for op, sample, arguments in cases(name):
        given = with_imaginary_parts(arguments)
        if not any(x.dtype.is_complex for x in tensors([*given[0], *given[1].values()])):
            continue
        try:
            result = call(op, given)
        except (
            RuntimeError,
            TypeError,
            ValueError,
            NotImplementedError,
            AssertionError,
            UserWarning,
        ):
            continue
        yield op, sample, given, result


#: the gradient is by design not the derivative
NOT_DERIVATIVES = {"nn.functional.embedding", "nn.functional.embedding_bag"}

#: derivatives along Hermitian matrices, and up to the phases of vectors: tests of linalg have them;
#: and a function that meets the exponential of an infinity
NOT_DERIVATIVES |= {
    *("cholesky_inverse", "cholesky_solve", "linalg.eig", "linalg.eigh", "linalg.eigvalsh"),
    *("linalg.pinv", "linalg.svd", "lobpcg", "masked.logaddexp", "pca_lowrank", "svd"),
    "svd_lowrank",
    *(name for name in NAMES if TABLE[name].moves is not None),
}


@pytest.mark.parametrize("name", [n for n in NAMES if n not in NOT_DERIVATIVES])
def test_derivatives(name: str) -> None:
    if TABLE[name].random or not TABLE[name].differentiable:
        return
    for op, sample, arguments, result in complex_cases(name):
        inputs = differentiated(arguments)
        if not inputs or not any(y.requires_grad for y in tensors(result)):
            continue
        what = f"{name}{sample}"
        raw = gradients(result, inputs)
        for g, x in zip(raw, inputs, strict=True):
            assert g is None or (g.dtype, g.shape) == (x.dtype, x.shape), what
        recorded = gradients(call(op, arguments), inputs, create_graph=True)
        for a, b in zip(raw, recorded, strict=True):
            assert (a is None) == (b is None), what
            if a is not None:
                np.testing.assert_allclose(array_of(a), array_of(b), 1e-12, 1e-12, err_msg=what)

        def function(arguments: Arguments, op: Any = op) -> float:
            loss = weighted_sum(call(op, arguments))
            return 0.0 if loss is None else float(loss)

        check_derivative(function, arguments, as_arrays(raw, inputs), what, op.moves)

        def slope(arguments: Arguments, op: Any = op) -> Tensor | None:
            inputs = differentiated(arguments)
            first = gradients(call(op, arguments), inputs, create_graph=True)
            return weighted_sum([g for g in first if g is not None], seed=2)

        total = slope(arguments)
        if total is None or not total.requires_grad:
            continue
        second = list(tapegrad.autograd.grad(total, inputs, allow_unused=True))

        def number(arguments: Arguments, slope: Any = slope) -> float:
            value = slope(arguments)
            return 0.0 if value is None else float(value)

        found = as_arrays(second, inputs)
        check_derivative(number, arguments, found, f"second of {what}", op.moves)


@pytest.mark.parametrize("name", TAKEN)
def test_taken(name: str) -> None:
    assert next(iter(complex_cases(name)), None) is not None


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    tried = 0
    for op, _, arguments in cases(name):
        given = with_imaginary_parts(arguments)
        if any(x.dtype.is_complex for x in tensors([*given[0], *given[1].values()])):
            tried += 1
            with pytest.raises((RuntimeError, NotImplementedError)):
                call(op, given)
    assert tried
