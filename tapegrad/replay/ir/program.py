"""Programs: what a recording becomes, and what every pass takes and returns.

A program is a list of instructions over values in SSA form: every value is made once. Values come
from outside (`inputs`), are known in advance (`constants`), or are made by an instruction. Memory
from outside changes only through `writes`, which happen after everything that reads it.

Instructions are first `Apply`, one primitive each; `trace/capture.py` makes them. Lowering turns
them into loops over elements (`Loop`), matrix products (`Product`), sums of products over other
views (`Contraction`), attention in tiles (`Attention`) and calls of NumPy (`Callback`); views
disappear into `Access`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from ...core.device import CPU, Device
from ...core.failures import BAD_INDEX
from ...core.primitive import Primitive
from ...core.source import Location, line_of
from ...core.tape import Value

Shape = tuple[int, ...]


class Origin(NamedTuple):
    """A primitive that an instruction came from: its name, its line and its module."""

    name: str
    location: Location | None
    layer: str = ""


@dataclass(frozen=True, slots=True)
class Apply:
    """One primitive, as it was recorded."""

    primitive: Primitive
    params: dict[str, Any]
    inputs: tuple[Any, ...]  # a Value, a number or None
    outputs: tuple[Value, ...]
    location: Location | None
    region: int = 0  # the rerun of a checkpointed function that it belongs to; 0 for none
    layer: str = field(default="", compare=False)  # the path of the module that ran

    def reads(self) -> Iterator[Value]:
        return (x for x in self.inputs if isinstance(x, Value))

    def writes(self) -> Iterator[Value]:
        return iter(self.outputs)

    @property
    def origins(self) -> tuple[Origin, ...]:
        return (Origin(self.primitive.name, self.location, self.layer),)

    def __str__(self) -> str:
        made = ", ".join(map(str, self.outputs))
        given = [str(x) for x in self.inputs] + [f"{k}={v!r}" for k, v in self.params.items()]
        types = ", ".join(map(show_type, self.outputs))
        return f"{made} = {self.primitive.name}({', '.join(given)})  : {types}"


@dataclass(frozen=True, slots=True)
class Pick:
    """One index read from memory: it adds `index * stride` and must lie in -size..size-1.

    A `checked` index lies in 0..size-1: an earlier instruction made it so. A `known` index may be
    negative, but an earlier instruction fails if it is out of range.
    """

    index: Access
    stride: int
    size: int
    failure: int = BAD_INDEX
    checked: bool = False
    known: bool = False


@dataclass(frozen=True, slots=True)
class Access:
    """Where a loop finds an element: `offset + sum(i * stride)` in the memory of a value."""

    value: Value
    offset: int
    strides: tuple[int, ...]
    picks: tuple[Pick, ...] = ()

    def values(self) -> Iterator[Value]:
        yield self.value
        for pick in self.picks:
            yield from pick.index.values()

    def __str__(self) -> str:
        where = [f"{self.offset}"] if self.offset else []
        where += [f"i{d}*{s}" for d, s in enumerate(self.strides) if s]
        where += [f"{pick.index}*{pick.stride}" for pick in self.picks]
        return f"{self.value}[{' + '.join(where) or 0}]"


@dataclass(frozen=True, slots=True)
class View:
    """A value that aliases another value's memory."""

    root: Value
    offset: int
    shape: Shape
    strides: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Literal:
    """A number that is part of the code."""

    number: Any

    def __str__(self) -> str:
        return repr(self.number)


@dataclass(frozen=True, slots=True)
class Read:
    """Node of a loop: an element from memory."""

    access: Access

    @property
    def dtype(self) -> Any:
        return self.access.value.dtype


@dataclass(frozen=True, slots=True)
class Position:
    """Node of a loop: its position `offset + sum(i * stride)`, as an int64."""

    offset: int
    strides: tuple[int, ...]

    @property
    def dtype(self) -> Any:
        return np.dtype(np.int64)

    def __str__(self) -> str:
        where = [f"{self.offset}"] if self.offset else []
        where += [f"i{d}*{s}" for d, s in enumerate(self.strides) if s]
        return " + ".join(where) or "0"


