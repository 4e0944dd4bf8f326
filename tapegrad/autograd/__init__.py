"""Gradients: the engine, its callers, and the names of `torch.autograd`.

    api (backward, grad) ─> engine ─> fused ─> gradients

Names are loaded at first use, because the rest of the library imports single modules from here.
"""

from importlib import import_module as _import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..core.modes import enable_grad, inference_mode, is_grad_enabled, no_grad, set_grad_enabled
    from ..core.tape import GradientTape, Tape
    from ..dialects import Variable as Variable
    from ..optim import SGD as SGD
    from ..testing import gradcheck, gradgradcheck
    from . import forward_ad, function, functional, graph
    from .anomaly import detect_anomaly, is_anomaly_enabled, set_detect_anomaly
    from .api import autograd_backward as backward
    from .api import grad
    from .checkpointing import checkpoint, saved_tensors_hooks
    from .function import Context, Function, custom_op, once_differentiable
    from .gradients import GradientMap, Gradients
    from .multithreading import is_multithreading_enabled, set_multithreading_enabled
    from .nodes import SavedTensor

__all__ = [
    "Context",
    "Function",
    "GradientMap",
    "GradientTape",
    "Gradients",
    "SavedTensor",
    "Tape",
    "backward",
    "checkpoint",
    "custom_op",
    "detect_anomaly",
    "enable_grad",
    "forward_ad",
    "function",
    "functional",
    "grad",
    "gradcheck",
    "gradgradcheck",
    "graph",
    "inference_mode",
    "is_anomaly_enabled",
    "is_grad_enabled",
    "is_multithreading_enabled",
    "no_grad",
    "once_differentiable",
    "saved_tensors_hooks",
    "set_detect_anomaly",
    "set_grad_enabled",
    "set_multithreading_enabled",
]

#: the module of each name; the last two modules belong to layers above this one
_SOURCES = {
    ".anomaly": ("detect_anomaly", "is_anomaly_enabled", "set_detect_anomaly"),
    ".api": ("grad",),
    ".checkpointing": ("checkpoint", "saved_tensors_hooks"),
    ".nodes": ("SavedTensor",),
    ".multithreading": ("is_multithreading_enabled", "set_multithreading_enabled"),
    ".function": ("Context", "Function", "custom_op", "once_differentiable"),
    ".gradients": ("GradientMap", "Gradients"),
    "..core.modes": (
        *("enable_grad", "inference_mode", "is_grad_enabled", "no_grad", "set_grad_enabled"),
    ),
    "..core.tape": ("GradientTape", "Tape"),
    "..testing": ("gradcheck", "gradgradcheck"),
    "..dialects": ("Variable",),
    "..optim": ("SGD",),
}


if not TYPE_CHECKING:  # hidden from type checkers, which report missing names themselves

    def __getattr__(name: str) -> object:
        if name == "backward":
            value: object = _import_module(".api", __name__).autograd_backward
        elif name in ("forward_ad", "function", "functional", "graph"):
            value = _import_module(f".{name}", __name__)
        else:
            module = next((m for m, names in _SOURCES.items() if name in names), None)
            if module is None:
                from ..core.missing import missing

                raise missing(__name__, name, __all__)
            value = getattr(_import_module(module, __name__), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted(__all__)
