"""The package `functorch` that comes with PyTorch; its functions are those of `torch.func`."""

from importlib import import_module

__all__ = [
    "combine_state_for_ensemble",
    "functional_call",
    "grad",
    "grad_and_value",
    "hessian",
    "jacfwd",
    "jacrev",
    "jvp",
    "make_functional",
    "make_functional_with_buffers",
    "stack_module_state",
    "vjp",
    "vmap",
]

__version__ = import_module("torch").__version__
_functions = import_module("torch.func")
globals().update({name: getattr(_functions, name) for name in __all__})
