"""The base of all optimizers: parameter groups, state, `step`, saving and loading.

Comes in: parameters, or groups of them with their own options. `step` calls `update`, which each
optimizer defines, for every parameter that has a gradient. `update` changes the parameter and the
state tensors in place with ordinary tensor operations, so a compiled training step contains it.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import numpy as np

from ..autograd.gradients import Gradients
from ..core import dtypes, numeric
from ..core.modes import GRAD, STATE, TAPE, enable_grad, no_grad
from ..core.sparse import SparseArray
from ..core.tensor import RemovableHandle, Tensor, wrap
from ..ops.elementwise.complexes import view_as_real
from ..replay.trace.options import as_known_code, decided, given, runtime_number, setting
from ..replay.use.update import Update, pays
from .complexes import as_complex, as_pairs
from .groups import Group, ParamsT, States, WatchedGroup, as_groups, as_parameters, ordered
from .hooks import (
    Hook,
    register,
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
    with_hooks,
)
from .options import accept_learning_rate
from .saving import packed, unpacked

__all__ = [
    "Group",
    "Optimizer",
    "ParamsT",
    "register_optimizer_step_post_hook",
    "register_optimizer_step_pre_hook",
    "required",
]


class _Required:
    """Stands for an option without a default value."""

    def __repr__(self) -> str:
        return "<required parameter>"


required = _Required()


class Optimizer:
    """Base of the optimizers: subclasses define `check` and `update`, or their own `step`.

    A step in PyTorch's style, which loops over `self.param_groups` and `self.state` under
    `no_grad()`, can be compiled too: every replay reads the numbers in `param_groups`.

    >>> import tapegrad
    >>> w = tapegrad.tensor([1.0, 2.0], requires_grad=True)
    >>> optimizer = tapegrad.optim.SGD([w], lr=0.5)
    >>> grads = (w * w).sum().backward()
    >>> optimizer.step()
    >>> w
    tensor([0., 0.], requires_grad=True)
    """

    def __init__(self, params: ParamsT | None, defaults: dict[str, Any]) -> None:
        """`params` is an iterable of tensors, of (name, tensor) pairs or of groups.

        With None, the parameters are those given to `step(parameters)`.
        """
        groups = [] if params is None else as_groups(params)
        self.check(defaults)
        self.defaults = defaults
        self.state: States = States()
        self.param_groups: list[Group] = []
        self.__setstate__({})
        for group in groups:
            self.add_param_group(group)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "step" in cls.__dict__:
            cls.step = with_hooks(cls.__dict__["step"])  # type: ignore[method-assign]
        if "__init__" in cls.__dict__ and cls.__module__.startswith(__package__):
            cls.__init__ = accept_learning_rate(cls.__dict__["__init__"])  # type: ignore[method-assign]
        methods = [getattr(cls, name) for name in _OF_UPDATES]
        cls._library = all(m.__module__.startswith(__package__) for m in methods)

    #: attributes that replays do not compare, and those whose options every replay reads
    _unguarded = ("param_groups", "defaults", "_updates", "_stepping", "_opt_called")
    _options_in = ("param_groups",)

    _library: bool = False  # whether the library defines all methods of an update

    # -- what an optimizer defines -------------------------------------------------------------

    @staticmethod
    def check(options: Mapping[str, Any]) -> None:
        """Raise ValueError for options that make no sense; nothing has been stored yet."""

    def check_parameter(self, parameter: Tensor) -> None:
        """Raise ValueError for a parameter that this optimizer cannot update."""

    #: names of state tensors whose shape differs from the parameter's
    shapes_of_their_own: tuple[str, ...] = ()

    #: options that a state dict does not override
    always: ClassVar[dict[str, Any]] = {}

    def update(self, parameter: Tensor, gradient: Tensor, group: Group) -> None:
        """Change one parameter (and its state) in place, given its gradient."""
        raise NotImplementedError(f"{type(self).__name__} does not define update()")

    #: whether updates take dense gradients too
    takes_dense = True

    def check_gradient(self, gradient: Tensor, group: Group) -> None:
        """Raise for a gradient that updates do not accept; nothing has been changed yet.

        Called for sparse gradients, and for dense ones if updates do not accept them.
        """
        raise RuntimeError(
            f"{type(self).__name__} takes no sparse gradients; SparseAdam, SGD and Adagrad do, or "
            "use sparse=False"
        )

    def update_sparse(self, parameter: Tensor, gradient: Any, group: Group) -> None:
        """Change one parameter (and its state) in place, given its sparse gradient."""
        raise NotImplementedError(f"{type(self).__name__} does not define update_sparse()")

    # -- how an update reads its numbers -------------------------------------------------------

    def number(self, group: Group, key: str, index: int | None = None) -> Any:
        """An option that enters the update as a factor.

        Updates read numbers only here: compiled code then reads the group in every run, so that
        schedules work.
        """
        value = runtime_number(group, key, index)
        if value.__class__ is not float and isinstance(value, Tensor) and value.ndim:
            return value.reshape(())  # a learning rate of shape (1,) would broadcast
        return value

    def decides(self, group: Group, key: str) -> bool:
        """An option that decides which operations the update has: is it on, or not zero?"""
        return decided(group, key)

    def given(self, group: Group, key: str, index: int | None = None) -> bool:
        """Whether an option is set: is it not None?"""
        return given(group, key, index)

    def setting(self, group: Group, key: str, index: int | None = None) -> Any:
        """An option that is not a factor: a name, or a number of repetitions."""
        return setting(group, key, index)

    def scalar(self, value: Any = 0.0) -> Tensor:
        """A number as a new 0-d tensor, for the state."""
        wide = dtypes.get_default_dtype() is dtypes.float64
        return wrap(np.asarray(float(value), np.float64 if wide else np.float32))

    def count(self, state: dict[str, Any]) -> Any:
        """Advance the step count and return it, as a number for the formulas of the update."""
        step = state["step"]
        step += 1
        return step.double() if STATE.mode & TAPE else step.item()

    def value(self, scalar: Tensor) -> Any:
        """A 0-d tensor of the state as a number for the formulas of the update.

        On a tape it stays a tensor: a number would be constant in replays.
        """
        if STATE.mode & TAPE:
            return scalar.double()
        if STATE.mode & GRAD and scalar.requires_grad:
            return scalar.clone()  # differentiable=True: gradients pass through it
        return scalar.item()

    def kept(self, tensor: Tensor) -> Tensor:
        """A tensor to multiply with an option, which may be a tensor with gradients.

        With differentiable=True it is a copy: the update overwrites the tensor afterwards.
        """
        return tensor.clone() if STATE.mode & GRAD else tensor

    def penalized(
        self, parameter: Tensor, gradient: Tensor, group: Group, decoupled: bool = False
    ) -> Tensor:
        """The gradient of the loss with its weight decay, or of minus the loss with `maximize`.

        A decoupled weight decay shrinks the parameter instead.
        """
        if self.decides(group, "maximize"):
            gradient = -gradient
        if self.decides(group, "weight_decay"):
            weight_decay = self.number(group, "weight_decay")
            if decoupled:
                parameter *= 1 - self.number(group, "lr") * weight_decay
            else:
                # While a step is recorded, numbers are float64 tensors, and a gradient without
                # dimensions would become one.
                gradient = (gradient + self.kept(parameter) * weight_decay).to(gradient.dtype)
        return gradient

    # -- stepping ------------------------------------------------------------------------------

    @with_hooks
    def step(self, closure: Any = None) -> Any:
        """Update all parameters that have a gradient.

        `closure` may be a function that computes the loss again, which is then returned; a mapping
        of gradients from `loss.backward()`, to be used instead of `.grad`; or the parameters to
        update, if the optimizer was made without any.
        """
        loss = None
        if callable(closure):
            with enable_grad():
                loss = closure()
            closure = None
        self._update_all(closure)
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
        sparse = False
        for group in self.param_groups:
            for parameter in group["params"]:
                if chosen is not None and parameter.id not in chosen:
                    continue
                gradient = parameter.grad if gradients is None else gradients.get(parameter.id)
                if gradient is not None:
                    wanted.append((parameter, gradient, group))
                    if gradient.__class__ is not Tensor and gradient.is_sparse:
                        sparse = True
        if (sparse or not self.takes_dense) and self._is_own():
            for _, gradient, group in wanted:
                if gradient.is_sparse or not self.takes_dense:
                    self.check_gradient(gradient, group)
        if self.defaults.get("differentiable"):
            if sparse:
                raise RuntimeError("differentiable=True does not go with sparse gradients")
            with enable_grad():
                for parameter, gradient, group in wanted:
                    self._renew_state(parameter)
                    self._update_one(parameter, gradient, group)
        elif (
            gradients is None
            and not sparse
            and self._is_own()
            and pays([p for p, _, _ in wanted], [g for _, g, _ in wanted])
        ):
            self._update_natively(wanted)
        else:
            self._update_each(wanted)

    def _update_each(self, wanted: list[tuple[Tensor, Tensor, Group]]) -> None:
        with no_grad():
            if self._is_own():
                as_known_code(self._update_in_turn, wanted)
            else:
                self._update_in_turn(wanted)

    def _update_in_turn(self, wanted: list[tuple[Tensor, Tensor, Group]]) -> None:
        for parameter, gradient, group in wanted:
            special = gradient.__class__ is not Tensor and gradient.is_sparse
            if special or parameter._array.dtype.kind in numeric.COMPLEX:
                self._update_one(parameter, gradient, group)
            else:
                self.update(parameter, gradient, group)

    def _update_one(self, parameter: Tensor, gradient: Tensor, group: Group) -> None:
        if gradient.__class__ is not Tensor and gradient.is_sparse and self._is_own():
            self.update_sparse(parameter, gradient, group)
            return
        if not numeric.is_complex(parameter._array.dtype):
            self.update(parameter, gradient, group)
            return
        pairs = view_as_real(parameter)  # the real numbers to update
        self.state[pairs] = as_pairs(self.state.pop(parameter, {}))
        self.update(pairs, view_as_real(gradient), group)
        self.state[parameter] = as_complex(self.state.pop(pairs), pairs)

    def _patch_step_function(self) -> None:
        """Does nothing: `step` gets its hooks when the class is created."""

    def _is_own(self) -> bool:
        """Whether the update is the library's own: a recording then shows all that it does."""
        return self._library and "update" not in self.__dict__

    def _update_natively(self, wanted: list[tuple[Tensor, Tensor, Group]]) -> None:
        """All updates as one native program."""
        state = self.state

        def tensors() -> list[Tensor]:
            return [t for p, _, _ in wanted for t in (p, *state.get(p, {}).values())]

        if not all(
            isinstance(t, Tensor) and t._array.__class__ is not SparseArray for t in tensors()
        ):
            self._update_each(wanted)  # Python changes a number in the state
            return
        key = tuple([(id(group), p.id) for p, _, group in wanted])
        self._updates.run(
            lambda: self._update_each(wanted), (key, tuple([t.id for t in tensors()])), tensors
        )

    def _renew_state(self, parameter: Tensor) -> None:
        """Copy the state before a differentiable update: backward needs the old values."""
        if parameter in self.state:
            self.state[parameter] = {
                key: value.clone() if isinstance(value, Tensor) else value
                for key, value in self.state[parameter].items()
            }

    def _fitting(self, mapping: Mapping[Any, Any]) -> Gradients:
        """A mapping of gradients; checks the shapes of those that will be used."""
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
        given = as_parameters(parameters)
        known = {p.id for p in self._parameters()}
        new = [p for p in given if p.id not in known]
        if new:
            self.add_param_group({"params": new})
        return given

    def zero_grad(self, set_to_none: Any = True) -> None:
        """Clear all gradients, or with `set_to_none=False` fill them with zeros.

        With parameters as the argument, clear only their gradients.
        """
        if isinstance(set_to_none, (bool, int)):
            for parameter in self._parameters():
                parameter.zero_grad(bool(set_to_none))
        else:
            for parameter in as_parameters(set_to_none):
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
        given = [given] if isinstance(given, Tensor) else ordered(given)
        names = [item[0] for item in given if isinstance(item, tuple)]
        if names and len(names) != len(given):
            raise ValueError("give all parameters of a group with their names, or none of them")
        parameters = [item[1] for item in given] if names else list(given)
        self._check_parameters(parameters)
        group = {**self.defaults, **self._renamed(param_group), "params": parameters}
        missing = [key for key, value in group.items() if value is required]
        if missing:
            raise ValueError(f"a parameter group needs a value of {missing[0]!r}, which has none")
        if names:
            group["param_names"] = names
        if any(("param_names" in other) != bool(names) for other in self.param_groups):
            raise ValueError("give all parameter groups with names, or none of them")
        self.check(group)
        if self._reads_groups():
            group = WatchedGroup(group)
        self.param_groups.append(group)

    def _renamed(self, group: Group) -> Group:
        """A group whose learning rate has the name that the optimizer reads."""
        if "learning_rate" not in group or "lr" not in self.defaults:
            return group
        if "learning_rate" in self.defaults:
            return group
        if "lr" in group:
            raise TypeError("a group has both lr and learning_rate, which are the same thing")
        return {"lr" if key == "learning_rate" else key: group[key] for key in group}

    def _reads_groups(self) -> bool:
        """Whether code from outside the library reads the options of the groups."""
        methods = (type(self).step, type(self).update)
        return not all(m.__module__.startswith(__package__) for m in methods)

    def _check_parameters(self, parameters: list[Any]) -> None:
        known = {p.id for p in self._parameters()}
        for parameter in parameters:
            if not isinstance(parameter, Tensor):
                found = type(parameter).__name__
                if isinstance(parameter, str):  # the keys of a state dict
                    found += f", {parameter!r}; use module.parameters()"
                raise TypeError(
                    f"an optimizer updates Tensors, but one of the parameters is a {found}"
                )
            free = parameter.is_leaf or parameter.retains_grad
            if not free and not self.defaults.get("differentiable"):
                raise ValueError(
                    "an optimizer updates leaves, but one of the parameters is the result of an "
                    "operation; use .detach().requires_grad_()"
                )
            if parameter.id in known:
                raise ValueError("a parameter is in two groups")
            self.check_parameter(parameter)
        if len({p.id for p in parameters}) < len(parameters):
            warnings.warn(
                "a parameter group has the same parameter more than once: each step updates it as "
                "often",
                stacklevel=4,
            )

    # -- saving and loading --------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """State and options, with parameters replaced by their position."""
        for hook in list(self._state_dict_pre_hooks.values()):
            hook(self)
        saved = packed(self.param_groups, self.state)
        for hook in list(self._state_dict_post_hooks.values()):
            changed = hook(self, saved)
            saved = saved if changed is None else changed
        return saved

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Load state and options from `state_dict`; tensors are copied."""
        saved: Any = dict(state_dict)
        for hook in list(self._load_pre_hooks.values()):
            changed = hook(self, saved)
            saved = saved if changed is None else changed
        # An optimizer that defines only `step` handles its state itself.
        own = type(self).update is not Optimizer.update
        state, groups = unpacked(self.param_groups, saved, own, self.shapes_of_their_own)
        groups = [{**self.defaults, **group, **self.always} for group in groups]
        for group in groups:
            # A rate that a schedule computed as 0 may be slightly negative by rounding.
            rounded = isinstance(group.get("lr"), float) and -1e-12 < group["lr"] < 0
            self.check({**group, "lr": 0.0} if rounded else group)
        self.state = state
        self._updates = Update()  # recordings of the old state would keep its memory
        # The dicts stay the same objects: schedulers and compiled steps hold on to them.
        for group, replacement in zip(self.param_groups, groups, strict=True):
            group.clear()
            group.update(replacement)
        if type(self).__setstate__ is not Optimizer.__setstate__:  # it may add new options
            self.__setstate__({"state": self.state, "param_groups": self.param_groups})
        for hook in list(self._load_post_hooks.values()):
            hook(self)

    def __getstate__(self) -> dict[str, Any]:
        unsaved = {*_HOOKS, "_updates", "_stepping"}
        return {key: value for key, value in self.__dict__.items() if key not in unsaved}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        for name in _HOOKS:
            self.__dict__.setdefault(name, {})
        self.__dict__.setdefault("_stepping", False)
        self.__dict__.setdefault("_updates", Update())

    # -- hooks ---------------------------------------------------------------------------------

    _pre_hooks: dict[int, Hook]
    _post_hooks: dict[int, Hook]
    _state_dict_pre_hooks: dict[int, Hook]
    _state_dict_post_hooks: dict[int, Hook]
    _load_pre_hooks: dict[int, Hook]
    _load_post_hooks: dict[int, Hook]
    _updates: Update
    _stepping: bool = False  # whether a step with hooks is running
    _opt_called: bool = False  # whether a step was ever taken; read by schedules

    def register_step_pre_hook(self, hook: Hook) -> RemovableHandle:
        """Call `hook(optimizer, args, kwargs)` before each step; it may return new ones."""
        return register(self._pre_hooks, hook)

    def register_step_post_hook(self, hook: Hook) -> RemovableHandle:
        """Call `hook(optimizer, args, kwargs)` after each step."""
        return register(self._post_hooks, hook)

    def register_state_dict_pre_hook(self, hook: Hook, prepend: bool = False) -> RemovableHandle:
        """Call `hook(optimizer)` before each `state_dict()`."""
        return register(self._state_dict_pre_hooks, hook, prepend)

    def register_state_dict_post_hook(self, hook: Hook, prepend: bool = False) -> RemovableHandle:
        """Call `hook(optimizer, state_dict)` after `state_dict()`; it may return another dict."""
        return register(self._state_dict_post_hooks, hook, prepend)

    def register_load_state_dict_pre_hook(
        self, hook: Hook, prepend: bool = False
    ) -> RemovableHandle:
        """Call `hook(optimizer, state_dict)` before loading; it may return another dict."""
        return register(self._load_pre_hooks, hook, prepend)

    def register_load_state_dict_post_hook(
        self, hook: Hook, prepend: bool = False
    ) -> RemovableHandle:
        """Call `hook(optimizer)` after loading."""
        return register(self._load_post_hooks, hook, prepend)

    def __repr__(self) -> str:
        lines = [f"{type(self).__name__} ("]
        for i, group in enumerate(self.param_groups):
            lines.append(f"Parameter Group {i}")
            lines += [f"    {key}: {group[key]}" for key in sorted(group) if key != "params"]
        return "\n".join([*lines, ")"])


_OF_UPDATES = ("update", "update_sparse", "number", "decides", "given", "setting", "count", "value")
_HOOKS = (
    "_pre_hooks",
    "_post_hooks",
    "_state_dict_pre_hooks",
    "_state_dict_post_hooks",
    "_load_pre_hooks",
    "_load_post_hooks",
)
