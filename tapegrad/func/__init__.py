"""Functions of functions: derivatives and batches, nestable to any order.

The files: derivatives (grad, vjp, jvp, ...) and jacobians; calling and functional_modules, for
modules as functions of their state. `vmap` comes from `transforms`.
"""

from typing import TYPE_CHECKING

from ..transforms.vmap import vmap
from .calling import functional_call, functionalize, stack_module_state
from .derivatives import grad, grad_and_value, hvp, jvp, linearize, value_and_grad, vjp
from .functional_modules import (
    combine_state_for_ensemble,
    make_functional,
    make_functional_with_buffers,
    replace_all_batch_norm_modules_,
)
from .jacobians import hessian, jacfwd, jacrev

__all__ = [
    "combine_state_for_ensemble",
    "functional_call",
    "functionalize",
    "grad",
    "grad_and_value",
    "hessian",
    "hvp",
    "jacfwd",
    "jacrev",
    "jvp",
    "linearize",
    "make_functional",
    "make_functional_with_buffers",
    "replace_all_batch_norm_modules_",
    "stack_module_state",
    "value_and_grad",
    "vjp",
    "vmap",
]

if not TYPE_CHECKING:  # hidden from type checkers, which report missing names themselves

    def __getattr__(name: str) -> object:
        from ..core.missing import missing

        raise missing(__name__, name, __all__)
