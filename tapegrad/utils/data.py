"""The place where PyTorch keeps `tapegrad.data`: the same names, the same modules."""

import sys

from .. import data as _data
from ..data import *  # noqa: F403

for _name in ("collate", "dataloader", "dataset", "sampler"):
    sys.modules[f"{__name__}.{_name}"] = getattr(_data, _name)

__all__ = _data.__all__
