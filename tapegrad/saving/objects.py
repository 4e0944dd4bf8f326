"""Modules in files: a class by its name, and attributes as data.

Comes in: a module, or another object whose class `allowed.py` lets files hold. Goes out: its class,
its parameters, buffers and modules by name, and its other attributes, each of them plain. The
library's own functions are saved by name; other code is never saved. An object that occurs several
times is one object again after loading, and may contain itself. Called by `structure.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..core.tensor import Tensor
from ..nn.module import Module
from ..nn.parameter import Parameter
from .allowed import class_named, may_be_saved, saved_name
from .errors import SavingError

if TYPE_CHECKING:
    from .structure import Decoder, Encoder

#: groups of named values of a module: the key in files, its attribute, and the allowed type
_GROUPS: dict[str, tuple[str, type]] = {
    "parameters": ("_parameters", Parameter),
    "buffers": ("_buffers", Tensor),
    "modules": ("_modules", Module),
}
_CONTENT = {"class", "attributes", *_GROUPS}


def encode_object(encoder: Encoder, value: Any, path: tuple[Any, ...]) -> Any:
    """The JSON of an object, or of its number if it was encoded before."""
    number = encoder.objects.get(id(value))
    if number is not None:
        return {"again": number}
    encoder.objects[id(value)] = len(encoder.objects)
    encoder.keep(value)
    kind = type(value)
    if "_orig_mod" in vars(kind):
        raise SavingError(
            f"cannot save {encoder.shown(path)}: {kind.__name__} is compiled; save its _orig_mod"
        )
    if "_computed_names" in vars(kind):
        kind = kind.__bases__[0]
    state = _state_of(value)
    if not isinstance(state, dict):
        raise SavingError(
            f"cannot save {encoder.shown(path)}: the state of {kind.__name__} is a "
            f"{type(state).__name__}, and must be a dict of attributes"
        )
    content: dict[str, Any] = {"class": saved_name(kind)}
    attributes = dict(state)
    if isinstance(value, Module):
        for group, (name, _) in _GROUPS.items():
            items = attributes.pop(name, None)
            if items:
                # The path leaves out the group, so tensors are named as in state dicts.
                content[group] = {k: encoder.encode(v, (*path, k)) for k, v in items.items()}
        for name, item in list(attributes.items()):
            if name.endswith("_hooks") and isinstance(item, dict) and not item:
                del attributes[name]  # a loaded module gets its own
    content["attributes"] = {k: encoder.encode(v, (*path, k)) for k, v in attributes.items()}
    return {"object": content}


def _state_of(value: Any) -> Any:
    kind: Any = type(value)
    own = kind.__getstate__ is not object.__getstate__
    return value.__getstate__() if own else value.__dict__


def decode_object(decoder: Decoder, content: dict[str, Any]) -> Any:
    """The object that JSON describes, made without calling `__init__`."""
    unknown = set(content) - _CONTENT
    if unknown or not isinstance(content.get("class"), str):
        raise SavingError(f"an object cannot be made of {sorted(content)}")
    kind: Any = class_named(content["class"], decoder.trusted)
    made = kind.__new__(kind)
    decoder.objects.append(made)  # before its contents, which may include itself
    state: dict[str, Any] = {}
    # In the order of encoding, because objects are numbered in that order.
    for group, (name, allowed) in _GROUPS.items():
        if group in content or isinstance(made, Module):
            state[name] = items = _decoded(decoder, content.get(group, {}))
            for key, item in items.items():
                if item is not None and not isinstance(item, allowed):
                    raise SavingError(f"{key[:80]!r} cannot be one of the {group} of {kind}")
    attributes = _decoded(decoder, content.get("attributes", {}))
    if not state.keys().isdisjoint(attributes):
        raise SavingError(f"{kind} cannot have {sorted(state)} twice")
    state |= attributes
    if hasattr(made, "__setstate__"):
        made.__setstate__(state)
    else:
        made.__dict__.update(state)
    return made


def _decoded(decoder: Decoder, items: Any) -> dict[str, Any]:
    if not isinstance(items, dict):
        raise SavingError(f"attributes cannot be made of a {type(items).__name__}")
    return {key: decoder.decode(value) for key, value in items.items()}


def decode_again(decoder: Decoder, number: int) -> Any:
    """An object that was decoded before."""
    if not 0 <= number < len(decoder.objects):
        raise SavingError(f"there is no object {number} before this place")
    return decoder.objects[number]


def is_object(value: Any) -> bool:
    """Whether a value is saved as an object."""
    return may_be_saved(type(value)) and hasattr(value, "__dict__")


def function_name(value: Any) -> str | None:
    """The name of a function of the library in files, or None for any other value."""
    name = getattr(value, "__name__", None)
    if isinstance(name, str) and callable(value):
        for space in ("nn.functional.", ""):
            if _functions(space).get(name) is value:
                return space + name
    return None


def decode_function(decoder: Decoder, name: str) -> Any:
    """The function of the library that a file names."""
    space, dot, short = name.rpartition(".")
    if space not in ("", "nn.functional") or short not in _functions(space + dot):
        raise SavingError(f"{name[:80]!r} is no function of tapegrad")
    return _functions(space + dot)[short]


def _functions(space: str) -> dict[str, Any]:
    """The functions of the table of operations, by name."""
    from ..nn import functional
    from ..ops import late, public_functions

    if space:
        found: dict[str, Any] = vars(functional)["_FUNCTIONS"]
        return found
    late.load_all()
    return public_functions("")
