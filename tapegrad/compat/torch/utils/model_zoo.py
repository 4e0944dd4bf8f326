"""`torch.utils.model_zoo`: the older path to files that were downloaded before."""

from typing import Any

from .. import hub
from ..hub import load_state_dict_from_url as load_url

__all__ = ["load_url"]


def __getattr__(name: str) -> Any:
    return getattr(hub, name)
