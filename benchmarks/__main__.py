"""`python -m benchmarks [suite ...]`: prints ratios to PyTorch and JAX, measured in this run."""

from __future__ import annotations

import sys

import torch

from . import data, eager, firstcall, others, ranks, replay
from .measure import Report

SUITES = {
    "eager": eager.run,
    "replay": replay.run,
    "others": others.run,
    "data": data.run,
    "firstcall": firstcall.run,
    "ranks": ranks.run,
}


def main() -> None:
    chosen = [name for name in sys.argv[1:] if not name.startswith("-")] or list(SUITES)
    for name in chosen:
        if name not in SUITES:
            raise SystemExit(f"no suite named {name!r}; there are {', '.join(SUITES)}")
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads; medians, interleaved")
    report = Report()
    for name in chosen:
        print(f"\n{name}", flush=True)
        SUITES[name](report)


if __name__ == "__main__":
    main()
