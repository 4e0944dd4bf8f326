"""What nodes of the graph show of themselves, as PyTorch's do.

In come an entry and the name of an attribute, out comes its value: what a Function of the user has
set on its context, or what the operation has saved for backward (`_saved_self`, `_saved_result`).
Called by `Entry.__getattr__`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..core.tape import Entry


def attribute_of(entry: Entry, name: str) -> Any:
    """The attribute of a node that is not one of all nodes."""
    context = entry.primitive.context
    if context is not None:
        return getattr(context, name)
    raise AttributeError(f"{entry.name()} has no attribute {name!r}")
