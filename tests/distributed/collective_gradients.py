"""Programs for ranks: gradients of every collective against finite differences, in float64.

The objective is the sum of all ranks' terms. One element of one rank's input is moved, all ranks
compute their terms again, and the change of the sum is what that rank's gradient must say. The same
holds for the sum of weighted gradients, which checks second derivatives.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import tapegrad as tg
import tapegrad.distributed as dist
import tapegrad.distributed.functional as df
from tapegrad.distributed.process_group import resolved

RANK, RANKS = dist.get_rank(), dist.get_world_size()
LAST = RANKS - 1
WORLD = resolved(None)
STEP = 1e-5


def numbers(shape: Any, seed: int) -> Any:
    return np.random.default_rng(seed).uniform(0.4, 1.6, shape)


def term(y: Any, seed: int) -> Any:
    """This rank's term of the objective: a curved function of a result."""
    weights = tg.tensor(numbers(y.shape, 100 * seed + RANK))
    return (weights * (y + 0.3 * y * y).sin()).sum()


def total(value: Any) -> float:
    return float(WORLD.all_reduce(np.array(float(value)), "sum"))


def first(objective: Callable[[Any], Any], x: Any) -> Any:
    return tg.autograd.grad(objective(x), [x], create_graph=True)[0]


def weighted_gradient(objective: Callable[[Any], Any], seed: int) -> Callable[[Any], Any]:
    """The objective whose gradient has second derivatives of the given one."""

    def second(x: Any) -> Any:
        g = first(objective, x)
        return (g * tg.tensor(numbers(g.shape, seed))).sum()

    return second


def worst(objective: Callable[[Any], Any], shape: Any, shared: bool = False) -> float:
    """The largest difference between gradients and finite differences, at both orders.

    With `shared` all ranks have the same input and the same objective, which counts once.
    """
    largest = 0.0
    seed = 7 if shared else 8 + RANK
    for function in (objective, weighted_gradient(objective, seed)):
        given = numbers(shape, 1 if shared else 1 + RANK)
        x = tg.tensor(given, requires_grad=True)
        (found,) = tg.autograd.grad(function(x), [x])
        for rank in range(1 if shared else RANKS):
            shape_there = np.asarray(WORLD.broadcast(np.array([*given.shape, -1, -1])[:2], rank))
            size = int(np.prod([n for n in shape_there if n >= 0]))
            for i in range(size):
                ends = []
                for sign in (1, -1):
                    moved = given.copy()
                    if shared or rank == RANK:
                        moved.reshape(-1)[i] += sign * STEP
                    value = function(tg.tensor(moved, requires_grad=True))
                    ends.append(float(value) if shared else total(value))
                expected = (ends[0] - ends[1]) / (2 * STEP)
                if shared or rank == RANK:
                    mine = float(found.reshape(-1)[i])
                    largest = max(largest, abs(mine - expected) / max(1.0, abs(expected)))
    return largest


def each(cases: dict[str, tuple[Callable[[Any], Any], Any]]) -> dict[str, float]:
    return {
        name: worst(lambda x, f=f, n=n: term(f(x), n), shape)
        for n, (name, (f, shape)) in enumerate(cases.items())
    }


def gradients_of_reductions() -> Any:
    cases: dict[str, Any] = {
        f"all_reduce {op}": (lambda x, op=op: df.all_reduce(x, op), (2,))
        for op in ("sum", "avg", "max", "min", "product")
    }
    for op in ("sum", "avg"):
        cases[f"reduce {op}"] = (lambda x, op=op: df.reduce(x, LAST, op), (2,))
        cases[f"reduce_scatter {op}"] = (lambda x, op=op: df.reduce_scatter(x, op), (RANKS, 1))
    cases["all_reduce 0-d"] = (df.all_reduce, ())
    return each(cases)


def uneven(x: Any) -> Any:
    """Member r sends r rows to the first member, one to itself, and nothing to others."""
    sent = [0] * RANKS
    sent[0] += RANK
    sent[RANK] += 1
    received = [0] * RANKS
    received[RANK] += 1
    if RANK == 0:
        received = [r + (r == 0) for r in range(RANKS)]
    return df.all_to_all(x, tuple(sent), tuple(received))


def gradients_of_moves() -> Any:
    back = tuple(reversed(range(RANKS)))
    ring = tuple((r + 1) % RANKS for r in range(RANKS))
    return each(
        {
            "all_gather": (df.all_gather, (2,)),
            "broadcast": (lambda x: df.broadcast(x, LAST), (2,)),
            "gather": (lambda x: df.gather(x, LAST), (2,)),
            "scatter": (lambda x: df.scatter(x, LAST), (RANKS, 1)),
            "all_to_all": (df.all_to_all, (RANKS,)),
            "all_to_all uneven": (uneven, (RANK + 1,)),
            "permute_ranks": (lambda x: df.permute_ranks(x, ring), (2,)),
            "permute_ranks back": (lambda x: df.permute_ranks(x, back), (2,)),
        }
    )