@dataclass(frozen=True, slots=True)
class Compute:
    """Node of a loop: a primitive's expression on earlier nodes and numbers.

    A `rounded` node has the same bits in every loop that computes it: targets do not fuse it with a
    sum into one multiply-add, which would round only once.
    """

    primitive: Primitive
    params: dict[str, Any]
    operands: tuple[Any, ...]  # the position of an earlier node, or a Literal
    dtype: Any
    fails: bool = False  # whether it may find bad data
    rounded: bool = False


Node = Read | Position | Compute


@dataclass(frozen=True, slots=True)
class Store:
    """Store a node to memory, or add it to what is there."""

    access: Access
    node: int
    adds: bool = False


@dataclass(frozen=True, slots=True)
class LoopFold:
    """Reduce a node over dimensions of the loop with a primitive's expression."""

    access: Access  # its strides are 0 along `dims`
    node: int
    primitive: Primitive
    dims: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Scan:
    """Reduce a node along a dimension of the loop, and store the running value of every step."""

    access: Access
    node: int
    primitive: Primitive
    dim: int
    reverse: bool

    @property
    def dtype(self) -> Any:
        return self.access.value.dtype


@dataclass(frozen=True, slots=True)
class Loop:
    """For every index of `shape`: compute the nodes, then store and fold, or scan."""

    shape: Shape
    nodes: tuple[Node, ...]
    stores: tuple[Store, ...]
    folds: tuple[LoopFold, ...]
    origins: tuple[Origin, ...]
    scan: Scan | None = None  # a loop with a scan has neither stores nor folds
    region: int = 0  # as in `Apply`

    def reads(self) -> Iterator[Value]:
        for node in self.nodes:
            if isinstance(node, Read):
                yield from node.access.values()
        for store in self.stores:
            for pick in store.access.picks:
                yield from pick.index.values()

    def writes(self) -> Iterator[Value]:
        for store in self.stores:
            yield store.access.value
        for fold in self.folds:
            yield fold.access.value
        if self.scan is not None:
            yield self.scan.access.value

    def __str__(self) -> str:
        lines = [f"loop {list(self.shape)}:"]
        for i, node in enumerate(self.nodes):
            if isinstance(node, Read):
                lines.append(f"    x{i} = {node.access}")
            elif isinstance(node, Position):
                lines.append(f"    x{i} = {node}")
            else:
                given = [str(o) if isinstance(o, Literal) else f"x{o}" for o in node.operands]
                given += [f"{k}={v!r}" for k, v in node.params.items()]
                lines.append(f"    x{i} = {node.primitive.name}({', '.join(given)})")
        for store in self.stores:
            lines.append(f"    {store.access} {'+=' if store.adds else '='} x{store.node}")
        for fold in self.folds:
            lines.append(
                f"    {fold.access} = {fold.primitive.name}(x{fold.node}) over {fold.dims}"
            )
        if self.scan is not None:
            scan = self.scan
            step = "backwards " if scan.reverse else ""
            lines.append(
                f"    {scan.access} = {scan.primitive.name}(x{scan.node}) {step}along {scan.dim}"
            )
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class Product:
    """out = x @ y for each index of `batch`; the last two strides of an access are the matrix's.

    With `adds` it is out += x @ y. A `triangle` names the part that counts; the rest need not be
    computed. "out": the result on and below its diagonal, above it is 0. "lower": x on and below
    its diagonal. "upper": x on and above its diagonal.
    """

    batch: Shape
    rows: int
    inner: int
    columns: int
    out: Access
    x: Access
    y: Access
    origins: tuple[Origin, ...]
    adds: bool = False
    triangle: str = ""

    def reads(self) -> Iterator[Value]:
        return iter((self.x.value, self.y.value))

    def writes(self) -> Iterator[Value]:
        return iter((self.out.value,))

    def __str__(self) -> str:
        sizes = f"{self.rows}x{self.inner} @ {self.inner}x{self.columns}"
        sizes += f", triangle: {self.triangle}" if self.triangle else ""
        batch = f"{list(self.batch)} times " if self.batch else ""
        sign = "+=" if self.adds else "="
        return f"{self.out.value} {sign} product({self.x.value}, {self.y.value})  : {batch}{sizes}"


