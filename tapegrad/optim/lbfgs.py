"""L-BFGS."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..core.modes import capturing, enable_grad, no_grad
from ..core.tensor import Tensor
from ..ops.creation import zeros_like
from ..ops.elementwise.complexes import view_as_real
from ..ops.shape.joining import cat
from .line_search import Point, strong_wolfe
from .optimizer import Group, Optimizer, ParamsT
from .options import check_not_negative

#: curvature up to which a step is not added to the history
FLAT = 1e-10


class LBFGS(Optimizer):
    """Steps along an approximation of the inverse Hessian, made from the last `history_size` steps.

    `step(closure)` makes up to `max_iter` of them, with up to `max_eval` calls of the closure,
    which clears the gradients, computes the loss and its gradients, and returns the loss. It stops
    when no gradient is above `tolerance_grad`, or when the loss or every parameter changed by less
    than `tolerance_change`. `line_search_fn` is None, for steps of length `lr`, or "strong_wolfe".

    The number of steps depends on values, so `step` cannot be compiled; compile the closure. There
    is one parameter group, and the first parameter holds the state.
    """

    shapes_of_their_own = ("d", "prev_flat_grad")

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1,
        max_iter: int = 20,
        max_eval: int | None = None,
        tolerance_grad: float = 1e-7,
        tolerance_change: float = 1e-9,
        history_size: int = 100,
        line_search_fn: str | None = None,
    ) -> None:
        defaults = {
            "lr": lr,
            "max_iter": max_iter,
            "max_eval": max_iter * 5 // 4 if max_eval is None else max_eval,
            "tolerance_grad": tolerance_grad,
            "tolerance_change": tolerance_change,
            "history_size": history_size,
            "line_search_fn": line_search_fn,
        }
        if params is None:
            self.check(defaults)
            raise TypeError("LBFGS needs its parameters; step(closure) cannot be given any")
        super().__init__(params, defaults)

    @staticmethod
    def check(options: Mapping[str, Any]) -> None:
        check_not_negative(options, lr="the learning rate")
        if options["line_search_fn"] not in (None, "strong_wolfe"):
            raise ValueError(
                f"line_search_fn must be None or 'strong_wolfe', got {options['line_search_fn']!r}"
            )

    def add_param_group(self, param_group: Group) -> None:
        if self.param_groups:
            raise ValueError("LBFGS takes one parameter group; give it all parameters as one list")
        super().add_param_group(param_group)

    def step(self, closure: Any = None) -> Any:
        """Make up to `max_iter` steps; returns the loss before the first of them."""
        if capturing():
            raise RuntimeError(
                "LBFGS decides from the values of the loss how far and how often it steps, so its "
                "step cannot be part of a compiled function; compile the closure instead"
            )
        if not callable(closure):
            raise TypeError(
                "LBFGS.step needs a closure that clears the gradients, computes the loss and its "
                "gradients, and returns the loss"
            )
        with no_grad():
            return self._step(enable_grad()(closure))

    def _step(self, closure: Callable[[], Any]) -> Any:
        (group,) = self.param_groups
        state = self.state[group["params"][0]]
        first_loss = closure()
        loss, gradient = float(first_loss), self._gradient()
        state["func_evals"] = state.get("func_evals", 0) + 1
        state.setdefault("n_iter", 0)
        if _largest(gradient) <= group["tolerance_grad"]:
            return first_loss
        evaluations = 1
        for i in range(1, group["max_iter"] + 1):
            state["n_iter"] += 1
            direction = self._direction(state, gradient, group)
            length = float(group["lr"])
            if state["n_iter"] == 1:
                size = gradient.abs().sum().item()
                length *= min(1.0, 1.0 / size) if size else 1.0
            loss_before = loss
            slope = gradient.dot(direction).item()
            state.update(d=direction, t=length, prev_flat_grad=gradient, prev_loss=loss)
            if slope > -group["tolerance_change"]:
                break
            calls = 0
            if group["line_search_fn"] is not None:
                start = Point(0.0, loss, gradient, slope)
                point, calls = self._searched(
                    closure, start, length, direction, group, group["max_eval"] - evaluations
                )
                loss, gradient, length = point.loss, point.gradient, point.length
                state["t"] = length
                self._move(direction, length)
            else:
                self._move(direction, length)
                if i < group["max_iter"]:
                    loss, gradient, calls = float(closure()), self._gradient(), 1
            evaluations += calls
            state["func_evals"] += calls
            if (
                evaluations >= group["max_eval"]
                or _largest(gradient) <= group["tolerance_grad"]
                or _largest(direction * length) <= group["tolerance_change"]
                or abs(loss - loss_before) < group["tolerance_change"]
            ):
                break
        return first_loss

    def _searched(
        self,
        closure: Callable[[], Any],
        start: Point,
        length: float,
        direction: Tensor,
        group: Group,
        most: int,
    ) -> tuple[Point, int]:
        """The point that a line search finds; the parameters are unchanged afterwards."""
        parameters = group["params"]
        origin = [p.clone() for p in parameters]

        def evaluate(length: float) -> Point:
            self._move(direction, length)
            loss, gradient = float(closure()), self._gradient()
            for parameter, value in zip(parameters, origin, strict=True):
                parameter.copy_(value)
            return Point(length, loss, gradient, gradient.dot(direction).item())

        return strong_wolfe(
            evaluate, start, length, _largest(direction), group["tolerance_change"], most
        )

    def _direction(self, state: dict[str, Any], gradient: Tensor, group: Group) -> Tensor:
        """The step's direction: minus the approximate inverse Hessian times the gradient."""
        if state["n_iter"] == 1:
            state.update(old_dirs=[], old_stps=[], ro=[], H_diag=1)
            return -gradient
        self._remember(state, gradient, group["history_size"])
        changes, steps, inverses = state["old_dirs"], state["old_stps"], state["ro"]
        weights = state.setdefault("al", [None] * group["history_size"])
        direction: Tensor = -gradient
        for i in reversed(range(len(changes))):
            weights[i] = steps[i].dot(direction) * inverses[i]
            direction.add_(changes[i], alpha=-weights[i])
        direction = direction * state["H_diag"]
        for i in range(len(changes)):
            direction.add_(steps[i], alpha=weights[i] - changes[i].dot(direction) * inverses[i])
        return direction

    @staticmethod
    def _remember(state: dict[str, Any], gradient: Tensor, size: int) -> None:
        """Add the last step, and its change of the gradient, to the history."""
        change = gradient - state["prev_flat_grad"]
        step = state["d"] * state["t"]
        curvature = change.dot(step)
        if curvature.item() <= FLAT:
            return
        if len(state["old_dirs"]) == size:
            for key in ("old_dirs", "old_stps", "ro"):
                state[key].pop(0)
        state["old_dirs"].append(change)
        state["old_stps"].append(step)
        state["ro"].append(1.0 / curvature)
        state["H_diag"] = curvature / change.dot(change)

    def _gradient(self) -> Tensor:
        """The gradients of all parameters as one vector."""
        parts = [zeros_like(p) if p.grad is None else p.grad.to_dense() for p in self._parameters()]
        joined: Tensor = cat([_as_real(part).reshape(-1) for part in parts])
        return joined

    def _move(self, direction: Tensor, length: float) -> None:
        """Add a multiple of a vector to the parameters."""
        start = 0
        for parameter in self._parameters():
            pairs = _as_real(parameter)
            end = start + pairs.numel()
            pairs.add_(direction[start:end].reshape(pairs.shape), alpha=length)
            start = end


def _as_real(x: Tensor) -> Any:
    """Complex numbers as pairs of real ones, in the same memory."""
    return view_as_real(x) if x.is_complex() else x


def _largest(x: Tensor) -> float:
    return float(x.abs().max().item()) if x.numel() else 0.0
