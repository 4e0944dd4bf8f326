"""Autocast against PyTorch: the dtype of every operation's result, and training that tracks it."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from sweep import NAMES, call, flat, mapped, some_cases
from torch.testing._internal.autocast_test_lists import AutocastTestLists
from torch_oracle import (
    DTYPES,
    arguments_for_torch,
    torch_function,
)

import tapegrad
from tapegrad import Tensor
from tapegrad.ops import TABLE

COMPARED = [n for n in NAMES if TABLE[n].torch is not None and not TABLE[n].random]
LOWER = [tapegrad.bfloat16, tapegrad.float16]
each_lower = pytest.mark.parametrize("lower", LOWER, ids=[d.name for d in LOWER])


#: PyTorch calls another library here, or not, by what that can do with the dtype of the input
LIBRARIES = {("lstm", "first")}


def casted(arguments: Any, lower: Any, which: str) -> Any:
    """The float tensors of a call in the dtype of autocast: all of them, or the first, or none."""
    seen: list[Any] = []

    def cast(x: Any) -> Any:
        if x.dtype.is_floating_point:
            seen.append(x)
            if which == "all" or (which == "first" and len(seen) == 1):
                return x.detach().to(lower)
        return x.detach()

    return mapped(cast, arguments)


def dtypes_of(result: Any) -> list[Any]:
    return [
        DTYPES[x.dtype] if isinstance(x, Tensor) else x.dtype
        for x in flat(result)
        if hasattr(x, "dtype")
    ]


#: operations whose inner products PyTorch casts
INNER = {
    "linalg.pinv": "PyTorch casts its last product, after LAPACK's float32",
    "inner": "PyTorch casts its products of matrices alone",
    "complex": "PyTorch's result of float16 is complex32, of which there are no tensors here",
}


@pytest.mark.sweep(keep=1 / 6)
@pytest.mark.parametrize("which", ["none", "all", "first"])
@each_lower
@pytest.mark.parametrize("name", COMPARED)
def test_dtypes_of_results(name: str, lower: Any, which: str) -> None:
    """Wherever PyTorch gives a result inside autocast, so do we, of the same dtype."""
    if name in INNER:
        pytest.skip(INNER[name])
    if (name, which) in LIBRARIES:
        pytest.skip("PyTorch's answer depends on the processor")
    function = torch_function(TABLE[name])
    for op, sample, given in some_cases(name, tapegrad.float32):
        ours = casted(given, lower, which)
        theirs = arguments_for_torch(ours)
        try:
            with warnings.catch_warnings(action="ignore"), torch.autocast("cpu", DTYPES[lower]):
                expected = function(*theirs[0], **theirs[1])
        except (RuntimeError, NotImplementedError, TypeError, ValueError):
            continue
        with tapegrad.autocast("cpu", lower):
            got = call(op, ours)
        assert dtypes_of(got) == dtypes_of(expected), f"{name}{sample}, {which} of them {lower}"


# -- the policies of the GPU, as PyTorch registers them ------------------------------------------


#: composed of others in PyTorch, which have policies, or named otherwise there; whole here
COMPOSED = {"cross_entropy", "interpolate", "upsample", "grid_sample", "linalg_matmul"}
#: cast by PyTorch before it calls cuDNN
COMPOSED |= {"lstm", "gru", "rnn_tanh", "rnn_relu"}


def gpu_lists() -> dict[str, set[str]]:
    lists = AutocastTestLists(torch.device("cpu"))
    full = {"norm" if x[0] in ("norm",) else x[0] for x in (*lists.torch_fp32, *lists.nn_fp32)}
    return {
        "lower": {x[0] for x in (*lists.torch_fp16, *lists.nn_fp16)},
        "full": full | {"huber_loss", "cross_entropy"},
        "widest": {x[0] for x in lists.torch_need_autocast_promote},
        "refuse": {x[0] for x in lists.banned},
    }


def test_policies_of_the_gpu_are_those_of_pytorch() -> None:
    registered = {
        name.split("::")[1].split(".")[0]
        for name in torch._C._dispatch_get_registrations_for_dispatch_key("AutocastCUDA")
    }
    lists = gpu_lists()
    wrong = {}
    for op in TABLE.values():
        policy = op.autocast.get("cuda") if isinstance(op.autocast, dict) else op.autocast
        name = op.name if op.module in ("", "nn.functional") else f"{op.module}_{op.name}"
        expected = {kind for kind, names in lists.items() if name in names}
        if name in registered | COMPOSED or expected:
            if policy not in (expected or {policy}) or policy is None:
                wrong[op.name] = (policy, expected)
        elif policy not in (None, "keep"):
            wrong[op.name] = (policy, "nothing")
    assert not wrong