def gradients_of_messages() -> Any:
    """Even ranks send to the odd rank after them; a zero carries the message's gradient."""

    def objective(x: Any) -> Any:
        if RANK % 2 == 0:
            return term(x, 1) + df.send(x * x, RANK + 1)
        y = df.receive((2,), RANK - 1, tg.float64)
        return term(y * x, 2)

    def gradient(x: Any) -> Any:
        # Not `grad` of x alone, which leaves out the way to the message: nothing would go back.
        x.grad = None
        objective(x).backward()
        return x.grad

    given = numbers((2,), 1 + RANK)
    x = tg.tensor(given, requires_grad=True)
    found = gradient(x)
    replayed = tg.compile(gradient, fullgraph=True)
    again = [replayed(x).clone() for _ in range(3)]
    forward = tg.compile(objective, fullgraph=True)
    outside = []
    for _ in range(3):
        x.grad = None
        forward(x).backward()
        outside.append(x.grad.clone())
    largest = 0.0
    for rank in range(RANKS):
        for i in range(2):
            ends = []
            for sign in (1, -1):
                moved = given.copy()
                moved[i] += sign * STEP * (rank == RANK)
                ends.append(total(objective(tg.tensor(moved, requires_grad=True))))
            expected = (ends[0] - ends[1]) / (2 * STEP)
            if rank == RANK:
                largest = max(largest, abs(float(found[i]) - expected))
    same = max(float((g - found).abs().max()) for g in (*again, *outside))
    refused = ""
    try:
        tg.autograd.grad(objective(x), [x], create_graph=True)
    except RuntimeError as error:
        refused = str(error)
    return {"send and receive": largest, "compiled": same, "refused": refused}


def gradients_of_pairs() -> Any:
    """Conjugate pairs: all ranks compute one loss, which counts once."""
    own = tg.tensor(numbers((), 50 + RANK))

    def once(y: Any) -> Any:
        return (tg.tensor(numbers(y.shape, 60)) * (y + 0.3 * y * y).sin()).sum()

    def summed(x: Any) -> Any:
        return once(df.reduce_from((df.copy_to(x) * own).sin()))

    def divided(x: Any) -> Any:
        return once(df.gather_from((df.split_to(x, 0) * own).sin(), 0))

    def crossed(x: Any) -> Any:
        columns = df.split_to(x, -1) * own
        return once(df.reduce_from(columns.sin().sum(-1)))

    results = {
        "copy_to, reduce_from": worst(summed, (3,), shared=True),
        "split_to, gather_from": worst(divided, (RANKS,), shared=True),
        "split_to, reduce_from": worst(crossed, (1, RANKS), shared=True),
    }

    # A parameter of the divided part, of which each rank has its own: the loss counts once.
    x = tg.tensor(numbers((3,), 70))

    def loss(w: Any) -> Any:
        return once(df.reduce_from((df.copy_to(x) * w).sin()))

    given = numbers((3,), 80 + RANK)
    w = tg.tensor(given, requires_grad=True)
    (found,) = tg.autograd.grad(loss(w), [w])
    largest = 0.0
    for rank in range(RANKS):
        for i in range(3):
            ends = []
            for sign in (1, -1):
                moved = given.copy()
                moved[i] += sign * STEP * (rank == RANK)
                ends.append(float(loss(tg.tensor(moved))))
            expected = (ends[0] - ends[1]) / (2 * STEP)
            if rank == RANK:
                largest = max(largest, abs(float(found[i]) - expected))
    results["own parameter"] = largest
    return results


def gradients_in_groups() -> Any:
    """Collectives of a part of the ranks; the others have terms without any."""
    half = [r for r in range(RANKS) if r % 2 == LAST % 2] if RANKS > 2 else [0, 1]
    group = dist.new_group(half)
    if RANK not in half:
        return {
            "all_reduce": worst(lambda x: term(x, 1), (2,)),
            "all_gather": worst(lambda x: term(x, 2), (2,)),
        }
    return {
        "all_reduce": worst(lambda x: term(df.all_reduce(x, group=group), 1), (2,)),
        "all_gather": worst(lambda x: term(df.all_gather(x, group=group), 2), (2,)),
    }


def extremes_share_ties() -> Any:
    """Members with the largest element share its gradient equally, as in `amax`."""
    x = tg.tensor([1.0, float(RANK)], requires_grad=True)
    df.all_reduce(x, "max").sum().backward()
    # Each of the ranks has a term, so that the gradient is the number of ranks, divided.
    return x.grad.tolist()


def gradients_of_functions_in_place() -> Any:
    """`dist.all_reduce` and others on tensors with a history carry gradients too."""
    results = {}

    def reduced(x: Any) -> Any:
        y = x * 2
        dist.all_reduce(y)
        return term(y, 1)

    def gathered(x: Any) -> Any:
        parts = [tg.zeros(2, dtype=tg.float64) for _ in range(RANKS)]
        dist.all_gather(parts, x * 2)
        return term(tg.stack(parts), 2)

    def sent(x: Any) -> Any:
        y = x * 2
        dist.broadcast(y, LAST)
        return term(y, 3)

    def spread(x: Any) -> Any:
        out = tg.zeros(1, dtype=tg.float64)
        dist.reduce_scatter_tensor(out, x * 2)
        return term(out, 4)

    def exchanged(x: Any) -> Any:
        out = tg.zeros(RANKS, dtype=tg.float64)
        dist.all_to_all_single(out, x * 2)
        return term(out, 5)

    results["all_reduce"] = worst(reduced, (2,))
    results["all_gather"] = worst(gathered, (2,))
    results["broadcast"] = worst(sent, (2,))
    results["reduce_scatter_tensor"] = worst(spread, (RANKS,))
    results["all_to_all_single"] = worst(exchanged, (RANKS,))
    return results
