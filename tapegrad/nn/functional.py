"""Functions of layers, activations and losses: `import tapegrad.nn.functional as F`.

They come from the op table: the functions for this namespace, and those of the main namespace that
PyTorch has in both.
"""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature
from typing import Any

from ..ops import late, public_functions

#: functions of the main namespace that are here too
SHARED = (
    *("adaptive_avg_pool1d", "avg_pool1d", "celu", "channel_shuffle", "conv1d", "conv2d"),
    *("conv3d", "conv_tbc", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d"),
    *("cosine_similarity", "dropout", "group_norm", "hardshrink", "layer_norm", "max_pool1d"),
    *(
        "max_pool2d",
        "max_pool3d",
        "pairwise_distance",
        "pdist",
        "pixel_shuffle",
        "pixel_unshuffle",
        "prelu",
    ),
    *("rms_norm", "rrelu", "selu", "sigmoid", "tanh", "threshold"),
)

late.load_layers()
_MAIN = public_functions("")
_FUNCTIONS = {name: _MAIN[name] for name in SHARED} | public_functions("nn.functional")


def _changing(name: str) -> Callable[..., Any]:
    """The version of an activation that overwrites its input."""
    function = _FUNCTIONS[name]

    def change(input: Any, *args: Any, **kwargs: Any) -> Any:
        return function(input, *args, inplace=True, **kwargs)

    change.__name__ = change.__qualname__ = f"{name}_"
    change.__doc__ = f"`{name}` that overwrites its input."
    shown = signature(function)
    rest = [p for p in shown.parameters.values() if p.name != "inplace"]
    change.__signature__ = shown.replace(parameters=rest)  # type: ignore[attr-defined]
    return change


#: activations that exist under a name with an underscore too
IN_PLACE = ("celu", "elu", "hardtanh", "leaky_relu", "relu", "rrelu", "selu", "threshold")

_FUNCTIONS |= {f"{name}_": _changing(name) for name in IN_PLACE}
globals().update(_FUNCTIONS)

__all__ = sorted(_FUNCTIONS)  # the names are those of the table


def __getattr__(name: str) -> Any:
    if name == "grad":  # where PyTorch has it too
        from . import grad

        return grad
    from ..core.missing import missing

    raise missing(__name__, name, __all__)
