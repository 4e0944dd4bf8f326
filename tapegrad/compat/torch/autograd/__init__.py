"""`torch.autograd`: names that `tapegrad.autograd` lacks."""

from __future__ import annotations

from ....core.modes import STATE


def _is_checkpoint_valid() -> bool:
    """Whether the backward pass that runs in this thread, if any, fills `.grad` of all leaves."""
    return STATE.walk is None or STATE.walk.wanted is None
