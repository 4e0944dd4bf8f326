"""Abstract and batch rules, on every call of a primitive that the samples of the table lead to."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from sweep import NAMES, call, differentiated, gradients, some_cases

import tapegrad
from tapegrad import Tape
from tapegrad.core import primitive
from tapegrad.core.batch_rules import rule_of
from tapegrad.core.primitive import ELEMENTWISE, PRIMITIVES, Primitive, define
from tapegrad.core.rules import abstract
from tapegrad.core.tensor import Tensor, wrap
from tapegrad.transforms.batching import run_batch as batch

Call = tuple[Primitive, list[Any], dict[str, Any], tuple[Any, ...]]

#: made by in-place changes of views only, with other primitives in their parameters; and indexing
#: with a mask, whose number of elements depends on data
NOT_SWEPT = {"write", "to_device", "pick", "unpick"}
#: the number of results would depend on the example; what ranks hold is no batch
WITHOUT_BATCHES = {"nonzero_static", "copy_to", "gather_from", "reduce_from", "split_to"}


class Inlining(Tape):
    captures = True


def calls_of(name: str, monkeypatch: pytest.MonkeyPatch) -> list[Call]:
    """Each different (primitive, inputs, params, results) of an op and its gradients."""
    found: dict[Any, Call] = {}
    original = primitive.record

    def note(p: Any, params: Any, tensors: Any, arrays: Any, outs: Any, *rest: Any) -> Any:
        shapes = tuple(getattr(a, "shape", a) for a in arrays)
        dtypes = tuple(str(getattr(a, "dtype", "")) for a in arrays)
        found.setdefault((p.name, shapes, dtypes, str(params)), (p, list(arrays), params, outs))
        return original(p, params, tensors, arrays, outs, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(primitive, "record", note)
        for op, _, arguments in some_cases(name, tapegrad.float32):
            for kind in (Tape, Inlining):
                with kind():
                    inputs = differentiated(arguments)
                    gradients(call(op, arguments), inputs, create_graph=True)
    return [c for c in found.values() if c[0].name not in NOT_SWEPT and c[1]]


@pytest.fixture(params=NAMES)
def calls(request: Any, monkeypatch: pytest.MonkeyPatch) -> list[Call]:
    return calls_of(request.param, monkeypatch)


def specs(arrays: Any) -> list[Any]:
    return [(a.shape, a.dtype) if isinstance(a, np.ndarray) else a for a in arrays]


def test_abstract_and_batch(calls: list[Call]) -> None:
    for p, arrays, params, outs in calls:
        expected = tuple(specs(outs[: len(p.outputs)]))
        got = abstract(p, *specs(arrays), **params)
        assert (got if len(expected) > 1 else (got,)) == expected, (
            f"{p.name}{specs(arrays)}{params}"
        )
        alone = p.collective or p.name in WITHOUT_BATCHES
        assert alone == (p.collective or (rule_of(p) is None and not p.composite)), p.name
        for batched in () if alone else choices(arrays):
            check_batch(p, arrays, params, batched)


def choices(arrays: list[Any]) -> Iterator[list[bool]]:
    """Batch every array, and if there are several the first floating one alone."""
    whole = [isinstance(a, np.ndarray) for a in arrays]
    yield whole
    floating = [i for i, a in enumerate(arrays) if whole[i] and a.dtype.kind == "f"]
    if sum(whole) > 1 and floating:
        yield [i == floating[0] for i in range(len(arrays))]


def check_batch(p: Primitive, arrays: list[Any], params: Any, batched: list[bool]) -> None:
    """A batch of two examples equals two calls."""
    second = [
        a * 0.75 if b and a.dtype.kind == "f" else a for a, b in zip(arrays, batched, strict=True)
    ]
    inputs = [
        np.stack([a, c]).astype(a.dtype) if b else a
        for a, c, b in zip(arrays, second, batched, strict=True)
    ]
    got = batch(p, inputs, batched, params)
    each = [public(p, p.kernel(*example, **params)) for example in (arrays, second)]
    for k, result in enumerate(got if isinstance(got, tuple) else (got,)):
        expected = np.stack([each[0][k], each[1][k]])
        assert result.dtype == expected.dtype, p.name
        np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-6, err_msg=p.name)


def public(p: Primitive, out: Any) -> tuple[Any, ...]:
    return (out if isinstance(out, tuple) else (out,))[: len(p.outputs)]


def test_batch_of_tensors_is_differentiable() -> None:
    x = wrap(np.arange(6.0).reshape(3, 2)).requires_grad_()
    y = batch(PRIMITIVES["cumsum"], [x], [True], {"dim": 0, "reverse": False})
    assert isinstance(y, Tensor)
    y.sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [[2.0, 1.0]] * 3


def test_empty_batch() -> None:
    x = np.zeros((0, 4, 3), np.float32)
    assert batch(PRIMITIVES["exp"], [x], [True], {}).shape == (0, 4, 3)
    assert batch(PRIMITIVES["argmax"], [x], [True], {"dim": 1, "keepdim": False}).shape == (0, 4)


def test_abstract_promotes_and_records_nothing() -> None:
    with Tape() as tape:
        got = abstract(PRIMITIVES["div"], ((2, 1), np.dtype("int64")), ((3,), np.dtype("int32")))
    assert got == ((2, 3), np.dtype("float32"))
    assert len(tape) == 0


def test_abstract_of_a_draw_draws_nothing() -> None:
    state = tapegrad.get_rng_state()
    given = ((2,), np.dtype("int64"))
    params = {"kind": "normal", "shape": (2,), "dtype": np.dtype("float32"), "low": 0, "high": 0}
    drawn, after = abstract(PRIMITIVES["random"], given, **params)
    assert drawn == ((2,), np.dtype("float32"))
    assert after == given
    assert tapegrad.get_rng_state() == state


def test_abstract_needs_no_memory() -> None:
    huge = ((1 << 20, 1 << 20), np.dtype("float32"))
    assert abstract(PRIMITIVES["exp"], huge) == huge
    assert abstract(PRIMITIVES["matmul"], huge, huge) == huge
    assert abstract(PRIMITIVES["sum"], huge, dims=(0,), keepdim=False)[0] == (1 << 20,)
    assert abstract(PRIMITIVES["permute"], huge, dims=(1, 0)) == huge


def test_a_rule_that_asks_for_what_there_is_not_is_refused_at_once() -> None:
    with pytest.raises(TypeError, match="a gradient rule of misspelled asks for 'scal'; there are"):
        define(
            "misspelled",
            lambda x, *, scale: x * scale,
            kind=ELEMENTWISE,
            vjp=lambda g, scal: g * scal,
        )


def test_the_shape_behind_a_mask_is_not_known() -> None:
    x, mask = ((3,), np.dtype("float32")), ((3,), np.dtype("bool"))
    with pytest.raises(TypeError, match="depends on data"):
        abstract(PRIMITIVES["pick"], x, mask)
