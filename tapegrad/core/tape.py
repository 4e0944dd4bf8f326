"""The tape: entries, and explicit tapes that log every operation in order.

An `Entry` is one recorded operation: its primitive, its static parameters, edges to where its
inputs came from, and the values that its gradient rules declared. Entries are numbered in
topological order, so neither this module nor backward recurses. Without an explicit `Tape`, only
the tensors that need an entry keep it alive. `primitive.py` and its short paths make entries;
`autograd/engine.py` visits them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from . import source, storage
from .handles import Extra, RemovableHandle
from .modes import CAPTURE, LISTENING, STATE, TAPE, numbers

if TYPE_CHECKING:
    from ..autograd.gradients import Gradients
    from .primitive import Primitive
    from .tensor import Tensor


class Freed:
    """Replaces an entry's saved values once backward has freed them."""


class Packed:
    """An entry's saved values after saved-tensor hooks have packed the arrays among them."""

    __slots__ = ("values",)

    def __init__(self, values: tuple[Any, ...]) -> None:
        self.values = values


class Handle:
    """What a pack hook returned for one array, with the hook that brings the array back."""

    __slots__ = ("packed", "unpack")

    def __init__(self, packed: Any, unpack: Callable[[Any], Any]) -> None:
        self.packed = packed
        self.unpack = unpack


FREED = Freed()

#: used instead of a result's index for hooks of an entry: a BEFORE hook gets the gradients of all
#: results; an AFTER hook runs after the entry and gets the gradients of its inputs too
BEFORE, AFTER = -1, -2


class Entry:
    """One recorded operation; also what `tensor.grad_fn` shows."""

    __slots__ = (
        "__weakref__",
        "edges",  # for each input: an Entry, an Output, a leaf Tensor, or None for no gradient
        # None, or a list of (output index, callable) to run on the gradient; or, instead of the
        # index, BEFORE or AFTER for all of them
        "hooks",
        "location",  # the user's line, as (code, instruction)
        "log",  # None, or what an explicit tape wrote: (inputs, outputs)
        "number",  # sequence number: later entries have higher ones
        "params",
        "primitive",
        "saved",
        "shapes",  # None, or each input's shape when the operation broadcast them
    )
    primitive: Primitive
    params: dict[str, Any]
    edges: tuple[Any, ...]
    saved: Any
    number: int
    shapes: tuple[Any, ...] | None
    location: source.Location | None
    hooks: list[tuple[int, Callable[[Any], Any]]] | None
    log: tuple[tuple[Any, ...], tuple[Value, ...]] | None

    def name(self) -> str:
        """The name shown for this node, such as `AddBackward`."""
        words = self.primitive.name.strip("_").split("_")
        return "".join(w[:1].upper() + w[1:] for w in words) + "Backward"

    def __repr__(self) -> str:
        return f"<{self.name()}>"

    @property
    def next_functions(self) -> tuple[tuple[Any, int], ...]:
        """The nodes that receive this node's gradients, as (node, output index) pairs."""
        return tuple(_as_node(edge) for edge in self.edges)

    @property
    def saved_bytes(self) -> int:
        """Bytes of the arrays that this entry keeps for backward."""
        return sum(array.nbytes for array in saved_arrays(self))

    @property
    def line(self) -> str:
        """The user's line that recorded this entry."""
        return source.describe(self.location)

    def register_hook(self, hook: Callable[[Any, Any], Any]) -> RemovableHandle:
        """Call `hook(grad_inputs, grad_outputs)` when this node has run.

        Both are tuples; if the hook returns a tuple, it replaces `grad_inputs`.
        """
        return add_hook(self, AFTER, hook)

    def register_prehook(self, hook: Callable[[Any], Any]) -> RemovableHandle:
        """Call `hook(grad_outputs)` before this node runs; a tuple that it returns replaces them.

        It runs after the hooks of the node's output tensors.
        """
        return add_hook(self, BEFORE, hook)

    def __call__(self, *grad_outputs: Any) -> Any:
        """The gradients of the inputs, given those of the outputs."""
        from ..autograd.nodes import run

        return run(self, grad_outputs)


#: saved values that nodes expose as `_saved_self` and so on. A `__getattr__` instead would slow
#: down every other attribute of an entry: a backward pass over small tensors takes 12 % longer.
SAVED_NAMES = (
    *("self", "other", "result", "exponent", "input", "weight", "bias", "mask", "index", "indices"),
    *("dim", "dims", "keepdim", "shape", "value", "alpha", "beta", "eps", "p", "threshold", "low"),
    *(
        "high",
        "mat1",
        "mat2",
        "vec",
        "target",
        "source",
        "output",
        "mean",
        "x",
        "y",
        "out",
        "scale",
    ),
    *("start", "stop", "step", "size", "stride", "padding", "dilation", "groups", "descending"),
)


