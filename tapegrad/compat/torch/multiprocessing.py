"""`torch.multiprocessing`: ways to share memory, of which there is one."""

from __future__ import annotations

_STRATEGIES = {"file_descriptor", "file_system"}
_asked = ["file_descriptor"]


def get_all_sharing_strategies() -> set[str]:
    """The names that `set_sharing_strategy` takes."""
    return set(_STRATEGIES)


def get_sharing_strategy() -> str:
    """What was asked for."""
    return _asked[0]


def set_sharing_strategy(new_strategy: str) -> None:
    """Keep what is asked for: tensors that go to another process are copied, so nothing changes."""
    if new_strategy not in _STRATEGIES:
        raise ValueError(
            f"a sharing strategy is one of {sorted(_STRATEGIES)}, got {new_strategy!r}"
        )
    _asked[0] = new_strategy
