"""Fourier transforms against NumPy's, their norms and errors, and short-time transforms."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import tapegrad as tg
from tapegrad.testing import gradcheck, gradgradcheck

RNG = np.random.default_rng(0)
REAL = RNG.standard_normal((3, 4, 5))
COMPLEX = REAL + 1j * RNG.standard_normal((3, 4, 5))
NORMS = (None, "backward", "ortho", "forward")


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("name", ["fft", "ifft", "rfft", "irfft", "hfft", "ihfft"])
@pytest.mark.parametrize(("n", "dim"), [(None, -1), (4, 0), (7, 1), (6, 2), (2, -2)])
def test_one_dimension(name: str, n: int | None, dim: int, norm: str | None) -> None:
    x = REAL if name in ("rfft", "ihfft") else COMPLEX
    got = getattr(tg.fft, name)(tg.tensor(x), n, dim, norm)
    expected = getattr(np.fft, name)(x, n, dim, norm)
    assert got.numpy().dtype == expected.dtype
    np.testing.assert_allclose(got.numpy(), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("name", ["fft", "ifft", "rfft", "irfft"])
@pytest.mark.parametrize(("s", "dim"), [(None, (0, 1)), ((2, 6), (2, 0)), ((3, 4), (1, 2))])
def test_several_dimensions(name: str, s: Any, dim: Any, norm: str | None) -> None:
    x = REAL if name == "rfft" else COMPLEX
    expected = getattr(np.fft, f"{name}n")(x, s, dim, norm)
    for form in ("2", "n"):
        got = getattr(tg.fft, name + form)(tg.tensor(x), s, dim, norm)
        np.testing.assert_allclose(got.numpy(), expected, rtol=1e-12, atol=1e-12)


def test_all_dimensions_and_sizes_alone() -> None:
    x = tg.tensor(COMPLEX)
    np.testing.assert_allclose(tg.fft.fftn(x).numpy(), np.fft.fftn(COMPLEX), atol=1e-12)
    got = tg.fft.fftn(x, s=(6, -1)).numpy()
    np.testing.assert_allclose(got, np.fft.fftn(COMPLEX, (6, 5), (1, 2)), atol=1e-12)
    np.testing.assert_allclose(
        tg.fft.hfft2(tg.fft.ihfft2(tg.tensor(REAL), norm="ortho"), s=(4, 5), norm="ortho").numpy(),
        REAL,
        atol=1e-12,
    )
    np.testing.assert_allclose(
        tg.fft.irfftn(tg.fft.rfftn(tg.tensor(REAL)), s=REAL.shape).numpy(), REAL, atol=1e-12
    )


def test_dtypes() -> None:
    x = tg.ones(4)
    assert tg.fft.fft(x).dtype is tg.complex64
    assert tg.fft.rfft(x).dtype is tg.complex64
    assert tg.fft.irfft(tg.fft.rfft(x)).dtype is tg.float32
    assert tg.fft.fft(x.double()).dtype is tg.complex128
    assert tg.fft.fft(tg.arange(4)).dtype is tg.complex64
    assert tg.fft.rfft(tg.arange(4)).dtype is tg.complex64
    for half in (x.half(), x.bfloat16()):
        with pytest.raises(RuntimeError, match="does not exist"):
            tg.fft.fft(half)


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: tg.fft.fft(tg.ones(4), norm="no"), RuntimeError, "normalization"),
        (lambda: tg.fft.fft(tg.ones(4), 0), RuntimeError, "at least one element"),
        (lambda: tg.fft.fft(tg.ones(4), dim=1), IndexError, "range"),
        (lambda: tg.fft.rfft(tg.ones(4) + 0j), RuntimeError, "real"),
        (lambda: tg.fft.ihfftn(tg.ones(4) + 0j), RuntimeError, "real"),
        (lambda: tg.fft.irfft(tg.ones(1)), RuntimeError, "at least one element"),
        (lambda: tg.fft.fftn(tg.ones(4, 4), dim=(0, 0)), RuntimeError, "unique"),
        (lambda: tg.fft.fftn(tg.ones(4, 4), (2, 2), (0,)), RuntimeError, "equally long"),
        (lambda: tg.fft.fftn(tg.ones(4), (2, 2)), RuntimeError, "dimensions"),
        (lambda: tg.fft.rfftn(tg.ones(4), dim=()), RuntimeError, "at least one"),
    ],
)
def test_errors(call: Any, error: Any, text: str) -> None:
    with pytest.raises(error, match=text):
        call()


def test_frequencies_and_shifts() -> None:
    for n in (1, 2, 5, 8):
        np.testing.assert_allclose(tg.fft.fftfreq(n, 0.5).numpy(), np.fft.fftfreq(n, 0.5))
        np.testing.assert_allclose(tg.fft.rfftfreq(n, 0.5).numpy(), np.fft.rfftfreq(n, 0.5))
    assert tg.fft.fftfreq(4, dtype=tg.float64).dtype is tg.float64
    out = tg.empty(4)
    assert tg.fft.fftfreq(4, out=out) is out
    assert out.tolist() == [0.0, 0.25, -0.5, -0.25]
    x = np.arange(20).reshape(4, 5)
    for dim in (None, 0, (0, 1)):
        np.testing.assert_array_equal(
            tg.fft.fftshift(tg.tensor(x), dim).numpy(), np.fft.fftshift(x, dim)
        )
        np.testing.assert_array_equal(
            tg.fft.ifftshift(tg.tensor(x), dim).numpy(), np.fft.ifftshift(x, dim)
        )


def test_compiled() -> None:
    def low_pass(x: Any) -> Any:
        z = tg.fft.rfft(x)
        return tg.fft.irfft(z * (tg.arange(z.shape[-1]) < 3), n=x.shape[-1]).square().sum()

    fast = tg.compile(low_pass, fullgraph=True)
    for i in range(4):
        x = tg.tensor(np.random.default_rng(i).standard_normal((2, 9)), requires_grad=True)
        a, b = fast(x), low_pass(x)
        np.testing.assert_allclose(a.item(), b.item())
        first, second = (tg.autograd.grad(y, x)[0] for y in (a, b))
        np.testing.assert_allclose(first.numpy(), second.numpy())
    assert "callback fft_r2c" in fast.explain()


# -- short times -------------------------------------------------------------------------------


@pytest.mark.parametrize("normalized", [False, True])
@pytest.mark.parametrize(("n_fft", "hop", "width"), [(16, None, None), (16, 4, 12), (15, 5, 15)])
def test_there_and_back(n_fft: int, hop: int | None, width: int | None, normalized: bool) -> None:
    x = tg.tensor(RNG.standard_normal((2, 100)))
    window = tg.hann_window(n_fft if width is None else width, dtype=tg.float64) + 0.1
    frames = x.stft(n_fft, hop, width, window, normalized=normalized, return_complex=True)
    back = frames.istft(n_fft, hop, width, window, normalized=normalized, length=100)
    np.testing.assert_allclose(back.numpy(), x.numpy(), atol=1e-12)


def test_frames() -> None:
    x = tg.tensor(RNG.standard_normal(40))
    window = tg.hamming_window(8, dtype=tg.float64)
    got = tg.stft(x, 8, 3, window=window, center=False, return_complex=True)
    for i in range(got.shape[1]):
        frame = x.numpy()[3 * i : 3 * i + 8] * window.numpy()
        np.testing.assert_allclose(got[:, i].numpy(), np.fft.rfft(frame), atol=1e-12)
    pairs = tg.stft(x, 8, 3, window=window, center=False, return_complex=False)
    np.testing.assert_array_equal(pairs.numpy(), tg.view_as_real(got).numpy())
    assert tg.stft(x, 8, onesided=False, return_complex=True).shape[0] == 8
    assert tg.stft(x + 0j, 8).shape[0] == 8


def test_gradients_of_short_time_transforms() -> None:
    x = tg.tensor(RNG.standard_normal(12), requires_grad=True)
    window = tg.tensor(RNG.uniform(0.5, 1, 6), requires_grad=True)

    def there(x: Any, window: Any) -> Any:
        return tg.stft(x, 6, 2, window=window, return_complex=True)

    def back(x: Any, window: Any) -> Any:
        return tg.istft(there(x, window) * (1 + 0.5j), 6, 2, window=window)

    for function in (there, back):
        assert gradcheck(function, (x, window))
        assert gradgradcheck(function, (x, window), fast_mode=True)


def test_compiled_short_time_transforms() -> None:
    window = tg.hann_window(8)

    def f(x: Any) -> Any:
        frames = tg.stft(x, 8, window=window, return_complex=True)
        return tg.istft(frames * frames.abs(), 8, window=window)

    fast = tg.compile(f, fullgraph=True)
    for i in range(4):
        x = tg.tensor(np.random.default_rng(i).standard_normal(32), dtype=tg.float32)
        np.testing.assert_allclose(fast(x).numpy(), f(x).numpy(), atol=1e-5)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: tg.stft(tg.ones(20), 8), "return_complex"),
        (lambda: tg.stft(tg.ones(2, 2, 20), 8, return_complex=True), "a batch of them"),
        (lambda: tg.stft(tg.ones(20), 8, 0, return_complex=True), "hop_length"),
        (lambda: tg.stft(tg.ones(20), 8, win_length=9, return_complex=True), "win_length"),
        (lambda: tg.stft(tg.ones(20), 8, window=tg.ones(5), return_complex=True), "window"),
        (lambda: tg.stft(tg.ones(20), 30, center=False, return_complex=True), "n_fft"),
        (lambda: tg.stft(tg.ones(20) + 0j, 8, onesided=True), "onesided"),
        (lambda: tg.istft(tg.ones(5, 7, 2), 8), "complex"),
        (lambda: tg.istft(tg.ones(4, 7) + 0j, 8), "frequencies"),
        (lambda: tg.istft(tg.ones(5, 7) + 0j, 8, window=tg.zeros(8)), "window overlap"),
    ],
)
def test_errors_of_short_time_transforms(call: Any, text: str) -> None:
    with pytest.raises(RuntimeError, match=text):
        call()


@pytest.mark.parametrize("name", ["bartlett", "blackman", "hamming", "hann", "kaiser"])
def test_windows(name: str) -> None:
    made = getattr(tg, f"{name}_window")
    formula = {"hann": np.hanning}.get(name) or getattr(np, name)
    beta = (12.0,) if name == "kaiser" else ()
    np.testing.assert_allclose(
        made(7, False, dtype=tg.float64).numpy(), formula(7, *beta), atol=1e-15
    )
    np.testing.assert_allclose(made(7, dtype=tg.float64).numpy(), formula(8, *beta)[:7], atol=1e-15)
    assert made(0).shape == (0,)
    assert made(1).tolist() == [1.0]
    assert made(5, requires_grad=True).requires_grad
    with pytest.raises(RuntimeError, match="at least 0"):
        made(-1)
    with pytest.raises(RuntimeError):
        made(5, dtype=tg.int64)


def test_scipy_is_loaded_when_a_transform_runs() -> None:
    code = "import sys, tapegrad; tapegrad.fft.fft; assert 'scipy' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
