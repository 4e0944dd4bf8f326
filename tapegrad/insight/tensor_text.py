"""The text of tensors, exactly as in PyTorch, and its print options.

Comes in: a tensor. Goes out: `tensor([1., 2.], requires_grad=True)`. All elements have one format,
which depends on their values: whole numbers, four digits after the point, or powers of ten. Large
tensors show only their edges. Called by `repr`, through `printing.py`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..core import dtypes, numeric
from ..core.device import CPU, to_device
from ..core.overriding import overrides
from .nodes import shown_name

if TYPE_CHECKING:
    from ..core.tensor import Tensor


@dataclass
class PrintOptions:
    """How tensors are printed."""

    #: digits after the point
    precision: int = 4
    #: number of elements above which only the edges are shown
    threshold: float = 1000
    #: elements at each edge of a dimension
    edgeitems: int = 3
    #: characters of a line
    linewidth: int = 80
    #: powers of ten: always, never, or (None) depending on the values
    sci_mode: bool | None = None


PRINT_OPTS = PrintOptions()

_PROFILES: dict[str, dict[str, Any]] = {
    "default": {"precision": 4, "threshold": 1000, "edgeitems": 3, "linewidth": 80},
    "short": {"precision": 2, "threshold": 1000, "edgeitems": 2, "linewidth": 80},
    "full": {"precision": 4, "threshold": math.inf, "edgeitems": 3, "linewidth": 80},
}


def set_printoptions(
    precision: int | None = None,
    threshold: float | None = None,
    edgeitems: int | None = None,
    linewidth: int | None = None,
    profile: str | None = None,
    sci_mode: bool | None = None,
) -> None:
    """Set how tensors are printed; options that are None stay unchanged, except `sci_mode`.

    `precision` is the number of digits, `threshold` the number of elements above which only
    `edgeitems` at each end are shown, `linewidth` the characters of a line. `profile` is "default",
    "short" or "full" (all elements). `sci_mode` writes powers of ten always or never; with None the
    values decide.

    >>> import tapegrad
    >>> tapegrad.set_printoptions(precision=2)
    >>> tapegrad.tensor([1.12345])
    tensor([1.12])
    >>> tapegrad.set_printoptions(profile="default")
    """
    changes = dict(_PROFILES.get(profile, {})) if profile is not None else {}
    given = {
        "precision": precision,
        "threshold": threshold,
        "edgeitems": edgeitems,
        "linewidth": linewidth,
    }
    changes.update({name: value for name, value in given.items() if value is not None})
    for name, value in changes.items():
        setattr(PRINT_OPTS, name, value)
    PRINT_OPTS.sci_mode = sci_mode


def get_printoptions() -> dict[str, Any]:
    """How tensors are printed, as arguments of `set_printoptions`."""
    return asdict(PRINT_OPTS)


@contextmanager
def printoptions(**options: Any) -> Iterator[None]:
    """Print with other options inside a `with` block."""
    before = get_printoptions()
    set_printoptions(**options)
    try:
        yield
    finally:
        set_printoptions(**before)


class ElementFormat:
    """The common format of all elements of a tensor, chosen from the elements shown."""

    def __init__(self, shown: Any) -> None:
        self.floating = numeric.is_numpy_float(shown.dtype)
        self.whole = True
        self.powers = False
        self.width = 1
        values = shown.reshape(-1)
        if self.floating:
            values = values[np.isfinite(values) & (values != 0)]
            if not values.size:
                return
            sizes = np.abs(values)
            least, most = sizes.min(), sizes.max()
            self.whole = bool((values == np.ceil(values)).all())
            self.powers = bool(
                most / least > 1000.0 or most > 1.0e8 or least < 1.0e-4
                if PRINT_OPTS.sci_mode is None
                else PRINT_OPTS.sci_mode
            )
        self.width = max([self.width, *(len(self._plain(v)) for v in values.tolist())])

    def _plain(self, value: Any) -> str:
        if not self.floating:
            return f"{value}"
        if self.powers:
            return f"{value:.{PRINT_OPTS.precision}e}"
        if self.whole:
            return f"{value:.0f}." if math.isfinite(value) else f"{value:.0f}"
        return f"{value:.{PRINT_OPTS.precision}f}"

    def of(self, value: Any) -> str:
        """The text of an element, at least as wide as the widest."""
        return self._plain(value).rjust(self.width)


class ComplexFormat:
    """The format of complex elements: one for the real parts and one for the imaginary ones."""

    def __init__(self, shown: Any) -> None:
        self.real, self.imaginary = ElementFormat(shown.real), ElementFormat(shown.imag)
        self.width = self.real.width + self.imaginary.width + 1

    def of(self, value: Any) -> str:
        """The text of an element, such as `1.+2.j`."""
        imaginary = self.imaginary.of(value.imag).lstrip() + "j"
        sign = "" if imaginary[0] in "+-" else "+"
        return f"{self.real.of(value.real)}{sign}{imaginary}"


def _edges(array: Any) -> tuple[Any, list[bool]]:
    """The elements of a large array that are shown, and the dimensions that were cut."""
    edge = PRINT_OPTS.edgeitems
    cut = [size > 2 * edge for size in array.shape]
    for dim, is_cut in enumerate(cut):
        if is_cut:
            size = array.shape[dim]
            array = array.take([*range(edge), *range(size - edge, size)], axis=dim)
    return array, cut


def _vector(items: list[str], width: int, indent: int) -> str:
    """The elements of a vector in lines."""
    count = max(1, math.floor((PRINT_OPTS.linewidth - indent) / (width + 2)))
    lines = [", ".join(items[i : i + count]) for i in range(0, len(items), count)]
    return "[" + (",\n" + " " * (indent + 1)).join(lines) + "]"


def _nested(values: Any, cut: list[bool], form: Any, indent: int) -> str:
    """The text of nested lists; `cut` marks the dimensions whose middle is omitted."""
    edge = PRINT_OPTS.edgeitems
    if len(cut) == 1:
        items = [form.of(v) for v in values]
        if cut[0]:
            items.insert(edge, " ..." if edge else "...")
        return _vector(items, form.width, indent)
    parts = [_nested(v, cut[1:], form, indent + 1) for v in values]
    if cut[0]:
        parts.insert(edge, "...")
    return "[" + ("," + "\n" * (len(cut) - 1) + " " * (indent + 1)).join(parts) + "]"


def _body(array: Any, indent: int) -> str:
    """The elements of an array that is not empty."""
    if numeric.is_floating(array.dtype) and not numeric.is_complex(array.dtype):
        array = array.astype(np.float64, copy=False) if array.size <= 10**4 else array
    shown, cut = array, [False] * array.ndim
    if array.size > PRINT_OPTS.threshold:
        shown, cut = _edges(array)
    if numeric.is_complex(shown.dtype):
        form: Any = ComplexFormat(shown.astype(np.complex128))
    else:
        if numeric.is_floating(shown.dtype):
            shown = shown.astype(np.float64)
        form = ElementFormat(shown)
    if array.ndim == 0:
        return str(form.of(shown.item()))
    return _nested(shown.tolist(), cut, form, indent)


def _with_notes(text: str, notes: list[str], indent: int) -> str:
    """Append notes such as the dtype to the text of elements; wraps long lines."""
    length = len(text) - text.rfind("\n") + 1
    for note in notes:
        if length + len(note) + 2 > PRINT_OPTS.linewidth:
            text += ",\n" + " " * indent + note
            length = indent + len(note)
        else:
            text += ", " + note
            length += len(note) + 2
    return text + ")"


def _sparse_text(tensor: Any) -> str:
    """The text of a sparse tensor: coordinates and elements, each as a tensor."""
    parts = []
    for name, part in (("indices", tensor._indices()), ("values", tensor._values())):
        array, prefix = to_device(part._array, CPU), f"{name}=tensor("
        indent = len("tensor(") + len(prefix)
        body = _body(array, indent) if array.size else f"[], size={tuple(array.shape)}"
        parts.append(f"{prefix}{body})")
    notes = [f"nnz={tensor._nnz()}"]
    if tensor.is_cuda:
        notes.append(f"device='{tensor.device}'")
    default = dtypes.get_default_dtype()
    if tensor.dtype not in (default, default.to_complex(), dtypes.int64, dtypes.bool_):
        notes.append(f"dtype={tensor.dtype}")
    notes.append(f"layout={tensor.layout}")
    if tensor.grad_fn is not None:
        notes.append(f"grad_fn=<{shown_name(tensor._values())}>")
    elif tensor.requires_grad:
        notes.append("requires_grad=True")
    indent = len("tensor(")
    lines = [*parts, f"size={tuple(tensor.shape)}"]
    return _with_notes("tensor(" + (",\n" + " " * indent).join(lines), notes, indent)


def tensor_text(tensor: Tensor) -> str:
    """PyTorch's form: `tensor([1., 2.], requires_grad=True)`."""
    if tensor.is_sparse:
        return _sparse_text(tensor)
    array = to_device(tensor._array, CPU)
    dtype = tensor.dtype
    # a subclass prints its own name
    name = type(tensor).__name__ if overrides(tensor) else "tensor"
    prefix = f"{name}("
    notes = [f"device='{tensor.device}'"] if tensor.is_cuda else []
    default = dtypes.get_default_dtype()
    usual = (default, default.to_complex(), dtypes.int64, dtypes.bool_)
    if array.size == 0:
        body = "[]"
        if array.ndim != 1:
            notes.append(f"size={tuple(array.shape)}")
        if dtype is not default:
            notes.append(f"dtype={dtype}")
    else:
        if not PRINT_OPTS.edgeitems:
            notes.append(f"size={tuple(array.shape)}")
        if dtype not in usual:
            notes.append(f"dtype={dtype}")
        body = _body(array, len(prefix))
    if tensor.grad_fn is not None:
        notes.append(f"grad_fn=<{shown_name(tensor)}>")
    elif tensor.requires_grad:
        notes.append("requires_grad=True")
    text = _with_notes(prefix + body, notes, len(prefix))
    return f"Parameter containing:\n{text}" if type(tensor).__name__ == "Parameter" else text
