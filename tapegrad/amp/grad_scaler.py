"""`GradScaler` multiplies the loss by a large number, so that small gradients survive float16.

Comes in: losses, and optimizers with gradients of scaled losses. Gradients are divided by the scale
before an optimizer's step. If one of them is infinite or NaN, the step is skipped and the scale
reduced. Scale, growth count and findings are tensors that change in place: a compiled training step
contains them, and selects each value with `where` instead of skipping.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Any

from ..core.dtypes import float16, float32, int32
from ..core.modes import capturing, no_grad
from ..core.tensor import Tensor
from ..ops.creation import full, zeros
from ..ops.elementwise.comparison import where
from ..replay.trace.options import innermost_capture, runtime_number

READY, UNSCALED, STEPPED = "ready", "unscaled", "stepped"


class _Progress:
    """The stage of one optimizer since the last update, and whether its gradients were finite."""

    def __init__(self) -> None:
        self.stage = READY
        #: 1 if a gradient was infinite or NaN. It is dropped at each update, so that a recorded
        #: call leaves no new tensor behind and its replay can replace it
        self.found_inf: Tensor | None = None

    def unfinished(self) -> str | None:
        """Why a compiled function cannot begin or end now: a replay does not change the stage."""
        if self.stage == READY:
            return None
        return (
            "it has a part of what a GradScaler does between unscale_() or step() and update(); "
            "compile all of it, or none"
        )


class GradScaler:
    """Scales losses, unscales gradients, skips steps with infinite ones, adapts the scale.

    >>> import tapegrad
    >>> w = tapegrad.tensor([1.0], requires_grad=True)
    >>> optimizer = tapegrad.optim.SGD([w], lr=0.5)
    >>> scaler = tapegrad.amp.GradScaler("cpu", init_scale=4.0)
    >>> grads = scaler.scale((w * 2).sum()).backward()
    >>> scaler.step(optimizer)
    >>> scaler.update()
    >>> w, scaler.get_scale()
    (tensor([0.], requires_grad=True), 4.0)
    """

    def __init__(
        self,
        device: str = "cuda",
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:
        self._device = device
        self._enabled = bool(enabled)
        if self._enabled and device == "cuda":
            from ..cuda import is_available

            if not is_available():
                warnings.warn(
                    "there is no GPU here: the GradScaler is off; GradScaler('cpu') scales on the "
                    "processor",
                    stacklevel=2,
                )
                self._enabled = False
        if not self._enabled:
            return
        assert growth_factor > 1.0, f"growth_factor must be above 1, got {growth_factor}"
        assert backoff_factor < 1.0, f"backoff_factor must be below 1, got {backoff_factor}"
        self._init_scale = float(init_scale)
        self._growth_factor = growth_factor
        self._backoff_factor = backoff_factor
        self._growth_interval = growth_interval
        self._scale = full((), self._init_scale, dtype=float32, device=device)
        self._growth_tracker = zeros((), dtype=int32, device=device)
        self._progress: dict[int, _Progress] = {}

    # -- one step of training ------------------------------------------------------------------

    def scale(self, outputs: Any) -> Any:
        """A tensor, or each tensor of an iterable, times the scale."""
        if not self._enabled:
            return outputs
        if isinstance(outputs, Tensor):
            return outputs * self._scale.to(outputs.device)
        if isinstance(outputs, Iterable):
            scaled = [self.scale(x) for x in outputs]
            return type(outputs)(scaled) if isinstance(outputs, (list, tuple)) else iter(scaled)
        raise ValueError(f"scale takes tensors or iterables of them, got {type(outputs).__name__}")

    def unscale_(self, optimizer: Any) -> None:
        """Divide the gradients of an optimizer by the scale, for clipping; `step` does not repeat
        it."""
        if not self._enabled:
            return
        progress = self._progress_of(optimizer)
        if progress.stage == UNSCALED:
            raise RuntimeError(
                "unscale_() divides the gradients of an optimizer once in each iteration: call "
                "update() before the next unscale_()"
            )
        if progress.stage == STEPPED:
            raise RuntimeError(
                "unscale_() must come before step(), which has already used these gradients"
            )
        gradients = [
            p.grad
            for group in optimizer.param_groups
            for p in group["params"]
            if p.grad is not None
        ]
        if any(g.dtype is float16 for g in gradients):
            raise ValueError(
                "Attempting to unscale FP16 gradients: keep the parameters in float32 and let "
                "autocast choose float16"
            )
        # Of sparse gradients, check the elements before they are summed.
        gradients = [g._values() if g.is_sparse else g for g in gradients]
        with no_grad():
            finite: Any = None
            factor = self._scale.double().reciprocal().float()
            for gradient in gradients:
                whole = gradient.isfinite().all().to(factor.device)
                finite = whole if finite is None else finite.logical_and(whole)
                gradient.mul_(factor.to(gradient.device))
            progress.found_inf = None if finite is None else finite.logical_not().float()
        progress.stage = UNSCALED

    def step(self, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        """`optimizer.step(...)`, unless a gradient is infinite or NaN; unscales them first."""
        if not self._enabled:
            return optimizer.step(*args, **kwargs)
        if "closure" in kwargs or any(callable(a) for a in args):
            raise RuntimeError(
                "an enabled GradScaler cannot step with a closure: compute the loss and its "
                "gradients before step()"
            )
        progress = self._progress_of(optimizer)
        if progress.stage == STEPPED:
            raise RuntimeError(
                "step() was called twice with this optimizer: call update() between the two"
            )
        if progress.stage == READY:
            self.unscale_(optimizer)
        found_inf = progress.found_inf
        assert found_inf is not None, (
            "this optimizer has no gradients to check: call backward() on the scaled loss "
            "before step()"
        )
        result = None
        if capturing():
            result = _chosen_step(optimizer, found_inf, args, kwargs)
        elif not found_inf.item():
            result = optimizer.step(*args, **kwargs)
        progress.stage = STEPPED
        return result

    def update(self, new_scale: Any = None) -> None:
        """Shrink the scale after infinite gradients, let it grow after many finite steps."""
        if not self._enabled:
            return
        if new_scale is not None:
            self._set_scale(new_scale)
        else:
            progresses = self._progress.values()
            found = [p.found_inf for p in progresses if p.found_inf is not None]
            assert found, (
                "update() found no gradients that were checked: call step() or unscale_() first"
            )
            self._adapt(found)
        for progress in self._progress.values():
            progress.stage, progress.found_inf = READY, None

    def _adapt(self, found: list[Tensor]) -> None:
        with no_grad():
            infinite = found[0] > 0
            for other in found[1:]:
                infinite = infinite.logical_or(other > 0)
            wide = self._scale.double()
            smaller = (wide * self._number("_backoff_factor")).float()
            larger = (wide * self._number("_growth_factor")).float()
            count = self._growth_tracker + 1
            full_count = count == self._number("_growth_interval")
            grown = where(full_count.logical_and(larger.isfinite()), larger, self._scale)
            self._scale.copy_(where(infinite, smaller, grown))
            count = where(infinite.logical_or(full_count), 0, count)
            self._growth_tracker.copy_(count.to(int32))

    def _set_scale(self, new_scale: Any) -> None:
        if isinstance(new_scale, Tensor):
            single = new_scale.numel() == 1 and not new_scale.requires_grad
            assert single, (
                "new_scale must be a number, or a tensor of one element that requires no gradient"
            )
            with no_grad():
                self._scale.copy_(new_scale.reshape(()))
        else:
            self._scale.fill_(float(new_scale))

    def _number(self, name: str) -> Any:
        """An option; compiled code reads it in every run."""
        return runtime_number(self.__dict__, name)

    def _progress_of(self, optimizer: Any) -> _Progress:
        found = self._progress.get(id(optimizer))
        if found is None:
            found = self._progress[id(optimizer)] = _Progress()
        capture = innermost_capture()
        if capture is not None and id(found) not in capture.endings:
            capture.obstacle = capture.obstacle or found.unfinished()
            capture.endings[id(found)] = found.unfinished
        return found

    # -- options -------------------------------------------------------------------------------

    def is_enabled(self) -> bool:
        """Whether the scaler is enabled."""
        return self._enabled

    def get_scale(self) -> float:
        """The scale as a number; 1 if the scaler is disabled."""
        return float(self._scale.item()) if self._enabled else 1.0

    def get_growth_factor(self) -> float:
        """The factor by which the scale grows."""
        return self._growth_factor

    def set_growth_factor(self, new_factor: float) -> None:
        """Set the factor by which the scale grows."""
        self._growth_factor = new_factor

    def get_backoff_factor(self) -> float:
        """The factor of the scale after infinite gradients."""
        return self._backoff_factor

    def set_backoff_factor(self, new_factor: float) -> None:
        """Set the factor of the scale after infinite gradients."""
        self._backoff_factor = new_factor

    def get_growth_interval(self) -> int:
        """The number of finite steps in a row after which the scale grows."""
        return self._growth_interval

    def set_growth_interval(self, new_interval: int) -> None:
        """Set the number of finite steps in a row after which the scale grows."""
        self._growth_interval = new_interval

    # -- saving and loading --------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Scale, factors and growth count as plain numbers; empty if the scaler is disabled."""
        if not self._enabled:
            return {}
        return {
            "scale": self.get_scale(),
            "growth_factor": self._growth_factor,
            "backoff_factor": self._backoff_factor,
            "growth_interval": self._growth_interval,
            "_growth_tracker": int(self._growth_tracker.item()),
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load a state from `state_dict`."""
        if not self._enabled:
            return
        if not state_dict:
            raise RuntimeError(
                "this state dict is empty: a GradScaler with enabled=False has no state to load"
            )
        scale, tracker = float(state_dict["scale"]), int(state_dict["_growth_tracker"])
        factors = state_dict["growth_factor"], state_dict["backoff_factor"]
        self._growth_interval = state_dict["growth_interval"]
        self._growth_factor, self._backoff_factor = factors
        self._init_scale = scale
        self._scale.fill_(scale)
        self._growth_tracker.fill_(tracker)

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__.copy()
        if self._enabled:
            assert all(p.stage == READY for p in self._progress.values()), (
                "pickle a GradScaler between iterations: after update(), or before the first "
                "unscale_() or step()"
            )
            state["_progress"] = {}
        return state


def _chosen_step(optimizer: Any, found_inf: Tensor, args: Any, kwargs: Any) -> Any:
    """A step in a compiled function: it runs, and `where` undoes it if it must be skipped.

    State that the first step makes has no old value. If that step must be skipped, the state is
    removed again, and the recording does not serve later calls.
    """
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    known = {p: dict(optimizer.state[p]) for p in parameters if p in optimizer.state}
    tensors = [*parameters, *(t for values in known.values() for t in values.values())]
    with no_grad():
        before = [(t, t.clone()) for t in tensors if isinstance(t, Tensor)]
        result = optimizer.step(*args, **kwargs)
        skipped = found_inf > 0
        for tensor, old in before:
            tensor.copy_(where(skipped, old, tensor))
    made = [p for p in parameters if set(optimizer.state.get(p, ())) != set(known.get(p, ()))]
    capture = innermost_capture()
    if made and capture is not None and float(found_inf._array):
        capture.is_one_off = True
        for parameter in made:
            optimizer.state.pop(parameter)
            if parameter in known:
                optimizer.state[parameter] = known[parameter]
    return result
