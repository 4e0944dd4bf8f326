"""Device meshes: the ranks of a job in a grid, with a group for each line along a dimension.

`init_device_mesh("cpu", (2, 4), mesh_dim_names=("dp", "tp"))` arranges eight ranks in two rows of
four. `mesh["tp"]` is this rank's row, `mesh["dp"]` its column; `get_group()` of either is a process
group. Layers, `fully_shard` and `DistributedDataParallel` take meshes of one dimension.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..core.tensor import Tensor, wrap
from .process_group import (
    NON_GROUP_MEMBER,
    get_rank,
    get_world_size,
    init_process_group,
    is_initialized,
    new_group,
)


class DeviceMesh:
    """A grid of ranks with any number of dimensions. All ranks of the job make it together.

    `mesh` contains the ranks, as a tensor or nested lists; `device_type` is the device of tensors.
    """

    def __init__(
        self,
        device_type: str,
        mesh: Any,
        *,
        mesh_dim_names: tuple[str, ...] | None = None,
    ) -> None:
        if not is_initialized():
            init_process_group()
        ranks = np.asarray(mesh._array if isinstance(mesh, Tensor) else mesh, np.int64)
        if ranks.ndim == 0 or len(np.unique(ranks)) != ranks.size:
            raise ValueError(f"a mesh needs different ranks in a list or grid, got {mesh!r}")
        if mesh_dim_names is not None:
            if len(mesh_dim_names) != ranks.ndim:
                raise ValueError(
                    f"{ranks.ndim} dimensions need as many names, got {mesh_dim_names}"
                )
            if len(set(mesh_dim_names)) != ranks.ndim:
                raise ValueError(f"dimensions need different names, got {mesh_dim_names}")
            mesh_dim_names = tuple(mesh_dim_names)
        groups = [_line_group(ranks, dim) for dim in range(ranks.ndim)]
        self._set(device_type, ranks, mesh_dim_names, groups, None)

    def _set(
        self, device_type: str, ranks: Any, names: Any, groups: list[Any], root: DeviceMesh | None
    ) -> None:
        self.device_type = device_type
        self.mesh_dim_names: tuple[str, ...] | None = names
        self._ranks = ranks
        self._groups = groups
        self._root = root

    @classmethod
    def from_group(
        cls, group: Any, device_type: str, *, mesh_dim_names: tuple[str, ...] | None = None
    ) -> DeviceMesh:
        """A mesh of one dimension with the ranks of a group."""
        mesh = cls.__new__(cls)
        mesh._set(device_type, np.asarray(group.ranks), mesh_dim_names, [group], None)
        return mesh

    # -- properties --------------------------------------------------------------------------------

    @property
    def mesh(self) -> Tensor:
        """The ranks, as a tensor."""
        return wrap(self._ranks.copy())

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return int(self._ranks.ndim)

    @property
    def shape(self) -> tuple[int, ...]:
        """The size of each dimension."""
        return tuple(self._ranks.shape)

    def size(self, mesh_dim: int | None = None) -> int:
        """The number of ranks, in all or along one dimension."""
        return int(self._ranks.size if mesh_dim is None else self._ranks.shape[mesh_dim])

    def __len__(self) -> int:
        return int(self._ranks.shape[0])

    def __repr__(self) -> str:
        names = self.mesh_dim_names or range(self.ndim)
        sizes = ", ".join(f"{n}={s}" for n, s in zip(names, self.shape, strict=True))
        return f"DeviceMesh(({sizes}), {self.device_type!r}, {self._ranks.tolist()})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DeviceMesh) and (
            self.device_type == other.device_type
            and self.mesh_dim_names == other.mesh_dim_names
            and np.array_equal(self._ranks, other._ranks)
        )

    def __hash__(self) -> int:
        return hash((self.device_type, self.mesh_dim_names, self._ranks.tobytes(), self.shape))

    # -- this rank ---------------------------------------------------------------------------------

    def get_rank(self) -> int:
        """This process's rank in the whole job."""
        return get_rank()

    def get_coordinate(self) -> list[int] | None:
        """The index of this rank in each dimension; None if it is not in the mesh."""
        found = np.argwhere(self._ranks == get_rank())
        return found[0].tolist() if len(found) else None

    def get_local_rank(self, mesh_dim: int | str | None = None) -> int:
        """The index of this rank along a dimension, by default the only one."""
        dim = self._dim(mesh_dim)
        coordinate = self.get_coordinate()
        if coordinate is None:
            raise RuntimeError(f"rank {get_rank()} is not in {self!r}")
        return coordinate[dim]

    def get_group(self, mesh_dim: int | str | None = None) -> Any:
        """The group of this rank's line along a dimension, by default the only one."""
        return self._groups[self._dim(mesh_dim)]

    def get_all_groups(self) -> list[Any]:
        """The group of each dimension."""
        return list(self._groups)

    def _dim(self, given: int | str | None) -> int:
        if given is None:
            if self.ndim != 1:
                raise RuntimeError(f"{self!r} has {self.ndim} dimensions; say which one is meant")
            return 0
        if isinstance(given, str):
            return self._named(given)
        if not -self.ndim <= given < self.ndim:
            raise IndexError(f"dimension {given} is out of range for {self!r}")
        return given % self.ndim

    def _named(self, name: str) -> int:
        if self.mesh_dim_names is None or name not in self.mesh_dim_names:
            raise KeyError(f"no dimension {name!r} in {self!r}")
        return self.mesh_dim_names.index(name)

    # -- submeshes ---------------------------------------------------------------------------------

    def __getitem__(self, names: str | tuple[str, ...]) -> DeviceMesh:
        """The submesh of the named dimensions that this rank is in."""
        wanted = (names,) if isinstance(names, str) else tuple(names)
        dims = [self._named(name) for name in wanted]
        coordinate = self.get_coordinate()
        if coordinate is None:
            raise RuntimeError(f"rank {get_rank()} is not in {self!r}")
        order = [d for d in range(self.ndim) if d not in dims]
        at = tuple(coordinate[d] for d in order)
        ranks = self._ranks.transpose(*order, *dims)[at]
        part = DeviceMesh.__new__(DeviceMesh)
        root = self._root or self
        part._set(self.device_type, ranks, wanted, [self._groups[d] for d in dims], root)
        return part

    def _get_root_mesh(self) -> DeviceMesh:
        """The mesh that this one is a submesh of, or itself."""
        return self._root or self

    def _flatten(self, mesh_dim_name: str | None = None) -> DeviceMesh:
        """A mesh of one dimension with the same ranks. All ranks of the job call this."""
        names = self.mesh_dim_names
        name = mesh_dim_name or ("_".join(names) if names else None)
        root = self._root or self
        if names is None or name is None:
            lines = [root._ranks.reshape(-1)]
        else:
            dims = [root._named(n) for n in names]
            rest = [d for d in range(root.ndim) if d not in dims]
            lines = list(root._ranks.transpose(*rest, *dims).reshape(-1, self.size()))
        mine = NON_GROUP_MEMBER
        for line in lines:
            group = new_group(line.tolist())
            mine = group if group is not NON_GROUP_MEMBER else mine
        flat = DeviceMesh.__new__(DeviceMesh)
        named = None if name is None else (name,)
        flat._set(self.device_type, self._ranks.reshape(-1), named, [mine], root)
        return flat


