"""Containers: modules and parameters in sequences and dictionaries."""

from __future__ import annotations

import operator
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Self

from ..core.tensor import Tensor
from .module import Module, check_module
from .parameter import Parameter


class _ModuleSequence(Module):
    """Base of Sequential and ModuleList: modules under the names "0", "1", ..."""

    def _place(self, index: Any) -> str:
        """The name of the module at an index."""
        names = list(self._modules)
        i = operator.index(index)
        if not -len(names) <= i < len(names):
            raise IndexError(f"index {i} is out of range for {len(names)} modules")
        return names[i]

    def _refill(self, modules: Iterable[Any]) -> None:
        kept = list(modules)
        for name in list(self._modules):
            self._drop("_modules", name)
        self.extend(kept)

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[Any]:
        return iter(list(self._modules.values()))

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            part = type(self)()
            for name, module in list(self._modules.items())[index]:
                part.add_module(name if isinstance(self, Sequential) else str(len(part)), module)
            return part
        return self._modules[self._place(index)]

    def __setitem__(self, index: Any, module: Module) -> None:
        self.add_module(self._place(index), module)

    def __delitem__(self, index: Any) -> None:
        names = list(self._modules)
        gone = names[index] if isinstance(index, slice) else [self._place(index)]
        for name in gone:
            self._drop("_modules", name)
        self._refill(self)

    def __dir__(self) -> list[str]:
        return [name for name in super().__dir__() if not name.isdigit()]

    def append(self, module: Module) -> Self:
        """Add a module at the end."""
        self.add_module(str(len(self)), module)
        return self

    def extend(self, modules: Iterable[Module]) -> Self:
        """Add modules at the end."""
        modules = list(modules)
        for i, module in enumerate(modules, start=len(self)):
            check_module(str(i), module)
        for module in modules:
            self.append(module)
        return self

    def insert(self, index: int, module: Module) -> Self:
        """Add a module before an index."""
        modules = list(self)
        modules.insert(self._gap(operator.index(index)), module)
        if not isinstance(module, Module):
            raise TypeError(f"expected a Module, got {type(module).__name__}")
        self._refill(modules)
        return self

    def _gap(self, index: int) -> int:
        """The position to insert at, with the rules of `list.insert`."""
        return index

    def pop(self, key: int) -> Any:
        """Remove and return the module at an index."""
        module = self[key]
        del self[key]
        return module


class Sequential(_ModuleSequence):
    """Modules called one after the other, given as arguments or as an OrderedDict of names.

    >>> from tapegrad import nn
    >>> nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    Sequential(
      (0): Linear(in_features=4, out_features=8, bias=True)
      (1): ReLU()
      (2): Linear(in_features=8, out_features=2, bias=True)
    )
    """

    def __init__(self, *args: Any) -> None:
        super().__init__()
        if len(args) == 1 and isinstance(args[0], OrderedDict):
            for name, module in args[0].items():
                self.add_module(name, module)
        else:
            self.extend(args)

    def forward(self, input: Any) -> Any:
        for module in self._modules.values():
            assert module is not None
            input = module(input)
        return input

    def _gap(self, index: int) -> int:
        if not -len(self) <= index <= len(self):
            raise IndexError(f"index {index} is out of range for {len(self)} modules")
        return index

    def __add__(self, other: Any) -> Sequential:
        return Sequential(*self).__iadd__(other)

    def __iadd__(self, other: Any) -> Self:
        if not isinstance(other, Sequential):
            raise ValueError(f"a Sequential can be added, got {type(other).__name__}")
        return self.extend(other)

    def __mul__(self, other: Any) -> Sequential:
        return Sequential(*_repeated(self, other))

    __rmul__ = __mul__

    def __imul__(self, other: Any) -> Self:
        return self.extend(_repeated(self, other)[len(self) :])


def _repeated(modules: Iterable[Any], times: Any) -> list[Any]:
    """The modules of an iterable, repeated."""
    if not isinstance(times, int):
        raise TypeError(f"modules can be repeated a whole number of times, got {times!r}")
    if times <= 0:
        raise ValueError(f"modules can be repeated once or more often, got {times}")
    return list(modules) * times