@dataclass(frozen=True, slots=True)
class Contraction:
    """out = the sum over `dims` of x * y, for every index of `shape`."""

    shape: Shape
    dims: tuple[int, ...]
    out: Access  # its strides are 0 along `dims`
    x: Access
    y: Access
    origins: tuple[Origin, ...]

    def reads(self) -> Iterator[Value]:
        return iter((self.x.value, self.y.value))

    def writes(self) -> Iterator[Value]:
        return iter((self.out.value,))

    def __str__(self) -> str:
        return f"{self.out} = contraction {list(self.shape)} of {self.x} and {self.y}"


@dataclass(frozen=True, slots=True)
class Attention:
    """softmax(q @ k^T * scale + mask) @ v for each index of `batch`, or its gradients, in tiles.

    Forward, `operands` are q, k and v; results are `out` and `lse`, the log-sum-exp of each row.
    Backward, `operands` are q, k, v, the gradient of `out`, `lse`, and `delta`, the sum over each
    row of that gradient times `out`; results are the gradients of q, k and v. In half precision,
    `lse` is float32 and the last operand of backward is `out` instead of `delta`. The last two
    strides of an access are the matrix's, and the last one is 1, except in the mask. A boolean mask
    selects keys; any other mask is added. With `state`, the seed and the offset of a generator,
    probabilities are dropped with probability `dropout`. A row without any key gets zeros if `safe`
    is set, else NaN.
    """

    batch: Shape
    queries: int
    keys: int
    features: int
    value_features: int
    operands: tuple[Access, ...]
    mask: Access | None
    state: Access | None
    results: tuple[Access, ...]
    scale: float
    causal: bool
    dropout: float
    safe: bool
    backward: bool
    origins: tuple[Origin, ...]

    def reads(self) -> Iterator[Value]:
        given = (*self.operands, self.mask, self.state)
        return (access.value for access in given if access is not None)

    def shapes(self) -> tuple[Shape, ...]:
        """The shapes of the results."""
        of_queries, of_keys = (*self.batch, self.queries), (*self.batch, self.keys)
        if self.backward:
            sides = (of_queries, self.features), (of_keys, self.features)
            return *((*side, n) for side, n in sides), (*of_keys, self.value_features)
        return (*of_queries, self.value_features), (*of_queries, 1)

    def writes(self) -> Iterator[Value]:
        return (access.value for access in self.results)

    def __str__(self) -> str:
        made = ", ".join(str(access.value) for access in self.results)
        name = "attention gradients" if self.backward else "attention"
        given = ", ".join(map(str, self.reads()))
        batch = f"{list(self.batch)} times " if self.batch else ""
        sizes = f"{batch}{self.queries} queries, {self.keys} keys, {self.features} features"
        return f"{made} = {name}({given}){', causal' * self.causal}  : {sizes}"


@dataclass(frozen=True, slots=True)
class Callback:
    """A primitive without a native lowering: its NumPy kernel runs between native code."""

    primitive: Primitive
    params: dict[str, Any]
    inputs: tuple[Any, ...]  # a View, a number or None
    outputs: tuple[Value, ...]
    origins: tuple[Origin, ...]

    def reads(self) -> Iterator[Value]:
        return (x.root for x in self.inputs if isinstance(x, View))

    def writes(self) -> Iterator[Value]:
        return iter(self.outputs)

    def __str__(self) -> str:
        made = ", ".join(map(str, self.outputs))
        given = [str(x.root) if isinstance(x, View) else str(x) for x in self.inputs]
        return f"{made} = callback {self.primitive.name}({', '.join(given)})"


Instruction = Apply | Loop | Product | Contraction | Attention | Callback


@dataclass(frozen=True, slots=True)
class Input:
    """A value from outside."""

    value: Value
    strides: tuple[int, ...]  # in elements
    name: str
    aliased: bool = False  # whether another input overlaps its memory


