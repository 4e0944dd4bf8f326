"""Settings for all tests: Hypothesis profiles, and no CUDA tests without a GPU."""

from __future__ import annotations

import os

import pytest
from hypothesis import settings

#: how long something takes is no part of what a test sees
os.environ.setdefault("TAPEGRAD_QUIET", "1")

settings.register_profile("default", deadline=None, max_examples=60, print_blob=True)
settings.register_profile("ci", deadline=None, max_examples=60, derandomize=True, database=None)
settings.load_profile("ci" if os.environ.get("CI") else "default")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    marked = [item for item in items if "cuda" in item.keywords]
    if marked and not _has_gpu():
        for item in marked:
            item.add_marker(pytest.mark.skip(reason="needs CuPy and an NVIDIA GPU"))


def _has_gpu() -> bool:
    from tapegrad.core.device import cupy

    try:
        cupy()
    except RuntimeError:
        return False
    return True