class ModuleList(_ModuleSequence):
    """A list of modules, all registered."""

    _without_forward = (
        "holds modules and has no forward; call the modules in it, or use nn.Sequential"
    )

    def __init__(self, modules: Iterable[Module] | None = None) -> None:
        super().__init__()
        self.extend(modules or ())

    def __iadd__(self, modules: Iterable[Module]) -> Self:
        return self.extend(modules)

    def __add__(self, other: Iterable[Module]) -> ModuleList:
        return ModuleList([*self, *other])

    def __repr__(self) -> str:
        """Neighbours that look the same are shown once, with their number."""
        if not len(self):
            return f"{self._get_name()}()"
        groups: list[list[Any]] = []
        for i, module in enumerate(self):
            shown = repr(module)
            if groups and groups[-1][2] == shown:
                groups[-1][1] = i
            else:
                groups.append([i, i, shown])
        lines = []
        for first, last, shown in groups:
            name = f"({first})" if first == last else f"({first}-{last})"
            times = "" if first == last else f"{last - first + 1} x "
            lines.append(f"{name}: {times}{shown}".replace("\n", "\n  "))
        inner = "\n  ".join(lines)
        return f"{self._get_name()}(\n  {inner}\n)"


class ModuleDict(Module):
    """A dictionary of modules, all registered."""

    _without_forward = "holds modules and has no forward; call the modules in it"

    def __init__(self, modules: Any = None) -> None:
        super().__init__()
        if modules is not None:
            self.update(modules)

    def __getitem__(self, key: str) -> Any:
        return self._modules[key]

    def __setitem__(self, key: str, module: Module) -> None:
        self.add_module(key, module)

    def __delitem__(self, key: str) -> None:
        self._drop("_modules", key)

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __contains__(self, key: object) -> bool:
        return key in self._modules

    def clear(self) -> None:
        """Remove all modules."""
        for key in list(self):
            del self[key]

    def pop(self, key: str) -> Any:
        """Remove and return the module under a key."""
        module = self[key]
        del self[key]
        return module

    def keys(self) -> Any:
        """The names of the modules, in order."""
        return self._modules.keys()

    def items(self) -> Any:
        """The (name, module) pairs, in order."""
        return self._modules.items()

    def values(self) -> Any:
        """The modules, in order."""
        return self._modules.values()

    def update(self, modules: Any) -> None:
        """Add modules from a mapping or from (key, module) pairs."""
        pairs = modules.items() if isinstance(modules, (Mapping, ModuleDict)) else modules
        for key, module in pairs:
            self[key] = module


def _as_parameter(value: Any) -> Any:
    """Tensors become parameters; parameters and all other values stay."""
    plain = isinstance(value, Tensor) and not isinstance(value, Parameter)
    return Parameter(value) if plain else value


def _described(value: Any) -> str:
    if not isinstance(value, Tensor):
        return f"Object of type: {type(value).__name__}"
    kind = "Parameter" if isinstance(value, Parameter) else "Tensor"
    size = "x".join(map(str, value.shape))
    return f"{kind} containing: [{value.dtype} of size {size}]"