def _shown_attribute(name: str) -> property:
    def show(self: Entry) -> Any:
        from ..autograd.nodes import attribute_of

        return attribute_of(self, name)

    return property(show)


for _name in (
    "metadata",
    "_sequence_nr",
    *(f"{kind}_{name}" for kind in ("_saved", "_raw_saved") for name in SAVED_NAMES),
):
    setattr(Entry, _name, _shown_attribute(_name))

_new = object.__new__


def shown_node(entry: Entry) -> Any:
    """An entry as users see it: a Function's entry shows the attributes of its context too."""
    if entry.primitive.context is None:
        return entry
    from ..autograd.nodes import function_node

    return function_node(entry)


def new_entry(
    primitive: Primitive,
    params: dict[str, Any],
    edges: tuple[Any, ...],
    saved: Any,
    number: int,
    location: source.Location | None,
    shapes: tuple[Any, ...] | None = None,
) -> Entry:
    """An entry without hooks, not logged by a tape.

    This is 0.1 µs faster than a constructor. The short paths of `fast.py` and `shortpaths.py` make
    their entries inline instead: this call would make small operations 3 % slower.
    """
    entry = _new(Entry)
    entry.primitive = primitive
    entry.params = params
    entry.edges = edges
    entry.saved = saved
    entry.number = number
    entry.location = location
    entry.shapes = shapes
    entry.hooks = entry.log = None
    return entry


class Output:
    """An edge to one output of an entry that has several."""

    __slots__ = ("entry", "index")

    def __init__(self, entry: Entry, index: int) -> None:
        self.entry = entry
        self.index = index


def node_of(edge: Any) -> Any:
    """The entry or leaf that an edge leads to."""
    return edge.entry if edge.__class__ is Output else edge


def add_hook(entry: Entry, index: int, hook: Callable[..., Any]) -> RemovableHandle:
    """Add a hook to an entry: for one of its results, or BEFORE or AFTER it."""
    item = (index, hook)
    entry.hooks = [*(entry.hooks or []), item]

    def remove() -> None:
        entry.hooks = [h for h in entry.hooks or () if h is not item] or None

    return RemovableHandle(remove)


class AccumulateGrad:
    """The node of a leaf, which accumulates into its `.grad`; made on demand."""

    def __init__(self, variable: Tensor) -> None:
        self.variable = variable
        self.next_functions: tuple[Any, ...] = ()
        self.metadata: dict[str, Any] = {}
        self.prehooks: dict[int, Callable[..., Any]] = {}
        self.posthooks: dict[int, Callable[..., Any]] = {}

    def name(self) -> str:
        """The name shown for this node."""
        return "AccumulateGrad"

    def register_prehook(self, hook: Callable[[Any], Any]) -> RemovableHandle:
        """Call `hook((gradient,))` before the gradient is added; what it returns replaces it."""
        return _kept_in(self.prehooks, hook)

    def register_hook(self, hook: Callable[[Any, Any], Any]) -> RemovableHandle:
        """Call `hook((), (gradient,))` after `.grad` was filled."""
        return _kept_in(self.posthooks, hook)

    def __repr__(self) -> str:
        return "<AccumulateGrad>"


def _kept_in(hooks: dict[int, Any], hook: Callable[..., Any]) -> RemovableHandle:
    key = next(numbers)
    hooks[key] = hook
    return RemovableHandle(lambda: hooks.pop(key, None))


def accumulator_of(leaf: Tensor) -> AccumulateGrad:
    """The node of a leaf: always the same object while the leaf lives."""
    if leaf._extra is None:
        leaf._extra = Extra()
    found: AccumulateGrad | None = getattr(leaf._extra, "accumulator", None)
    if found is None:
        found = leaf._extra.accumulator = AccumulateGrad(leaf)
    return found


def _as_node(edge: Any) -> tuple[Any, int]:
    if edge is None:
        return None, 0
    if isinstance(edge, Entry):
        return shown_node(edge), 0
    if isinstance(edge, Output):
        return shown_node(edge.entry), edge.index
    return accumulator_of(edge), 0


def saved_arrays(entry: Entry) -> list[Any]:
    """The arrays among an entry's saved values (none once they are freed or packed)."""
    if type(entry.saved) is not tuple:
        return []
    found = []
    for value in entry.saved:
        for item in value if isinstance(value, (list, tuple)) else (value,):
            if hasattr(item, "nbytes"):
                found.append(item)
    return found


