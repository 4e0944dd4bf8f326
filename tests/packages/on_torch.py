"""Runs a program of this folder on PyTorch: `python on_torch.py run_timm.py out.npz`.

A torchvision that was built for another PyTorch cannot load its C++ operations, and then not be
imported; the models do not call them, so their names are enough.
"""

import runpy
import sys
from pathlib import Path

import torch

for name in ("nms", "qnms"):
    torch.library.define(f"torchvision::{name}", "(Tensor a, Tensor b, float c) -> Tensor")
sys.argv.pop(0)
sys.path[0] = str(Path(sys.argv[0]).parent)
runpy.run_path(sys.argv[0], run_name="__main__")
