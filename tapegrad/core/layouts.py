"""Names of memory layouts and memory formats, as PyTorch has them.

Code compares them and writes them in annotations. Dense tensors are always strided here, so a
requested memory format changes nothing.
"""

from __future__ import annotations

from .naming import shown


class layout:
    """How elements are kept: `strided`, or `sparse_coo` for sparse gradients and their like."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"{shown.package}.{self.name}"

    def __reduce__(self) -> tuple[object, ...]:
        return _layout_named, (self.name,)


class memory_format:
    """The order of dimensions in memory that a tensor should have."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"{shown.package}.{self.name}"

    def __reduce__(self) -> tuple[object, ...]:
        return _format_named, (self.name,)


strided = layout("strided")
LAYOUTS = {
    strided.name: strided,
    **{
        name: layout(name)
        for name in ("sparse_coo", "sparse_csr", "sparse_csc", "sparse_bsr", "sparse_bsc", "jagged")
    },
}
FORMATS = {
    name: memory_format(name)
    for name in ("channels_last", "channels_last_3d", "contiguous_format", "preserve_format")
}


def _layout_named(name: str) -> layout:
    return LAYOUTS[name]


def _format_named(name: str) -> memory_format:
    return FORMATS[name]
