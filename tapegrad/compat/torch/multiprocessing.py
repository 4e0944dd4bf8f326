"""`torch.multiprocessing`: memory sharing strategies, which have no effect."""

from __future__ import annotations

_STRATEGIES = {"file_descriptor", "file_system"}
_asked = ["file_descriptor"]


def get_all_sharing_strategies() -> set[str]:
    """The names that `set_sharing_strategy` accepts."""
    return set(_STRATEGIES)


def get_sharing_strategy() -> str:
    """The stored strategy."""
    return _asked[0]


def set_sharing_strategy(new_strategy: str) -> None:
    """Store the strategy; it has no effect: tensors sent to other processes are copied."""
    if new_strategy not in _STRATEGIES:
        raise ValueError(
            f"a sharing strategy is one of {sorted(_STRATEGIES)}, got {new_strategy!r}"
        )
    _asked[0] = new_strategy
