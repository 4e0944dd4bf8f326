"""The text of tapes and their entries.

Comes in: an entry or a tape. Goes out: text. Called by `repr` of `Tape`, and by `debug.py`.
`tensor_text.py` formats tensors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..core.source import line_of

if TYPE_CHECKING:
    from ..core.tape import Entry, Tape


def _operand(value: Any) -> str:
    from ..core.tape import Value

    if isinstance(value, Value) or not hasattr(value, "shape"):
        return repr(value)
    return f"const{list(value.shape)}"


def _edge(edge: Any) -> str:
    """The source of an input, for entries that no explicit tape logged; `_` for none."""
    from ..core.tape import Entry, Output

    if edge is None:
        return "_"
    if isinstance(edge, Output):
        return f"%{edge.entry.number}.{edge.index}"
    return f"%{edge.number if isinstance(edge, Entry) else edge.id}"


def _param(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "..."


def format_entry(entry: Entry) -> str:
    """One line: results, primitive, operands, parameters, types and the user's line."""
    location = ""
    if entry.location is not None:
        name, line = line_of(entry.location)
        location = f"  # {name.rsplit('/', 1)[-1]}:{line}"
    params = [f"{k}={_param(v)}" for k, v in entry.params.items()]
    if entry.log is None:
        call = f"{entry.primitive.name}({', '.join([*map(_edge, entry.edges), *params])})"
        return f"%{entry.number} = {call}{location}"
    inputs, outputs = entry.log
    made = ", ".join(repr(v) for v in outputs)
    types = ", ".join(f"{v.dtype.name}{list(v.shape)}" for v in outputs)
    call = f"{entry.primitive.name}({', '.join([*map(_operand, inputs), *params])})"
    return f"{made} = {call} : {types}{location}"


def format_entries(entries: list[Entry], title: str) -> str:
    return "\n".join([title, *("  " + format_entry(entry) for entry in entries)])


def format_tape(tape: Tape) -> str:
    """The whole tape, one line for each entry."""
    return format_entries(tape.entries, f"tape of {len(tape.entries)} entries")
