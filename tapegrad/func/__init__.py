"""Functions of functions: derivatives and batches, nestable to any order.

derivatives (grad, vjp, jvp, ...), jacobians, calling (modules as functions), and `vmap`
"""

from typing import TYPE_CHECKING

from ..transforms.vmap import vmap
from .calling import functional_call, stack_module_state
from .derivatives import grad, grad_and_value, hvp, jvp, linearize, value_and_grad, vjp
from .jacobians import hessian, jacfwd, jacrev

__all__ = [
    "functional_call",
    "grad",
    "grad_and_value",
    "hessian",
    "hvp",
    "jacfwd",
    "jacrev",
    "jvp",
    "linearize",
    "stack_module_state",
    "value_and_grad",
    "vjp",
    "vmap",
]

if not TYPE_CHECKING:  # a type checker finds out by itself that a name is missing

    def __getattr__(name: str) -> object:
        from ..core.missing import missing

        raise missing(__name__, name, __all__)
