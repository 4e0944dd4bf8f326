"""`python -m benchmarks [suite ...]`: prints ratios to PyTorch and JAX, measured in this run.

Without a name, all suites run except `grow` and `small`, which take long, and `gpu`. The parts to
run may follow the name of a suite: `python -m benchmarks grow products eager`,
`python -m benchmarks ranks 2 8`.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable

import torch

from . import data, eager, firstcall, gpu, grow, others, ranks, replay, small
from .measure import Report

SUITES: dict[str, Callable[..., None]] = {
    "eager": eager.run,
    "replay": replay.run,
    "others": others.run,
    "data": data.run,
    "firstcall": firstcall.run,
    "ranks": ranks.run,
    "grow": grow.run,
    "small": small.run,
    "gpu": gpu.run,
}
#: suites that run only when they are named
ONLY_BY_NAME = {"grow", "small", "gpu"}


def chosen(words: list[str]) -> list[tuple[str, list[str]]]:
    """The suites named on the command line, each with its requested parts."""
    found: list[tuple[str, list[str]]] = []
    for word in words:
        if found and _is_part(word, found[-1][0]):
            found[-1][1].append(word)
        elif word in SUITES:
            found.append((word, []))
        else:
            raise SystemExit(f"no suite named {word!r}; there are {', '.join(SUITES)}")
    return found or [(name, []) for name in SUITES if name not in ONLY_BY_NAME]


def _is_part(word: str, suite: str) -> bool:
    return word in grow.PARTS if suite == "grow" else suite == "ranks" and word.isdigit()


def main() -> None:
    suites = chosen([word for word in sys.argv[1:] if not word.startswith("-")])
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads; medians, interleaved")
    report = Report()
    for name, parts in suites:
        print(f"\n{name}", flush=True)
        run = functools.partial(SUITES[name], parts=parts) if parts else SUITES[name]
        run(report)


if __name__ == "__main__":
    main()
