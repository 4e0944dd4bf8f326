"""How tensors and tapes are shown.

Comes in: a tensor, an entry or a tape. Goes out: text. Called by `repr` of `Tensor` and `Tape`, and
by `debug.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..core import dtypes, numeric
from ..core.device import CPU, to_device
from ..core.overriding import overrides
from ..core.source import line_of

if TYPE_CHECKING:
    from ..core.tape import Entry, Tape
    from ..core.tensor import Tensor


def format_tensor(tensor: Tensor) -> str:
    """PyTorch's form: `tensor([1., 2.], requires_grad=True)`."""
    array = to_device(tensor._array, CPU)
    dtype = tensor.dtype
    if dtype is dtypes.bfloat16 or dtype is dtypes.float16:
        array = array.astype(np.float32)
    name = type(tensor).__name__ if overrides(tensor) else "tensor"  # as classes print themselves
    parameter = type(tensor).__name__ == "Parameter"
    prefix = f"Parameter containing:\n{name}(" if parameter else f"{name}("
    start = " " * len(f"{name}(")
    if array.size == 0:
        body = "[]"
    else:
        body = np.array2string(
            array,
            separator=", ",
            prefix=start,
            threshold=1000,
            edgeitems=3,
            precision=4,
            max_line_width=100,
            floatmode="maxprec" if _all_whole(array) else "fixed",
        )
    notes = []
    if array.size == 0 and array.shape != (0,):
        notes.append(f"size={tuple(array.shape)}")
    default = dtypes.get_default_dtype()
    usual = (default, default.to_complex(), dtypes.int64, dtypes.bool_)
    if dtype not in usual or (array.size == 0 and dtype is not dtypes.get_default_dtype()):
        notes.append(f"dtype={dtype}")
    if tensor.is_cuda:
        notes.insert(0, f"device='{tensor.device}'")
    if tensor.grad_fn is not None:
        notes.append(f"grad_fn={tensor.grad_fn!r}")
    elif tensor.requires_grad:
        notes.append("requires_grad=True")
    return f"{prefix}{', '.join([body, *notes])})"


def _all_whole(array: Any) -> bool:
    """Whether all finite values are whole, so that digits after the point say nothing."""
    if numeric.is_complex(array.dtype):
        return _all_whole(array.real) and _all_whole(array.imag)
    if not numeric.is_numpy_float(array.dtype):
        return True
    finite = array[np.isfinite(array)]
    return bool((finite == np.floor(finite)).all())


def _operand(value: Any) -> str:
    from ..core.tape import Value

    if isinstance(value, Value) or not hasattr(value, "shape"):
        return repr(value)
    return f"const{list(value.shape)}"


def _edge(edge: Any) -> str:
    """Where an input came from, for entries that no explicit tape logged; `_` if nothing did."""
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
