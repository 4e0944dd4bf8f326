"""`tapegrad.special`: PyTorch's special functions, including those of the main namespace.

Loaded at first use; SciPy is loaded when one of its functions is called.
"""

from __future__ import annotations

from typing import Any

from .ops import late, public_functions

#: names here that are functions of the main namespace, and their names there
SHARED = {
    **{name: name for name in ("digamma", "erf", "erfc", "erfinv", "exp2", "expm1", "i0")},
    **{name: name for name in ("log1p", "logit", "logsumexp", "round", "sinc", "xlogy")},
    **{name: name for name in ("log_softmax", "softmax")},
    "expit": "sigmoid",
    "gammainc": "igamma",
    "gammaincc": "igammac",
    "gammaln": "lgamma",
    "multigammaln": "mvlgamma",
    "psi": "digamma",
}

late.load_all("special.")
_MAIN = public_functions("")
_FUNCTIONS = {**public_functions("special"), **{ours: _MAIN[name] for ours, name in SHARED.items()}}
globals().update(_FUNCTIONS)

__all__ = sorted(_FUNCTIONS)  # the names are those of the table


def __getattr__(name: str) -> Any:
    from .core.missing import missing

    raise missing(__name__, name, __all__)
