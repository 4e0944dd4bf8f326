"""Prints a demo's progress: on a terminal with a live bar, elsewhere in a few plain lines.

Comes in: texts, figures and the losses of steps, from the demos and the benchmark. Goes out:
printed text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

#: plain lines of progress where there is no terminal
LINES = 5


class Report:
    """Prints for people: colours and a live bar on a terminal, plain lines elsewhere."""

    def __init__(self) -> None:
        from rich.console import Console

        self.console = Console(highlight=False, soft_wrap=True)

    def say(self, text: str) -> None:
        self.console.print(text, markup=False)

    def headline(self, text: str) -> None:
        self.console.print(text, style="bold", markup=False)

    def quote(self, text: str) -> None:
        """Print a text that the demo generated, set off from other output."""
        for line in text.split("\n"):
            self.console.print(f"  {line}", style="cyan", markup=False)

    @contextmanager
    def progress(self, title: str, total: int) -> Iterator[Callable[[float], None]]:
        """Yields a function to call after each step with its loss."""
        live = self.console.is_terminal
        with self._bar(title, total) if live else self._lines(title, total) as advance:
            yield advance

    @contextmanager
    def _bar(self, title: str, total: int) -> Iterator[Callable[[float], None]]:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
        from rich.progress import TimeElapsedColumn as Elapsed

        loss = TextColumn("{task.fields[loss]}")
        columns: tuple[Any, ...] = (TextColumn(title), BarColumn(), MofNCompleteColumn(), loss)
        with Progress(*columns, Elapsed(), console=self.console, refresh_per_second=5) as bar:
            task = bar.add_task("", total=total, loss="")
            yield lambda loss: bar.update(task, advance=1, loss=_shown(loss))

    @contextmanager
    def _lines(self, title: str, total: int) -> Iterator[Callable[[float], None]]:
        due = {round(total * i / LINES) for i in range(1, LINES + 1)}
        done = 0

        def advance(loss: float) -> None:
            nonlocal done
            done += 1
            if done in due:
                print(f"{title}: step {done} of {total}, {_shown(loss)}", flush=True)

        yield advance


def _shown(loss: float) -> str:
    """A loss with its significant digits, however small it is."""
    return f"loss {loss:#.4g}"
