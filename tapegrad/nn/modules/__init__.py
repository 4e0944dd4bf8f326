"""PyTorch's paths to layers: `from tapegrad.nn.modules.transformer import TransformerEncoder`.

The layers are in the files of `tapegrad.nn`, which are organized differently. Each module of
`torch.nn.modules` exists here too. It finds every layer of `tapegrad.nn` by its name, and private
classes that PyTorch code uses, such as `batchnorm._BatchNorm`.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
from types import FunctionType, ModuleType
from typing import Any

#: the modules of torch.nn.modules; `utils` is a file of its own
NAMES = (
    *("activation", "adaptive", "batchnorm", "channelshuffle", "container", "conv", "distance"),
    *(
        "dropout",
        "flatten",
        "fold",
        "instancenorm",
        "lazy",
        "linear",
        "loss",
        "module",
        "normalization",
    ),
    *("padding", "pixelshuffle", "pooling", "rnn", "sparse", "transformer", "upsampling"),
)

_PARENT = __name__.rpartition(".")[0]


def _find(name: str) -> Any:
    """A layer of `tapegrad.nn`, or a private class in one of its files."""
    parent = importlib.import_module(_PARENT)
    if name in parent.__all__:
        return getattr(parent, name)
    if name.startswith("__"):
        raise AttributeError(name)
    for part in pkgutil.iter_modules(parent.__path__):
        if not part.ispkg:
            found = vars(importlib.import_module(f"{_PARENT}.{part.name}")).get(name)
            if isinstance(found, (type, FunctionType)):
                return found
    raise AttributeError(f"tapegrad.nn has no layer {name!r}")


class _Place(ModuleType):
    """One of PyTorch's modules of layers."""

    def __getattr__(self, name: str) -> Any:
        return _find(name)

    def __dir__(self) -> list[str]:
        return list(importlib.import_module(_PARENT).__all__)


class _ModulePlace(_Place):
    """`torch.nn.modules.module`, whose global hooks can be replaced too."""

    def __getattr__(self, name: str) -> Any:
        from ..hooks import GLOBAL_HOOKS

        return GLOBAL_HOOKS[name] if name in GLOBAL_HOOKS else _find(name)

    def __setattr__(self, name: str, value: Any) -> None:
        from ..hooks import GLOBAL_HOOKS

        if name in GLOBAL_HOOKS:
            GLOBAL_HOOKS[name].replace(value)
        else:
            super().__setattr__(name, value)


for _name in NAMES:
    _kind = _ModulePlace if _name == "module" else _Place
    _place = _kind(f"{__name__}.{_name}", f"PyTorch's path to layers: see `{__name__}`.")
    globals()[_name] = sys.modules[_place.__name__] = _place


def __getattr__(name: str) -> Any:
    if name == "utils":  # and not `tapegrad.nn.utils`
        return importlib.import_module(f"{__name__}.utils")
    return _find(name)
