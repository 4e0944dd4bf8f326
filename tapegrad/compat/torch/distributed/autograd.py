"""`torch.distributed.autograd`: gradients through remote procedure calls; not supported."""

from ...absent import absent, absent_class

_INSTEAD = "torch.distributed.nn.functional has collectives with gradients"
_PATH = "torch.distributed.autograd"

context = absent_class(f"{_PATH}.context", _INSTEAD)
DistAutogradContext = absent_class(f"{_PATH}.DistAutogradContext", _INSTEAD)
backward = absent(f"{_PATH}.backward", _INSTEAD)
get_gradients = absent(f"{_PATH}.get_gradients", _INSTEAD)


def is_available() -> bool:
    """False: there are no remote procedure calls."""
    return False
