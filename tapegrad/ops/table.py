"""The op table: every public operation, its names, its Tensor methods and its samples.

`@op(...)` enters a public function. The entry gives the function in `tapegrad`, the Tensor method,
the in-place method, the stub files, the row in the documentation and the tests.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, get_overloads

from ..core import casting, overriding
from ..core import inplace as inplace_
from ..core.casting import Policy
from ..core.codegen import in_front, parameters_of
from ..core.modes import AUTOCAST, STATE, numbers
from ..core.primitive import Primitive
from ..core.tensor import Tensor


class Sample:
    """One sample call: positional arguments and keywords.

    A positional tuple of integers is the shape of a float tensor; `In`, anywhere, describes other
    tensors. All else is passed on unchanged: numbers, keywords, and lists of integers such as
    shapes.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.args = args
        self.kwargs = kwargs

    def __repr__(self) -> str:
        shown = [repr(a) for a in self.args] + [f"{k}={v!r}" for k, v in self.kwargs.items()]
        return f"({', '.join(shown)})"


class In:
    """A tensor argument of a sample: its shape and the range of its values.

    `kind` is "float", "complex", "int", "bool" or, with `values`, "int32" or "int8". `high` is
    exclusive for integers. `distinct` keeps values well apart, for operations whose gradient jumps
    at ties. `values` gives the values explicitly. `grad=False` marks a float argument that is not
    differentiated.
    """

    def __init__(
        self,
        *shape: int,
        low: float = -2.0,
        high: float = 2.0,
        kind: str = "float",
        distinct: bool = False,
        values: Any = None,
        grad: bool = True,
    ) -> None:
        self.shape = shape
        self.low = low
        self.high = high
        self.kind = kind
        self.distinct = distinct
        self.values = values
        self.grad = grad and kind in ("float", "complex")

    def __repr__(self) -> str:
        if self.values is not None:
            return f"In(values={self.values!r})"
        return f"In({self.kind}{list(self.shape)}, {self.low}..{self.high})"


class Op:
    """One public operation."""

    def __init__(
        self,
        name: str,
        function: Callable[..., Any],
        samples: Callable[[], list[Sample]] | None,
        aliases: tuple[str, ...],
        module: str,
        torch: str | None,
        methods: tuple[str, ...],
        differentiable: bool,
        random: bool,
        autocast: Policy | None,
        half: bool | None,
        moves: str | None,
    ) -> None:
        self.name = name
        self.function = function
        self.samples = samples
        self.aliases = aliases
        self.module = module  # "" for the main namespace, or "nn.functional", "linalg"
        self.torch = torch  # the function of PyTorch with the same meaning, for oracle tests
        self.methods = methods
        self.differentiable = differentiable
        self.random = random
        self.autocast = autocast
        self.half = half
        self.moves = moves  # "symmetric", "nonzero", or None for all: see `op`


#: every public operation by "module.name" or "name"
TABLE: dict[str, Op] = {}


