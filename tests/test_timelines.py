"""Timelines of ranks: what counts as communication and what as waiting. No rank runs here."""

from __future__ import annotations

import pytest

from tapegrad.distributed.spans import Interval, Timeline


def _line(rank: int, collectives: list[Interval], waits: list[Interval]) -> Timeline:
    found = Timeline(rank)
    found.began, found.ended = 0.0, 20.0
    found.collectives, found.waits = collectives, waits
    return found


def _send(began: float, ended: float, background: bool = True) -> Interval:
    return Interval("all_reduce", 4096, began, ended, background)


def _wait(began: float, ended: float) -> Interval:
    return Interval("all_reduce", 0, began, ended, False)


def test_waiting_for_a_late_rank_is_no_communication() -> None:
    # The first rank waits from 12 on; the other one comes at 14, and the message takes 2 seconds.
    early = _line(0, [_send(2, 5), _send(10, 16)], [_wait(12, 16.5)])
    late = _line(1, [_send(3, 5), _send(14, 16)], [_wait(15, 16)])
    assert early.hidden == pytest.approx(1 - 4.5 / 9)
    counted = early.since_arrival(late)
    assert [span.seconds for span in counted.collectives] == [2, 2]
    # What the thread slept too long, after the message had come, it still waited.
    assert counted.waiting == pytest.approx(2.5)
    assert counted.hidden == pytest.approx(1 - 2.5 / 4)
    assert late.since_arrival(early).hidden == late.hidden == pytest.approx(1 - 1 / 4)
    assert early.waits == [_wait(12, 16.5)]


def test_collectives_that_are_not_hidden_stay_so() -> None:
    one = _line(0, [_send(2, 6, background=False)], [])
    other = _line(1, [_send(4, 6, background=False)], [])
    counted = one.since_arrival(other)
    assert counted.waiting == counted.communication == 2
    assert counted.hidden == 0.0


def test_ranks_with_different_collectives_cannot_be_compared() -> None:
    one = _line(0, [_send(2, 6)], [])
    with pytest.raises(ValueError, match="different collectives"):
        one.since_arrival(_line(1, [], []))


def test_a_rank_alone_is_unchanged() -> None:
    one = _line(0, [_send(2, 6)], [_wait(3, 6)])
    assert one.since_arrival().hidden == one.hidden
