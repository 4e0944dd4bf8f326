"""vmap: every operation of the table on a batch equals a loop over its examples."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sweep import NAMES, array_of, generator, samples_of, tensors
from thinning import some

import tapegrad
from tapegrad import Tensor
from tapegrad.core.tensor import wrap
from tapegrad.ops import TABLE
from tapegrad.testing import make_arguments

SIZE = 3


def split(arguments: Any) -> tuple[list[Tensor], Any]:
    """The tensors of arguments, and a function that puts others in their place."""
    args, kwargs = arguments
    found: list[Tensor] = []

    def take(value: Any) -> Any:
        if isinstance(value, Tensor):
            found.append(value)
            return (len(found) - 1,)
        return [take(v) for v in value] if isinstance(value, list) else value

    places = [take(a) for a in args], {k: take(v) for k, v in kwargs.items()}
    kinds = {id(p) for p in flat_places(places)}

    def put(values: Any) -> Any:
        def give(value: Any) -> Any:
            if isinstance(value, tuple) and id(value) in kinds:
                return values[value[0]]
            return [give(v) for v in value] if isinstance(value, list) else value

        return [give(a) for a in places[0]], {k: give(v) for k, v in places[1].items()}

    return found, put


def flat_places(places: Any) -> list[Any]:
    out: list[Any] = []

    def walk(value: Any) -> None:
        if isinstance(value, list):
            for v in value:
                walk(v)
        elif isinstance(value, tuple) and len(value) == 1 and isinstance(value[0], int):
            out.append(value)

    for value in (*places[0], *places[1].values()):
        walk(value)
    return out


def inexact(x: Tensor) -> bool:
    return x.dtype.is_floating_point or x.dtype.is_complex


def variants(found: list[Tensor]) -> list[list[Tensor]]:
    """Examples that differ in their floating values, within what the operation takes."""
    out = []
    for i in range(SIZE):
        factor = 1.0 - 0.07 * i
        out.append(
            [
                wrap(np.asarray(x._array * factor, x._array.dtype)) if inexact(x) else x.detach()
                for x in found
            ]
        )
    return out


def stacked(examples: list[list[Tensor]], flags: list[bool]) -> list[Tensor]:
    return [
        wrap(np.stack([e[i]._array for e in examples])) if b else examples[0][i]
        for i, b in enumerate(flags)
    ]


def choices(found: list[Tensor]) -> list[list[bool]]:
    """All tensors with a batch; the floating ones; the first floating one, and the others."""
    floating = [inexact(x) for x in found]
    out = [[True] * len(found), floating]
    if sum(floating) > 1:
        first = floating.index(True)
        out.append([i == first for i in range(len(found))])
        out.append([b and i != first for i, b in enumerate(floating)])
    return [list(c) for c in dict.fromkeys(map(tuple, out)) if any(c)]


def total(result: Any) -> Tensor | None:
    """A number that depends on all floating results, each element with its own weight."""
    sum_ = None
    for y in tensors(result):
        if inexact(y):
            weights = np.cos(np.arange(y.numel(), dtype=np.float64)).reshape(tuple(y.shape)) + 1.5
            parts = [y.real, y.imag * 0.5] if y.dtype.is_complex else [y]
            for part in parts:
                term = (part * wrap(weights)).sum()
                sum_ = term if sum_ is None else sum_ + term
    return sum_


def compare(got: Any, expected: Any, what: str) -> None:
    a, b = array_of(got), array_of(expected)
    assert a.shape == b.shape, f"{what}: {a.shape} is not {b.shape}"
    assert a.dtype == b.dtype, f"{what}: {a.dtype} is not {b.dtype}"
    np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9, err_msg=what)


def each_call(name: str, whole: bool = False) -> Any:
    op = TABLE[name]
    samples = samples_of(name)
    for number, sample in samples if whole else some(samples):
        arguments = make_arguments(sample, generator(name, number), tapegrad.float64, True)
        found, put = split(arguments)
        if not found:
            continue
        examples = variants(found)

        def function(*values: Tensor, put: Any = put) -> Any:
            args, kwargs = put(values)
            return tensors(op.function(*args, **kwargs))

        function.wanted = [i for i, x in enumerate(found) if x.requires_grad]  # type: ignore

        for flags in choices(found):
            yield f"{name}{sample} {flags}", function, examples, flags


#: the number of results, or Python's control flow, depends on data
ON_DATA = {
    *("allclose", "argwhere", "bincount", "equal", "has_inf", "has_nan", "masked_select"),
    *("nn.functional.one_hot", "nonzero", "repeat_interleave", "unique", "unique_consecutive"),
    *("_segment_reduce", "nonzero_static"),
}
RANDOM = [n for n in NAMES if TABLE[n].random]
#: all members of a group must run a collective in the same order, so there are no rules
COLLECTIVE = [n for n in NAMES if n.startswith("distributed.")]
SWEPT = [n for n in NAMES if n not in {*RANDOM, *COLLECTIVE, *ON_DATA}]
DIFFERENTIABLE = [n for n in SWEPT if TABLE[n].differentiable]


def one(examples: list[list[Tensor]], flags: list[bool], k: int) -> list[Tensor]:
    return [examples[k][i] if b else examples[0][i] for i, b in enumerate(flags)]


@pytest.mark.parametrize("name", SWEPT)
def test_values(name: str) -> None:
    for what, function, examples, flags in each_call(name):
        dims = tuple(0 if b else None for b in flags)
        got = tapegrad.vmap(function, in_dims=dims)(*stacked(examples, flags))
        each = [function(*one(examples, flags, k)) for k in range(SIZE)]
        assert len(got) == len(each[0])
        for k, y in enumerate(got):
            compare(y, wrap(np.stack([e[k]._array for e in each])), what)


@pytest.mark.parametrize("name", sorted({*COLLECTIVE, *ON_DATA}))
def test_what_cannot_be_batched_says_so(name: str) -> None:
    def run() -> None:
        for _, function, examples, flags in each_call(name, whole=True):
            dims = tuple(0 if b else None for b in flags)
            tapegrad.vmap(function, in_dims=dims)(*stacked(examples, flags))

    with pytest.raises(RuntimeError, match="vmap: "):
        run()


def slopes(function: Any, wanted: list[int]) -> Any:
    """The gradient of the weighted total of a function, for some of its arguments."""

    def gradient(*values: Tensor) -> Any:
        given = list(values)
        for i in wanted:
            given[i] = given[i].detach().requires_grad_()
        loss = total(function(*given))
        if loss is None or not loss.requires_grad:
            return []
        found = tapegrad.autograd.grad(loss, [given[i] for i in wanted], allow_unused=True)
        return [
            tapegrad.zeros_like(given[i]) if g is None else g
            for i, g in zip(wanted, found, strict=True)
        ]

    return gradient


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_gradients_inside(name: str) -> None:
    """Per-sample gradients: vmap of a gradient."""
    for what, function, examples, flags in each_call(name):
        dims = tuple(0 if b else None for b in flags)
        gradient = slopes(function, function.wanted)
        each = [gradient(*one(examples, flags, k)) for k in range(SIZE)]
        got = tapegrad.vmap(gradient, in_dims=dims)(*stacked(examples, flags))
        assert len(got) == len(each[0])
        for k, y in enumerate(got):
            compare(y, wrap(np.stack([e[k]._array for e in each])), what)


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_gradients_outside(name: str) -> None:
    """The gradient of a function that vmap has made, for inputs with and without a batch."""
    for what, function, examples, flags in each_call(name):
        dims = tuple(0 if b else None for b in flags)

        def whole(*values: Tensor, function: Any = function, dims: Any = dims) -> Any:
            return tapegrad.vmap(function, in_dims=dims)(*values)

        def loop(*values: Tensor, function: Any = function, flags: Any = flags) -> Any:
            rows = [
                function(*[x[k].clone() if b else x for x, b in zip(values, flags, strict=True)])
                for k in range(SIZE)
            ]
            return [tapegrad.stack(parts) for parts in zip(*rows, strict=True)]

        given = stacked(examples, flags)
        found = slopes(whole, function.wanted)(*given)
        for got, expected in zip(found, slopes(loop, function.wanted)(*given), strict=True):
            compare(got, expected, what)
