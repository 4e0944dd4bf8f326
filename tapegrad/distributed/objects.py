"""Collectives of Python objects.

Plain objects (None, numbers, strings, bytes, lists, tuples, dicts, sets, tensors and NumPy arrays)
are sent in tapegrad's own format, which contains no code. Other objects are pickled; only objects
from ranks of the same job, whose code you trust anyway, are unpickled.
"""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np

from ..core.tensor import Tensor, wrap
from .calls import member
from .process_group import NON_GROUP_MEMBER, resolved

_PLAIN = b"P"
_PICKLED = b"K"


#: types of containers, and the letter of each
_CONTAINERS: dict[type, bytes] = {list: b"l", tuple: b"u", set: b"e", dict: b"m"}


class _Unplain(Exception):
    """An object that has no plain form."""


def pack(value: Any) -> bytes:
    """An object as bytes."""
    parts: list[bytes] = []
    try:
        _write(value, parts)
    except _Unplain:
        return _PICKLED + pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)
    return _PLAIN + b"".join(parts)


def unpack(data: bytes) -> Any:
    """The object from the bytes that `pack` made."""
    if data[:1] == _PICKLED:
        return pickle.loads(data[1:])
    value, _ = _read(memoryview(data), 1)
    return value


def _write(value: Any, parts: list[bytes]) -> None:
    kind = type(value)
    if value is None or kind is bool:
        _put(parts, {None: b"n", True: b"t", False: b"f"}[value], b"")
    elif kind is int:
        _put(parts, b"i", str(value).encode())
    elif kind is float:
        _put(parts, b"d", np.float64(value).tobytes())
    elif kind is str:
        _put(parts, b"s", value.encode("utf-8", "surrogatepass"))
    elif kind is bytes:
        _put(parts, b"b", value)
    elif kind in _CONTAINERS:
        items = list(value) if kind is not dict else [x for pair in value.items() for x in pair]
        _put(parts, _CONTAINERS[kind], b"", len(items))
        for item in items:
            _write(item, parts)
    elif kind is Tensor and isinstance(value._array, np.ndarray):
        _put(parts, b"T" if value._requires else b"x", b"")
        _write_array(value._array, parts)
    elif kind is np.ndarray and not value.dtype.hasobject and value.dtype.names is None:
        _put(parts, b"a", b"")
        _write_array(value, parts)
    else:
        raise _Unplain


def _write_array(array: Any, parts: list[bytes]) -> None:
    _put(parts, b"s", array.dtype.name.encode())
    _write(tuple(int(n) for n in array.shape), parts)
    _put(parts, b"b", array.tobytes())


def _put(parts: list[bytes], kind: bytes, content: bytes, count: int | None = None) -> None:
    size = len(content) if count is None else count
    parts.append(kind + size.to_bytes(8, "little") + content)


def _read(data: memoryview, at: int) -> tuple[Any, int]:
    kind = bytes(data[at : at + 1])
    size = int.from_bytes(data[at + 1 : at + 9], "little")
    at += 9
    if kind in b"luem":
        items = []
        for _ in range(size):
            item, at = _read(data, at)
            items.append(item)
        if kind == b"m":
            return dict(zip(items[::2], items[1::2], strict=True)), at
        return {b"l": list, b"u": tuple, b"e": set}[kind](items), at
    if kind in b"aTx":
        name, at = _read(data, at)
        shape, at = _read(data, at)
        content, at = _read(data, at)
        array = np.frombuffer(content, _dtype(name)).reshape(shape).copy()
        if kind == b"a":
            return array, at
        return wrap(array).requires_grad_(kind == b"T"), at
    content = bytes(data[at : at + size])
    at += size
    if kind in b"ntf":
        return {b"n": None, b"t": True, b"f": False}[kind], at
    if kind == b"i":
        return int(content), at
    if kind == b"d":
        return float(np.frombuffer(content, np.float64)[0]), at
    return (content.decode("utf-8", "surrogatepass") if kind == b"s" else content), at


def _dtype(name: str) -> Any:
    if name == "bfloat16":
        from ..core.dtypes import bfloat16

        return bfloat16.numpy
    return np.dtype(name)


# -- collectives -----------------------------------------------------------------------------------


def exchange(group: Any, data: bytes) -> list[bytes]:
    """The bytes of all members, in the order of ranks."""
    sizes = group.all_gather(np.array([len(data)], np.int64)).reshape(-1)
    room = np.zeros(int(sizes.max()), np.uint8)
    room[: len(data)] = np.frombuffer(data, np.uint8)
    rows = group.all_gather(room)
    return [rows[i, : int(n)].tobytes() for i, n in enumerate(sizes)]


