"""Logs for TensorBoard, written by the `tensorboard` package, which must be installed."""

from importlib.util import find_spec

if find_spec("tensorboard") is None:
    raise ModuleNotFoundError(
        "tapegrad.utils.tensorboard needs the package tensorboard: pip install tensorboard",
        name="tensorboard",
    )

from .writer import FileWriter, SummaryWriter

__all__ = ["FileWriter", "SummaryWriter"]
