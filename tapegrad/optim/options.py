"""Arguments of optimizers: GT's form of them, checks, and arithmetic on tensors and numbers.

In eager code the numbers of an update are Python's; while a step is captured they are 0-d tensors,
which no `if` may read. `choose`, `largest` and `smallest` serve both. Used by the optimizers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from numbers import Real
from typing import Any

import numpy as np

from ..core.tensor import Tensor, wrap
from ..ops.elementwise.comparison import where_

# -- the learning rate -------------------------------------------------------------------------


def accept_learning_rate(init: Callable[..., None]) -> Callable[..., None]:
    """Let `__init__` of an optimizer also take `(learning_rate=0.01)` or `(0.01)`.

    `step(parameters)` then gets the parameters. `help` shows the arguments of `init`, PyTorch's.
    """

    @wraps(init)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        has_lr = len(args) > 1 or "lr" in kwargs
        if args and isinstance(args[0], (int, float)) and not isinstance(args[0], bool):
            if has_lr or "learning_rate" in kwargs:
                raise TypeError(
                    "two numbers could be a learning rate and a momentum; name them: "
                    "learning_rate=..., momentum=..."
                )
            kwargs["lr"], args = args[0], ()
        elif "learning_rate" in kwargs:
            if has_lr:
                raise TypeError("got both lr and learning_rate, which are the same thing")
            kwargs["lr"] = kwargs.pop("learning_rate")
        if not args:
            kwargs.setdefault("params", None)
        init(self, *args, **kwargs)

    return __init__


# -- checks ------------------------------------------------------------------------------------


def check_not_negative(options: Mapping[str, Any], **names: str) -> None:
    """Raise ValueError for an option below zero (or NaN); `names` says how each is called."""
    for key, name in names.items():
        value = options[key]
        if isinstance(value, Tensor):
            if value.numel() != 1:
                raise ValueError(f"{name} must be one number, got {value.numel()}")
        elif not isinstance(value, Real):
            raise ValueError(f"{name} must be a number, got {type(value).__name__}")
        if not float(value) >= 0.0:
            raise ValueError(f"{name} must be 0 or more, got {value}")


def check_betas(options: Mapping[str, Any]) -> None:
    """Raise ValueError unless `betas` are two factors of running means."""
    betas = options["betas"]
    if len(betas) != 2:
        raise ValueError(f"betas are two numbers, got {len(betas)}")
    for i, beta in enumerate(betas):
        if not 0.0 <= beta < 1.0:
            raise ValueError(f"betas[{i}] must be at least 0 and below 1, got {beta}")


def check_adaptive(options: Mapping[str, Any]) -> None:
    """The options that Adam and its relatives have in common."""
    check_not_negative(options, lr="the learning rate", eps="eps", weight_decay="weight_decay")
    check_betas(options)
    check_ways(options)


def check_ways(options: Mapping[str, Any]) -> None:
    """Refuse combinations of `foreach`, `fused` and so on that PyTorch refuses."""
    if options.get("fused"):
        if options.get("differentiable"):
            raise RuntimeError("a fused update is not differentiable; leave out one of the two")
        if options.get("foreach"):
            raise RuntimeError("fused and foreach cannot both be True; leave out one of the two")


# -- numbers that may be tensors ----------------------------------------------------------------


def choose(condition: Any, yes: Any, no: Any) -> Any:
    """`yes` if the condition holds and else `no`, where any of them may be a tensor."""
    if not isinstance(condition, Tensor):
        return yes if condition else no
    if not isinstance(yes, Tensor) and not isinstance(no, Tensor):
        yes = wrap(np.asarray(yes, np.float64))  # two Python numbers would become float32
    return where_(condition, yes, no)


def largest(a: Any, b: Any) -> Any:
    """The larger of two numbers."""
    return choose(a > b, a, b)


def smallest(a: Any, b: Any) -> Any:
    """The smaller of two numbers."""
    return choose(a < b, a, b)


def rounded(number: Any, scalar: Tensor) -> Any:
    """Cast a number that is a tensor to the dtype of `scalar`; Python numbers are unchanged."""
    return number.to(scalar.dtype) if isinstance(number, Tensor) else number
