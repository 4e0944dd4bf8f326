"""`__torch_function__`: classes that override functions for their objects.

Comes in: a function of the library and its arguments, where a class or mode overrides functions: a
subclass of Tensor, any class with `__torch_function__`, or a mode around all calls. Goes out: the
result of that class or mode. Plain tensors pay nothing: overriding is installed when the first
subclass of Tensor is defined or the first mode is entered. Then functions of the op table get other
code (`ops/table.py`); methods of subclasses are found in `TensorWithOverrides`. The public names
are in `tapegrad.overrides`.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Sequence
from typing import Any

from . import locks
from .modes import OVERRIDDEN, switched
from .tensor import Tensor


class _Thread(threading.local):
    """The overriding state of one thread."""

    #: how many open contexts disable overriding by classes
    disabled = 0
    #: modes around all calls, the innermost last
    modes: tuple[Any, ...] = ()
    switches: tuple[switched, ...] = ()
    #: how many open contexts disable modes too
    all_disabled = 0


LOCAL = _Thread()

#: the result if all classes decline an operator's call
DECLINED: Any = object()

#: called once, when the first class or mode overrides functions
on_install: list[Callable[[], None]] = []
installed = False


def disabled_torch_function(
    func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
) -> Any:
    """`__torch_function__` of classes whose objects are treated like plain tensors."""
    with DisableTorchFunctionSubclass():
        return func(*args, **(kwargs or {}))


class DisableTorchFunctionSubclass:
    """Inside, subclasses of Tensor are treated like plain tensors; modes are not affected."""

    def __enter__(self) -> None:
        LOCAL.disabled += 1

    def __exit__(self, *exc: object) -> None:
        LOCAL.disabled -= 1


class DisableTorchFunction(DisableTorchFunctionSubclass):
    """Inside, neither subclasses nor modes override anything."""

    def __enter__(self) -> None:
        LOCAL.disabled += 1
        LOCAL.all_disabled += 1

    def __exit__(self, *exc: object) -> None:
        LOCAL.disabled -= 1
        LOCAL.all_disabled -= 1


def overrides(x: Any) -> bool:
    """Whether the class of an object overrides functions."""
    kind = type(x)
    if kind is Tensor:
        return False
    function = getattr(kind, "__torch_function__", None)
    return function is not None and function is not disabled_torch_function


def overriding_arguments(values: Sequence[Any]) -> list[Any]:
    """One argument of each class that overrides functions; subclasses before their bases."""
    found: list[Any] = []
    for x in values:
        inner = x if isinstance(x, (list, tuple)) else (x,)
        for item in inner:
            if not overrides(item) or any(type(item) is type(y) for y in found):
                continue
            above = [i for i, y in enumerate(found) if issubclass(type(item), type(y))]
            found.insert(above[0] if above else len(found), item)
    return found


def override(
    func: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    inner: Any = None,
    relevant: tuple[Any, ...] | None = None,
    declinable: bool = False,
) -> Any:
    """The result of a call by classes and modes that override it; NotImplemented if there are none.

    If all of them decline, that is an error, unless the call is `declinable`, as calls of operators
    are. They get `func`. If there are several modes, the innermost gets `inner` instead, if given:
    a call of it goes to the other modes, which a call of `func` does not. `relevant` are the
    arguments whose classes may override; by default all.
    """
    modes = () if LOCAL.all_disabled else LOCAL.modes
    asked = (*args, *kwargs.values()) if relevant is None else relevant
    found = [] if LOCAL.disabled else overriding_arguments(asked)
    if not modes and not found:
        return NotImplemented
    types = tuple([type(x) for x in found])
    if modes:
        LOCAL.modes = modes[:-1]
        told = inner if inner is not None and len(modes) > 1 else func
        try:
            result = modes[-1].__torch_function__(told, types, args, kwargs)
        finally:
            LOCAL.modes = modes
        if result is not NotImplemented:
            return result
    for x in found:
        result = type(x).__torch_function__(func, types, args, kwargs)
        if result is not NotImplemented:
            return result
    if declinable:
        return DECLINED
    named = [kind.__name__ for kind in types] or [type(modes[-1]).__name__]
    raise TypeError(f"every __torch_function__ declined {name_of(func)!r}; the types were {named}")


def name_of(func: Any) -> str:
    """The name of a function; `name.__get__` or `name.__set__` for access to a property."""
    owner = getattr(func, "__self__", None)
    if isinstance(owner, property):
        return f"{getattr(owner.fget, '__name__', '?').lstrip('_')}.{func.__name__}"
    return getattr(func, "__name__", repr(func))


def converted(result: Any, kind: type[Tensor]) -> Any:
    """A result with its tensors converted to a subclass."""
    if kind is Tensor:
        return result
    if isinstance(result, Tensor):
        return result if isinstance(result, kind) else as_subclass(result, kind)
    if isinstance(result, (tuple, list)):
        items = [converted(item, kind) for item in result]
        make: Any = getattr(type(result), "_make", type(result))
        return make(items)
    return result


def default_torch_function(
    cls: type[Tensor], func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
) -> Any:
    """`Tensor.__torch_function__`: run the function, and make results tensors of this class."""
    if not all(issubclass(cls, kind) for kind in types):
        return NotImplemented
    with DisableTorchFunctionSubclass():
        result = func(*args, **(kwargs or {}))
    return result if func in _kept_as_they_are() else converted(result, cls)


@functools.cache
def _kept_as_they_are() -> set[Any]:
    """Functions whose results are not converted to the subclass."""
    grad: Any = vars(Tensor)["grad"]
    base: Any = vars(Tensor)["_base"]
    return {grad.__get__, base.__get__}


def as_subclass(tensor: Tensor, kind: type[Tensor]) -> Any:
    """An object of a subclass of Tensor, with the same memory and history."""
    if not (isinstance(kind, type) and issubclass(kind, Tensor)):
        raise TypeError(f"as_subclass needs a class derived from Tensor, got {kind!r}")
    from .copying import alias

    return alias(tensor, kind)


# -- installing --------------------------------------------------------------------------------

#: members of Tensor that belong to Python's own object model
_PLAIN_MEMBERS = {
    *("__annotations__", "__class__", "__dict__", "__doc__", "__hash__", "__init__"),
    *("__init_subclass__", "__module__", "__new__", "__slots__", "__torch_function__"),
    *(
        "__weakref__",
        "__array_priority__",
        "__array_ufunc__",
        "__array_function__",
        "_make_subclass",
    ),
    *(
        "as_subclass",
        "id",
        "__iter__",
        "__getstate__",
        "__setstate__",
        "__dir__",
        "__array_namespace__",
    ),
}

#: the names under which Python's operators are overridden
_OPERATORS = {
    **{f"__{n}__": n for n in ("add", "sub", "mul", "matmul", "pow", "neg", "abs")},
    "__truediv__": "div",
    "__radd__": "add",
    "__rmul__": "mul",
    **{f"__i{n}__": f"{n}_" for n in ("add", "sub", "mul", "pow")},
    "__itruediv__": "div_",
}


#: operators of Python with two operands
_BINARY = {
    f"__{prefix}{name}__"
    for name in (
        *("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and", "or", "xor"),
        *("lshift", "rshift"),
    )
    for prefix in ("", "r", "i")
} | {f"__{name}__" for name in ("eq", "ne", "lt", "le", "gt", "ge")}

#: while modes are open: members of Tensor as they were, and as replaced
_unpatched: dict[str, Any] = {}
_patches: dict[str, Any] = {}


def function_of_operator(name: str) -> Any:
    """The function that `__torch_function__` gets for Python's operator of this name."""
    return getattr(Tensor, _OPERATORS.get(name, name))


