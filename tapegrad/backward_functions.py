"""The gradient of one operation as a function: `exp_backward(grad_output, x)`.

For code that writes its backward pass by hand. Each function takes the gradient of the result and
the arguments of the operation, and returns the gradient of its input, or a tuple for several
inputs. All are derived from the operations by autograd, so there is no second set of formulas, and
they can themselves be differentiated.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .autograd.api import grad
from .core.modes import enable_grad, is_grad_enabled
from .core.tensor import Tensor
from .nn import functional as F
from .ops.creation import zeros
from .ops.table import accept_numpy_names

Backward = Callable[..., Any]


def backward_of(function: Callable[..., Any], inputs: int = 1, linear: bool = False) -> Backward:
    """The backward function of an operation whose first `inputs` arguments get gradients.

    A linear operation's gradient does not depend on its inputs: it accepts their shapes instead,
    and inputs left out have the shape of `grad_output`.
    """

    def backward(grad_output: Tensor, *args: Any, **options: Any) -> Any:
        if not isinstance(grad_output, Tensor):
            raise TypeError(f"grad_output must be a Tensor, got {type(grad_output).__name__}")
        given = list(args[:inputs])
        if linear:
            given += [tuple(grad_output.shape)] * (inputs - len(given))
            given = [zeros(x, dtype=grad_output.dtype) if _is_shape(x) else x for x in given]
        if len(given) < inputs:
            raise TypeError(f"expected grad_output and {inputs} inputs, got {len(given)} inputs")
        operands = [_differentiable(x) for x in given]
        graph = is_grad_enabled() and any(
            isinstance(x, Tensor) and x.requires_grad for x in (grad_output, *given)
        )
        with enable_grad():
            result = function(*operands, *args[inputs:], **options)
        tensors = [x for x in operands if isinstance(x, Tensor)]
        found = iter(grad(result, tensors, grad_output, create_graph=graph))
        gradients = tuple(next(found) if isinstance(x, Tensor) else None for x in operands)
        return gradients[0] if inputs == 1 else gradients

    return backward


def _is_shape(x: Any) -> bool:
    return isinstance(x, (tuple, list)) and all(isinstance(n, int) for n in x)


def _differentiable(x: Any) -> Any:
    """A new tensor that requires gradients, even if `x` is passed twice; numbers unchanged."""
    if isinstance(x, Tensor):
        return x.clone() if x.requires_grad else x.detach().requires_grad_()
    if isinstance(x, (int, float)):
        return x
    raise TypeError(f"expected a Tensor or a number, got {type(x).__name__}")


def _method(name: str, inputs: int = 1, linear: bool = False) -> Backward:
    return backward_of(getattr(Tensor, name), inputs, linear)


@accept_numpy_names
def _maximum(x: Tensor, dim: int | None = None, keepdim: bool = False) -> Any:
    return x.max() if dim is None else x.max(dim, keepdim).values


@accept_numpy_names
def _minimum(x: Tensor, dim: int | None = None, keepdim: bool = False) -> Any:
    return x.min() if dim is None else x.min(dim, keepdim).values


@accept_numpy_names
def _softmax(x: Tensor, dim: int = -1) -> Any:
    return F.softmax(x, dim)


@accept_numpy_names
def _log_softmax(x: Tensor, dim: int = -1) -> Any:
    return F.log_softmax(x, dim)


# -- arithmetic: (grad_output, a, b) -> (gradient of a, gradient of b) ---------------------------

add_backward = _method("add", 2, linear=True)
subtract_backward = _method("sub", 2, linear=True)
multiply_backward = _method("mul", 2)
divide_backward = _method("div", 2)
power_backward = _method("pow", 2)
matmul_backward = _method("matmul", 2)


def transpose_backward(grad_output: Tensor, *dims: int) -> Any:
    """The gradient of `x.transpose(*dims)`; without dims, of reversing all of them."""
    return _transpose(grad_output, tuple(grad_output.transpose(*dims).shape), *dims)


_transpose = _method("transpose", 1, linear=True)

# -- element by element: (grad_output, x, options) -----------------------------------------------

neg_backward = _method("neg", 1, linear=True)
exp_backward = _method("exp")
log_backward = _method("log")
sqrt_backward = _method("sqrt")
abs_backward = _method("abs")
square_backward = _method("square")
clip_backward = _method("clamp")
sin_backward = _method("sin")
cos_backward = _method("cos")

# -- reductions: (grad_output, x, dim, keepdim) --------------------------------------------------

sum_backward = _method("sum", 1, linear=True)
mean_backward = _method("mean", 1, linear=True)
max_backward = backward_of(_maximum)
min_backward = backward_of(_minimum)

# -- activations: (grad_output, x, options) ------------------------------------------------------

relu_backward = backward_of(F.relu)
sigmoid_backward = backward_of(F.sigmoid)
tanh_backward = backward_of(F.tanh)
softmax_backward = backward_of(_softmax)
log_softmax_backward = backward_of(_log_softmax)
gelu_backward = backward_of(F.gelu)
elu_backward = backward_of(F.elu)
leaky_relu_backward = backward_of(F.leaky_relu)
prelu_backward = backward_of(F.prelu, 2)

# -- losses: (grad_output, predictions, targets, options) -> gradient of the predictions ---------

mean_squared_error_backward = backward_of(F.mse_loss)
binary_cross_entropy_backward = backward_of(F.binary_cross_entropy)
cross_entropy_backward = backward_of(F.cross_entropy)

for _name, _function in list(globals().items()):
    if _name.endswith("_backward"):
        _function.__name__ = _function.__qualname__ = _name
        _operation = _name.removesuffix("_backward")
        _function.__doc__ = _function.__doc__ or f"The gradient of `{_operation}` for its inputs."

mse_loss_backward = mean_squared_error_backward
cross_entropy_loss_backward = cross_entropy_backward

__all__ = [_name for _name in globals() if _name.endswith("_backward")]
