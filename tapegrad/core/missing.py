"""The error for a name that a module does not have: it says what to use instead.

Comes in: the name, and the existing names. Goes out: an AttributeError for a module's
`__getattr__` to raise, with the same name in another module or the nearest name in this one.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module

_SPARSE = "sparse tensors have coordinates here; use tapegrad.sparse_coo_tensor"
_QUANTIZED = "quantized tensors are not supported"
_EXPORT = "programs cannot be exported; save a state_dict with tapegrad.save"

#: names of PyTorch, NumPy and JAX that no module of tapegrad has, and what to use instead
_INSTEAD = {
    **dict.fromkeys(
        ("sparse_csr_tensor", "sparse_csc_tensor", "sparse_compressed_tensor"), _SPARSE
    ),
    **dict.fromkeys(("ao", "quantization", "quantize_per_tensor", "quantized"), _QUANTIZED),
    **dict.fromkeys(("export", "fx", "onnx"), _EXPORT),
    "DataParallel": "use tapegrad.nn.parallel.DistributedDataParallel, in several processes",
    "Dense": "use tapegrad.nn.Linear",
    "array": "use tapegrad.tensor",
    "astype": "use tapegrad.Tensor.to",
    "expand_dims": "use tapegrad.unsqueeze",
}


def missing(
    module: str, name: str, known: Iterable[str], elsewhere: Iterable[str] = ()
) -> AttributeError:
    """An error to raise from a module's `__getattr__`.

    `known` are the module's names; `elsewhere` are modules that may have the name instead.
    """
    text = f"module {module!r} has no attribute {name!r}"
    hint = "" if name.startswith("_") else _hint(name, known, elsewhere)
    # With an `obj`, Python would add its own suggestion to the text of an uncaught error.
    return AttributeError(f"{text}; {hint}" if hint else text, name=name, obj=None)


def _hint(name: str, known: Iterable[str], elsewhere: Iterable[str]) -> str:
    if name in _INSTEAD:
        return _INSTEAD[name]
    for other in elsewhere:
        if name in import_module(other).__all__:
            return f"did you mean '{other}.{name}'?"
    names = list(known)
    close = [one for one in names if one.lower() == name.lower()]
    from difflib import get_close_matches

    close = close or get_close_matches(name, names, 1, 0.75)
    return f"did you mean {close[0]!r}?" if close else ""
