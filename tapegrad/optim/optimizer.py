"""What all optimizers share: parameter groups, state, `step`, saving and loading.

Comes in: parameters, or groups of them with options of their own. `step` calls `update`, which each
optimizer defines, for every parameter that has a gradient; it changes the parameter and the state
tensors in place, in ordinary tensor math, so a compiled training step contains it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import deepcopy
from numbers import Real
from typing import Any

import numpy as np

from ..gradients import Gradients
from ..replay.capture import decided, runtime_number
from ..replay.update import Update, pays
from ..state import STATE, TAPE, enable_grad, no_grad, numbers, structure_changed
from ..tensor import RemovableHandle, Tensor, wrap

Group = dict[str, Any]


class Optimizer:
    """Base of the optimizers: subclasses give `check` and `update`.

    >>> import tapegrad
    >>> w = tapegrad.tensor([1.0, 2.0], requires_grad=True)
    >>> optimizer = tapegrad.optim.SGD([w], lr=0.5)
    >>> grads = (w * w).sum().backward()
    >>> optimizer.step()
    >>> w
    tensor([0., 0.], requires_grad=True)
    """

    def __init__(self, params: Any, defaults: dict[str, Any]) -> None:
        """`params` is an iterable of tensors, of (name, tensor) pairs or of groups.

        With None, the parameters are those given to `step(parameters)`.
        """
        groups = [] if params is None else _as_groups(params)
        self.check(defaults)
        self.defaults = defaults
        self.state: defaultdict[Tensor, dict[str, Any]] = defaultdict(dict)
        self.param_groups: list[Group] = []
        self._pre_hooks: dict[int, Callable[..., Any]] = {}
        self._post_hooks: dict[int, Callable[..., Any]] = {}
        self._updates = Update()
        for group in groups:
            self.add_param_group(group)

    # -- what an optimizer defines -------------------------------------------------------------

    @staticmethod
    def check(options: Mapping[str, Any]) -> None:
        """Raise ValueError for options that make no sense; nothing has been stored yet."""

    def update(self, parameter: Tensor, gradient: Tensor, group: Group) -> None:
        """Change one parameter (and its state) in place, given its gradient."""
        raise NotImplementedError(f"{type(self).__name__} does not define update()")

    # -- how an update reads its numbers -------------------------------------------------------

    def number(self, group: Group, key: str, index: int | None = None) -> Any:
        """An option that enters the update as a factor.

        This is the one place where updates read numbers: what is compiled reads the group anew in
        every run, so that schedules work.
        """
        return runtime_number(group, key, index)

    def decides(self, group: Group, key: str) -> bool:
        """An option that decides which operations the update has: is it on, or other than zero?"""
        return decided(group, key)

    def count(self, state: dict[str, Any]) -> Any:
        """Advance the step count and return it, as a number for the formulas of the update.

        On a tape the count stays a tensor: a number read from it would not change in a replay.
        """
        step = state["step"]
        step += 1
        return step.double() if STATE.mode & TAPE else step.item()

    # -- stepping ------------------------------------------------------------------------------

    def step(self, closure: Any = None) -> Any:
        """Update all parameters that have a gradient.

        `closure` may be a function that computes the loss again, which is then returned; a mapping
        of gradients, as `loss.backward()` returns it, to be used instead of `.grad`; or the
        parameters to update, if the optimizer was made without any.
        """
        args: tuple[Any, ...] = () if closure is None else (closure,)
        for hook in list(self._pre_hooks.values()):
            changed = hook(self, args, {})
            if changed is not None:
                args = tuple(changed[0])
        argument = args[0] if args else None
        loss = None
        if callable(argument):
            with enable_grad():
                loss = argument()
            argument = None
        self._update_all(argument)
        for hook in list(self._post_hooks.values()):
            hook(self, args, {})
        return loss

    def _update_all(self, argument: Any) -> None:
        gradients, chosen = None, None
        if isinstance(argument, Mapping):
            gradients = self._fitting(argument)
        elif argument is not None:
            chosen = {p.id for p in self._adopt(argument)}
        if not self.param_groups:
            raise RuntimeError(
                "this optimizer was made without parameters; pass them to the constructor or to "
                "step(parameters)"
            )
        wanted = []
        for group in self.param_groups:
            for parameter in group["params"]:
                if chosen is not None and parameter.id not in chosen:
                    continue
                gradient = parameter.grad if gradients is None else gradients.get(parameter.id)
                if gradient is not None:
                    wanted.append((parameter, gradient, group))
        if self.defaults.get("differentiable"):
            with enable_grad():
                for parameter, gradient, group in wanted:
                    self._renew_state(parameter)
                    self.update(parameter, gradient, group)
        elif (
            gradients is None
            and self._is_own()
            and pays([p for p, _, _ in wanted], [g for _, g, _ in wanted])
        ):
            self._update_natively(wanted)
        else:
            self._update_each(wanted)

    def _update_each(self, wanted: list[tuple[Tensor, Tensor, Group]]) -> None:
        with no_grad():
            for parameter, gradient, group in wanted:
                self.update(parameter, gradient, group)

    def _is_own(self) -> bool:
        """Whether the update is the library's: it does nothing but what a recording shows."""
        methods = (self.update, self.number, self.decides, self.count)
        return all(m.__module__.startswith(__package__) for m in methods)

    def _update_natively(self, wanted: list[tuple[Tensor, Tensor, Group]]) -> None:
        """All updates as one native program."""
        state = self.state

        def tensors() -> list[Tensor]:
            return [t for p, _, _ in wanted for t in (p, *state.get(p, {}).values())]

        if not all(isinstance(t, Tensor) for t in tensors()):
            self._update_each(wanted)  # a number in the state is changed by Python
            return
        key = tuple([(id(group), p.id) for p, _, group in wanted])
        self._updates.run(
            lambda: self._update_each(wanted), (key, tuple([t.id for t in tensors()])), tensors
        )

    def _renew_state(self, parameter: Tensor) -> None:
        """Let a differentiable update change copies: backward needs the state as it was."""
        if parameter in self.state:
            self.state[parameter] = {
                key: value.clone() if isinstance(value, Tensor) else value
                for key, value in self.state[parameter].items()
            }

    def _fitting(self, mapping: Mapping[Any, Any]) -> Gradients:
        """A mapping of gradients, after a look at the shapes of those that will be used."""
        gradients = mapping if isinstance(mapping, Gradients) else Gradients(mapping)
        for parameter in self._parameters():
            gradient = gradients.get(parameter.id)
            if gradient is not None and gradient.shape != parameter.shape:
                raise RuntimeError(
                    f"the gradient of a parameter of shape {tuple(parameter.shape)} must have the "
                    f"same shape, got {tuple(gradient.shape)}"
                )
        return gradients

    def _adopt(self, parameters: Any) -> list[Tensor]:
        """The given parameters as a list; those not seen before become a group."""
        given = _as_parameters(parameters)
        known = {p.id for p in self._parameters()}
        new = [p for p in given if p.id not in known]
        if new:
            self.add_param_group({"params": new})
        return given

    def zero_grad(self, set_to_none: Any = True) -> None:
        """Forget all gradients, or with `set_to_none=False` fill them with zeros.

        Given parameters instead, forget the gradients of those.
        """
        if isinstance(set_to_none, (bool, int)):
            for parameter in self._parameters():
                parameter.zero_grad(bool(set_to_none))
        else:
            for parameter in _as_parameters(set_to_none):
                parameter.zero_grad()

    def _parameters(self) -> Iterator[Tensor]:
        for group in self.param_groups:
            yield from group["params"]

    # -- groups --------------------------------------------------------------------------------

    def add_param_group(self, param_group: Group) -> None:
        """Add a group: a dict with "params" and any options that differ from the defaults."""
        if not isinstance(param_group, dict):
            raise TypeError(
                "a parameter group is a dict with the key 'params', got "
                f"{type(param_group).__name__}"
            )
        if "params" not in param_group:
            raise ValueError("a parameter group needs the key 'params'")
        given = param_group["params"]
        given = [given] if isinstance(given, Tensor) else _ordered(given)
        names = [item[0] for item in given if isinstance(item, tuple)]
        if names and len(names) != len(given):
            raise ValueError("give all parameters of a group with their names, or none of them")
        parameters = [item[1] for item in given] if names else list(given)
        self._check_parameters(parameters)
        group = {**self.defaults, **param_group, "params": parameters}
        if names:
            group["param_names"] = names
        if any(("param_names" in other) != bool(names) for other in self.param_groups):
            raise ValueError("give all parameter groups with names, or none of them")
        self.check(group)
        self.param_groups.append(group)
        structure_changed()

    def _check_parameters(self, parameters: list[Any]) -> None:
        known = {p.id for p in self._parameters()}
        for parameter in parameters:
            if not isinstance(parameter, Tensor):
                raise TypeError(
                    f"an optimizer updates Tensors, but one of the parameters is a "
                    f"{type(parameter).__name__}"
                )
            free = parameter.is_leaf or parameter.retains_grad
            if not free and not self.defaults.get("differentiable"):
                raise ValueError(
                    "an optimizer updates leaves, but one of the parameters is the result of an "
                    "operation; use .detach().requires_grad_()"
                )
            if parameter.id in known:
                raise ValueError("some parameters appear in more than one parameter group")
            known.add(parameter.id)

    # -- saving and loading --------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """State and options, with parameters replaced by their position."""
        position = {p.id: i for i, p in enumerate(self._parameters())}
        groups = [
            {
                **{key: value for key, value in group.items() if key != "params"},
                "params": [position[p.id] for p in group["params"]],
            }
            for group in self.param_groups
        ]
        state = {position[parameter.id]: values for parameter, values in self.state.items()}
        return {"state": state, "param_groups": groups}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Take over state and options that `state_dict` gave; tensors are copied."""
        saved = state_dict["param_groups"]
        if len(saved) != len(self.param_groups):
            raise ValueError(
                f"the loaded state has {len(saved)} parameter groups, this optimizer has "
                f"{len(self.param_groups)}"
            )
        loaded: defaultdict[Tensor, dict[str, Any]] = defaultdict(dict)
        groups: list[Group] = []
        for i, (ours, theirs) in enumerate(zip(self.param_groups, saved, strict=True)):
            if len(ours["params"]) != len(theirs["params"]):
                raise ValueError(
                    f"group {i} of the loaded state has {len(theirs['params'])} parameters, this "
                    f"optimizer's has {len(ours['params'])}"
                )
            for parameter, number in zip(ours["params"], theirs["params"], strict=True):
                if number in state_dict["state"]:
                    loaded[parameter] = _copied(parameter, state_dict["state"][number])
            names = {k: v for k, v in ours.items() if k == "param_names"}
            options = {key: deepcopy(v) for key, v in theirs.items() if key != "params"}
            groups.append({"params": ours["params"], **self.defaults, **names, **options})
            self.check(groups[-1])
        self.state = loaded
        self._updates = Update()  # recordings of the old state would keep its memory
        # The dicts stay the same objects: schedulers and compiled steps hold on to them.
        for group, replacement in zip(self.param_groups, groups, strict=True):
            group.clear()
            group.update(replacement)
        structure_changed()  # the state is in other tensors now

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_pre_hooks": {}, "_post_hooks": {}, "_updates": Update()}

    # -- hooks ---------------------------------------------------------------------------------

    def register_step_pre_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call `hook(optimizer, args, kwargs)` before each step; it may return new ones."""
        return _register(self._pre_hooks, hook)

    def register_step_post_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call `hook(optimizer, args, kwargs)` after each step."""
        return _register(self._post_hooks, hook)

    def __repr__(self) -> str:
        lines = [f"{type(self).__name__} ("]
        for i, group in enumerate(self.param_groups):
            lines.append(f"Parameter Group {i}")
            lines += [f"    {key}: {group[key]}" for key in sorted(group) if key != "params"]
        return "\n".join([*lines, ")"])


def _register(hooks: dict[int, Callable[..., Any]], hook: Callable[..., Any]) -> RemovableHandle:
    key = next(numbers)
    hooks[key] = hook
    return RemovableHandle(lambda: hooks.pop(key, None))


def _ordered(params: Any) -> list[Any]:
    if isinstance(params, (set, frozenset)):
        raise TypeError("the order of a set changes from run to run; give the parameters as a list")
    if not isinstance(params, Iterable):
        raise TypeError(f"expected an iterable of Tensors, got {type(params).__name__}")
    return list(params)


def _as_groups(params: Any) -> list[Group]:
    """Parameter groups from what the constructor was given."""
    if isinstance(params, Tensor):
        raise TypeError("params is an iterable of Tensors or groups, got one Tensor; use [tensor]")
    items = _ordered(params)
    if not items:
        raise ValueError("the optimizer got an empty list of parameters")
    if isinstance(items[0], dict):
        return [dict(item) if isinstance(item, dict) else item for item in items]
    return [{"params": items}]


def _as_parameters(parameters: Any) -> list[Tensor]:
    """Parameters given to `step` or `zero_grad`."""
    given = [parameters] if isinstance(parameters, Tensor) else _ordered(parameters)
    for parameter in given:
        if not isinstance(parameter, Tensor):
            raise TypeError(f"expected Tensors as parameters, got {type(parameter).__name__}")
    return given


def _copied(parameter: Tensor, values: Mapping[str, Any]) -> dict[str, Any]:
    """Loaded state of one parameter: own memory, and but for counts its dtype and device."""
    copies: dict[str, Any] = {}
    for key, value in values.items():
        if not isinstance(value, Tensor):
            counts = key == "step" and isinstance(value, Real)
            copies[key] = wrap(np.asarray(value, np.float32)) if counts else deepcopy(value)
            continue
        copy = value.detach().clone()
        if copy.ndim and copy.shape != parameter.shape:
            raise ValueError(
                f"the loaded state {key!r} of a parameter of shape {tuple(parameter.shape)} has "
                f"shape {tuple(copy.shape)}"
            )
        copies[key] = copy if key == "step" else copy.to(parameter.device, parameter.dtype)
    return copies


def learning_rate_of(params: Any, lr: float, default: float, named: float | None) -> Any:
    """`params` and `lr`, given as `(params, lr)`, `(learning_rate=0.01)` or `(0.01)`."""
    if isinstance(params, (int, float)) and not isinstance(params, bool):
        if lr != default or named is not None:
            raise TypeError(
                "two numbers could be a learning rate and a momentum; name them: "
                "learning_rate=..., momentum=..."
            )
        return None, params
    if named is None:
        return params, lr
    if lr != default:
        raise TypeError("got both lr and learning_rate, which are the same thing")
    return params, named


def check_not_negative(options: Mapping[str, Any], **names: str) -> None:
    """Raise ValueError for an option below zero (or NaN); `names` says how each is called."""
    for key, name in names.items():
        value = options[key]
        if not isinstance(value, Real):
            raise ValueError(f"{name} must be a number, got {type(value).__name__}")
        if not float(value) >= 0.0:
            raise ValueError(f"{name} must be 0 or more, got {value}")
