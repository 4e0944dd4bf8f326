"""`torch.nn.modules.module`: names that packages import from there."""

from .....nn.state import IncompatibleKeys

_IncompatibleKeys = IncompatibleKeys
_EXTRA_STATE_KEY_SUFFIX = "_extra_state"


def _addindent(s_: str, numSpaces: int) -> str:
    """Indent all lines of a text but the first."""
    return s_.replace("\n", "\n" + " " * numSpaces)
