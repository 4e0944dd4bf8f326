"""Models in the form in which they are published, run with tapegrad or with PyTorch.

The files of tests/models are PyTorch code. tapegrad runs the same text; only import lines change.
"""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

FOLDER = Path(__file__).parent / "models"

#: the models and the forms in which they are built
CASES: list[tuple[str, dict[str, Any]]] = [
    ("gpt", {}),
    ("gpt", {"flash": False}),
    ("resnet", {}),
    ("resnet", {"kind": "bottleneck"}),
    ("vae", {}),
    ("word_lm", {}),
    ("word_lm", {"rnn_type": "GRU"}),
    ("word_lm", {"rnn_type": "RNN_TANH"}),
    ("vit", {}),
    ("vit", {"patches": "unfold"}),
    ("unet", {}),
    ("gan", {}),
    ("dqn", {}),
    ("pinn", {}),
    ("ddpm", {}),
    ("gnn", {}),
    ("llama", {}),
    ("moe", {}),
    ("transformer_xl", {}),
    ("vqvae", {}),
    ("sngan", {}),
    ("maml", {}),
    ("maml", {"newton": True}),
    ("ode", {}),
    ("ode", {"adjoint": True}),
    ("sac", {}),
]

#: forms whose layers draw random numbers, which differ from PyTorch's
NOISY: list[tuple[str, dict[str, Any]]] = [
    ("gpt", {"dropout": 0.2}),
    ("gpt", {"dropout": 0.2, "flash": False}),
    ("word_lm", {"dropout": 0.3}),
    ("vit", {"drop_path_rate": 0.4}),
    ("gnn", {"dropout": 0.3}),
]


def load(name: str, library: str) -> ModuleType:
    """The module of a file, with its imports of torch replaced by the given library."""
    text = (FOLDER / f"{name}.py").read_text()
    if library != "torch":
        text = re.sub(r"^import torch$", f"import {library} as torch", text, flags=re.M)
        text = re.sub(r"^(import|from) torch\b(?=[. ])", rf"\1 {library}", text, flags=re.M)
    module = ModuleType(f"{name}_of_{library}")
    importlib.import_module("sys").modules[module.__name__] = module  # dataclasses look there
    exec(compile(text, f"{name}.py with {library}", "exec"), module.__dict__)
    return module


def batches(module: ModuleType, library: Any, count: int, seed: int = 0) -> list[tuple[Any, ...]]:
    """Batches as tensors of a library, the same for every library."""
    rng = np.random.default_rng(seed)
    return [
        tuple(library.tensor(np.ascontiguousarray(a)) for a in module.batch(rng))
        for _ in range(count)
    ]
