"""The one exception of saving and loading that is not about the operating system."""

from __future__ import annotations


class SavingError(RuntimeError):
    """A file that is damaged or not understood, or an object that cannot be saved.

    The message says which file and which part of it. Errors of the operating system (no such file,
    no permission, disk full) stay OSErrors.
    """
