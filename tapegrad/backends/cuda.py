"""Switches of `torch.backends.cuda`: they keep what they are given."""

from __future__ import annotations

from types import SimpleNamespace

matmul = SimpleNamespace(
    allow_tf32=False,
    allow_fp16_reduced_precision_reduction=True,
    allow_bf16_reduced_precision_reduction=True,
)


def is_built() -> bool:
    """Whether tensors can live on a GPU here."""
    from ..cuda import is_available

    return is_available()
