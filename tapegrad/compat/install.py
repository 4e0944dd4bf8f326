"""Makes `import torch` import tapegrad, in this process and in those that it starts.

The folder `site` holds a package `torch`, which installs the facade when imported, and metadata, by
which programs check whether PyTorch is installed. `install_as_torch` adds that folder to `sys.path`
and installs the facade at once; `tapegrad run` puts it on PYTHONPATH and starts Python.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import os
import sys
from pathlib import Path

from ..core.device import device
from ..core.dtypes import DType, finfo, iinfo
from ..core.layouts import layout, memory_format
from ..core.naming import rename, shown
from ..core.tensor import Size, Tensor

#: the folder with the package `torch` and its metadata
SITE = str(Path(__file__).parent / "site")


def is_installed() -> bool:
    """Whether `import torch` imports tapegrad in this process."""
    from .finder import FINDER

    return FINDER in sys.meta_path


def install_as_torch(*, shadow: bool = False) -> None:
    """Make `import torch` import tapegrad, for code and packages written for PyTorch.

    Call it before anything imports torch. If PyTorch is installed, it raises an error, unless
    `shadow=True` puts tapegrad first. From then on classes are printed with PyTorch's names:
    `str(torch.float32)` is "torch.float32".

    >>> import tapegrad
    >>> tapegrad.install_as_torch(shadow=True)  # doctest: +SKIP
    >>> import torch  # doctest: +SKIP
    >>> torch.ones(2).type()  # doctest: +SKIP
    'torch.FloatTensor'
    """
    if is_installed():
        return
    found = sys.modules.get("torch")
    if found is not None and not _is_ours(getattr(found, "__file__", None)):
        raise RuntimeError(
            "torch is imported already, so tapegrad cannot take its place; "
            "call tapegrad.install_as_torch() before the first import of torch"
        )
    if not shadow and (where := installed_torch()) is not None:
        raise RuntimeError(
            f"PyTorch is installed ({where}), and tapegrad does not hide it unless told to: "
            "install_as_torch(shadow=True), or tapegrad run --shadow"
        )
    if SITE not in sys.path:
        sys.path.insert(0, SITE) if shadow else sys.path.append(SITE)
        importlib.invalidate_caches()
    activate()


def installed_torch() -> str | None:
    """Where PyTorch is installed; None if it is not."""
    path = [folder for folder in sys.path if folder != SITE]
    spec = importlib.machinery.PathFinder.find_spec("torch", path)
    if spec is None:
        return None
    return str(spec.origin or "a folder named torch")


def environment(shadowing: os._Environ[str] | dict[str, str]) -> dict[str, str]:
    """The environment variables of a process in which `import torch` imports tapegrad."""
    before = [p for p in shadowing.get("PYTHONPATH", "").split(os.pathsep) if p and p != SITE]
    return {**shadowing, "PYTHONPATH": os.pathsep.join([SITE, *before])}


def activate() -> None:
    """Install the facade; the package in `site` also calls this while it is imported."""
    from .finder import FINDER, load

    if FINDER not in sys.meta_path:
        sys.meta_path.insert(0, FINDER)
    shown.package = "torch"
    shown.prefix = "torch."
    for kind, name in (
        *((Tensor, "Tensor"), (Size, "Size"), (DType, "dtype"), (device, "device")),
        *((finfo, "finfo"), (iinfo, "iinfo"), (layout, "layout")),
        (memory_format, "memory_format"),
    ):
        rename(kind, "torch", name)
    torch = load("torch")
    vars(torch)["torch"] = torch  # packages write `torch.torch.Tensor`


def _is_ours(file: str | None) -> bool:
    return file is not None and file.startswith(SITE)
