"""`torch._subclasses.fake_tensor`: tensors without values, which do not exist here."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ...absent import absent_class

_INSTEAD = "tensors always have values"
FakeTensor = absent_class("torch._subclasses.fake_tensor.FakeTensor", _INSTEAD)
FakeTensorMode = absent_class("torch._subclasses.fake_tensor.FakeTensorMode", _INSTEAD)


def is_fake(x: Any) -> bool:
    """False: every tensor has values."""
    return False


@contextmanager
def unset_fake_temporarily() -> Iterator[None]:
    """Does nothing: no mode makes tensors without values."""
    yield
