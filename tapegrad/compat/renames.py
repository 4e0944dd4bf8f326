"""PyTorch's modules of the library's public classes, so that pickles and texts name those.

Comes in: what a facade shows. The classes of layers, optimizers, datasets and distributions among
it get the module that PyTorch defines them in; `core.naming.home_of` still knows their own.
Called by `facade.py`.
"""

from __future__ import annotations

from typing import Any

from ..core.naming import home_of, rename

#: files of `tapegrad.nn` and the module of `torch.nn.modules` that has their classes
_LAYERS = {
    "activation": "activation",
    "adaptive": "adaptive",
    "attention": "activation",
    "containers": "container",
    "conv": "conv",
    "embedding": "dropout",
    "linear": "linear",
    "loss": "loss",
    "module": "module",
    "norm": "batchnorm",
    "padding": "padding",
    "pooling": "pooling",
    "recurrent": "rnn",
    "transformer": "transformer",
    "upsampling": "upsampling",
}
#: classes that stand elsewhere in PyTorch than the others of their file
_SINGLE = {
    "Embedding": "sparse",
    "EmbeddingBag": "sparse",
    "Flatten": "flatten",
    "Unflatten": "flatten",
    "CosineSimilarity": "distance",
    "PairwiseDistance": "distance",
    "LinearCrossEntropyLoss": "loss",
    "LinearCrossEntropyOptions": "linear_cross_entropy_options",
    "GroupNorm": "normalization",
    "LayerNorm": "normalization",
    "CrossMapLRN2d": "normalization",
    "LocalResponseNorm": "normalization",
    "RMSNorm": "normalization",
    "Fold": "fold",
    "Unfold": "fold",
    "PixelShuffle": "pixelshuffle",
    "PixelUnshuffle": "pixelshuffle",
    "ChannelShuffle": "channelshuffle",
    "LazyLinear": "linear",
    "SyncBatchNorm": "batchnorm",
}
#: parts of the library whose classes have the same path in PyTorch, or another one
_PARTS = {
    "tapegrad.amp.": "torch.amp.",
    "tapegrad.data.": "torch.utils.data.",
    "tapegrad.distributions.": "torch.distributions.",
    "tapegrad.nn.utils.": "torch.nn.utils.",
    "tapegrad.optim.": "torch.optim.",
}


def rename_classes(facade: str, shown: dict[str, Any]) -> None:
    """Give the classes that a facade shows PyTorch's modules."""
    for name, value in shown.items():
        if isinstance(value, type) and name == value.__name__:
            module = torch_module(value)
            if module is not None:
                rename(value, module)


def torch_module(kind: type) -> str | None:
    """The module of PyTorch that has a class; None for classes that keep their name."""
    home = home_of(kind)
    if not home.startswith("tapegrad."):
        return None
    for own, theirs in _PARTS.items():
        if home.startswith(own):
            rest = home.removeprefix(own)
            return theirs + ("lr_scheduler" if rest.startswith("lr_scheduler") else rest)
    name = kind.__name__
    if home == "tapegrad.storage":
        return "torch.storage" if name in ("TypedStorage", "UntypedStorage") else "torch"
    if home in ("tapegrad.nn.parameter", "tapegrad.nn.uninitialized"):
        return "torch.nn.parameter"
    if name in _SINGLE:
        return f"torch.nn.modules.{_SINGLE[name]}"
    if home == "tapegrad.nn.lazy":
        plain = name.removeprefix("Lazy")
        return "torch.nn.modules." + ("conv" if plain.startswith("Conv") else _norm(plain))
    file = home.removeprefix("tapegrad.nn.")
    if file not in _LAYERS or home == file:
        return None
    module = _norm(name) if file == "norm" else _LAYERS[file]
    return f"torch.nn.modules.{module}"


def _norm(name: str) -> str:
    return "instancenorm" if "InstanceNorm" in name else "batchnorm"
