"""PyTorch's own database of operations: every entry with its sample inputs and its error inputs.

Each sample is called in both libraries with the same arguments. Values, dtypes, gradients and what
the call left in its arguments must be equal. Where numbers are drawn, shapes and dtypes are
compared, then the values of the same call that draws nothing, then the distribution over many
elements. Entries with many samples are represented by some of them. What PyTorch refuses is
refused. `op_db_exceptions.py` has the entries that fail, with reasons.
"""

from __future__ import annotations

import dataclasses
import math
import random
import types
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from op_db_exceptions import ACCEPTED, FAILING, NOT_PUBLIC
from sweep import gradients
from thinning import some
from torch.testing._internal.common_methods_invocations import op_db
from torch_oracle import (
    DTYPES,
    assert_all_same,
    assert_same,
    assert_same_gradients,
    leaves_of,
    torch_gradients,
)

import tapegrad
from tapegrad import Tensor, nn
from tapegrad.nn import functional as F

PREFIX = "nn.functional."


def label(entry: Any) -> str:
    """`interpolate.bilinear` for the entry nn.functional.interpolate, variant bilinear."""
    variant = f".{entry.variant_test_name}" if entry.variant_test_name else ""
    return entry.name.removeprefix(PREFIX) + variant


ENTRIES = {label(entry): entry for entry in op_db if entry.name.startswith(PREFIX)}
OTHERS = {
    ("Tensor." if entry.name in ENTRIES else "")
    + entry.name
    + (f"[{entry.variant_test_name}]" if entry.variant_test_name else ""): entry
    for entry in op_db
    if not entry.name.startswith(PREFIX)
}
#: so many samples of an entry: `max_pool2d` has 1440, every combination of its options
MOST = 150
#: the same outside `nn.functional`
SOME = 12
OURS = {theirs: ours for ours, theirs in DTYPES.items()}


def to_tapegrad(value: Any, shared: bool = False) -> Any:
    """An argument of PyTorch as tapegrad's; tensors become leaves of their own.

    With `shared` they have PyTorch's memory, so that they overlap as PyTorch's do.
    """
    if isinstance(value, torch.Tensor) and shared:
        return tapegrad.from_numpy(value.detach().numpy())
    if isinstance(value, torch.Tensor):
        array = np.array(value.detach().numpy(force=True))
        return tapegrad.tensor(array).requires_grad_(value.requires_grad)
    if isinstance(value, torch.dtype):
        return OURS[value]
    if isinstance(value, torch.Size):
        return tuple(value)
    if isinstance(value, torch.device):
        return value.type
    if isinstance(value, (torch.layout, torch.memory_format)):
        return getattr(tapegrad, str(value).removeprefix("torch."))
    if isinstance(value, torch.nn.PairwiseDistance):
        return nn.PairwiseDistance(value.norm, value.eps, value.keepdim)
    if type(value).__name__ == "LinearCrossEntropyOptions":
        return nn.LinearCrossEntropyOptions(**dataclasses.asdict(value))
    if isinstance(value, dict):
        return {key: to_tapegrad(item, shared) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)([to_tapegrad(item, shared) for item in value])
    return value


def function(name: str) -> Any:
    """tapegrad's function of an entry, called as the entry calls PyTorch's."""
    ours = getattr(F, name.split(".")[0])
    if name in ("embedding", "embedding_bag"):  # the entry takes the weight first
        return lambda weight, index, **options: ours(index, weight, **options)
    return ours


def translated(entry: Any) -> Callable[..., Any]:
    """The function that an entry calls, with tapegrad in the place of torch."""
    own = getattr(entry.op, "__module__", None) or ""
    if isinstance(entry.op, types.FunctionType) and own.startswith("torch.testing"):
        names = {**entry.op.__globals__, "torch": tapegrad, "wrapper_set_seed": _called}
        code = entry.op.__code__
        return types.FunctionType(code, names, code.co_name, entry.op.__defaults__)
    found: Any = tapegrad
    for part in entry.name.split("."):
        if not hasattr(found, part):
            return getattr(Tensor, entry.name)
        found = getattr(found, part)
    return found if callable(found) else getattr(Tensor, entry.name)  # cfloat is a dtype too


