"""The import path of some names of the package `functorch`."""

from .functional_modules import replace_all_batch_norm_modules_

__all__ = ["replace_all_batch_norm_modules_"]