def _line_group(ranks: Any, dim: int) -> Any:
    """Make a group of each line along a dimension; returns this rank's group."""
    mine: Any = NON_GROUP_MEMBER
    for line in np.moveaxis(ranks, dim, -1).reshape(-1, ranks.shape[dim]):
        group = new_group(line.tolist(), group_desc=f"mesh dimension {dim}: {line.tolist()}")
        mine = group if group is not NON_GROUP_MEMBER else mine
    return mine


def init_device_mesh(
    device_type: str,
    mesh_shape: Sequence[int],
    *,
    mesh_dim_names: tuple[str, ...] | None = None,
    backend_override: Any = None,
) -> DeviceMesh:
    """A mesh of the job's first ranks, in order; connects the ranks if they are not connected."""
    if backend_override is not None:
        raise ValueError("all groups are connected by MPI; leave backend_override out")
    if not is_initialized():
        init_process_group()
    shape = tuple(int(n) for n in mesh_shape)
    count = int(np.prod(shape, dtype=np.int64))
    if count > get_world_size():
        raise RuntimeError(
            f"a mesh of shape {shape} needs {count} ranks, and there are {get_world_size()}"
        )
    ranks = np.arange(count).reshape(shape)
    return DeviceMesh(device_type, ranks, mesh_dim_names=mesh_dim_names)


__all__ = ["DeviceMesh", "init_device_mesh"]
