"""State dictionaries of modules: saving by dotted names, and loading with strict checks.

`StateDict` is the part of `Module` for saving and loading. Each module of a tree saves and loads
its own tensors, in `_save_to_state_dict` and `_load_from_state_dict`; subclasses may override
these, and hooks may run around them. All problems of the tree are reported in one error, which
leaves the tree unchanged.
"""

from __future__ import annotations

import contextlib
import copy
import os
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..core.modes import no_grad, numbers
from ..core.tensor import RemovableHandle, Tensor, wrap
from .parameter import Parameter

EXTRA = "_extra_state"


class SavedByParts:
    """Base of what files hold as a class and attributes: modules, and the library's hooks."""


class IncompatibleKeys(NamedTuple):
    """The missing and unexpected names that `load_state_dict` found."""

    missing_keys: list[str]
    unexpected_keys: list[str]

    def __repr__(self) -> str:
        if not self.missing_keys and not self.unexpected_keys:
            return "<All keys matched successfully>"
        return (
            f"_IncompatibleKeys(missing_keys={self.missing_keys}, "
            f"unexpected_keys={self.unexpected_keys})"
        )


class SavedState(OrderedDict[str, Any]):
    """Tensors by dotted name; `_metadata` has the version of each module."""

    _metadata: dict[str, Any]

    def copy(self) -> SavedState:
        made = SavedState(self)
        made._metadata = getattr(self, "_metadata", {})
        return made


class _Loading(OrderedDict[str, Any]):
    """The state dict that modules see while they load; it decides when values are put in place.

    If only default methods run, values are put in place at the end, if there was no error. If there
    are overrides or hooks, which may read the new values, they are put in place at once, and the
    replaced values are kept until the end. So are those of modules with extra state.
    """

    def __init__(self, values: Any, session: _Session) -> None:
        super().__init__(values)
        self.session = session

    def under(self, prefix: str) -> _Loading:
        """The items whose names begin with a prefix."""
        return _Loading(((k, v) for k, v in self.items() if k.startswith(prefix)), self.session)


class _Session:
    """One call of `load_state_dict`."""

    def __init__(self, assign: bool, at_once: bool) -> None:
        self.assign = assign
        self.at_once = at_once
        self.pending: list[Callable[[], None]] = []
        self.undo: list[Callable[[], None]] = []

    def put(self, owner: Any, group: str, name: str, current: Any, value: Any) -> None:
        """Put a value into its place, now or at the end."""
        if not self.at_once and not owner._overrides("set_extra_state"):
            self.pending.append(lambda: _load(owner, group, name, current, value, self.assign))
            return
        if self.assign or _is_unset(current):
            self.undo.append(lambda: owner._put(group, name, current))
        else:
            before = current.detach().clone()
            self.undo.append(lambda: current.copy_(before))
        _load(owner, group, name, current, value, self.assign)

    def set_extra(self, owner: Any, state: Any) -> None:
        """Restore a module's extra state at once: this may make the children that come next."""
        self.undo.append(_restoring(owner))
        owner.set_extra_state(state)

    def finish(self, good: bool) -> None:
        """Put the remaining values in place, or undo those that were put in place."""
        with no_grad():
            for step in self.pending if good else reversed(self.undo):
                step()
        self.pending.clear()  # their closures refer to this session
        self.undo.clear()


def _is_unset(x: Any) -> bool:
    """Whether a tensor belongs to a lazy layer and has no shape yet."""
    return hasattr(x, "materialize")


def _restoring(module: Any) -> Callable[[], None]:
    """A function that restores a module's attributes, and the items of lists, dicts and sets."""
    before = dict(module.__dict__)
    items = {n: copy.copy(v) for n, v in before.items() if isinstance(v, (dict, list, set))}

    def restore() -> None:
        module.__dict__.clear()
        module.__dict__.update(before)
        for name, kept in items.items():
            held = before[name]
            held.clear()
            if isinstance(held, list):
                held.extend(kept)
            else:
                held.update(kept)

    return restore


def _load(owner: Any, group: str, name: str, current: Any, value: Any, assign: bool) -> None:
    if _is_unset(value):
        return
    if _is_unset(current):
        current.materialize(value.shape)
    if not assign:
        current.copy_(value)
    elif group == "_parameters":
        same = isinstance(value, Parameter) and value.requires_grad == current.requires_grad
        made = value if same else Parameter(value, requires_grad=current.requires_grad)
        owner._put(group, name, made)
    else:
        owner._put(group, name, value.detach())


def add_hook(
    hooks: dict[int, Any],
    item: Any,
    prepend: bool = False,
    flags: Sequence[dict[int, bool]] = (),
) -> RemovableHandle:
    """Add a hook, in front of the others if `prepend`; compiled functions check it again.

    `flags` are dictionaries of options of the hook.
    """
    key = next(numbers)
    if prepend:
        others = dict(hooks)
        hooks.clear()
        hooks.update({key: item, **others})
    else:
        hooks[key] = item
    for flag in flags:
        flag[key] = True

    def remove() -> None:
        for known in (hooks, *flags):
            known.pop(key, None)

    return RemovableHandle(remove, id=key, hooks=lambda: hooks)


