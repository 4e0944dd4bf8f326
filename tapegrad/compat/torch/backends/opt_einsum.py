"""`torch.backends.opt_einsum`: settings that have no effect."""

enabled = False
strategy: str | None = None


def is_available() -> bool:
    """False: `einsum` chooses its contraction order itself."""
    return False
