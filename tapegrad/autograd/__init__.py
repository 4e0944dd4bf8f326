"""The names of `torch.autograd`, and those of the documents that tapegrad comes from."""

from types import SimpleNamespace as _Namespace

from ..anomaly import detect_anomaly, is_anomaly_enabled, set_detect_anomaly
from ..backward import autograd_backward as backward
from ..backward import grad
from ..function import Context, Function, custom_op, once_differentiable
from ..gradients import GradientMap, Gradients
from ..recompute import checkpoint, saved_tensors_hooks
from ..state import enable_grad, inference_mode, is_grad_enabled, no_grad, set_grad_enabled
from ..tape import GradientTape, Tape
from ..testing import gradcheck, gradgradcheck
from . import functional

graph = _Namespace(saved_tensors_hooks=saved_tensors_hooks)
function = _Namespace(Function=Function, once_differentiable=once_differentiable)


def __getattr__(name: str) -> object:
    """Names of the documents that belong to layers above this one, loaded at first use."""
    if name == "Variable":
        from ..dialects import Variable

        return Variable
    if name == "SGD":
        from ..optim import SGD

        return SGD
    if name in ("gradcheck", "gradgradcheck"):
        from .. import testing

        return getattr(testing, name)
    raise AttributeError(f"module 'tapegrad.autograd' has no attribute {name!r}")


__all__ = [
    "Context",
    "Function",
    "GradientMap",
    "GradientTape",
    "Gradients",
    "Tape",
    "backward",
    "checkpoint",
    "custom_op",
    "detect_anomaly",
    "enable_grad",
    "function",
    "functional",
    "grad",
    "gradcheck",
    "gradgradcheck",
    "graph",
    "inference_mode",
    "is_anomaly_enabled",
    "is_grad_enabled",
    "no_grad",
    "once_differentiable",
    "saved_tensors_hooks",
    "set_detect_anomaly",
    "set_grad_enabled",
]
