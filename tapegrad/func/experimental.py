"""The path at which the package `functorch` had some of its names."""

from .functional_modules import replace_all_batch_norm_modules_

__all__ = ["replace_all_batch_norm_modules_"]
