"""Replay against PyTorch's eager mode: a training step recorded once, run as one native call."""

from __future__ import annotations

import torch

import tapegrad
from benchmarks.eager import mlp_step
from benchmarks.measure import Report, interleaved


def measure_mlp(report: Report) -> None:
    times = interleaved(
        {"torch": mlp_step(torch), "tapegrad": tapegrad.compile(mlp_step(tapegrad))}, rounds=20
    )
    mine, theirs = times["tapegrad"] * 1e6, times["torch"] * 1e6
    figures = f"tapegrad {mine:.0f} µs, torch {theirs:.0f} µs"
    report.add("MLP 784-256-10 SGD step, replay", figures, mine / theirs, 0.8)


def run(report: Report) -> None:
    measure_mlp(report)
