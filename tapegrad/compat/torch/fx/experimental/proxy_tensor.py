"""`torch.fx.experimental.proxy_tensor`: tracing with proxies, which never happens here."""

from typing import NoReturn


def get_proxy_mode() -> None:
    """None: nothing is traced."""
    return


def make_fx(*args: object, **kwargs: object) -> NoReturn:
    """Raises: `tapegrad.compile` records functions, and a Tape lists operations."""
    raise NotImplementedError(
        "torch.fx.experimental.proxy_tensor.make_fx is not there; record operations with "
        "tapegrad.Tape(), or a whole function with tapegrad.compile"
    )