def all_gather_object(object_list: list[Any], obj: Any, group: Any = None) -> None:
    """Fill a list with one object from each rank."""
    if group is NON_GROUP_MEMBER:
        return
    group = resolved(group)
    if len(object_list) != group.size:
        raise ValueError(f"object_list needs {group.size} items, one for each rank")
    object_list[:] = map(unpack, exchange(group, pack(obj)))


def gather_object(
    obj: Any,
    object_gather_list: list[Any] | None = None,
    dst: int | None = None,
    group: Any = None,
    group_dst: int | None = None,
) -> None:
    """Fill a list on the rank `dst` (0 by default) with one object from each rank."""
    if group is NON_GROUP_MEMBER:
        return
    group = resolved(group)
    target = member(group, dst, group_dst, default=0)
    if group.rank == target and (
        object_gather_list is None or len(object_gather_list) != group.size
    ):
        raise ValueError(f"object_gather_list needs {group.size} items on the rank that receives")
    found = exchange(group, pack(obj))
    if group.rank == target and object_gather_list is not None:
        object_gather_list[:] = map(unpack, found)


def broadcast_object_list(
    object_list: list[Any],
    src: int | None = None,
    group: Any = None,
    device: Any = None,
    group_src: int | None = None,
) -> None:
    """Replace the items of a list by those of the rank `src` (0 by default)."""
    if group is NON_GROUP_MEMBER:
        return
    group = resolved(group)
    source = member(group, src, group_src, default=0)
    data = pack(list(object_list)) if group.rank == source else b""
    size = group.broadcast(np.array([len(data)], np.int64), source)
    room = np.zeros(int(size[0]), np.uint8)
    if data:
        room[:] = np.frombuffer(data, np.uint8)
    items = unpack(group.broadcast(room, source).tobytes())
    if len(items) != len(object_list):
        raise ValueError(
            f"object_list has {len(object_list)} items, that of the source {len(items)}"
        )
    object_list[:] = items


def scatter_object_list(
    scatter_object_output_list: list[Any],
    scatter_object_input_list: list[Any] | None = None,
    src: int | None = None,
    group: Any = None,
    group_src: int | None = None,
) -> None:
    """Send each rank one item of a list on the rank `src` (0 by default)."""
    if group is NON_GROUP_MEMBER:
        return
    group = resolved(group)
    source = member(group, src, group_src, default=0)
    if not scatter_object_output_list:
        raise ValueError("scatter_object_output_list needs one item, which is replaced")
    if group.rank == source:
        given = scatter_object_input_list
        if given is None or len(given) != group.size:
            raise ValueError(f"scatter_object_input_list needs {group.size} items on the source")
    items = list(scatter_object_input_list or ()) if group.rank == source else [None] * group.size
    broadcast_object_list(items, group=group, group_src=source)
    scatter_object_output_list[0] = items[group.rank]


def send_object_list(
    object_list: list[Any],
    dst: int | None = None,
    group: Any = None,
    device: Any = None,
    group_dst: int | None = None,
    use_batch: bool = False,
) -> None:
    """Send the items of a list to a rank, which calls `recv_object_list`."""
    if group is NON_GROUP_MEMBER:
        return
    group = resolved(group)
    target = member(group, dst, group_dst)
    data = np.frombuffer(pack(list(object_list)), np.uint8)
    group.send(np.array([len(data)], np.int64), target, 0)
    group.send(data, target, 0)


def recv_object_list(
    object_list: list[Any],
    src: int | None = None,
    group: Any = None,
    device: Any = None,
    group_src: int | None = None,
    use_batch: bool = False,
) -> int:
    """Replace the items of a list by those that a rank (any rank for None) sends.

    Returns the sender's rank; -1 outside of the group.
    """
    if group is NON_GROUP_MEMBER:
        return -1
    group = resolved(group)
    size = np.zeros(1, np.int64)
    sender = group.receive_into(size, member(group, src, group_src, default=-1), 0)
    room = np.zeros(int(size[0]), np.uint8)
    group.receive_into(room, sender, 0)
    items = unpack(room.tobytes())
    if len(items) != len(object_list):
        raise ValueError(
            f"object_list has {len(object_list)} items, that of the sender {len(items)}"
        )
    object_list[:] = items
    return int(group.ranks[sender])
