"""Programs for ranks: every function of `tapegrad.distributed` against NumPy.

Each rank knows what every other rank gives, so it computes what must come out. All dtypes, plain,
non-contiguous, 0-d and empty tensors, with and without `async_op`, in the group of all ranks and in
parts of it. A program returns the calls that gave something else, and how many there were.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import tapegrad as tg
import tapegrad.distributed as dist

RANK, RANKS = dist.get_rank(), dist.get_world_size()
LAST = RANKS - 1
FLOATS = (tg.float64, tg.float32, tg.float16, tg.bfloat16)
INTEGERS = (tg.int64, tg.int32, tg.int16, tg.int8, tg.uint8)
DTYPES = (*FLOATS, *INTEGERS, tg.bool)
SHAPES = ((3, 4), (), (0, 3))


class Tally:
    """The calls so far, and those that went wrong."""

    def __init__(self) -> None:
        self.count = 0
        self.wrong: list[str] = []

    def same(self, what: str, found: Any, expected: Any) -> None:
        self.count += 1
        found = found.double().numpy() if isinstance(found, tg.Tensor) else np.asarray(found)
        expected = np.asarray(expected, np.float64)
        if found.shape != expected.shape or not np.array_equal(found, expected):
            self.wrong.append(f"{what}: {found.tolist()} and not {expected.tolist()}")

    def result(self) -> Any:
        return {"count": self.count, "wrong": self.wrong[:5]}


def values(rank: int, shape: Any, dtype: Any, salt: int = 0) -> Any:
    """What a rank gives: small whole numbers, which every dtype holds exactly."""
    drawn = np.random.default_rng(1000 * salt + rank).integers(0, 4, shape)
    return (drawn > 1).astype(np.float64) if dtype is tg.bool else drawn.astype(np.float64)


def tensor(array: Any, dtype: Any, contiguous: bool = True) -> Any:
    """A tensor of an array; without `contiguous` every second element of a larger one."""
    if contiguous or array.ndim == 0:
        return tg.tensor(array).to(dtype)
    room = np.zeros((*array.shape[:-1], 2 * array.shape[-1]))
    room[..., ::2] = array
    return tg.tensor(room).to(dtype)[..., ::2]


def forms() -> Any:
    """Shapes, dtypes, memory layouts and ways to call."""
    for dtype in DTYPES:
        for shape in SHAPES:
            yield shape, dtype, True, dtype is tg.float32
        yield (3, 4), dtype, False, dtype is not tg.float32


def done(work: Any, is_async: bool) -> None:
    if is_async:
        assert isinstance(work, dist.Work)
        assert work.wait()
        assert work.is_completed()
    else:
        assert work is None


def groups() -> Any:
    """The group of all ranks, and one without the first rank (of all of two)."""
    part = list(range(1, RANKS)) if RANKS > 2 else [0, 1]
    return [(None, list(range(RANKS))), (PART, part)]


PART = dist.new_group(list(range(1, RANKS)) if RANKS > 2 else [0, 1])

REDUCTIONS: dict[str, Callable[..., Any]] = {
    "sum": np.sum,
    "avg": np.mean,
    "max": np.max,
    "min": np.min,
    "product": np.prod,
}


def reduced(rows: Any, op: str, dtype: Any) -> Any:
    """The reduction of rows, as a dtype has it."""
    if op in ("band", "bor", "bxor"):
        ufunc = {"band": np.bitwise_and, "bor": np.bitwise_or, "bxor": np.bitwise_xor}[op]
        return ufunc.reduce(np.asarray(rows).astype(np.int64), axis=0)
    found = REDUCTIONS[op](np.asarray(rows), axis=0)
    if dtype is tg.bool:
        return found > 0
    return tg.tensor(found).to(dtype).double().numpy()  # rounded once, as halves are


def reductions_for(dtype: Any) -> list[str]:
    if dtype is tg.bool:
        return ["sum", "product", "max", "min", "bor", "band"]
    return ["sum", "max", "min", "product"] + (
        ["avg"] if dtype.is_floating_point else ["band", "bor", "bxor"]
    )


def reductions() -> Any:
    """all_reduce, reduce, reduce_scatter, reduce_scatter_tensor."""
    tally = Tally()
    for group, ranks in groups():
        if RANK not in ranks:
            assert dist.all_reduce(tg.ones(1), group=group) is None
            continue
        target, me = ranks[-1], ranks.index(RANK)
        for shape, dtype, contiguous, is_async in forms():
            for op in reductions_for(dtype):
                name = f"{op} {dtype} {shape} {contiguous} {len(ranks)}"
                rows = [values(r, shape, dtype) for r in ranks]
                expected = reduced(rows, op, dtype)
                x = tensor(rows[me], dtype, contiguous)
                done(dist.all_reduce(x, op, group, is_async), is_async)
                tally.same(f"all_reduce {name}", x, expected)
                x = tensor(rows[me], dtype, contiguous)
                done(dist.reduce(x, target, op, group, is_async), is_async)
                tally.same(f"reduce {name}", x, expected if target == RANK else rows[me])
                if op not in ("sum", "avg", "max"):
                    continue
                parts = [[values(r, shape, dtype, 1 + i) for i in range(len(ranks))] for r in ranks]
                expected = reduced([row[me] for row in parts], op, dtype)
                given = [tensor(part, dtype, contiguous) for part in parts[me]]
                out = tensor(rows[me], dtype, contiguous)
                done(dist.reduce_scatter(out, given, op, group, is_async), is_async)
                tally.same(f"reduce_scatter {name}", out, expected)
                out = tensor(rows[me], dtype, contiguous)
                whole = tg.stack(given)
                done(dist.reduce_scatter_tensor(out, whole, op, group, is_async), is_async)
                tally.same(f"reduce_scatter_tensor {name}", out, expected)
    return tally.result()


def moves() -> Any:
    """broadcast, all_gather, all_gather_into_tensor, gather, scatter."""
    tally = Tally()
    for group, ranks in groups():
        if RANK not in ranks:
            assert dist.broadcast(tg.ones(1), ranks[0], group=group) is None
            continue
        other, me = ranks[-1], ranks.index(RANK)
        for shape, dtype, contiguous, is_async in forms():
            name = f"{dtype} {shape} {contiguous} {len(ranks)}"
            rows = [values(r, shape, dtype) for r in ranks]
            x = tensor(rows[me], dtype, contiguous)
            done(dist.broadcast(x, other, group, is_async), is_async)
            tally.same(f"broadcast {name}", x, rows[-1])
            x = tensor(rows[me], dtype, contiguous)
            outs = [tensor(0 * row, dtype, contiguous) for row in rows]
            done(dist.all_gather(outs, x, group, is_async), is_async)
            for out, row in zip(outs, rows, strict=True):
                tally.same(f"all_gather {name}", out, row)
            whole = tg.zeros((len(ranks) * max(1, *shape[:1], 0), *shape[1:]), dtype=dtype)
            if shape[:1] == (0,):
                whole = tg.zeros(shape, dtype=dtype)
            done(dist.all_gather_into_tensor(whole, x, group, is_async), is_async)
            joined = np.stack(rows).reshape(whole.shape)
            tally.same(f"all_gather_into_tensor {name}", whole, joined)
            outs = [tensor(0 * row, dtype, contiguous) for row in rows]
            given = outs if other == RANK else None
            done(dist.gather(x, given, other, group, is_async), is_async)
            for out, row in zip(given or (), rows, strict=False):
                tally.same(f"gather {name}", out, row)
            out = tensor(0 * rows[0], dtype, contiguous)
            given = [tensor(row, dtype, contiguous) for row in rows] if other == RANK else None
            done(dist.scatter(out, given, other, group, is_async), is_async)
            tally.same(f"scatter {name}", out, rows[me])
    return tally.result()


def exchanges() -> Any:
    """all_to_all and all_to_all_single, with equal and with different sizes."""
    tally = Tally()
    for group, ranks in groups():
        if RANK not in ranks:
            continue
        size, me = len(ranks), ranks.index(RANK)
        for dtype in DTYPES:
            for is_async in (False, True):
                # Member i sends i + j rows to member j.
                counts = [[i + j for j in range(size)] for i in range(size)]
                rows = [values(r, (sum(counts[i]), 2), dtype) for i, r in enumerate(ranks)]
                arriving = [
                    rows[i][sum(counts[i][:me]) : sum(counts[i][: me + 1])] for i in range(size)
                ]
                expected = np.concatenate(arriving)
                out = tg.zeros(expected.shape, dtype=dtype)
                received = [counts[i][me] for i in range(size)]
                work = dist.all_to_all_single(
                    out, tensor(rows[me], dtype), received, counts[me], group, is_async
                )
                done(work, is_async)
                tally.same(f"all_to_all_single uneven {dtype} {size}", out, expected)
                outs = [tg.zeros(a.shape, dtype=dtype) for a in arriving]
                ends = np.cumsum([0, *counts[me]])
                given = [tensor(rows[me][ends[j] : ends[j + 1]], dtype, False) for j in range(size)]
                done(dist.all_to_all(outs, given, group, is_async), is_async)
                for found, wanted in zip(outs, arriving, strict=True):
                    tally.same(f"all_to_all {dtype} {size}", found, wanted)
                even = [values(r, (size, 3), dtype) for r in ranks]
                out = tg.zeros(size, 3, dtype=dtype)
                given_rows = tensor(even[me], dtype, False)
                done(dist.all_to_all_single(out, given_rows, None, None, group, is_async), is_async)
                tally.same(f"all_to_all_single {dtype}", out, np.stack([e[me] for e in even]))
    return tally.result()


def messages() -> Any:
    """send, recv, isend, irecv and batch_isend_irecv round a ring, and recv from anybody."""
    tally = Tally()
    after, before = (RANK + 1) % RANKS, (RANK - 1) % RANKS
    for shape, dtype, contiguous, _ in forms():
        name = f"{dtype} {shape} {contiguous}"
        mine, expected = values(RANK, shape, dtype), values(before, shape, dtype)
        x = tensor(mine, dtype, contiguous)
        out = tensor(0 * mine, dtype, contiguous)
        sending = dist.isend(x, after, tag=3)
        assert dist.recv(out, before, tag=3) == before
        sending.wait()
        tally.same(f"isend recv {name}", out, expected)
        out = tensor(0 * mine, dtype, contiguous)
        receiving = dist.irecv(out, before)
        dist.send(x, after)
        receiving.wait()
        tally.same(f"send irecv {name}", out, expected)
        out = tensor(0 * mine, dtype, contiguous)
        batch = [dist.P2POp(dist.irecv, out, before), dist.P2POp(dist.isend, x, after)]
        for work in dist.batch_isend_irecv(batch):
            work.wait()
        tally.same(f"batch_isend_irecv {name}", out, expected)
    if RANK == 0:
        seen = []
        for _ in range(1, RANKS):
            out = tg.zeros(2)
            sender = dist.recv(out, tag=9)
            seen.append(sender)
            tally.same("recv of anybody", out, [sender, sender])
        tally.same("senders", sorted(seen), list(range(1, RANKS)))
    else:
        dist.send(tg.full((2,), float(RANK)), 0, tag=9)
    return tally.result()


class Unplain:
    """An object that must be pickled."""

    def __init__(self, rank: int) -> None:
        self.rank = rank

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Unplain) and other.rank == self.rank

    def __hash__(self) -> int:
        return self.rank


def thing(rank: int) -> Any:
    """Everything that has a plain form."""
    return {
        "none": None,
        "number": (rank, -(10**30), 0.1 * rank, float("inf")),
        "text": "ä" * rank,
        "bytes": bytes(range(rank)),
        "set": {rank, "x"},
        "nested": [[rank], {"a": (True, False)}],
    }


def objects() -> Any:
    """Collectives of Python objects, in all ranks and in a part of them."""
    for group, ranks in groups():
        if RANK not in ranks:
            continue
        other = ranks[-1]
        found: list[Any] = [None] * len(ranks)
        dist.all_gather_object(found, thing(RANK), group)
        assert found == [thing(r) for r in ranks]
        dist.all_gather_object(found, Unplain(RANK), group)
        assert found == [Unplain(r) for r in ranks]
        dist.all_gather_object(found, tg.arange(RANK, dtype=tg.bfloat16), group)
        assert [f.tolist() for f in found] == [list(range(r)) for r in ranks]
        assert all(f.dtype is tg.bfloat16 for f in found)
        found = [None] * len(ranks)
        dist.gather_object(thing(RANK), found if other == RANK else None, other, group)
        assert found == [thing(r) for r in ranks] or other != RANK
        items = [thing(RANK), Unplain(RANK), RANK]
        dist.broadcast_object_list(items, other, group)
        assert items == [thing(other), Unplain(other), other]
        out: list[Any] = [None]
        given = [thing(100 + r) for r in ranks] if other == RANK else None
        dist.scatter_object_list(out, given, other, group)
        assert out == [thing(100 + RANK)]
    return True


def ranks_and_groups() -> Any:
    """Numbers of ranks and groups, and mistakes that are told apart."""
    raised = []

    def wrong(call: Callable[[], Any]) -> None:
        try:
            call()
        except (ValueError, TypeError, RuntimeError) as error:
            raised.append(type(error).__name__)
        else:
            raised.append("nothing")

    wrong(lambda: dist.all_reduce(tg.ones(2), "mean"))
    wrong(lambda: dist.all_reduce(tg.ones(2), "band"))
    wrong(lambda: dist.all_reduce(tg.ones(2, dtype=tg.int64), "avg"))
    wrong(lambda: dist.all_reduce(np.ones(2)))
    wrong(lambda: dist.all_gather([tg.ones(2)] * (RANKS + 1), tg.ones(2)))
    wrong(lambda: dist.all_gather([tg.ones(3)] * RANKS, tg.ones(2)))
    wrong(lambda: dist.broadcast(tg.ones(2), RANKS))
    wrong(lambda: dist.all_to_all_single(tg.ones(RANKS + 1), tg.ones(RANKS + 1)))
    wrong(lambda: dist.new_group([0, 0]))
    wrong(lambda: dist.init_process_group("mpi"))
    facts = [
        dist.get_rank(),
        dist.get_world_size(),
        dist.get_rank(PART),
        dist.get_world_size(PART),
        dist.get_backend(),
        dist.is_initialized(),
    ]
    if RANKS == 2 or RANK:
        facts.append([dist.get_global_rank(PART, i) for i in range(len(PART))])
        facts.append(dist.get_group_rank(PART, RANK))
        facts.append(dist.get_process_group_ranks(PART))
    dist.barrier()
    work = dist.barrier(async_op=True)
    work.wait()
    return {"raised": raised, "facts": facts}


def leaves_and_aliases() -> Any:
    """A leaf that requires gradients is changed in place, and a view changes its base."""
    leaf = tg.full((2,), float(RANK), requires_grad=True)
    dist.all_reduce(leaf)
    base = tg.full((2, 3), float(RANK))
    column = base[:, 1]
    dist.all_reduce(column)
    total = sum(range(RANKS))
    return {
        "leaf": leaf.tolist() == [total] * 2 and leaf.is_leaf and leaf.requires_grad,
        "view": base.tolist() == [[RANK, total, RANK]] * 2,
    }