def _called(function: Any, *args: Any, **options: Any) -> Any:
    return function(*args, **options)


# -- where numbers are drawn -------------------------------------------------------------------

PROBABILITY = {
    **dict.fromkeys(("dropout", "dropout2d", "dropout3d", "alpha_dropout"), ("p", 0.5)),
    **dict.fromkeys(
        ("feature_alpha_dropout.with_train", "feature_alpha_dropout.without_train"), ("p", 0.5)
    ),
    "scaled_dot_product_attention": ("dropout_p", 0.0),
    "multi_head_attention_forward": ("dropout_p", 0.0),
}


#: entries whose values are drawn, or not set
DRAWN = {
    *("bernoulli", "cauchy", "exponential", "geometric", "log_normal", "multinomial"),
    *("normal", "normal[in_place]", "normal[number_mean]", "rand_like", "randint", "randint_like"),
    *("randn", "randn_like", "uniform"),
    *("empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided"),
}


def without_drawing(name: str, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """The same call with nothing left to chance, or None if the call draws no numbers."""
    if name in PROBABILITY:
        key, default = PROBABILITY[name]
        drawn = options.get("training", name.partition(".")[0] != "feature_alpha_dropout")
        if name == "multi_head_attention_forward":
            return (*args[:10], 0.0, *args[11:]), options
        certain = options.get(key, default) in (0.0, 1.0) or not drawn
        return None if certain else (args, {**options, key: 0.0})
    if name == "rrelu" and options.get("training"):
        return args, {**options, "lower": 0.25, "upper": 0.25}
    if name.startswith("fractional_max_pool") and options.get("_random_samples") is None:
        dims = 2 if name.endswith("2d") else 3
        x = args[0]
        batch = x.shape[0] if x.ndim == dims + 2 else 1
        samples = torch.rand(batch, x.shape[-dims - 1], dims)
        return args, {**options, "_random_samples": samples}
    return None


# What rounding leaves of gradients that cancel, as a multiple of the usual tolerance: layer norm of
# one element multiplies it by 1 / sqrt(eps), attention to inputs of size 9 has scores in the 100s.
NOISE = {"layer_norm": 10.0, "scaled_dot_product_attention": 10.0}
NOISE |= {"native_layer_norm": 10.0, "cov": 10.0}


# -- one sample --------------------------------------------------------------------------------


def check(name: str, args: tuple[Any, ...], options: dict[str, Any], values: bool = True) -> None:
    """One call in both libraries; without `values`, only shapes and dtypes are compared."""
    ours = (to_tapegrad(args), to_tapegrad(options))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch warns of some of its own samples
        expected = (ENTRIES | OTHERS)[name].op(*args, **options)
        got = (function(name) if name in ENTRIES else translated(OTHERS[name]))(*ours[0], **ours[1])
    mine = [x for x in flat(ours) if isinstance(x, Tensor)]
    theirs = [x for x in flat((args, options)) if isinstance(x, torch.Tensor)]
    if not values:
        assert forms(got) == forms(expected)
        return
    largest = max([1.0, *(size(x) for x in theirs if x.is_floating_point())])
    assert_all_same(got, expected, name, largest)
    for a, b in zip(mine, theirs, strict=True):
        assert_same(a, b, f"{name}: an argument afterwards")
    leaves = [x for x in mine if x.requires_grad]
    wanted = torch_gradients(expected, leaves_of((flat(args), {"options": flat(options)})))
    noise = largest * NOISE.get(name, 1.0)
    assert_same_gradients(gradients(got, leaves), wanted, name, noise)


def flat(value: Any) -> list[Any]:
    """The leaves of nested tuples, lists and dicts, in order."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (tuple, list)):
        return [leaf for item in value for leaf in flat(item)]
    return [value]


def size(x: Any) -> float:
    """The largest finite magnitude."""
    finite = x.detach()[torch.isfinite(x)]
    return float(finite.abs().max()) if finite.numel() else 0.0


def forms(result: Any) -> list[Any]:
    return [
        (tuple(x.shape), str(x.dtype).split(".")[-1], x.requires_grad)
        for x in flat(result)
        if x is not None
    ]


def failures(name: str) -> list[str]:
    """What went wrong, one text for each sample that failed."""
    entry, found = (ENTRIES | OTHERS)[name], []
    dtype = next(d for d in (torch.float32, torch.int64, torch.bool) if d in entry.dtypes)
    torch.manual_seed(0)
    graded = dtype.is_floating_point and entry.supports_autograd
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        samples = list(entry.sample_inputs("cpu", dtype, requires_grad=graded))
    most = MOST if name in ENTRIES else SOME
    if len(samples) > most:
        samples = random.Random(0).sample(samples, most)
    if name not in FAILING:  # those fail in some samples, maybe in one
        samples = some(samples, 1 / 2)
    for sample in samples:
        args, options = (sample.input, *sample.args), sample.kwargs
        still = without_drawing(name, args, options)
        try:
            check(name, args, options, values=still is None and name not in DRAWN)
            if still is not None:
                check(name, *still)
        except Exception as error:  # any exception of a call is a failure of that sample
            call = f"{shown(args)}, {shown(options)}"
            text = " ".join(str(error).split())
            found.append(f"{call}: {type(error).__name__}: {text}"[:600])
    return found


def shown(value: Any) -> Any:
    """Arguments as text, with shapes for tensors."""
    if isinstance(value, torch.Tensor):
        return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
    if isinstance(value, dict):
        return ", ".join(f"{key}={shown(item)}" for key, item in value.items())
    if isinstance(value, (list, tuple)):
        return f"({', '.join(map(shown, value))})"
    return repr(value)


@pytest.mark.parametrize("name", ENTRIES)
def test_entry(name: str) -> None:
    if not {torch.float32, torch.int64, torch.bool} & ENTRIES[name].dtypes:
        pytest.skip("for half precision and complex numbers alone, or for no CPU")
    found = failures(name)
    assert not found, f"{len(found)} samples fail, the first: {found[0]}"


def test_no_entry_is_missing() -> None:
    assert len(ENTRIES) == 118
    public = [e for e in OTHERS.values() if {torch.float32, torch.int64, torch.bool} & e.dtypes]
    assert len(public) == 577
    assert set(NOT_PUBLIC) | set(FAILING) | set(ACCEPTED) <= set(ENTRIES) | set(OTHERS)


@pytest.mark.parametrize("name", [n for n in OTHERS if n not in NOT_PUBLIC])
def test_other_entry(name: str) -> None:
    if not {torch.float32, torch.int64, torch.bool} & OTHERS[name].dtypes:
        pytest.skip("for half precision and complex numbers alone")
    found = failures(name)
    if name in FAILING:
        assert found, f"{name} passes: remove it from FAILING in op_db_exceptions.py"
    else:
        assert not found, f"{len(found)} samples fail, the first: {found[0]}"


# -- errors ------------------------------------------------------------------------------------


def refused(call: Callable[..., Any], args: Any, options: Any) -> bool:
    """Whether a call raises an error of the kinds that bad arguments give."""
    try:
        call(*args, **options)
    except (RuntimeError, TypeError, ValueError, LookupError, AttributeError, AssertionError):
        return True
    return False


def accepted(name: str) -> tuple[int, list[str]]:
    """How many error inputs of an entry PyTorch refuses, and which of those are accepted here."""
    entry, total, found = (ENTRIES | OTHERS)[name], 0, []
    if entry.error_inputs_func is None:
        return 0, []
    call = function(name) if name in ENTRIES else translated(entry)
    for error in entry.error_inputs("cpu"):
        sample = error.sample_input
        args, options = (sample.input, *sample.args), sample.kwargs
        try:
            ours = (to_tapegrad(args, True), to_tapegrad(options, True))
        except (KeyError, TypeError, ValueError, RuntimeError):
            continue  # tensors that do not exist here: on devices without memory, of 65 dimensions
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if not refused(entry.op, args, options):
                continue
            total += 1
            if not refused(call, *ours):
                found.append(f"{shown(args)}, {shown(options)}: {error.error_regex}")
    return total, found


def test_error_inputs() -> None:
    """What PyTorch refuses is refused; what is not is listed, and at most one in twenty."""
    total = count = 0
    wrong = []
    for name in ENTRIES | OTHERS:
        if name in NOT_PUBLIC or name in FAILING:
            continue
        number, found = accepted(name)
        total, count = total + number, count + len(found)
        listed = ACCEPTED.get(name, (0, ""))[0]
        if len(found) > listed:
            wrong.append(f"{name} accepts {len(found)}: {found}")
        elif len(found) < listed:
            wrong.append(f"{name} refuses more: shorten ACCEPTED in op_db_exceptions.py")
    assert not wrong, "\n".join(wrong)
    assert count <= 0.05 * total, f"{count} of {total} error inputs are accepted"


# -- distributions -----------------------------------------------------------------------------

MANY = {
    "dropout": ((40000,), {"p": 0.3}),
    "dropout1d": ((40, 500, 2), {"p": 0.3}),
    "dropout2d": ((40, 500, 2, 2), {"p": 0.3}),
    "dropout3d": ((40, 500, 2, 1, 2), {"p": 0.3}),
    "alpha_dropout": ((40000,), {"p": 0.3, "training": True}),
    "feature_alpha_dropout": ((40, 500, 2), {"p": 0.3, "training": True}),
    "rrelu": ((40000,), {"lower": 0.1, "upper": 0.7, "training": True}),
}


@pytest.mark.parametrize("name", MANY)
def test_distribution(name: str) -> None:
    """Mean, spread and share of zeros of many drawn numbers."""
    shape, options = MANY[name]
    torch.manual_seed(0)
    tapegrad.manual_seed(0)
    x = np.random.default_rng(0).uniform(-2.0, 1.0, shape).astype(np.float32)
    got = getattr(F, name)(tapegrad.tensor(x), **options).numpy()
    expected = getattr(torch.nn.functional, name)(torch.tensor(x), **options).numpy()
    draws = x.size if len(shape) == 1 else math.prod(shape[:2])
    noise = 6.0 * math.sqrt(2.0 / draws)
    assert abs((got == 0).mean() - (expected == 0).mean()) < noise
    assert abs(got.mean() - expected.mean()) < noise * expected.std()
    assert abs(got.std() - expected.std()) < noise * expected.std()
    assert (got == x).mean() == pytest.approx((expected == x).mean(), abs=noise)


@pytest.mark.parametrize("dims", [2, 3])
def test_distribution_of_fractional_windows(dims: int) -> None:
    """Windows begin where PyTorch's begin, equally often."""
    name = f"fractional_max_pool{dims}d"
    torch.manual_seed(0)
    tapegrad.manual_seed(0)
    shape = (1, 8000, *[7] * dims)
    x = np.random.default_rng(0).uniform(size=shape).astype(np.float32)
    options = {"kernel_size": 2, "output_size": 3, "return_indices": True}
    _, got = getattr(F, name)(tapegrad.tensor(x), **options)
    _, expected = getattr(torch.nn.functional, name)(torch.tensor(x), **options)
    ours, theirs = (np.bincount(i.numpy().ravel(), minlength=7**dims) for i in (got, expected))
    assert ours.sum() == theirs.sum()
    assert np.abs(ours - theirs).max() < 6 * math.sqrt(2 * theirs.max())
