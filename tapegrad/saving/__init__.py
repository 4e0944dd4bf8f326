"""Saving and loading: tensors, state dicts, nested values, whole training states.

files (save, load), checkpoint ─> structure ─> memory ─> container ─> atomic
                      └─> pytorch
checkpoint, job (distributed.checkpoint) ─> sharded ─> parts
"""

from .checkpoint import Checkpoint, Saved
from .errors import SavingError
from .files import load, save

__all__ = ["Checkpoint", "Saved", "SavingError", "load", "save"]
