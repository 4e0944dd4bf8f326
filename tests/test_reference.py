"""Values and gradients of every op sample against numbers that PyTorch computed beforehand."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sweep import (
    array_of,
    as_real,
    call,
    differentiated,
    flat,
    gradients,
    numbered_cases,
    samples_of,
)

from tapegrad.ops import TABLE

FILE = Path(__file__).parent / "reference" / "ops.npz"
CURRENT = "run tests/make_reference.py (it needs torch) and commit the file"


def load() -> dict[str, list[Any]]:
    """For each op its samples, with their arrays in place of the shapes."""
    with np.load(FILE) as stored:
        numbers, index = stored["numbers"], json.loads(stored["index"].tobytes())
    start = 0

    def take(shapes: list[Any]) -> Iterator[Any]:
        nonlocal start
        for shape in shapes:
            if shape is None:
                yield None
                continue
            stop = start + math.prod(shape)
            yield numbers[start:stop].reshape(shape)
            start = stop

    for samples in index.values():
        for sample in samples:
            sample["results"] = list(take(sample["results"]))
            sample["gradients"] = list(take(sample["gradients"]))
    return index


REFERENCE = load()


def test_every_op_has_reference_values() -> None:
    expected = {name for name, op in TABLE.items() if op.torch is not None and not op.random}
    assert set(REFERENCE) == expected, CURRENT


@pytest.mark.parametrize("name", [name for name in REFERENCE if name in TABLE])
def test_reference(name: str) -> None:
    stored = REFERENCE[name]
    assert [str(sample) for _, sample in samples_of(name)] == [s["sample"] for s in stored], CURRENT
    for number, op, sample, arguments in numbered_cases(name):
        reference = stored[number]
        result = call(op, arguments)
        for got, expected in zip(flat(result), reference["results"], strict=True):
            compare(got, expected, f"{name}{sample}")
        if reference["gradients"]:
            found = gradients(result, differentiated(arguments))
            for got, expected in zip(found, reference["gradients"], strict=True):
                if expected is not None and got is not None:
                    compare(got, expected, f"gradient of {name}{sample}")


def compare(got: Any, expected: Any, what: str) -> None:
    ours = as_real(array_of(got))
    scale = max(1.0, np.abs(expected[np.isfinite(expected)]).max(initial=0.0))
    assert ours.shape == expected.shape, what
    np.testing.assert_allclose(ours, expected, rtol=1e-8, atol=1e-8 * scale, err_msg=what)
