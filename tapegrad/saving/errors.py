"""SavingError: the one exception of saving and loading that is not about the operating system.

Raised by every module of this folder if a value cannot be saved, or if a file is damaged or holds
something that is not accepted.
"""

from __future__ import annotations

import pickle


class SavingError(RuntimeError, pickle.UnpicklingError):
    """A file that is damaged or not understood, or an object that cannot be saved.

    The message says which file and which part of it. Errors of the operating system (no such file,
    no permission, disk full) stay OSErrors. It is an UnpicklingError too, because scripts for
    PyTorch catch that when a file names a class that is not allowed.
    """
