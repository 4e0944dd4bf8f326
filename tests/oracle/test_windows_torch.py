"""Windows for signals, as PyTorch makes them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import tapegrad

OPTIONS: dict[str, list[dict[str, Any]]] = {
    "exponential": [{"tau": 0.5}, {"center": 1.0, "sym": False}],
    "gaussian": [{"std": 0.7}],
    "general_cosine": [{"a": [0.3, 0.4, 0.2, 0.1]}],
    "general_hamming": [{"alpha": 0.7}],
    "kaiser": [{"beta": 3.0}, {"beta": 0.0}],
}
NAMES = list(torch.signal.windows.__all__)


@pytest.mark.parametrize("name", NAMES)
def test_windows(name: str) -> None:
    ours, theirs = getattr(tapegrad.signal.windows, name), getattr(torch.signal.windows, name)
    each = OPTIONS.get(name, [])
    for options in each if name == "general_cosine" else [{}, *each]:
        for sym in [options["sym"]] if "sym" in options else [True, False]:
            for length in (0, 1, 2, 3, 6, 11):
                given = {**options, "sym": sym}
                got = ours(length, **given, dtype=tapegrad.float64)
                expected = theirs(length, **given, dtype=torch.float64)
                np.testing.assert_allclose(
                    got.numpy(), expected.numpy(), atol=1e-12, err_msg=f"{name} {length} {given}"
                )
    first = OPTIONS.get(name, [{}])[0]
    assert ours(3, **first).dtype is tapegrad.float32
    assert ours(3, **first, requires_grad=True).requires_grad


BAD: list[tuple[str, dict[str, Any]]] = [
    *((name, {"M": -1}) for name in NAMES if name != "general_cosine"),
    *((name, {"M": 3, "dtype": "int64"}) for name in NAMES if name != "general_cosine"),
    *((name, {"M": 3, "dtype": "float16"}) for name in NAMES if name != "general_cosine"),
    ("exponential", {"M": 3, "tau": 0.0}),
    ("exponential", {"M": 3, "center": 1.0}),
    ("gaussian", {"M": 3, "std": 0.0}),
    ("kaiser", {"M": 3, "beta": -1.0}),
    ("general_cosine", {"M": 3, "a": []}),
    ("general_cosine", {"M": 3, "a": 0.5}),
]


@pytest.mark.parametrize(("name", "options"), BAD, ids=str)
def test_bad_windows(name: str, options: dict[str, Any]) -> None:
    for library in (torch, tapegrad):
        given = {k: getattr(library, v) if k == "dtype" else v for k, v in options.items()}
        with pytest.raises((ValueError, TypeError)):
            getattr(library.signal.windows, name)(**given)


@pytest.mark.parametrize("name", ["bartlett", "blackman", "hamming", "hann", "kaiser"])
def test_names_of_the_main_namespace(name: str) -> None:
    ours, theirs = (getattr(lib, f"{name}_window") for lib in (tapegrad, torch))
    for length in (0, 1, 2, 5, 8):
        for periodic in (True, False):
            got = ours(length, periodic, dtype=tapegrad.float64)
            expected = theirs(length, periodic, dtype=torch.float64)
            np.testing.assert_allclose(got.numpy(), expected.numpy(), atol=1e-12)
    for library in (tapegrad, torch):
        with pytest.raises(RuntimeError):
            getattr(library, f"{name}_window")(-1)
        with pytest.raises(RuntimeError):
            getattr(library, f"{name}_window")(3, dtype=library.int64)
    np.testing.assert_allclose(
        tapegrad.hamming_window(4, True, 0.3, 0.2).numpy(),
        torch.hamming_window(4, True, 0.3, 0.2).numpy(),
        atol=1e-6,
    )