class StateDict(SavedByParts):
    """The methods of `Module` for saving and loading."""

    _version: int = 1
    _parameters: dict[str, Parameter | None]
    _buffers: dict[str, Tensor | None]
    _modules: dict[str, Any]
    _non_persistent_buffers_set: set[str]
    _state_dict_hooks: dict[int, Any]
    _state_dict_pre_hooks: dict[int, Any]
    _load_state_dict_pre_hooks: dict[int, Any]
    _load_state_dict_post_hooks: dict[int, Any]

    def get_extra_state(self) -> Any:
        """More state to save; a subclass that defines this must define `set_extra_state` too."""
        raise RuntimeError(f"{type(self).__name__} has extra state to load but no get_extra_state")

    def set_extra_state(self, state: Any) -> None:
        """Restore the state that `get_extra_state` returned."""
        raise RuntimeError(f"{type(self).__name__} has extra state to save but no set_extra_state")

    def _overrides(self, name: str) -> bool:
        return getattr(type(self), name) is not getattr(StateDict, name)

    def _own_state(self) -> Iterator[tuple[str, str, Any]]:
        """The tensors that this module itself saves: (group, name, tensor)."""
        for group in ("_parameters", "_buffers"):
            for name, value in self.__dict__[group].items():
                if value is not None and name not in self._non_persistent_buffers_set:
                    yield group, name, value

    # -- saving ------------------------------------------------------------------------------

    def register_state_dict_pre_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call `hook(module, prefix, keep_vars)` before the module is saved."""
        return add_hook(self._state_dict_pre_hooks, hook)

    def register_state_dict_post_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call `hook(module, state_dict, prefix, local_metadata)` after the module was saved."""
        with contextlib.suppress(AttributeError, TypeError):  # not every callable has attributes
            hook._from_public_api = True  # type: ignore[attr-defined]
        return add_hook(self._state_dict_hooks, (hook, True))

    def _register_state_dict_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """The older form of it: if the hook returns a state dict, that one is used."""
        if getattr(hook, "_from_public_api", False):
            raise RuntimeError(
                f"{hook!r} is a hook of register_state_dict_post_hook already, which allows no "
                "result; write another function for this one"
            )
        return add_hook(self._state_dict_hooks, (hook, False))

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        """Save the tensors of this module itself; subclasses may override it."""
        for _, name, value in self._own_state():
            destination[prefix + name] = value if keep_vars else value.detach()
        if self._overrides("get_extra_state"):
            destination[prefix + EXTRA] = self.get_extra_state()

    def state_dict(
        self, *args: Any, destination: Any = None, prefix: str = "", keep_vars: bool = False
    ) -> Any:
        """Parameters and persistent buffers by dotted name; they share memory with the module."""
        if args:  # PyTorch's older order of arguments
            given = dict(zip(("destination", "prefix", "keep_vars"), args, strict=False))
            destination = given.get("destination", destination)
            prefix, keep_vars = given.get("prefix", prefix), given.get("keep_vars", keep_vars)
        if destination is None:
            destination = SavedState()
            destination._metadata = {}
        metadata = {"version": self._version}
        if hasattr(destination, "_metadata"):
            destination._metadata[prefix[:-1]] = metadata
        for hook in list(self._state_dict_pre_hooks.values()):
            hook(self, prefix, keep_vars)
        self._save_to_state_dict(destination, prefix, keep_vars)
        for name, module in self._modules.items():
            if module is not None:
                module.state_dict(
                    destination=destination, prefix=f"{prefix}{name}.", keep_vars=keep_vars
                )
        for hook, after in list(self._state_dict_hooks.values()):
            returned = hook(self, destination, prefix, metadata)
            if after and returned is not None:
                raise RuntimeError("a state dict post-hook changes the state dict and returns None")
            destination = destination if returned is None else returned
        return destination

    # -- loading -----------------------------------------------------------------------------

    def register_load_state_dict_pre_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call `hook(module, state_dict, prefix, local_metadata, strict, missing_keys,
        unexpected_keys, error_msgs)` before the module is loaded; it may change the state dict.
        """
        return add_hook(self._load_state_dict_pre_hooks, (hook, True))

    def _register_load_state_dict_pre_hook(
        self, hook: Callable[..., Any], with_module: bool = False
    ) -> RemovableHandle:
        """The older form of it, without the module."""
        return add_hook(self._load_state_dict_pre_hooks, (hook, with_module))

    def register_load_state_dict_post_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call `hook(module, incompatible_keys)` after loading; it may change the lists of keys."""
        return add_hook(self._load_state_dict_post_hooks, hook)

    def _upgrade_state(self, state_dict: Any, prefix: str, version: int | None) -> None:
        """Convert the state dict of an older version of this module."""

    def _load_from_state_dict(
        self,
        state_dict: Any,
        prefix: str,
        local_metadata: Any,
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        """Load the tensors of this module itself; subclasses may override it.

        Problems are added to the lists.
        """
        for hook, with_module in list(self._load_state_dict_pre_hooks.values()):
            first = (self,) if with_module else ()
            given = (local_metadata, strict, missing_keys, unexpected_keys, error_msgs)
            hook(*first, state_dict, prefix, *given)
        self._upgrade_state(state_dict, prefix, local_metadata.get("version"))
        session = getattr(state_dict, "session", None) or _Session(False, True)
        own = list(self._own_state())
        for group, name, current in own:
            key = prefix + name
            if key not in state_dict:
                missing_keys.append(key)
                continue
            value = state_dict[key]
            value = wrap(value) if isinstance(value, np.ndarray) else value
            if isinstance(value, Tensor) and value._array.shape == (1,) and not current._array.ndim:
                value = value[0]  # PyTorch before 0.4 had no 0-d tensors
            problem = _problem(key, current, value)
            if problem is not None:
                error_msgs.append(problem)
            else:
                with no_grad():
                    session.put(self, group, name, current, value)
        self._load_extra(state_dict, prefix, session, missing_keys, unexpected_keys)
        if strict:
            known = {name for _, name, _ in own}
            unexpected_keys.extend(self._unexpected(state_dict, prefix, known))

    def _load_extra(
        self, state_dict: Any, prefix: str, session: _Session, missing: Any, unexpected: Any
    ) -> None:
        key = prefix + EXTRA
        if self._overrides("set_extra_state"):
            if key in state_dict:
                session.set_extra(self, state_dict[key])
            else:
                missing.append(key)
        elif key in state_dict:
            unexpected.append(key)

    def _unexpected(self, state_dict: Any, prefix: str, known: set[str]) -> Iterator[str]:
        """Names with the prefix that belong neither to this module nor to a child."""
        for key in state_dict:
            if key.startswith(prefix) and key != prefix + EXTRA:
                name, dot, _ = key[len(prefix) :].partition(".")
                if name not in (self._modules if dot else known):
                    yield key

    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False
    ) -> IncompatibleKeys:
        """Copy values into parameters and buffers by name; with `assign`, take the tensors over.

        If names are missing or unexpected or a shape is wrong, nothing is changed. With
        `strict=False`, names that are missing or unexpected are returned instead of raised.
        """
        if not isinstance(state_dict, Mapping):
            way_out = ""
            if isinstance(state_dict, (str, os.PathLike)):
                way_out = "; load the file first, with tapegrad.load(...)"
            elif hasattr(state_dict, "state_dict"):
                way_out = "; use its state_dict()"
            found = type(state_dict).__name__
            raise TypeError(f"a state dict must be a mapping, got {found}{way_out}")
        tree = list(_tree(self))
        at_once = any(
            m._load_state_dict_post_hooks or m._overrides("_load_from_state_dict") for m in tree
        )
        session = _Session(bool(assign), at_once)
        found = IncompatibleKeys([], [])
        errors: list[str] = []
        metadata = getattr(state_dict, "_metadata", {})
        good = False
        try:
            _load_tree(self, _Loading(state_dict, session), "", metadata, found, errors)
            problems = list(errors)
            if strict and found.missing_keys:
                problems.insert(0, f"missing keys: {', '.join(map(repr, found.missing_keys))}")
            if strict and found.unexpected_keys:
                shown = ", ".join(map(repr, found.unexpected_keys))
                problems.insert(0, f"unexpected keys: {shown}")
            good = not problems
        finally:
            session.finish(good)
        if problems:
            shown = "\n  ".join(problems)
            raise RuntimeError(
                f"cannot load the state dict into {type(self).__name__}; nothing was changed:\n"
                f"  {shown}"
            )
        return found


