"""Every operation of the table on complex numbers against PyTorch: values, gradients, refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from sweep import call, differentiated, gradients, mapped, numbered_cases, tensors, with_array
from test_ops_torch import COMPARED, NO_GRADIENT, refuses
from torch_oracle import (
    arguments_for_torch,
    assert_all_same,
    assert_same_gradients,
    leaves_of,
    torch_function,
    torch_gradients,
)

import tapegrad
from tapegrad import Tensor
from tapegrad.ops import TABLE

#: PyTorch takes complex numbers here, and tapegrad refuses them
REFUSED_HERE = {
    *("gru", "gru_cell", "lstm", "lstm_cell", "rnn_relu"),
    "rnn_tanh",
    "nn.functional.adaptive_avg_pool2d",  # of one place, where it is a mean
    *("masked.median", "nn.functional.soft_margin_loss"),
}

#: values or gradients that nothing determines: phases of vectors, parts beside a triangle
UNDETERMINED = {
    *("linalg.eig", "linalg.eigh", "linalg.svd", "svd", "svd_lowrank", "pca_lowrank", "lobpcg"),
    *("cholesky", "linalg.cholesky", "linalg.cholesky_ex", "cholesky_inverse", "cholesky_solve"),
    *("linalg.ldl_factor", "linalg.ldl_factor_ex", "linalg.ldl_solve"),
}

#: PyTorch takes them by mistake or refuses them for no reason; tapegrad does otherwise
PERMISSIVE = {
    *(
        "_segment_reduce",
        "index_reduce",
        "masked.logaddexp",
        "masked.norm",
        "special.spherical_bessel_j0",
    ),
    *(f"nn.functional.max_unpool{d}d" for d in (1, 2, 3)),
}


def with_imaginary_parts(arguments: Any) -> Any:
    rng = np.random.default_rng(5)

    def changed(x: Tensor) -> Tensor:
        if not x.dtype.is_floating_point:
            return x
        array = x._array + 1j * rng.uniform(-1, 1, x.shape)
        return with_array(x, np.asarray(array, np.complex128))

    return mapped(changed, arguments)


@pytest.mark.parametrize("name", [n for n in COMPARED if n not in UNDETERMINED])
def test_values_and_gradients(name: str) -> None:
    function = torch_function(TABLE[name])
    for number, op, sample, arguments in numbered_cases(name):
        ours = with_imaginary_parts(arguments)
        if not any(x.dtype.is_complex for x in tensors([*ours[0], *ours[1].values()])):
            continue
        theirs = arguments_for_torch(ours)
        what = f"{name}{sample} of complex numbers"
        try:
            expected = function(*theirs[0], **theirs[1])
        except NotImplementedError as error:
            if "not implemented for 'Complex" in str(error) and name not in PERMISSIVE:
                refuses(lambda op=op, ours=ours: call(op, ours), f"{what} gives {{}}: {error}")
            continue
        except (RuntimeError, TypeError, IndexError, ValueError, AssertionError) as error:
            if name not in PERMISSIVE and "does not support automatic" not in str(error):
                refuses(
                    lambda op=op, ours=ours: call(op, ours),
                    f"{what} gives {{}}, PyTorch raises {error}",
                )
            continue
        if name in REFUSED_HERE:
            refuses(lambda op=op, ours=ours: call(op, ours), f"{what} gives {{}}")
            continue
        got = call(op, ours)
        assert_all_same(got, expected, what, 10.0)
        if op.differentiable and (name, number) not in NO_GRADIENT:
            assert_same_gradients(
                gradients(got, differentiated(ours)),
                torch_gradients(expected, leaves_of(theirs)),
                what,
                10.0,
            )


@pytest.mark.parametrize("x", [torch.bool, torch.int64, torch.float32, torch.float64])
@pytest.mark.parametrize("y", [1j, torch.complex64, torch.complex128])
def test_promotion(x: Any, y: Any) -> None:
    for shape in ((2,), ()):
        for other in ((2,), ()):
            a = torch.ones(shape, dtype=x)
            b = torch.ones(other, dtype=y) if isinstance(y, torch.dtype) else y
            expected = (a * b).dtype
            ours = tapegrad.ones(shape, dtype=getattr(tapegrad, str(x).split(".")[1]))
            if isinstance(y, torch.dtype):
                b = tapegrad.ones(other, dtype=getattr(tapegrad, str(y).split(".")[1]))
            assert str((ours * b).dtype).split(".")[1] == str(expected).split(".")[1]


def test_files_of_pytorch(tmp_path: Any) -> None:
    x = torch.randn(3, 4, dtype=torch.complex64)
    negated = (x + 1).conj().imag
    saved = {"x": x, "wide": x.to(torch.complex128).t(), "conj": x.conj(), "negated": negated}
    torch.save(saved, tmp_path / "x.pt")
    found = tapegrad.load(tmp_path / "x.pt")
    for name, expected in saved.items():
        got = found[name].numpy()
        expected = expected.resolve_conj().resolve_neg().numpy()
        assert got.dtype == expected.dtype
        np.testing.assert_array_equal(got, expected)
