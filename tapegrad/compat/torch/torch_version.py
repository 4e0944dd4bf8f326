"""The version of PyTorch's API that tapegrad follows, as `torch.__version__`."""

from __future__ import annotations

import re
from typing import Any

#: the version of the API, marked as tapegrad's; the metadata in `compat/site` have the same
VERSION = "2.13.0+tapegrad"


def _numbers(version: Any) -> tuple[Any, ...]:
    """The numbers of a version, so that 2.9 is before 2.13; pre-releases end in -1."""
    if isinstance(version, (tuple, list)):
        return tuple(int(part) for part in version)
    release = re.match(r"v?(\d+(?:\.\d+)*)(.*)", str(version).partition("+")[0].strip())
    if release is None:
        raise ValueError(f"Invalid version: {version!r}")
    numbers = tuple(int(part) for part in release[1].split("."))
    early = re.match(r"[.\-_]?(a|b|c|rc|alpha|beta|pre|dev)", release[2]) is not None
    return (*_stripped(numbers), -1) if early else _stripped(numbers)


def _stripped(numbers: tuple[int, ...]) -> tuple[int, ...]:
    while numbers and numbers[-1] == 0:
        numbers = numbers[:-1]
    return numbers


class TorchVersion(str):
    """A version string that compares with strings and tuples by its numbers."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return self._compared(other, lambda a, b: a == b, str.__eq__)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __lt__(self, other: Any) -> bool:
        return self._compared(other, lambda a, b: bool(a < b), str.__lt__)

    def __le__(self, other: Any) -> bool:
        return bool(self < other) or self == other

    def __gt__(self, other: Any) -> bool:
        return not self <= other

    def __ge__(self, other: Any) -> bool:
        return not self < other

    __hash__ = str.__hash__

    def _compared(self, other: Any, numbers: Any, texts: Any) -> bool:
        try:
            return bool(numbers(_stripped(_numbers(str(self))), _stripped(_numbers(other))))
        except (TypeError, ValueError):
            return bool(texts(self, str(other)))


__version__ = TorchVersion(VERSION)
