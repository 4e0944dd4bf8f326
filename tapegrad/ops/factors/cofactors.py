"""The gradient of the adjugate of singular matrices, where formulas with the inverse fail.

The adjugate of x + t m is a polynomial in t of degree below n, so its value at 0 is its mean over n
or more equally spaced points of a circle around 0. For x = U S V', let m be U V': at these points
the matrices have the singular values |s + t|, none of which is 0, so there the adjugate is the
determinant times the inverse. m and the points are constants, so this also holds for every
derivative. Called by the second derivative of `det`, on real and complex matrices.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

from ...core import xp
from ...core.tensor import Tensor, wrap
from ..elementwise.arithmetic import add
from ..elementwise.complexes import is_complex, real_


def _shifts(x: Any) -> Iterator[tuple[Any, float]]:
    """Yield the terms to add to matrices to make them regular, with their weights in the mean."""
    module = xp.module(x)
    u, s, vh = module.linalg.svd(x)
    # At this radius neither inverses nor the mean lose digits: (1 + 1 / n) ** n stays below e.
    radius = module.where(s[..., :1] > 0, s[..., :1] / x.shape[-1], 1)[..., None]
    complex_dtype = module.result_type(x.dtype, module.complex64)
    count = x.shape[-1] | 1  # odd, so that -1, where s + t may be 0, is not a point
    # For real matrices conjugate points give terms with the same real part: one of each pair is
    # enough.
    needed = count if module.iscomplexobj(x) else count // 2 + 1
    for k in range(needed):
        angle = 2 * math.pi * k / count
        point = complex(math.cos(angle), math.sin(angle))
        weight = 2 if k and needed < count else 1
        yield (u @ vh * radius * point).astype(complex_dtype), weight / count


def adjugate_gradient(g: Any, x: Any, regular: Callable[[Any, Any], Any]) -> Any:
    """The gradient of x, given that of its adjugate; `regular` is the rule for regular matrices."""
    total: Any = None
    for shift, weight in _shifts(x._array if isinstance(x, Tensor) else x):
        part = regular(g, add(x, wrap(shift)) if isinstance(x, Tensor) else x + shift) * weight
        total = part if total is None else total + part
    return total if is_complex(x) else real_(total)
