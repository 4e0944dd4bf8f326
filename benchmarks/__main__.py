"""`python -m benchmarks [suite ...]`: prints ratios to PyTorch, measured in this run."""

from __future__ import annotations

import sys

import torch

from benchmarks import eager, replay
from benchmarks.measure import Report

SUITES = {"eager": eager.run, "replay": replay.run}


def main() -> None:
    chosen = sys.argv[1:] or list(SUITES)
    for name in chosen:
        if name not in SUITES:
            raise SystemExit(f"no suite named {name!r}; there are {', '.join(SUITES)}")
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads; medians, interleaved\n")
    report = Report()
    for name in chosen:
        SUITES[name](report)


if __name__ == "__main__":
    main()
