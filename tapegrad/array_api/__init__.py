"""`tapegrad.array_api`: the namespace of the Array API standard, for tapegrad's tensors.

`x.__array_namespace__()` returns it, so that libraries written for the standard accept tensors.
Functions follow the standard in names, arguments, and promotion by dtypes alone. A Tensor keeps
PyTorch's methods and operators; docs/array-api.md lists where those differ. Loaded at first use.
"""

from __future__ import annotations

from math import e as e
from math import inf as inf
from math import nan as nan
from math import pi as pi
from typing import Any

from . import creation, elementwise, reductions, shapes, types
from .creation import *  # noqa: F403
from .elementwise import *  # noqa: F403
from .elementwise import FUNCTIONS
from .info import NamespaceInfo
from .reductions import *  # noqa: F403
from .shapes import *  # noqa: F403
from .types import *  # noqa: F403
from .types import DTYPES

__array_api_version__ = "2025.12"
__array_namespace_info__ = NamespaceInfo
newaxis = None

globals().update(FUNCTIONS)
globals().update(DTYPES)

#: extensions, loaded at first use
_EXTENSIONS = ("fft", "linalg")

__all__ = [
    *("e", "inf", "nan", "newaxis", "pi", "__array_namespace_info__", "__array_api_version__"),
    *DTYPES,
    *(name for name in types.__all__ if name not in ("DEFAULTS", "DTYPES")),
    *(name for module in (creation, elementwise, reductions, shapes) for name in module.__all__),
]


def __getattr__(name: str) -> Any:
    if name in _EXTENSIONS:
        from importlib import import_module

        return import_module(f".{name}", __name__)
    from ..core.missing import missing

    raise missing(__name__, name, __all__)


def __dir__() -> list[str]:
    return sorted([*__all__, *_EXTENSIONS])
