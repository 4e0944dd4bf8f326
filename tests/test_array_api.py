"""`tapegrad.array_api`: what the standard asks of a namespace, where it differs from PyTorch."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tapegrad as tg
from tapegrad import array_api as xp

#: names of the standard's 2025.12 version, from its table of contents
NAMES = """
__array_api_version__ __array_namespace_info__ abs acos acosh add all any arange argmax argmin
argsort asarray asin asinh astype atan atan2 atanh bitwise_and bitwise_invert bitwise_left_shift
bitwise_or bitwise_right_shift bitwise_xor bool broadcast_arrays broadcast_shapes broadcast_to
can_cast ceil clip complex128 complex64 concat conj copysign cos cosh count_nonzero cumulative_prod
cumulative_sum diff divide e empty empty_like equal exp expand_dims expm1 eye finfo flip float32
float64 floor floor_divide from_dlpack full full_like greater greater_equal hypot iinfo imag inf
int16 int32 int64 int8 isdtype isfinite isin isinf isnan less less_equal linspace log log10 log1p
log2 logaddexp logical_and logical_not logical_or logical_xor matmul matrix_transpose max maximum
mean meshgrid min minimum moveaxis multiply nan negative newaxis nextafter nonzero not_equal ones
ones_like permute_dims pi positive pow prod real reciprocal remainder repeat reshape result_type
roll round searchsorted sign signbit sin sinh sort sqrt square squeeze stack std subtract sum take
take_along_axis tan tanh tensordot tile tril triu trunc uint8 unique_all unique_counts
unique_inverse unique_values unstack var vecdot where zeros zeros_like
"""
LINALG = """
cholesky cross det diagonal eig eigh eigvals eigvalsh inv matmul matrix_norm matrix_power
matrix_rank matrix_transpose outer pinv qr slogdet solve svd svdvals tensordot trace vecdot
vector_norm
"""
FFT = "fft fftfreq fftn fftshift hfft ifft ifftn ifftshift ihfft irfft irfftn rfft rfftfreq rfftn"


def test_names() -> None:
    assert set(NAMES.split()) - {"__array_api_version__"} <= set(dir(xp)) | set(vars(xp))
    assert all(hasattr(xp, name) for name in NAMES.split())
    assert all(hasattr(xp.linalg, name) for name in LINALG.split())
    assert all(hasattr(xp.fft, name) for name in FFT.split())
    assert set(xp.__all__) <= set(dir(xp))
    for name in ("uint16", "uint32", "uint64", "float16", "relu"):
        assert not hasattr(xp, name)
    for name in xp.__all__:
        found = getattr(xp, name)
        assert not callable(found) or found.__doc__, name


def test_a_tensor_knows_the_namespace() -> None:
    x = tg.ones(2)
    assert x.__array_namespace__() is xp
    assert x.__array_namespace__(api_version="2024.12") is xp
    with pytest.raises(ValueError, match="no version"):
        x.__array_namespace__(api_version="1999.01")
    assert x.to_device("cpu") is x
    assert xp.asarray(x) is x
    assert xp.from_dlpack(x.numpy()).tolist() == [1.0, 1.0]


def test_info() -> None:
    info = xp.__array_namespace_info__()
    assert info.default_device() in info.devices()
    assert info.dtypes(kind="unsigned integer") == {"uint8": tg.uint8}
    assert set(info.dtypes(kind=("bool", "real floating"))) == {"bool", "float32", "float64"}
    assert info.default_dtypes()["integral"] is tg.int64
    assert info.capabilities()["boolean indexing"]


def test_promotion_looks_at_dtypes_alone() -> None:
    wide, row = xp.asarray(1.0, dtype=xp.float64), xp.ones(2)
    assert (wide + row).dtype is tg.float32  # the operator is PyTorch's
    assert xp.add(wide, row).dtype is tg.float64
    assert xp.add(row, 1).dtype is tg.float32
    assert xp.add(xp.asarray([1], dtype=xp.int8), 1).dtype is tg.int8
    assert xp.add(xp.asarray([1], dtype=xp.int8), 1.5).dtype is tg.float32
    assert xp.add(row, 1j).dtype is tg.complex64
    assert xp.result_type(wide, xp.int8, 1j) is tg.complex128
    assert xp.where(xp.asarray([True]), wide, row).dtype is tg.float64
    with pytest.raises(TypeError, match="numbers alone"):
        xp.add(1, 2)
    with pytest.raises(TypeError, match="needs a Tensor"):
        xp.sin(1.0)


def test_kinds_of_dtypes() -> None:
    assert xp.isdtype(xp.complex64, "complex floating")
    assert xp.isdtype(xp.int8, ("bool", xp.int8))
    assert not xp.isdtype(xp.bool, "numeric")
    with pytest.raises(ValueError, match="is no kind"):
        xp.isdtype(xp.int8, "real")
    assert xp.can_cast(xp.uint8, xp.int16)
    assert not xp.can_cast(xp.int16, xp.uint8)
    assert xp.finfo(xp.complex128).dtype is tg.float64
    with pytest.raises(TypeError, match="take real or imag"):
        xp.astype(xp.ones(2, dtype=xp.complex64), xp.float32)


def test_copies() -> None:
    x = xp.ones(2)
    assert xp.astype(x, xp.float32) is not x
    assert xp.astype(x, xp.float32, copy=False) is x
    copied = xp.asarray(x, copy=True)
    copied[0] = 5.0
    assert x[0] == 1.0
    with pytest.raises(ValueError, match="copy=False"):
        xp.asarray([1.0], copy=False)
    with pytest.raises(ValueError, match="copy=False"):
        xp.asarray(x, dtype=xp.float64, copy=False)
    shared = np.ones(2)
    assert np.shares_memory(xp.asarray(shared)._array, shared)
    with pytest.raises(RuntimeError, match="without a copy"):
        xp.reshape(xp.permute_dims(xp.ones((2, 3)), (1, 0)), (6,), copy=False)


def test_axes() -> None:
    x = xp.reshape(xp.arange(24), (2, 3, 4))
    array = x.numpy()
    for axis in (None, 0, -1, (0, 2), ()):
        for name in ("sum", "prod", "max", "min"):
            for keepdims in (False, True):
                got = getattr(xp, name)(x, axis=axis, keepdims=keepdims)
                expected = getattr(np, name)(array, axis=axis, keepdims=keepdims)
                np.testing.assert_array_equal(got.numpy(), expected)
    small = xp.asarray([200, 100], dtype=xp.uint8)
    assert (xp.sum(small).item(), xp.sum(small).dtype) == (300, tg.int64)
    assert xp.sum(small, dtype=xp.uint8).dtype is tg.uint8
    assert xp.argmax(x, axis=1, keepdims=True).shape == (2, 1, 4)
    assert xp.cumulative_sum(xp.asarray([1, 2]), include_initial=True).tolist() == [0, 1, 3]
    with pytest.raises(ValueError, match="needs an axis"):
        xp.cumulative_sum(x)
    with pytest.raises(IndexError):
        xp.sum(x, axis=3)


def test_ends_of_floor_divide_and_sign() -> None:
    inf = xp.asarray([math.inf, -math.inf, 1.0, -1.0])
    by = xp.asarray([2.0, 2.0, -math.inf, math.inf])
    got = xp.floor_divide(inf, by).tolist()
    assert got[:2] == [math.inf, -math.inf]
    assert [math.copysign(1, v) for v in got[2:]] == [-1, -1]
    assert xp.floor_divide(xp.asarray([7.0, -7.0]), 2.0).tolist() == [3.0, -4.0]
    assert math.isnan(xp.sign(xp.asarray(math.nan)).item())


def test_sets() -> None:
    found = xp.unique_all(xp.asarray([[3, 1], [3, 2]]))
    assert found.values.tolist() == [1, 2, 3]
    assert found.indices.tolist() == [1, 3, 0]
    assert found.inverse_indices.tolist() == [[2, 0], [2, 1]]
    assert found.counts.tolist() == [1, 1, 2]
    assert xp.unique_values(xp.asarray([math.nan, math.nan])).shape == (2,)


def test_numbers_and_places_of_the_standard() -> None:
    third = xp.clip(xp.asarray(1.0, dtype=xp.float64), max=1 / 3)
    assert third.item() == 1 / 3
    assert third.dtype == xp.float64
    assert xp.clip(xp.asarray([1, 5, 9]), 2.5, 6).tolist() == [2, 5, 6]
    x = xp.asarray([[1, 2, 3], [4, 5, 6]])
    assert xp.take(x, xp.asarray([0, -1, -3]), axis=1).tolist() == [[1, 3, 1], [4, 6, 4]]
    for wrong in (3, -4):
        with pytest.raises(IndexError, match="out of range"):
            xp.take(x, xp.asarray([wrong]), axis=1)


def test_gradients_flow_through_the_namespace() -> None:
    def function(x: Any) -> Any:
        y = xp.concat([xp.exp(x), xp.clip(x, -1.0, 1.0)])
        return xp.sum(xp.matmul(y, xp.matrix_transpose(y))) + xp.linalg.vector_norm(x)

    x = tg.randn(2, 3, dtype=tg.float64, requires_grad=True)
    assert tg.testing.gradcheck(function, x)
    assert tg.testing.gradgradcheck(function, x)


def test_expected_failures_of_the_suite_are_few() -> None:
    """At most 10 besides those where a Tensor keeps PyTorch's semantics."""
    text = (Path(__file__).parent / "array_api_xfails.txt").read_text()
    kept, other = text.split("# -- other reasons")
    count = [line for line in other.splitlines()[1:] if line and not line.startswith("#")]
    assert len(count) <= 10
    assert "PyTorch" in kept