@dataclass(frozen=True, slots=True)
class Program:
    """Instructions over values; see the top of this file."""

    inputs: tuple[Input, ...]
    constants: tuple[tuple[Value, Any], ...]
    instructions: tuple[Instruction, ...]
    writes: tuple[tuple[Value, Value], ...]  # (input, the value that it holds afterwards)
    results: tuple[Value, ...]
    notes: tuple[str, ...] = field(default=(), compare=False)  # messages of passes, for `explain`
    #: composites whose parts are among the instructions, to differentiate or run them whole
    wholes: tuple[Apply, ...] = field(default=(), compare=False)
    #: bytes that its values may take while it runs, if there is a limit
    budget: int | None = None
    #: the device of its values, except for the numbers in `host`, in host memory (`ir/target.py`)
    device: Device = CPU
    host: frozenset[int] = frozenset()

    def with_instructions(self, instructions: Any) -> Program:
        return replace(self, instructions=tuple(instructions))

    def applied(self) -> tuple[Apply, ...]:
        """The instructions of a program that is not lowered yet."""
        return tuple(i for i in self.instructions if isinstance(i, Apply))

    def needed(self) -> Iterator[Value]:
        """The values that must exist at the end."""
        for _, value in self.writes:
            yield value
        yield from self.results

    def device_of(self, value: Value) -> Device:
        """The device of a value."""
        return CPU if value.number in self.host else self.device

    def next_number(self) -> int:
        """A number above those of all values."""
        highest = -1
        for values in (
            (i.value for i in self.inputs),
            (value for value, _ in self.constants),
            (value for instruction in self.instructions for value in instruction.writes()),
        ):
            highest = max(highest, *(v.number for v in values), -1)
        return highest + 1

    def __str__(self) -> str:
        given = ", ".join(f"{i.value} {i.name}: {show_type(i.value)}" for i in self.inputs)
        lines = [f"program({given})"]
        for value, array in self.constants:
            shown = repr(array.item()) if array.size == 1 else "constant"
            lines.append(f"  {value} = {shown}  : {show_type(value)}")
        for instruction in self.instructions:
            head, *rest = str(instruction).split("\n")
            lines.append(f"  {head}  # {show_origins(instruction.origins)}")
            lines += [f"  {line}" for line in rest]
        names = {i.value.number: i.name for i in self.inputs}
        lines += [f"  write {names[t.number]} <- {value}" for t, value in self.writes]
        lines.append(f"  return {', '.join(map(str, self.results))}")
        return "\n".join(lines)


def show_type(value: Value) -> str:
    """`float32[64,10]`"""
    return f"{value.dtype.name}[{','.join(map(str, value.shape))}]"


def show_location(location: Location | None) -> str:
    """`file.py:12`"""
    if location is None:
        return "?"
    name, line = line_of(location)
    return f"{name.rsplit('/', 1)[-1]}:{line}"


def show_origins(origins: tuple[Origin, ...]) -> str:
    """`add relu file.py:12, mul file.py:14`: the primitives of each source line, in order."""
    lines: dict[str, list[str]] = {}
    for origin in origins:
        lines.setdefault(show_location(origin.location), []).append(origin.name)
    return ", ".join(f"{' '.join(names)} {line}" for line, names in lines.items())


def contiguous(shape: Shape) -> tuple[int, ...]:
    """The strides of a contiguous array of this shape, in elements."""
    strides, step = [], 1
    for n in reversed(shape):
        strides.append(step)
        step *= max(n, 1)
    return tuple(reversed(strides))


def in_order(shape: Shape, strides: tuple[int, ...]) -> bool:
    """Whether strides are those of a contiguous array; dimensions of size 1 do not count."""
    steps = contiguous(shape)
    return 0 in shape or all(
        n == 1 or a == b for n, a, b in zip(shape, strides, steps, strict=True)
    )


def size_of(shape: Shape) -> int:
    total = 1
    for n in shape:
        total *= n
    return total


def bytes_of(value: Value) -> int:
    return size_of(value.shape) * int(value.dtype.itemsize)
