"""Operations that are loaded at first use: decompositions of matrices, special functions.

The folders of `GROUPS` are no part of `import tapegrad`: together they take 20 ms to load. A name
of theirs in the main namespace loads its folder (`function`), and so does a method of Tensor. The
modules `tapegrad.linalg` and `tapegrad.special` load theirs, and `load` loads all, for what reads
the whole table: stubs, reference, tests.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from ..core.tensor import Tensor
from .table import TABLE

#: by folder: functions of the main namespace
GROUPS: dict[str, tuple[str, ...]] = {
    "factors": (
        *("addbmm", "addr", "chain_matmul", "cholesky", "cholesky_inverse", "cholesky_solve"),
        *("cumulative_trapezoid", "frobenius_norm", "geqrf", "lobpcg", "lu", "lu_solve"),
        *("lu_unpack", "nuclear_norm", "orgqr", "ormqr", "pca_lowrank", "pinverse", "qr", "svd"),
        *("svd_lowrank", "triangular_solve", "vander"),
    ),
}

#: by folder: methods of Tensor that are no functions too, or have other names
METHODS: dict[str, tuple[str, ...]] = {"factors": ("addbmm_", "addr_")}

#: by folder: names of PyTorch's that only raise an error, which says what to use
REMOVED: dict[str, str] = dict.fromkeys(
    ("eig", "lstsq", "matrix_rank", "solve", "symeig"), "factors.older"
)

#: functions that are no methods
_NO_METHODS = {
    *("chain_matmul", "cumulative_trapezoid", "frobenius_norm", "lobpcg", "lu_unpack"),
    *("nuclear_norm", "pca_lowrank", "svd_lowrank", "vander"),
}

NAMES = {name: group for group, names in GROUPS.items() for name in names} | REMOVED


def load(*groups: str) -> None:
    """Enter the operations of these folders, or of all, in the table."""
    for group in groups or GROUPS:
        import_module(f".{group}", __package__)


def function(name: str) -> Callable[..., Any]:
    """A function of the main namespace, whose folder is loaded."""
    if name in REMOVED:
        found: Callable[..., Any] = import_module(f".{REMOVED[name]}", __package__).REMOVED[name]
        return found
    load(NAMES[name])
    entry = TABLE.get(name)
    if entry is None:
        entry = next(e for e in TABLE.values() if name in e.aliases and not e.module)
    return entry.function


def _method(name: str, group: str) -> Callable[..., Any]:
    """What stands for a method until its folder is loaded, which puts the method in its place."""

    def method(self: Tensor, *args: Any, **options: Any) -> Any:
        load(group)
        return getattr(Tensor, name)(self, *args, **options)

    method.__name__ = name
    method.__qualname__ = f"Tensor.{name}"
    return method


for _group, _names in GROUPS.items():
    for _name in (*_names, *METHODS[_group]):
        if _name not in _NO_METHODS:
            setattr(Tensor, _name, _method(_name, _group))