def overridable_members() -> dict[str, Any]:
    """The methods and properties of Tensor that can be overridden, by name."""
    return {
        name: _unpatched.get(name, member)
        for name, member in vars(Tensor).items()
        if name not in _PLAIN_MEMBERS
        and (not name.startswith("_") or name.startswith("__") or name in ("_base", "_version"))
        and (isinstance(member, property) or callable(member))
        and not isinstance(member, (type, staticmethod, classmethod))
    }


def _method(name: str, plain: Any, told: Any) -> Any:
    @functools.wraps(plain)
    def call(*args: Any, **kwargs: Any) -> Any:
        if LOCAL.disabled and not LOCAL.modes:
            return plain(*args, **kwargs)
        found = override(told, args, kwargs, call, declinable=declinable)
        if found is DECLINED:
            return NotImplemented
        return plain(*args, **kwargs) if found is NotImplemented else found

    declinable = name in _BINARY
    call.__name__ = name
    return call


def _property(plain: property) -> property:
    def through(method: Any) -> Any:
        def call(*args: Any) -> Any:
            found = override(method, args, {})
            return method(*args) if found is NotImplemented else found

        return call

    get, put = through(plain.__get__), None
    if plain.fset is not None:
        put = through(plain.__set__)
    return property(get, put, None, plain.__doc__)


