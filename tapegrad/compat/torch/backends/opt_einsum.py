"""`torch.backends.opt_einsum`: a switch that keeps what it is given and changes nothing."""

enabled = False
strategy: str | None = None


def is_available() -> bool:
    """False: `einsum` chooses its order itself."""
    return False
