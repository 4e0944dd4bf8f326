"""The timeline: when collectives ran, and when this rank waited for them.

Comes in: time intervals, which `process_group.py` and `background.py` note while a timeline is
being taken. Goes out: a `Timeline`, which prints as a table, computes how much of the communication
ran while the rank computed, and draws one or several ranks.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple
from xml.sax.saxutils import escape

clock = time.perf_counter


class Interval(NamedTuple):
    """A collective that ran from `began` to `ended`, or a wait for one (`bytes` is 0 then).

    Times are in seconds, from a clock that all processes of a machine share. `background` says
    whether it ran in the background thread.
    """

    what: str
    bytes: int
    began: float
    ended: float
    background: bool

    @property
    def seconds(self) -> float:
        return self.ended - self.began


class Timeline:
    """The collectives and waits of one rank between the times `began` and `ended`."""

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.began = self.ended = clock()
        self.collectives: list[Interval] = []
        #: waits of the computing thread for background collectives
        self.waits: list[Interval] = []

    @property
    def communication(self) -> float:
        """The time that collectives took, in seconds."""
        return sum(span.seconds for span in self.collectives)

    @property
    def waiting(self) -> float:
        """The time in which this rank communicated or waited instead of computing, in seconds."""
        return sum(s.seconds for s in self.collectives if not s.background) + sum(
            span.seconds for span in self.waits
        )

    @property
    def hidden(self) -> float:
        """The share of the communication that ran while this rank computed, from 0 to 1."""
        if not self.communication:
            return 1.0
        return max(0.0, 1.0 - self.waiting / self.communication)

    def __repr__(self) -> str:
        lines = [
            f"rank {self.rank}: {(self.ended - self.began) * 1e3:.2f} ms, of which collectives "
            f"{self.communication * 1e3:.2f} ms, waiting {self.waiting * 1e3:.2f} ms; "
            f"{self.hidden:.0%} of the communication is hidden"
        ]
        for span in sorted(self.collectives + self.waits, key=lambda s: s.began):
            where = "in the background" if span.background else ""
            size = f"{span.bytes / 1e6:9.3f} MB" if span.bytes else " " * 12
            begins = f"{(span.began - self.began) * 1e3:10.2f}"
            lines.append(f"{begins}{span.seconds * 1e3:9.2f} ms{size}  {span.what}  {where}")
        return "\n".join(line.rstrip() for line in lines)

    def picture(self, *others: Timeline) -> str:
        """An SVG picture of this timeline and those of other ranks, one below the other."""
        return _picture([self, *others])

    def since_arrival(self, *others: Timeline) -> Timeline:
        """This timeline with each collective counted from the time when the last rank began it.

        Before that, a rank waits for one that still computes: no message is in flight. `others` are
        the timelines of the other ranks of this machine.
        """
        calls = [[(span.what, span.bytes) for span in t.collectives] for t in (self, *others)]
        if any(call != calls[0] for call in calls):
            raise ValueError("the ranks ran different collectives: their timelines do not match")
        found = Timeline(self.rank)
        found.began, found.ended, found.waits = self.began, self.ended, self.waits
        for same in zip(*(t.collectives for t in (self, *others)), strict=True):
            arrival = min(max(span.began for span in same), same[0].ended)
            found.collectives.append(same[0]._replace(began=arrival))
            found.waits = _without(found.waits, same[0].began, arrival)
        return found


def _without(spans: Sequence[Interval], began: float, ended: float) -> list[Interval]:
    """The parts of `spans` outside the interval from `began` to `ended`."""
    left = []
    for span in spans:
        before = span._replace(ended=min(span.ended, began))
        after = span._replace(began=max(span.began, ended))
        left += [part for part in (before, after) if part.seconds > 0]
    return left


_taken: list[Timeline] = []


def is_taken() -> bool:
    """Whether a timeline is being taken."""
    return bool(_taken)


def note(what: str, size: int, began: float, background: bool) -> None:
    """Note a collective that has just ended."""
    span = Interval(what, size, began, clock(), background)
    for timeline in _taken:
        timeline.collectives.append(span)


def note_wait(what: str, began: float) -> None:
    """Note a wait of the computing thread for a background collective."""
    span = Interval(what, 0, began, clock(), False)
    for timeline in _taken:
        timeline.waits.append(span)


@contextmanager
def timeline() -> Iterator[Timeline]:
    """Inside, note when collectives run and when this rank waits for them.

    >>> import tapegrad.distributed as dist
    >>> with dist.timeline() as found:
    ...     pass
    >>> found.communication, found.hidden
    (0, 1.0)
    """
    from .process_group import get_rank, is_initialized

    found = Timeline(get_rank() if is_initialized() else 0)
    _taken.append(found)
    try:
        yield found
    finally:
        _taken.remove(found)
        found.ended = clock()


# -- the picture ---------------------------------------------------------------------------------

_WIDTH, _LEFT, _ROW = 900, 110, 22
_COMPUTES, _COMMUNICATES, _WAITS = "#4477aa", "#ccbb44", "#ee6677"


def _picture(timelines: Sequence[Timeline]) -> str:
    began = min(t.began for t in timelines)
    ended = max(t.ended for t in timelines)
    scale = (_WIDTH - _LEFT - 20) / max(ended - began, 1e-9)
    height = 60 + len(timelines) * (2 * _ROW + 14)
    parts: list[str] = []

    def bar(span: tuple[float, float], y: float, color: str, title: str) -> None:
        x = _LEFT + (span[0] - began) * scale
        width = max((span[1] - span[0]) * scale, 0.5)
        parts.append(
            f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{_ROW - 4}" fill="{color}">'
            f"<title>{escape(title)}</title></rect>"
        )

    def text(x: float, y: float, words: str, anchor: str = "start") -> None:
        parts.append(f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(words)}</text>')

    for at, (color, words) in enumerate(
        [(_COMPUTES, "computes"), (_COMMUNICATES, "communicates"), (_WAITS, "waits")]
    ):
        x = _LEFT + 130 * at
        parts.append(f'<rect x="{x}" y="10" width="12" height="12" fill="{color}"/>')
        text(x + 18, 20.5, words)
    for at, line in enumerate(timelines):
        y = 34 + at * (2 * _ROW + 14)
        text(_LEFT - 8, y + 13, f"rank {line.rank}", "end")
        text(_LEFT - 8, y + _ROW + 13, f"{line.hidden:.0%} hidden", "end")
        bar((line.began, line.ended), y, _COMPUTES, "computes")
        for span in line.collectives:
            title = f"{span.what}, {span.bytes / 1e6:.2f} MB, {span.seconds * 1e3:.2f} ms"
            bar((span.began, span.ended), y + _ROW, _COMMUNICATES, title)
            if not span.background:
                bar((span.began, span.ended), y, _WAITS, title)
        for span in line.waits:
            title = f"waits for {span.what}, {span.seconds * 1e3:.2f} ms"
            bar((span.began, span.ended), y, _WAITS, title)
    text(_LEFT, height - 8, "0")
    text(_WIDTH - 20, height - 8, f"{(ended - began) * 1e3:.1f} ms", "end")
    style = 'font-family="sans-serif" font-size="12" fill="#222222"'
    size = f'width="{_WIDTH}" height="{height}" viewBox="0 0 {_WIDTH} {height}"'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} {style}>',
            f'<rect width="{_WIDTH}" height="{height}" fill="#ffffff"/>',
            *parts,
            "</svg>\n",
        ]
    )