def _overridable() -> dict[str, Any]:
    members = overridable_members()
    made: dict[str, Any] = {}
    for name, member in members.items():
        if isinstance(member, property):
            made[name] = _property(member)
        else:
            made[name] = _method(name, member, members.get(_OPERATORS.get(name, name), member))
    return made


def install() -> None:
    """Make functions of the op table check their arguments for overrides from now on."""
    global installed
    if not installed:
        installed = True
        for function in on_install:
            function()


@functools.cache
def with_overrides() -> type[Tensor]:
    """The class between Tensor and its subclasses: its methods check arguments for overrides."""
    install()
    members = _overridable() | {"__slots__": (), "__module__": Tensor.__module__}
    members["__doc__"] = "The methods of Tensor, which ask `__torch_function__` first."
    for kind in _plain_subclasses:
        _let_operators_ask(kind, members)
    return type("TensorWithOverrides", (Tensor,), members)


#: subclasses whose objects are treated like plain tensors
_plain_subclasses: list[type[Tensor]] = []


def _let_operators_ask(kind: type[Tensor], members: dict[str, Any]) -> None:
    """Give a class the overridable operators.

    Python tries the right operand first only if its class derives from the left one's.
    """
    own = vars(kind)
    for name in _BINARY:
        if name in members and name not in own:
            setattr(kind, name, members[name])


def prepare_subclass(kind: type[Tensor]) -> None:
    """Called for each new subclass of Tensor."""
    if kind.__name__ == "TensorWithOverrides" and kind.__module__ == Tensor.__module__:
        return
    if getattr(kind, "__torch_function__", None) is disabled_torch_function:
        if kind.__base__ is Tensor:
            _plain_subclasses.append(kind)
            if installed:
                _let_operators_ask(kind, vars(with_overrides()))  # type: ignore[arg-type]
        return
    asking = with_overrides()
    if not issubclass(kind, asking):
        bases = tuple([asking if base is Tensor else base for base in kind.__bases__])
        kind.__bases__ = bases if asking in bases else (*bases, asking)


# -- modes -------------------------------------------------------------------------------------

_patching = locks.new()
_open_modes = 0


class TorchFunctionMode:
    """Inside `with mode:`, every call of a function goes to `mode.__torch_function__`.

    The mode does not see the calls that it makes itself.

    >>> import tapegrad
    >>> from tapegrad.overrides import TorchFunctionMode
    >>> class Count(TorchFunctionMode):
    ...     calls = 0
    ...
    ...     def __torch_function__(self, func, types, args=(), kwargs=None):
    ...         self.calls += 1
    ...         return func(*args, **(kwargs or {}))
    >>> with Count() as count:
    ...     total = tapegrad.ones(2).exp() + 1
    >>> count.calls
    3
    """

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        raise NotImplementedError(f"{type(self).__name__} has no __torch_function__")

    def __enter__(self) -> Any:
        global _open_modes
        install()
        with _patching:
            if _open_modes == 0:
                _patches.update(_overridable())
                _unpatched.update({name: vars(Tensor)[name] for name in _patches})
                for name, member in _patches.items():
                    setattr(Tensor, name, member)
            _open_modes += 1
        LOCAL.modes = (*LOCAL.modes, self)
        # Programs were captured in another mode, so none is replayed inside.
        LOCAL.switches = (*LOCAL.switches, switched(on=OVERRIDDEN))
        LOCAL.switches[-1].__enter__()
        return self

    def __exit__(self, *exc: object) -> None:
        global _open_modes
        LOCAL.modes = LOCAL.modes[:-1]
        *switches, last = LOCAL.switches
        last.__exit__(*exc)
        LOCAL.switches = tuple(switches)
        with _patching:
            _open_modes -= 1
            if _open_modes == 0:
                for name, member in _unpatched.items():
                    if vars(Tensor)[name] is _patches[name]:  # else a late operation replaced it
                        setattr(Tensor, name, member)
                _unpatched.clear()
                _patches.clear()
