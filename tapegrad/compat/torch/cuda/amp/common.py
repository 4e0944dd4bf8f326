"""`torch.cuda.amp.common`: whether mixed precision can be used on a GPU."""

from .....cuda import is_available


def amp_definitely_not_available() -> bool:
    """Whether there is no GPU."""
    return not is_available()
