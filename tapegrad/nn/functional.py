"""Functions of layers, activations and losses: `import tapegrad.nn.functional as F`.

They come from the op table: those entered for this namespace, and those of the main namespace that
PyTorch has in both.
"""

from __future__ import annotations

from typing import Any

from ..ops import public_functions

#: functions of the main namespace that stand here too
SHARED = (
    *("adaptive_avg_pool1d", "avg_pool1d", "celu", "channel_shuffle", "conv1d", "conv2d"),
    *("conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "cosine_similarity"),
    *("dropout", "group_norm", "hardshrink", "layer_norm", "log_softmax", "max_pool1d"),
    *(
        "max_pool2d",
        "max_pool3d",
        "pixel_shuffle",
        "pixel_unshuffle",
        "prelu",
        "rms_norm",
        "selu",
        "sigmoid",
        "softmax",
        "tanh",
        "threshold",
    ),
)

_MAIN = public_functions("")
_FUNCTIONS = {name: _MAIN[name] for name in SHARED} | public_functions("nn.functional")
globals().update(_FUNCTIONS)

__all__ = sorted(_FUNCTIONS)  # the names are those of the table


def __getattr__(name: str) -> Any:
    raise AttributeError(f"module 'tapegrad.nn.functional' has no attribute {name!r}")
