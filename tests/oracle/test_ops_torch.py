"""Every operation of the table against PyTorch: values, dtypes, shapes and gradients."""

from __future__ import annotations

import itertools
import operator
from typing import Any

import numpy as np
import pytest
import torch
from sweep import NAMES, call, cases, differentiated, gradients, mapped
from torch_oracle import (
    DTYPES,
    arguments_for_torch,
    assert_all_same,
    assert_same,
    assert_same_gradients,
    leaves_of,
    to_torch,
    torch_function,
    torch_gradients,
)

import tapegrad
from tapegrad.dtypes import ALL
from tapegrad.ops import TABLE

COMPARED = [name for name in NAMES if TABLE[name].torch is not None and not TABLE[name].random]
each_op = pytest.mark.parametrize("name", COMPARED)


@each_op
@pytest.mark.parametrize("dtype", [tapegrad.float32, tapegrad.float64], ids=["f32", "f64"])
def test_values_and_gradients(name: str, dtype: Any) -> None:
    function = torch_function(TABLE[name])
    for op, sample, arguments in cases(name, dtype):
        theirs = arguments_for_torch(arguments)
        got, expected = call(op, arguments), function(*theirs[0], **theirs[1])
        assert_all_same(got, expected, f"{name}{sample}")
        if op.differentiable:
            assert_same_gradients(
                gradients(got, differentiated(arguments)),
                torch_gradients(expected, leaves_of(theirs)),
                f"{name}{sample}",
            )


#: a dtype for every float tensor of the samples, instead of float32
OTHERS = [d for d in ALL if d not in (tapegrad.float32, tapegrad.float64)]


@each_op
@pytest.mark.parametrize("dtype", OTHERS, ids=[d.name for d in OTHERS])
def test_other_dtypes(name: str, dtype: Any) -> None:
    """Where PyTorch accepts a dtype, so do we, with the same result; where it refuses, we do."""
    function = torch_function(TABLE[name])
    for op, sample, arguments in cases(name, tapegrad.float32, requires_grad=False):
        ours = mapped(lambda x: as_dtype(x, dtype), arguments)
        theirs = arguments_for_torch(ours)
        what = f"{name}{sample} of {dtype}"
        try:
            expected = function(*theirs[0], **theirs[1])
        except NotImplementedError:  # no kernel there; we may have one
            continue
        except (RuntimeError, TypeError, IndexError, ValueError) as error:
            try:
                got = call(op, ours)
            except (RuntimeError, TypeError, IndexError, ValueError, ZeroDivisionError):
                continue
            pytest.fail(f"{what} gives {got}, PyTorch raises {error}")
        assert_all_same(call(op, ours), expected, what)


def as_dtype(x: Any, dtype: Any) -> Any:
    """Floats as another dtype; as integers, small ones."""
    if not x.dtype.is_floating_point:
        return x
    if dtype.is_floating_point:
        return x.to(dtype)
    whole = np.nan_to_num(x._array, posinf=5, neginf=-5).round()
    return tapegrad.tensor(whole if dtype.is_signed else np.abs(whole)).to(dtype)
