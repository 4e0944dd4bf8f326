"""`torch.backends.cpu`: the processor."""


def get_cpu_capability() -> str:
    """DEFAULT: native code is made for the processor itself, whatever it has."""
    return "DEFAULT"