class _Parameters(Module):
    """Base of ParameterList and ParameterDict."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError(f"{self._get_name()} holds parameters and cannot be called")


class ParameterList(_Parameters):
    """A list of parameters, all registered; tensors become parameters, other values may join."""

    def __init__(self, values: Iterable[Any] | None = None) -> None:
        super().__init__()
        self._size = 0
        self.extend(values or ())

    def _place(self, index: Any) -> str:
        i = operator.index(index)
        if not -len(self) <= i < len(self):
            raise IndexError(f"index {i} is out of range for {len(self)} parameters")
        return str(i % len(self))

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[Any]:
        return iter([self[i] for i in range(len(self))])

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return ParameterList(list(self)[index])
        return getattr(self, self._place(index))

    def __setitem__(self, index: Any, value: Any) -> None:
        setattr(self, self._place(index), _as_parameter(value))

    def append(self, value: Any) -> Self:
        """Add a parameter at the end."""
        self._size += 1
        self[-1] = value
        return self

    def extend(self, values: Iterable[Any]) -> Self:
        """Add parameters at the end."""
        if isinstance(values, Tensor):
            raise TypeError("extend takes several parameters, got one tensor; use append")
        for value in list(values):
            self.append(value)
        return self

    def __iadd__(self, values: Iterable[Any]) -> Self:
        return self.extend(values)

    def extra_repr(self) -> str:
        return "\n".join(f"  ({i}): {_described(p)}" for i, p in enumerate(self))


class ParameterDict(_Parameters):
    """A dictionary of parameters, all registered; tensors become parameters, other values may join.

    A plain dictionary is entered in the order of its keys, as in PyTorch.
    """

    def __init__(self, parameters: Any = None) -> None:
        super().__init__()
        #: the keys in order, and the values that are not parameters
        self._keys: dict[str, None] = {}
        self._others: dict[str, Any] = {}
        if parameters is not None:
            self.update(parameters)

    def __getitem__(self, key: str) -> Any:
        return self._others[key] if key in self._others else self._parameters[key]

    def __setitem__(self, key: str, value: Any) -> None:
        value = _as_parameter(value)
        if isinstance(value, Parameter):
            self._others.pop(key, None)
            self.register_parameter(key, value)
        else:
            self._check_name(key, "parameter", "_parameters")
            self._parameters.pop(key, None)
            self._others[key] = value
        self._keys[key] = None

    def __delitem__(self, key: str) -> None:
        if key in self._others:
            del self._others[key]
        else:
            self._drop("_parameters", key)
        del self._keys[key]

    def __len__(self) -> int:
        return len(self._keys)

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def __reversed__(self) -> Iterator[str]:
        return reversed(list(self._keys))

    def __contains__(self, key: object) -> bool:
        return key in self._keys

    def __or__(self, other: ParameterDict) -> ParameterDict:
        made = self.copy()
        made.update(other)
        return made

    def __ior__(self, other: ParameterDict) -> Self:
        self.update(other)
        return self

    def copy(self) -> ParameterDict:
        """Another dictionary of the same parameters."""
        return ParameterDict(OrderedDict(self.items()))

    def fromkeys(self, keys: Iterable[str], default: Any = None) -> ParameterDict:
        """A dictionary with one value under all keys."""
        return ParameterDict(dict.fromkeys(keys, default))

    def setdefault(self, key: str, default: Any = None) -> Any:
        """The parameter under a key; the default is added if there is none."""
        if key not in self:
            self[key] = default
        return self[key]

    def popitem(self) -> tuple[str, Any]:
        """Remove the latest parameter; returns its key and the parameter."""
        if not len(self):
            raise KeyError("the ParameterDict is empty")
        key = next(reversed(self))
        return key, self.pop(key)

    def keys(self) -> Any:
        """The names of the parameters, in order."""
        return self._keys.keys()

    def items(self) -> Any:
        """The (name, parameter) pairs, in order."""
        return {key: self[key] for key in self._keys}.items()

    def values(self) -> Any:
        """The parameters, in order."""
        return {key: self[key] for key in self._keys}.values()

    def get(self, key: str, default: Any = None) -> Any:
        """The parameter under a key, or a default."""
        return self._parameters.get(key, default)

    def pop(self, key: str) -> Any:
        """Remove and return the parameter under a key."""
        value = self[key]
        del self[key]
        return value

    def clear(self) -> None:
        """Remove all parameters."""
        for key in list(self):
            del self[key]

    def update(self, parameters: Any) -> None:
        """Add parameters from a mapping or from (key, parameter) pairs."""
        pairs = parameters
        if isinstance(parameters, (OrderedDict, ParameterDict)):
            pairs = parameters.items()
        elif isinstance(parameters, Mapping):
            pairs = sorted(parameters.items(), key=operator.itemgetter(0))
        for key, value in pairs:
            self[key] = value

    def extra_repr(self) -> str:
        return "\n".join(f"  ({key}): {_described(p)}" for key, p in self.items())
