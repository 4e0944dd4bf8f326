"""Attention written by hand in compiled functions: it goes in tiles where that changes nothing.

`attentions` counts the instructions of attention in the programs of a compiled function. Functions
that only look like attention must have none, and the same results as before.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from test_attention import numbers, tensors

import tapegrad as tg
from tapegrad.nn import functional as F
from tapegrad.ops.nn import attention as public
from tapegrad.replay.ir.program import Attention

B, H, Q, K, D, V = 2, 3, 33, 40, 8, 5
INF = float("inf")


@pytest.fixture(autouse=True)
def in_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(public, "MIN_SCORES_FOR_TILES", 1)
    monkeypatch.setattr(public, "MIN_HEAD_SCORES_FOR_TILES", 1)


def hidden(*shape: int) -> Any:
    """A mask of what is hidden; no row of it is hidden as a whole."""
    found = np.random.default_rng(5).random(shape) < 0.4
    found[..., 0] = False
    return tg.tensor(found)


HIDDEN, PADDED = hidden(Q, K), hidden(B, 1, 1, K)
ADDED = tg.tensor(numbers(1, H, Q, K, seed=6))
CAUSAL = tg.tril(tg.ones(K, K)).view(1, 1, K, K)


def plain(q: Any, k: Any, v: Any) -> Any:
    return F.softmax(q @ k.transpose(-2, -1), dim=-1) @ v


def nano_gpt(q: Any, k: Any, v: Any) -> Any:
    att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
    att = att.masked_fill(CAUSAL[:, :, :Q, :K] == 0, -INF)
    att = F.dropout(F.softmax(att, dim=-1), 0.2)
    return att @ v


def divided(q: Any, k: Any, v: Any) -> Any:
    return (q @ k.mT / math.sqrt(D)).masked_fill(HIDDEN, -INF).softmax(-1) @ v


def scaled_queries(q: Any, k: Any, v: Any) -> Any:
    att = (q * D**-0.5) @ k.mT + ADDED
    return F.dropout(att.softmax(-1), 0.5) @ v


def mask_first(q: Any, k: Any, v: Any) -> Any:
    return (ADDED[0, 0] + 0.3 * (q @ k.mT)).softmax(-1) @ v


def chosen(q: Any, k: Any, v: Any) -> Any:
    return tg.where(~PADDED, q @ k.mT * 0.3, -INF).softmax(-1) @ v


def three_dimensions(q: Any, k: Any, v: Any) -> Any:
    att = tg.bmm(q[0], k[0].transpose(1, 2)) / math.sqrt(D)
    return tg.bmm(F.dropout(F.softmax(att.masked_fill(HIDDEN, -INF), dim=2), 0.1), v[0])


def one_matrix(q: Any, k: Any, v: Any) -> Any:
    return (q[0, 0] @ k[0, 0].T * 0.3).softmax(1) @ v[0, 0]


def with_einsum(q: Any, k: Any, v: Any) -> Any:
    att = tg.einsum("bhqd,bhkd->bhqk", q, k) * 0.3
    att = F.dropout(att.masked_fill(PADDED, -INF).softmax(-1), 0.3)
    return tg.einsum("bhqk,bhkd->bhqd", att, v)


def with_baddbmm(q: Any, k: Any, v: Any) -> Any:
    att = tg.baddbmm(ADDED[0, :1].expand(H, Q, K), q[0], k[0].mT, alpha=0.3)
    return att.softmax(-1) @ v[0]


def tied(q: Any, k: Any, v: Any) -> Any:
    """Keys that are values as well."""
    return (q @ k.mT * 0.3).masked_fill(HIDDEN, -INF).softmax(-1) @ k + 0 * v.sum()


VARIANTS = [
    *(plain, nano_gpt, divided, scaled_queries, mask_first, chosen),
    *(three_dimensions, one_matrix, with_einsum, with_baddbmm, tied),
]


def inputs(dtype: Any = np.float64) -> list[Any]:
    shapes = (B, H, Q, D), (B, H, K, D), (B, H, K, V)
    return [numbers(*shape, seed=i, dtype=dtype) for i, shape in enumerate(shapes)]


def step_of(attend: Any) -> Any:
    def step(*given: Any) -> Any:
        out = attend(*given)
        wanted = [x for x in given if x.requires_grad]
        loss = (out * out.detach().cos()).sum()
        return out, *tg.autograd.grad(loss, wanted, allow_unused=True)

    return step


def attentions(compiled: Any) -> list[bool]:
    """For each instruction of attention in the programs of a function, whether it is backward."""
    executables = []
    for replay in compiled.replays:
        executables += [] if replay.executable is None else [replay.executable]
        backward = {} if replay.vjp is None else replay.vjp.programs
        executables += [executable for executable, _, _ in backward.values()]
    instructions = [x for found in executables for x in found.program.instructions]
    return sorted(x.backward for x in instructions if isinstance(x, Attention))


def arrays_of(found: Any) -> list[Any]:
    return [np.zeros(()) if x is None else x.detach().numpy() for x in found]


def replayed(function: Any, given: list[Any]) -> tuple[list[Any], Any]:
    """Results of a replay from a seed, and the compiled function."""
    compiled = tg.compile(function, fullgraph=True)
    for _ in range(3):
        tg.manual_seed(11)
        found = compiled(*given)
    found = found if isinstance(found, tuple) else (found,)
    return [*arrays_of(found), tg.rand(1).numpy()], compiled


def eager(function: Any, given: list[Any]) -> list[Any]:
    tg.manual_seed(11)
    found = function(*given)
    found = found if isinstance(found, tuple) else (found,)
    return [*arrays_of(found), tg.rand(1).numpy()]


def check(found: list[Any], expected: list[Any], atol: float = 1e-11) -> None:
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=atol)


# -- what is found ---------------------------------------------------------------------------------


@pytest.mark.parametrize("attend", VARIANTS)
def test_training_steps(attend: Callable[..., Any]) -> None:
    found, compiled = replayed(step_of(attend), tensors(inputs()))
    check(found, eager(step_of(attend), tensors(inputs())))
    assert attentions(compiled) == [False, True]


@pytest.mark.parametrize("attend", VARIANTS)
def test_without_gradients(attend: Callable[..., Any]) -> None:
    given = [tg.tensor(x) for x in inputs()]
    found, compiled = replayed(attend, given)
    check(found, eager(attend, given))
    assert attentions(compiled) == [False]


@pytest.mark.parametrize("attend", VARIANTS)
def test_differentiated_outside(attend: Callable[..., Any]) -> None:
    """The compiled function keeps no matrix of scores for its backward pass."""

    def gradients(function: Any) -> list[Any]:
        given = tensors(inputs())
        tg.manual_seed(11)
        out = function(*given)
        found = tg.autograd.grad((out * out.detach().cos()).sum(), given, allow_unused=True)
        return [*arrays_of((out, *found)), tg.rand(1).numpy()]

    compiled = tg.compile(attend, fullgraph=True)
    for _ in range(2):
        gradients(compiled)
    check(gradients(compiled), gradients(attend))
    (replay,) = [x for x in compiled.replays if x.executable is not None]
    kept = [
        k.value for k in (*replay.vjp.halves.kept, *replay.vjp.halves.for_rerun) if k.input is None
    ]
    assert not [v for v in kept if v.shape[-2:] == (Q, K) and v.dtype != np.bool_]
    assert attentions(compiled) == [False, True]


@pytest.mark.parametrize("which", [(0,), (1,), (2,), (0, 1), (1, 2), (0, 2)])
@pytest.mark.parametrize("attend", [nano_gpt, with_einsum, mask_first])
def test_gradients_of_some_inputs(attend: Callable[..., Any], which: tuple[int, ...]) -> None:
    def given() -> list[Any]:
        return [tg.tensor(x).requires_grad_(i in which) for i, x in enumerate(inputs())]

    found, compiled = replayed(step_of(attend), given())
    check(found, eager(step_of(attend), given()))
    assert attentions(compiled) == [False, True]


@pytest.mark.oracle
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("attend", [plain, divided, mask_first, chosen, with_einsum, tied])
def test_same_as_torch(attend: Any, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    arrays = inputs(np.dtype(dtype).type)
    added = {name: globals()[name] for name in ("HIDDEN", "PADDED", "ADDED")}
    monkeypatch.setitem(globals(), "ADDED", ADDED.to(getattr(tg, dtype)))
    if attend is with_einsum:
        monkeypatch.setattr(F, "dropout", lambda x, p: x)
    found, _ = replayed(step_of(attend), tensors(arrays))
    for name, held in added.items():
        monkeypatch.setitem(globals(), name, torch.tensor(held.numpy()))
    monkeypatch.setitem(globals(), "ADDED", torch.tensor(added["ADDED"].numpy().astype(dtype)))
    monkeypatch.setitem(globals(), "F", torch.nn.functional)
    monkeypatch.setitem(globals(), "tg", torch)
    if attend is with_einsum:
        monkeypatch.setattr(torch.nn.functional, "dropout", lambda x, p: x)
    given = [torch.tensor(x, requires_grad=True) for x in arrays]
    expected = step_of(attend)(*given)
    for a, b in zip(found, expected, strict=False):
        expect = 0 if b is None else b.detach().numpy()
        np.testing.assert_allclose(a, expect, rtol=0, atol=1e-4 if dtype == "float32" else 1e-11)


def test_layers_share_a_mask() -> None:
    def attend(q: Any, k: Any, v: Any) -> Any:
        mask = CAUSAL[:, :, :Q, :K] == 0
        for _ in range(3):
            q = q + F.dropout((q @ k.mT).masked_fill(mask, -INF).softmax(-1), 0.2) @ k
        return q @ v.sum(2).unsqueeze(-1)[..., :1].expand(B, H, V, 1).sum(2, True).expand(
            B, H, D, 1
        )

    found, compiled = replayed(step_of(attend), tensors(inputs()))
    check(found, eager(step_of(attend), tensors(inputs())), 1e-9)
    assert attentions(compiled) == [False] * 3 + [True] * 3


@pytest.mark.parametrize("attend", [nano_gpt, mask_first])
def test_checkpointing(attend: Callable[..., Any]) -> None:
    def again(*given: Any) -> Any:
        return tg.utils.checkpoint.checkpoint(attend, *given, use_reentrant=False)

    found, compiled = replayed(step_of(again), tensors(inputs()))
    check(found, eager(step_of(attend), tensors(inputs())))
    assert attentions(compiled).count(True) == 1


def test_second_gradients_of_a_compiled_function() -> None:
    def second(function: Any) -> list[Any]:
        given = tensors(inputs())
        tg.manual_seed(11)
        out = function(*given)
        first = tg.autograd.grad((out * out).sum(), given, create_graph=True)
        total = sum((x * x).sum() for x in first)
        return arrays_of(tg.autograd.grad(total, given))

    compiled = tg.compile(nano_gpt, fullgraph=True)
    for _ in range(2):
        second(compiled)
    check(second(compiled), second(nano_gpt), 1e-8)


def test_memory_grows_with_the_length() -> None:
    def arena(length: int) -> int:
        mask = tg.tril(tg.ones(length, length)) == 0

        def attend(q: Any, k: Any, v: Any) -> Any:
            att = (q @ k.mT * 0.3).masked_fill(mask, -INF)
            return F.dropout(att.softmax(-1), 0.1) @ v

        given = tensors([numbers(1, 8, length, 16, dtype=np.float32)] * 3)
        _, compiled = replayed(step_of(attend), given)
        (replay,) = [x for x in compiled.replays if x.executable is not None]
        visible = length * length  # the mask itself, once, the other way round
        return int(replay.executable.plan.arena) - visible

    short, middle, long = map(arena, (256, 512, 1024))
    assert long - middle <= 2.1 * (middle - short)


# -- NaN -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dropout", [0.0, 0.5])
@pytest.mark.parametrize("kind", ["masked_fill", "where", "add"])
def test_rows_without_any_key_are_nan(kind: str, dropout: float) -> None:
    mask = HIDDEN.numpy().copy()
    mask[3] = True
    held = tg.tensor(mask)
    added = tg.tensor(np.where(mask, -INF, 0.0))

    def attend(q: Any, k: Any, v: Any) -> Any:
        att = q @ k.mT * 0.3
        if kind == "add":
            att = att + added
        else:
            att = att.masked_fill(held, -INF) if kind[0] == "m" else tg.where(~held, att, -INF)
        return F.dropout(att.softmax(-1), dropout) @ v

    with np.errstate(all="ignore"):
        found, compiled = replayed(step_of(attend), tensors(inputs()))
        check(found, eager(step_of(attend), tensors(inputs())))
    assert attentions(compiled) == [False, True]
    assert np.isnan(found[0][:, :, 3]).all()
    assert np.isfinite(found[0][:, :, 4]).all()
    assert np.isfinite(found[1]).all() == (kind != "add")  # PyTorch's gradient of a hidden score: 0
    assert np.isnan(found[3]).any()


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("where", [0, 1, 2])
@pytest.mark.parametrize("attend", [plain, divided, mask_first, nano_gpt])
def test_nan_and_infinity(attend: Callable[..., Any], where: int, number: float) -> None:
    arrays = inputs()
    arrays[where][0, 0, 7, 2] = number
    with np.errstate(all="ignore"):
        found, compiled = replayed(step_of(attend), tensors(arrays))
        check(found, eager(step_of(attend), tensors(arrays)))
    assert attentions(compiled) == [False, True]


# -- what only looks like attention ----------------------------------------------------------------


def returns_probabilities(q: Any, k: Any, v: Any) -> Any:
    p = (q @ k.mT).softmax(-1)
    return tg.cat([(p @ v).flatten(), p.flatten()])


def punishes_probabilities(q: Any, k: Any, v: Any) -> Any:
    p = (q @ k.mT).softmax(-1)
    return p @ v + (p * p).sum()


def uses_scores(q: Any, k: Any, v: Any) -> Any:
    scores = q @ k.mT
    return scores.softmax(-1) @ v + scores.mean()


def softmax_of_queries(q: Any, k: Any, v: Any) -> Any:
    return (q @ k.mT).softmax(-2) @ v


def hides_by_a_number(q: Any, k: Any, v: Any) -> Any:
    return (q @ k.mT).masked_fill(HIDDEN, -1e9).softmax(-1) @ v


def shows_by_infinity(q: Any, k: Any, v: Any) -> Any:
    return (q @ k.mT).masked_fill(HIDDEN, 0.0).softmax(-1) @ v


def two_softmaxes(q: Any, k: Any, v: Any) -> Any:
    scores = q @ k.mT
    return scores.softmax(-1) @ v + scores.masked_fill(HIDDEN, -INF).softmax(-1) @ v


def one_head_of_values(q: Any, k: Any, v: Any) -> Any:
    return (q @ k.mT).softmax(-1) @ v[:1, :1]


def one_head_of_keys(q: Any, k: Any, v: Any) -> Any:
    return (q @ k[:1, :1].mT).softmax(-1) @ v


def dropped_twice(q: Any, k: Any, v: Any) -> Any:
    return F.dropout(F.dropout((q @ k.mT).softmax(-1), 0.1), 0.2) @ v


def dropped_by_column(q: Any, k: Any, v: Any) -> Any:
    return F.dropout2d((q @ k.mT).softmax(-1), 0.4) @ v


def scaled_by_a_tensor(q: Any, k: Any, v: Any) -> Any:
    return (q @ k.mT * q.mean()).softmax(-1) @ v


def scaled_afterwards(q: Any, k: Any, v: Any) -> Any:
    return ((q @ k.mT).softmax(-1) * 0.5) @ v


def turned_probabilities(q: Any, k: Any, v: Any) -> Any:
    return (k @ q.mT).softmax(-1).mT @ v


def probabilities_as_values(q: Any, k: Any, v: Any) -> Any:
    return v.mT @ (k @ q.mT).softmax(-1)


OTHERS = [
    *(returns_probabilities, punishes_probabilities, uses_scores, softmax_of_queries),
    *(hides_by_a_number, shows_by_infinity, two_softmaxes, one_head_of_values, one_head_of_keys),
    *(dropped_twice, dropped_by_column, scaled_by_a_tensor, scaled_afterwards),
    *(turned_probabilities, probabilities_as_values),
]


@pytest.mark.parametrize("attend", OTHERS)
def test_others_stay_as_they_are(attend: Callable[..., Any]) -> None:
    found, compiled = replayed(step_of(attend), tensors(inputs()))
    check(found, eager(step_of(attend), tensors(inputs())), 1e-10)
    assert attentions(compiled) == []


def test_gradient_of_a_mask_needs_the_scores() -> None:
    def attend(q: Any, k: Any, v: Any, mask: Any) -> Any:
        return (q @ k.mT + mask).softmax(-1) @ v

    for shape in ((Q, K), (B, H, Q, K), (1, K)):
        arrays = [*inputs(), numbers(*shape, seed=9)]
        found, compiled = replayed(step_of(attend), tensors(arrays))
        check(found, eager(step_of(attend), tensors(arrays)))
        assert attentions(compiled) == []


def test_half_precision_stays_as_it_is() -> None:
    given = [tg.tensor(x).bfloat16().requires_grad_() for x in inputs()]
    _, compiled = replayed(step_of(lambda *x: plain(*x).float()), given)
    assert attentions(compiled) == []


def test_short_sequences_have_whole_matrices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    _, compiled = replayed(step_of(nano_gpt), tensors(inputs()))
    assert attentions(compiled) == []


def test_the_pass_can_be_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAPEGRAD_WITHOUT", "rewrite")
    found, compiled = replayed(step_of(nano_gpt), tensors(inputs()))
    check(found, eager(step_of(nano_gpt), tensors(inputs())))
    assert attentions(compiled) == []
