"""The GPU as a target: programs come in, kernels for grids of threads and their launches go out."""

from __future__ import annotations