def op(
    name: str | None = None,
    *,
    samples: Callable[[], list[Sample]] | None = None,
    aliases: tuple[str, ...] = (),
    module: str = "",
    method: bool = True,
    function: bool = True,
    inplace: bool = False,
    torch: str | None = "",
    differentiable: bool = True,
    random: bool = False,
    primitive: Primitive | None = None,
    shortcut: Callable[..., bool] | None = None,
    autocast: Policy | None = None,
    applies: bool = False,
    result: str | None = None,
    half: bool | None = True,
    moves: str | None = None,
    casts: bool = False,
    apart: bool = False,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Enter a public function in the table.

    `torch=""` means the same name in torch; None means there is none. With `inplace`, a method with
    a trailing underscore changes the tensor. `primitive` lets that method compute straight into
    memory. `autocast` is the policy inside `autocast`: see `casting.py`; `applies` means that the
    function applies it itself. `result` is the type of the result where the function is annotated
    with Any and does not return a Tensor. `half=False` means that it refuses half precision, as in
    PyTorch; None, that some calls do. `moves` restricts the perturbations for which the gradient
    holds, as in PyTorch: "symmetric" if the function reads one triangle of its first argument,
    "nonzero" if elements that are 0 have to stay 0. With `casts`, `out=` may have any dtype to
    which the result can be cast; else it has the dtype of the result. With `apart`, as for gather,
    no other argument may share memory with `out=`.
    """

    def enter(body: Callable[..., Any]) -> Callable[..., Any]:
        label = name or body.__name__.rstrip("_")
        if body.__annotations__.get("return") == "Any":
            body.__annotations__["return"] = result or _result_of(body)
        body.__name__ = body.__qualname__ = label
        plain = accept_numpy_names(body)
        public = plain if autocast is None or applies else accept_numpy_names(body, autocast)
        names = (label, *aliases)
        methods: list[str] = []
        if method and not module:
            for n in names:
                setattr(Tensor, n, public)
                methods.append(n)
            if inplace:
                changing = in_place(label, plain, primitive, shortcut, apart)
                for n in names:
                    setattr(Tensor, n + "_", changing)
                    methods.append(n + "_")
        key = f"{module}.{label}" if module else label
        theirs = f"torch.{key}" if torch == "" else torch
        assert key not in TABLE, f"operation {key} is entered twice"
        shown = public
        if function:  # where it is found by its name, so that it can be pickled
            shown = requiring_tensor(
                label, public, plain, (differentiable, casts, apart and not inplace)
            )
            shown.__module__ = f"{__package__.partition('.')[0]}.{module}".rstrip(".")
        TABLE[key] = Op(
            label,
            shown,
            samples,
            aliases if function else (),
            module if function else "method",
            theirs,
            tuple(methods),
            differentiable,
            random,
            autocast,
            half,
            moves,
        )
        return public

    return enter


def _result_of(body: Callable[..., Any]) -> str:
    """The type of a result that is annotated with Any, since primitives are that to type checkers.

    Stub files and `help` show it. A test compares it with what samples return.
    """
    overloads = get_overloads(body)
    if overloads:
        return " | ".join(dict.fromkeys(o.__annotations__["return"] for o in overloads))
    if "return_indices" not in body.__annotations__:
        return "Tensor"
    always = body.__name__.endswith("_with_indices")
    return "tuple[Tensor, Tensor]" if always else "Tensor | tuple[Tensor, Tensor]"


def attach(**members: Any) -> None:
    """Attach methods and properties to Tensor that are not operations of the table."""
    for name, member in members.items():
        if name.startswith("__"):
            member.__name__ = name
        setattr(Tensor, name, member)


def in_place(
    name: str,
    pure: Callable[..., Any],
    primitive: Primitive | None,
    shortcut: Callable[..., bool] | None,
    apart: bool = False,
) -> Callable[..., Any]:
    """The in-place method, which assigns the result of `pure` to the tensor itself."""
    operands = 0 if primitive is None else max(len(primitive.inputs), 1)

    def method(self: Tensor, *args: Any, **kwargs: Any) -> Any:
        if primitive is not None and not kwargs and len(args) < operands:
            return inplace_.apply(primitive, self, args)
        if shortcut is not None and shortcut(self, *args, **kwargs):
            return self
        inplace_.check_writable(self, f"{name}_")
        if apart:
            from ..core.outputs import check_apart

            check_apart(f"{name}_", self, args, kwargs)
        started = next(numbers)
        return inplace_.assign(self, pure(self, *args, **kwargs), f"{name}_", started)

    method.__name__ = f"{name}_"
    method.__qualname__ = f"Tensor.{name}_"
    method.__doc__ = f"In-place version of `{name}`."
    method.__wrapped__ = pure  # type: ignore[attr-defined]  # gives the signature for the stubs
    return method


_NUMPY_NAMES = {"axis": "dim", "keepdims": "keepdim", "axes": "dims"}

#: parameters of reductions, for which wrappers are generated from text; each further set of
#: parameters would add 0.1 ms to the import
_COMMON = {"input", "dim", "keepdim", "dtype"}

#: the default of a parameter that another name may replace
_MISSING: Any = object()


def accept_numpy_names(
    function: Callable[..., Any], autocast: Policy | None = None
) -> Callable[..., Any]:
    """Accept `axis` for `dim` and `keepdims` for `keepdim`, where the function has those.

    With `autocast`, cast the operands by that policy.
    """
    parameters = parameters_of(function)
    own = () if parameters is None else (*parameters.positional, *parameters.keywords)
    renamed = {theirs: ours for theirs, ours in _NUMPY_NAMES.items() if ours in own}
    plain = function if autocast is None else casting.applied(function, autocast)
    if parameters is None or not renamed:
        return plain
    if not set(own) <= _COMMON:
        return _with_numpy_names(plain, renamed)
    defaults = _defaults_of(function, parameters.positional)
    first = min([own.index(ours) for ours in renamed.values()])
    required = [name for name in parameters.positional[first:] if name not in defaults]
    required += [n for n in renamed.values() if n not in defaults and n not in required]
    extended = parameters._replace(keywords=(*parameters.keywords, *renamed))
    lines = [f"def call({extended.declared}):"]
    for theirs, ours in renamed.items():
        lines += [
            f"    if {theirs} is not MISSING:",
            f"        if {ours} is not MISSING:",
            f"            raise both(function, {ours!r}, {theirs!r})",
            f"        {ours} = {theirs}",
        ]
        if ours in defaults:
            lines += [f"    elif {ours} is MISSING:", f"        {ours} = defaults[{ours!r}]"]
    if required:
        given = ", ".join([f"{name}={name}" for name in own])
        lines += [
            f"    if {' or '.join([f'{name} is MISSING' for name in required])}:",
            f"        return without_missing(function, {given})",
        ]
    if autocast is not None:
        lines += [
            f"    if STATE.mode & {AUTOCAST}:",
            f"        return with_autocast({parameters.passed})",
        ]
    lines.append(f"    return function({parameters.passed})")
    namespace = {
        "MISSING": _MISSING, "STATE": STATE, "both": _both, "defaults": defaults,
        "function": function, "with_autocast": plain, "without_missing": _without_missing,
    }  # fmt: skip
    call: Any = in_front(plain, lines, namespace, "names of NumPy")
    shown = defaults | dict.fromkeys((*required, *renamed, *renamed.values()), _MISSING)
    call.__defaults__ = tuple([shown[n] for n in parameters.positional if n in shown])
    call.__kwdefaults__ = {n: shown[n] for n in extended.keywords if n in shown}
    return call  # type: ignore[no-any-return]


def _with_numpy_names(function: Callable[..., Any], renamed: dict[str, str]) -> Callable[..., Any]:
    """The same for functions with uncommon parameters."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if kwargs:
            for theirs, ours in renamed.items():
                if theirs in kwargs:
                    if ours in kwargs:
                        raise _both(function, ours, theirs)
                    kwargs[ours] = kwargs.pop(theirs)
        return function(*args, **kwargs)

    return call


def _defaults_of(function: Any, positional: tuple[str, ...]) -> dict[str, Any]:
    """The defaults of a function's parameters, by name."""
    values = function.__defaults__ or ()
    names = positional[len(positional) - len(values) :]
    return dict(zip(names, values, strict=True)) | (function.__kwdefaults__ or {})


def _without_missing(function: Callable[..., Any], **given: Any) -> Any:
    """Call a function with the given arguments only, so that it reports missing ones itself."""
    return function(**{name: value for name, value in given.items() if value is not _MISSING})


def _both(function: Callable[..., Any], ours: str, theirs: str) -> TypeError:
    return TypeError(f"{function.__name__}() got both {ours!r} and {theirs!r}")


def requiring_tensor(
    name: str,
    function: Callable[..., Any],
    plain: Callable[..., Any],
    traits: tuple[bool, bool, bool],
) -> Callable[..., Any]:
    """The function of the namespace: its first argument must be, or hold, a Tensor.

    `plain` is the same function without casts, which runs where autocast is off. With `out=` the
    result goes into the given tensor: `traits` says whether the function is differentiable, whether
    it `casts`, and whether outputs must be `apart`.
    """

    @functools.wraps(function)
    def shown(*args: Any, **kwargs: Any) -> Any:
        if kwargs and "out" in kwargs:
            from ..core.outputs import computed_into

            return computed_into(name, shown, args, kwargs, *traits)
        if args and not isinstance(args[0], Tensor):
            found = _without_tensor_first(shown, args, kwargs)
            if found is not NotImplemented:
                return found
        try:
            return (function if STATE.mode & AUTOCAST else plain)(*args, **kwargs)
        except AttributeError as error:
            raise _explained(name, error) from None
        except TypeError:
            if not kwargs.keys().isdisjoint(_OPERANDS):
                return shown(*args, **_renamed_operands(shown, kwargs))
            if overriding.installed or not overriding.overriding_arguments(args):
                raise
            return overriding.override(shown, args, kwargs)

    shown.__name__ = name
    if overriding.installed:
        _let_ask(shown)
    return shown


def _asking(
    name: str,
    function: Callable[..., Any],
    plain: Callable[..., Any],
    traits: tuple[bool, bool, bool],
) -> Any:
    """A function whose code `requiring_tensor` uses once classes override functions."""

    def shown(*args: Any, **kwargs: Any) -> Any:
        found = overriding.override(shown, args, kwargs)
        if found is not NotImplemented:
            return found
        if kwargs and "out" in kwargs:
            from ..core.outputs import computed_into

            return computed_into(name, shown, args, kwargs, *traits)
        if args and not isinstance(args[0], Tensor):
            found = _without_tensor_first(shown, args, kwargs)
            if found is not NotImplemented:
                return found
        try:
            return (function if STATE.mode & AUTOCAST else plain)(*args, **kwargs)
        except AttributeError as error:
            raise _explained(name, error) from None
        except TypeError:
            if kwargs.keys().isdisjoint(_OPERANDS):
                raise
            return shown(*args, **_renamed_operands(shown, kwargs))

    return shown.__code__


def _let_ask(shown: Any) -> None:
    shown.__code__ = _asking("", shown, shown, (False, False, False))


def _let_all_ask() -> None:
    for entry in TABLE.values():
        if entry.module != "method":
            _let_ask(entry.function)


# Objects that override functions are rare: functions check for them only once some may exist, by
# new code in the same function object. A test of a flag in each call would take 10 ns.
overriding.on_install.append(_let_all_ask)


def _explained(name: str, error: AttributeError) -> Exception:
    """An error that names the argument which should have been a Tensor, if one was not."""
    return not_a_tensor(name, error.obj) if error.name == "_array" else error


#: NumPy's names of operands, which PyTorch takes as well
_OPERANDS = {"x": "input", "a": "input", "x1": "input", "x2": "other"}

#: functions of two numbers, too
_OF_NUMBERS = ("add", "sub", "mul", "div", "floor_divide")


def _renamed_operands(shown: Callable[..., Any], given: dict[str, Any]) -> dict[str, Any]:
    """Keywords renamed to PyTorch's names; raises if there is no such parameter."""
    renamed = {_OPERANDS.get(name, name): value for name, value in given.items()}
    if len(renamed) < len(given) or not renamed.keys() <= shown.__annotations__.keys():
        raise TypeError(f"{shown.__name__}() got unexpected keywords: {', '.join(given)}")
    return renamed


def _without_tensor_first(
    shown: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """The result for another class or two numbers; NotImplemented if the function itself runs."""
    if shown.__name__ in _OF_NUMBERS and isinstance(args[0], (bool, int, float, complex)):
        if any(isinstance(x, Tensor) for x in (*args, *kwargs.values())):
            return NotImplemented
        from .creation import tensor

        return shown(tensor(args[0]), *args[1:], **kwargs)
    if _is_not_ours(shown, args) and not overriding.installed:
        return overriding.override(shown, args, kwargs)
    return NotImplemented


def _is_not_ours(shown: Callable[..., Any], args: tuple[Any, ...]) -> bool:
    """Whether an object that is not a Tensor overrides this function; raises if a Tensor is due."""
    name, first = shown.__name__, args[0]
    if isinstance(first, (list, tuple)):
        for x in first:
            if not isinstance(x, Tensor):
                break
        else:
            return False
        strange = [x for x in first if not isinstance(x, Tensor)]
        if strange:
            if overriding.overriding_arguments(args):
                return True
            raise not_a_tensor(name, first if len(strange) == len(first) else strange[0])
    elif not isinstance(first, str) and not (
        isinstance(first, (int, float))
        and next(iter(shown.__annotations__.values()), "") != "Tensor"
        and any(isinstance(x, Tensor) for x in args)
    ):
        if overriding.overriding_arguments(args):
            return True
        raise not_a_tensor(name, first)
    return False


def not_a_tensor(name: str, found: Any) -> TypeError:
    return TypeError(
        f"{name}() expected a Tensor, got {type(found).__name__}; make one with "
        "tapegrad.tensor(...)"
    )


def public_functions(module: str) -> dict[str, Callable[..., Any]]:
    """The functions of a namespace ("" for the main one) by all their names."""
    return {
        name: entry.function
        for entry in TABLE.values()
        if entry.module == module
        for name in (entry.name, *entry.aliases)
    }
