"""Training steps on a GPU against torch eager, torch.compile without and with graphs, and jax.jit.

`python -m benchmarks gpu` measures all steps in all libraries. Each library has a process of its
own, stopped between jobs (`lasting.py`). `--only=MLP,gelu` selects steps,
`--libraries=replay,jax.jit` libraries, `--small` tiny sizes, which run on any GPU; `--explain`
prints the explanation of each compiled step. In all libraries, float32 products round their
operands to TF32 ("high").
"""

from __future__ import annotations

import statistics
import sys
from typing import Any

from .gpu_steps import LIBRARIES, STEPS
from .lasting import Lasting
from .measure import Columns, Report, duration, verdict

PEERS = ("torch eager", "torch.compile", "torch with graphs", "jax.jit")
#: largest replay / best peer of each step; eager steps are compared with torch eager's
TARGETS = {"MLP": 0.9, "CNN": 0.9, "GPT": 0.9, "gelu": 0.9, "GPT-2": 0.8}
EAGER, GEOMETRIC_MEAN = 1.0, 0.75
#: most seconds until GPT-2 is replayed, with kernels cached on disk
FIRST_REPLAY = 3.0
#: largest relative difference between the first losses of two libraries: bfloat16 has 8 bits
SAME_LOSS = 2e-2


def asked_for(option: str, names: tuple[str, ...]) -> list[str]:
    """The names that an option lists, or all if it is not given."""
    for word in sys.argv:
        if word.startswith(option):
            return [name for name in names if name in word.removeprefix(option).split(",")]
    return list(names)


def run(report: Report) -> None:
    libraries = asked_for("--libraries=", tuple(LIBRARIES))
    steps = asked_for("--only=", tuple(STEPS))
    found: dict[tuple[str, str], dict[str, Any]] = {}
    with Lasting() as lasting:
        for model in steps:
            for library in libraries:
                job = {"job": "gpu", "library": library, "model": model}
                answer = lasting.ask(f"{model}, {library}", **job, small="--small" in sys.argv)
                if answer:
                    found[model, library] = answer
                    print(f"{model}, {library}: {duration(answer['seconds'])}", flush=True)
    _print(report, steps, found)


def _print(report: Report, steps: list[str], found: dict[tuple[str, str], Any]) -> None:
    names = (*PEERS, "eager", "replay")
    table = Columns("step", *names, "replay / peer", "eager / torch", width=18, first=8)
    ratios: list[float] = []
    for model in steps:
        seconds = {n: found[model, n]["seconds"] for n in names if (model, n) in found}
        best = min((seconds[p] for p in PEERS if p in seconds), default=None)
        compared = eager = "-"
        if best is not None and "replay" in seconds:
            ratios.append(seconds["replay"] / best)
            compared = verdict(ratios[-1], TARGETS[model])
        if "torch eager" in seconds and "eager" in seconds:
            eager = verdict(seconds["eager"] / seconds["torch eager"], EAGER)
        table.row(model, *(duration(seconds.get(n)) for n in names), compared, eager)
        _check_losses(report, model, {n: found[model, n] for n in names if (model, n) in found})
    if len(ratios) > 1:
        mean = statistics.geometric_mean(ratios)
        report.add("replay / best peer, geometric mean", "", mean, GEOMETRIC_MEAN)
    _print_gpt2(report, found)
    for (model, library), answer in found.items():
        if "explained" in answer and "--explain" in sys.argv:
            print(f"\n{model}, {library}\n{answer['explained']}")


def _check_losses(report: Report, model: str, answers: dict[str, Any]) -> None:
    losses = [answer["loss"] for answer in answers.values()]
    apart = max(losses) - min(losses) if losses else 0.0
    if apart > SAME_LOSS * max(map(abs, losses), default=1.0):
        said = ", ".join(f"{name} {answer['loss']:.4g}" for name, answer in answers.items())
        report.say(f"{model}: first losses differ", said)


def _print_gpt2(report: Report, found: dict[tuple[str, str], Any]) -> None:
    replay, peer = found.get(("GPT-2", "replay")), found.get(("GPT-2", "torch.compile"))
    if replay is None:
        return
    report.add("GPT-2, seconds until the first replay", "", replay["first"], FIRST_REPLAY, " s")
    if peer is not None:
        figures = f"tapegrad {replay['peak'] / 2**30:.1f} GiB, torch {peer['peak'] / 2**30:.1f} GiB"
        report.add("GPT-2, peak memory of later steps", figures, replay["peak"] / peer["peak"], 1.0)