def entries_of(*tensors: Tensor) -> list[Entry]:
    """The entries in the history of tensors, oldest first."""
    found: dict[int, Entry] = {}
    stack = [tensor._edge for tensor in tensors]
    while stack:
        node = stack.pop()
        entry = node.entry if isinstance(node, Output) else node
        if isinstance(entry, Entry) and entry.number not in found:
            found[entry.number] = entry
            stack.extend(entry.edges)
    return [found[number] for number in sorted(found)]


class Value:
    """One value on an explicit tape: its sequence number, shape and dtype."""

    __slots__ = ("dtype", "number", "shape")

    def __init__(self, number: int, shape: tuple[int, ...], dtype: Any) -> None:
        self.number = number
        self.shape = shape
        self.dtype = dtype

    def __repr__(self) -> str:
        return f"%{self.number}"


class Tape:
    """Records every operation of this thread, in order, whatever `requires_grad` says.

    `tape.backward(loss)` returns the gradients of all tensors on the tape, and fills `.grad` of the
    leaves that require it. `no_grad` and `detach` still cut gradients.

    >>> import tapegrad
    >>> x = tapegrad.tensor([1.0, 2.0])
    >>> with tapegrad.Tape() as tape:
    ...     loss = (x * x).sum()
    >>> tape.backward(loss)[x]
    tensor([2., 4.])
    """

    #: whether the log becomes a program: see `modes.capturing`
    captures = False
    #: whether floating tensors get gradients on the tape even if they do not require them
    watches = True

    def __init__(self, persistent: bool = False) -> None:
        self.persistent = persistent
        self.clear()

    def clear(self) -> None:
        """Forget everything that was recorded."""
        #: a value with a lower number comes from outside
        self.started = next(numbers)
        self.entries: list[Entry] = []
        #: the ids of tensors that `.data` returned while this tape was on
        self.shown: set[int] = set()
        #: by id of memory: the memory, and for each change through such a tensor, by its count, the
        #: sequence number of the change before it
        self.uncounted: dict[int, tuple[Any, dict[int, int]]] = {}
        # Tensors from outside, and for tensors changed in place the number of their newest value.
        self.externals: dict[int, Tensor] = {}
        self.values: dict[int, int] = {}
        self.known: dict[int, Value] = {}
        self.last: Tensor | None = None

    def kernel(self, primitive: Any, arrays: Any, params: dict[str, Any]) -> Any:
        """The result of a primitive on raw arrays; `primitive.run` asks a capturing tape for it."""
        return primitive.kernel(*arrays, **params)

    # -- recording ---------------------------------------------------------------------------

    def start_recording(self) -> None:
        """Record the operations of this thread from now on."""
        if self not in STATE.tapes:
            STATE.tapes = (*STATE.tapes, self)
            STATE.mode |= LISTENING if self.captures else TAPE

    def stop_recording(self) -> None:
        """Stop recording; what was recorded stays."""
        STATE.tapes = tuple(t for t in STATE.tapes if t is not self)
        if not STATE.tapes:
            STATE.mode &= ~LISTENING
        elif not any(t.captures for t in STATE.tapes):
            STATE.mode &= ~CAPTURE

    enable = start_recording
    disable = stop_recording

    @property
    def is_recording(self) -> bool:
        """Whether operations are being written on this tape."""
        return self in STATE.tapes

    def __enter__(self) -> Tape:
        self.start_recording()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop_recording()

    def value_of(self, tensor: Tensor) -> Value:
        """The value that `tensor` holds now; it counts as external if no entry made it."""
        number = self.values.get(tensor.id, tensor.id)
        value = self.known.get(number)
        if value is None:
            value = self.known[number] = Value(number, tensor._array.shape, tensor._array.dtype)
            self.externals[number] = tensor
        return value

    def enclose(self, entry: Entry, inputs: Sequence[Any], outputs: tuple[Tensor, ...]) -> None:
        """Called after the parts of a composite were written one by one."""

    def enclose_vjp(self, entry: Entry, g: Any, edges: Any, saved: Any, results: Any) -> None:
        """Called after the gradient rule of a composite has run part by part."""

    def write(self, entry: Entry, inputs: Sequence[Any], outputs: tuple[Tensor, ...]) -> None:
        """Append an entry with the values that went in and came out."""
        read = tuple(self.value_of(x) if hasattr(x, "_array") else x for x in inputs)
        made = tuple(Value(t.id, t._array.shape, t._array.dtype) for t in outputs)
        for value in made:
            self.known[value.number] = value
        entry.log = (read, made)
        self.entries.append(entry)
        if outputs:
            self.last = outputs[0]

    def refuse_read(self, tensor: Tensor, what: str) -> None:
        """Called when Python reads a value; a capturing tape raises here."""

    def refuse_sparse(self, what: str) -> None:
        """Called when an operation meets a sparse tensor; a capturing tape gives up."""

    def note_grad(self, tensor: Tensor) -> None:
        """Called before `.grad` of a tensor is read or replaced."""

    def note_flag(self, tensor: Tensor) -> None:
        """Called before `requires_grad` of a tensor is set."""

    def will_write(self, tensor: Tensor) -> None:
        """Called before an operation writes to the memory of a tensor."""
        root = tensor if tensor._view is None else tensor._view[0]
        if root.id in self.shown:
            owner, change = storage.owner_of(root._array), storage.find(root._array)
            _, made = self.uncounted.setdefault(id(owner), (owner, {}))
            made[storage.version(root._array) + 1] = 0 if change is None else change.number

    def will_rebind(self, tensor: Tensor, value: Tensor) -> None:
        """Called before a tensor that was written in place gets the history of `value`."""

    def will_communicate(self, group: Any) -> tuple[str, int] | None:
        """Called before a collective operation of a group.

        Returns the name of the compiled function under capture and the number of its call, or None.
        """
        return None

    def will_relayout(self, tensor: Tensor) -> None:
        """Called before a tensor becomes another view of its own memory."""

    def unobserved(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call a function of the library that runs no code of the user."""
        return function(*args, **kwargs)

    def refuse_offset(self, tensor: Tensor) -> None:
        """Called before a tensor's storage offset is read."""

    def note_data(self, shown: Tensor) -> None:
        """Called with what `.data` returns: on a tape its changes count, so that they are seen."""
        self.shown.add(shown.id)

    def excuses(self, array: Any, number: float) -> bool:
        """Whether all changes of memory since `number` came through `.data`: they are no errors."""
        _, made = self.uncounted.get(id(storage.owner_of(array)), (None, {}))
        count, before = storage.version(array), math.inf
        while count in made:
            before = made[count]
            count -= 1
        return before <= number

    def note_replaced(self, tensor: Tensor, how: str) -> None:
        """Called before a tensor gets other memory, for example by setting `.data`."""

    def repeat(self, begins: bool) -> None:
        """Called when a rerun of a checkpointed function begins, and when it ends."""

    def visit(self, entry: Entry) -> None:
        """Called for each entry of a backward pass whose rules run on Tensors."""

    def rebind(self, tensor: Tensor, result: Tensor) -> None:
        """Note that `tensor` now holds the value of `result`, after an in-place operation."""
        self.value_of(tensor)
        self.values[tensor.id] = self.values.get(result.id, result.id)

    # -- differentiating ---------------------------------------------------------------------

    def backward(
        self,
        loss: Tensor | None = None,
        gradient: Tensor | None = None,
        retain_graph: bool | None = None,
        create_graph: bool = False,
    ) -> Gradients:
        """Gradients of `loss` (the last recorded result when None) for every tensor on the tape.

        Clears the tape and frees its saved values, unless `retain_graph` or the tape is persistent.
        """
        from ..autograd.api import tape_backward

        loss = self.last if loss is None else loss
        if loss is None:
            raise RuntimeError(
                "the tape is empty: record operations inside `with tape:` (or between "
                "start_recording and stop_recording) before tape.backward()"
            )
        keep = (create_graph or self.persistent) if retain_graph is None else retain_graph
        recording = self.is_recording
        if recording:
            self.stop_recording()
        try:
            gradients = tape_backward(self, loss, gradient, keep, create_graph)
        finally:
            if recording:
                self.start_recording()
        if not keep:
            self.clear()
        return gradients

    def gradient(self, target: Tensor, sources: Any, output_gradients: Any = None) -> Any:
        """Gradients of `target` for one source or for a list of them."""
        gradients = self.backward(target, output_gradients)
        if isinstance(sources, (list, tuple)):
            return type(sources)(gradients.get(source) for source in sources)
        return gradients.get(sources)

    # -- reading -----------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self.entries)

    def __iter__(self) -> Iterator[Entry]:
        return iter(self.entries)

    def __getitem__(self, index: int | slice) -> Any:
        return self.entries[index]

    def __bool__(self) -> bool:
        return True

    def __repr__(self) -> str:
        return f"<Tape of {len(self.entries)} entries>"

    def __str__(self) -> str:
        from ..insight.printing import format_tape

        return format_tape(self)

    def memory_stats(self) -> Any:
        """What the tape keeps: entries, saved arrays and bytes, in total and for each primitive."""
        from ..insight.memory import memory_stats

        return memory_stats(self.entries)


GradientTape = Tape
