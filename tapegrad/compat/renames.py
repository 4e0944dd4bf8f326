"""Gives public classes the `__module__` of PyTorch's classes, for pickles and printed names.

Comes in: the names that a facade exposes. Layers, optimizers, datasets and distributions among them
get the module that defines them in PyTorch; `core.naming.home_of` still returns their own. Called
by `facade.py`.
"""

from __future__ import annotations

from typing import Any

from ..core.naming import home_of, rename

#: by file of `tapegrad.nn`: the module of `torch.nn.modules` that has its classes
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
#: classes whose module in PyTorch differs from that of the other classes in their file
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
#: prefixes of modules of the library, and the prefixes that replace them in PyTorch
_PARTS = {
    "tapegrad.amp.": "torch.amp.",
    "tapegrad.data.": "torch.utils.data.",
    "tapegrad.distributions.": "torch.distributions.",
    "tapegrad.nn.utils.": "torch.nn.utils.",
    "tapegrad.optim.": "torch.optim.",
}


def rename_classes(facade: str, shown: dict[str, Any]) -> None:
    """Set PyTorch's modules on the classes that a facade exposes."""
    for name, value in shown.items():
        if isinstance(value, type) and name == value.__name__:
            module = torch_module(value)
            if module is not None:
                rename(value, module)


def torch_module(kind: type) -> str | None:
    """The module of a class in PyTorch; None for classes that keep their own."""
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