SCIPY = """
import numpy as np
import scipy.fft, scipy.integrate, scipy.signal, scipy.special, scipy.stats
import tapegrad as tg

x, y = tg.randn(40, dtype=tg.float64), tg.randn(40, dtype=tg.float64)
calls = [
    (scipy.special.gammaln, (x.abs(),)),
    (scipy.special.logsumexp, (x,)),
    (scipy.stats.zscore, (x,)),
    (scipy.stats.skew, (x,)),
    (lambda x, y: scipy.stats.pearsonr(x, y).statistic, (x, y)),
    (lambda x, y: scipy.stats.ttest_ind(x, y).pvalue, (x, y)),
    (scipy.fft.fft, (x,)),
    (scipy.integrate.trapezoid, (x,)),
    (scipy.signal.detrend, (x,)),
]
for function, given in calls:
    got = function(*given)
    assert isinstance(got, tg.Tensor), function
    np.testing.assert_allclose(got.numpy(), function(*[v.numpy() for v in given]), 1e-9, 1e-12)
"""


def test_scipy_takes_tensors() -> None:
    pytest.importorskip("scipy")
    environment = {**os.environ, "SCIPY_ARRAY_API": "1"}
    run = subprocess.run(
        [sys.executable, "-c", SCIPY], env=environment, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr[-2000:]
