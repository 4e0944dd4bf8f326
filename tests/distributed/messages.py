"""Messages from anybody, many at once; run by `test_distributed_mismatch.py` in 3 ranks."""

from __future__ import annotations

from typing import Any

import tapegrad as tg
import tapegrad.distributed as dist


def contents(sender: int, tag: int, number: int) -> Any:
    """A message that says who sent it, with which tag, and which of its messages it is."""
    return tg.tensor([100.0 * sender + 10 * tag + number] * (1 + tag))


def send_all(tags: tuple[int, ...], count: int) -> None:
    sent = [
        dist.isend(contents(dist.get_rank(), tag, number), 0, tag=tag)
        for number in range(count)
        for tag in tags
    ]
    for work in sent:
        work.wait()


def expected(tag: int, count: int) -> list[float]:
    return sorted(contents(s, tag, n)[0].item() for s in (1, 2) for n in range(count))


def in_order(values: list[float]) -> bool:
    """Messages of one sender come in the order in which they were sent."""
    return all(
        [v for v in values if v // 100 == s] == sorted(v for v in values if v // 100 == s)
        for s in (1, 2)
    )


def waited_backwards() -> None:
    """Receives that were begun first are waited for last."""
    if dist.get_rank():
        send_all((0,), 3)
        return
    received = [tg.zeros(1) for _ in range(6)]
    works = [dist.irecv(x) for x in received]
    for work in reversed(works):
        work.wait()
    values = [x.item() for x in received]
    assert sorted(values) == expected(0, 3), values
    assert in_order(values), values


def several_tags() -> None:
    """Tags are received in another order than they are sent in, begun and at once."""
    if dist.get_rank():
        send_all((0, 1, 2), 2)
        return
    begun = [tg.zeros(3) for _ in range(2)]
    works = [dist.irecv(x, tag=2) for x in begun]
    at_once: dict[int, list[float]] = {1: [], 0: []}
    for tag in (1, 0, 1, 0, 0, 1, 1, 0):
        x = tg.zeros(1 + tag)
        sender = dist.recv(x, tag=tag)
        assert x[0].item() // 100 == sender
        at_once[tag].append(x[0].item())
    for tag, values in at_once.items():
        assert sorted(values) == expected(tag, 2), values
        assert in_order(values), values
    for _ in range(2):
        x = tg.zeros(3)
        dist.recv(x, tag=2)
        begun.append(x)
    for work in reversed(works):
        work.wait()
    values = [x[0].item() for x in begun]
    assert sorted(values) == expected(2, 2), values
    assert in_order(values), values


def named_and_anybody() -> None:
    """One receive names its sender, others do not."""
    if dist.get_rank():
        send_all((0,), 2)
        return
    received = [tg.zeros(1) for _ in range(4)]
    works = [dist.irecv(x, source) for x, source in zip(received, (2, 1, None, None), strict=True)]
    for i in (3, 1, 2, 0):
        works[i].wait()
    values = [x.item() for x in received]
    assert values[:2] == [200, 100]
    assert sorted(values) == expected(0, 2), values
    assert in_order(values), values


def from_itself() -> None:
    """A rank may be the one who sends to it."""
    x = tg.zeros(2)
    work = dist.isend(tg.ones(2), dist.get_rank(), tag=3)
    assert dist.recv(x, tag=3) == dist.get_rank()
    work.wait()
    assert x.tolist() == [1, 1]
    work = dist.isend(tg.ones(2) * 2, dist.get_rank(), tag=3)
    receiving = dist.irecv(x, dist.get_rank(), tag=3)
    receiving.wait()
    work.wait()
    assert x.tolist() == [2, 2]


def one_that_differs() -> str:
    """One of several messages has another shape: whoever waits for it gets the error."""
    if dist.get_rank():
        for size in (1, 2, 1) if dist.get_rank() == 1 else ():
            dist.send(tg.ones(size) * size, 0)
        return ""
    received = [tg.zeros(1) for _ in range(3)]
    works = [dist.irecv(x) for x in received]
    works[2].wait()
    works[0].wait()
    assert [x.item() for x in received] == [1, 0, 1]
    try:
        works[1].wait()
    except dist.CollectiveMismatch as error:
        return str(error)
    return ""
