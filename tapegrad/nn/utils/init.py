"""Makes a module without computing its initial values."""

from __future__ import annotations

import inspect
from typing import Any

from .. import init
from ..module import Module

#: the functions of `nn.init` that fill a tensor
_FILLING = [name for name in vars(init) if name.endswith("_") and not name.startswith("_")]


def skip_init(module_cls: Any, *args: Any, **kwargs: Any) -> Any:
    """A module with uninitialized parameters, for values that will be loaded anyway.

    >>> import tapegrad
    >>> tapegrad.nn.utils.skip_init(tapegrad.nn.Linear, 3, 2)
    Linear(in_features=3, out_features=2, bias=True)
    """
    if not (inspect.isclass(module_cls) and issubclass(module_cls, Module)):
        raise RuntimeError(f"expected a Module class, got {module_cls}")
    if "device" not in inspect.signature(module_cls).parameters:
        raise RuntimeError(f"{module_cls.__name__} takes no argument 'device', so it fills itself")
    # Layers call these functions by their names in the module.
    kept = {name: getattr(init, name) for name in _FILLING}
    try:
        for name in _FILLING:
            setattr(init, name, lambda tensor, *args, **kwargs: tensor)
        return module_cls(*args, **kwargs)
    finally:
        for name, function in kept.items():
            setattr(init, name, function)