def _tree(module: Any) -> Iterator[Any]:
    yield module
    for inner in module._modules.values():
        if inner is not None:
            yield from _tree(inner)


def _load_tree(
    module: Any,
    state: _Loading,
    prefix: str,
    metadata: Any,
    found: IncompatibleKeys,
    errors: list[str],
) -> None:
    local = {**metadata.get(prefix[:-1], {})}
    if state.session.assign:
        local["assign_to_params_buffers"] = True
    module._load_from_state_dict(
        state, prefix, local, True, found.missing_keys, found.unexpected_keys, errors
    )
    for name, inner in list(module._modules.items()):
        if inner is not None:
            path = f"{prefix}{name}."
            _load_tree(inner, state.under(path), path, metadata, found, errors)
    for hook in list(module._load_state_dict_post_hooks.values()):
        if hook(module, found) is not None:
            raise RuntimeError("a load_state_dict post-hook changes the keys and returns None")


def _problem(key: str, current: Any, value: Any) -> str | None:
    """The reason why a value of a state dict cannot be loaded, or None."""
    if not isinstance(value, Tensor):
        return f"{key!r} must be a Tensor, got {type(value).__name__}"
    if _is_unset(current):
        return None
    if _is_unset(value):
        return f"{key!r} has no values in the state dict of a lazy layer"
    if value.shape != current.shape:
        return (
            f"size mismatch for {key!r}: the state dict has shape {tuple(value.shape)}, the module "
            f"{tuple(current.shape)}"
        )
    return None
