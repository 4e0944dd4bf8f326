"""Points that fill a cube evenly: Sobol sequences, through SciPy.

Comes in: a number of dimensions. Goes out: tensors of points in [0, 1). Without scrambling they
equal PyTorch's points; scrambled points depend on the seed, as random numbers do.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .core import dtypes
from .core.tensor import Tensor, wrap
from .random import default_generator

__all__ = ["SobolEngine"]


class SobolEngine:
    """A Sobol sequence of points with `dimension` coordinates.

    >>> import tapegrad
    >>> tapegrad.quasirandom.SobolEngine(2).draw(3)
    tensor([[0.0000, 0.0000],
            [0.5000, 0.5000],
            [0.7500, 0.2500]])
    """

    MAXBIT = 30
    MAXDIM = 21201

    def __init__(self, dimension: int, scramble: bool = False, seed: int | None = None) -> None:
        if not 1 <= dimension <= self.MAXDIM:
            raise ValueError(f"dimension must lie between 1 and {self.MAXDIM}, got {dimension}")
        self.dimension = dimension
        self.scramble = scramble
        self.seed = seed
        self._start()

    def _start(self) -> None:
        """Begin the sequence; if it is scrambled, it depends on the seed."""
        from scipy.stats import qmc

        seed = self.seed
        if seed is None and self.scramble:
            before = default_generator.take(4)
            seed = abs(hash((int(before[0]), int(before[1]))))
        self.num_generated = 0
        self._engine = qmc.Sobol(
            self.dimension,
            scramble=self.scramble,
            bits=self.MAXBIT,
            rng=None if seed is None else np.random.default_rng(seed),
        )

    def draw(self, n: int = 1, out: Tensor | None = None, dtype: Any = None) -> Tensor:
        """The next `n` points, as a tensor of shape (n, dimension)."""
        wanted = dtypes.get_default_dtype() if dtype is None else dtypes.as_dtype(dtype)
        points = np.empty((n, self.dimension))
        # SciPy warns if the first draw is not a power of 2: draw one point first, then the rest
        start = 0
        while start < n:
            step = 1 if self.num_generated == 0 and start == 0 else n - start
            points[start : start + step] = self._engine.random(step)
            start += step
        self.num_generated += n
        drawn: Tensor = wrap(points.astype(wanted.numpy))
        if out is None:
            return drawn
        out.resize_(tuple(points.shape))
        copied: Tensor = out.copy_(drawn)
        return copied

    def draw_base2(self, m: int, out: Tensor | None = None, dtype: Any = None) -> Tensor:
        """The next 2 ** m points; the total so far must be a power of 2 too."""
        n = 2**m
        total = self.num_generated + n
        if total & (total - 1):
            raise ValueError(
                "draw_base2 keeps the points balanced only if their number stays a power of 2; "
                f"{self.num_generated} + 2**{m} = {total} is none: use draw()"
            )
        return self.draw(n, out=out, dtype=dtype)

    def reset(self) -> SobolEngine:
        """Begin the sequence again."""
        self._engine.reset()
        self.num_generated = 0
        return self

    def fast_forward(self, n: int) -> SobolEngine:
        """Skip the next `n` points."""
        self._engine.fast_forward(n)
        self.num_generated += n
        return self

    def __repr__(self) -> str:
        shown = [f"dimension={self.dimension}"]
        if self.scramble:
            shown.append("scramble=True")
        if self.seed is not None:
            shown.append(f"seed={self.seed}")
        return f"{type(self).__name__}({', '.join(shown)})"
