"""`torch.hub`, local only: models from existing folders and files; nothing is downloaded."""

from __future__ import annotations

import importlib.util
import os
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import urlparse
from urllib.request import url2pathname

from .serialization import load as load_file

_folder: list[str] = []


#: the part of a file name that is the beginning of its checksum
HASH_REGEX = re.compile(r"-([a-f0-9]*)\.")


def get_dir() -> str:
    """The download folder: that of `set_dir`, $TORCH_HOME/hub, or ~/.cache/torch/hub."""
    return _folder[0] if _folder else os.path.join(_get_torch_home(), "hub")


def _get_torch_home() -> str:
    cache = os.environ.get("XDG_CACHE_HOME", "~/.cache")
    home = os.environ.get("TORCH_HOME", os.path.join(cache, "torch"))
    return os.path.expanduser(home)


def set_dir(d: str | os.PathLike[str]) -> None:
    """Set the download folder."""
    _folder[:] = [os.path.expanduser(os.fspath(d))]


def load(repo_or_dir: str, model: str, *args: Any, source: str = "github", **kwargs: Any) -> Any:
    """Call the function `model` of the folder's hubconf.py; needs `source="local"`."""
    for option in ("trust_repo", "force_reload", "verbose", "skip_validation"):
        kwargs.pop(option, None)
    return _entry(_configuration(repo_or_dir, source), model)(*args, **kwargs)


def list(github: str, source: str = "github", **options: Any) -> Any:
    """The names of a folder's models."""
    found = vars(_configuration(github, source))
    return [name for name, value in found.items() if callable(value) and not name.startswith("_")]


def help(github: str, model: str, source: str = "github", **options: Any) -> Any:
    """The docstring of a model."""
    return _entry(_configuration(github, source), model).__doc__


def load_state_dict_from_url(
    url: str,
    model_dir: str | None = None,
    map_location: Any = None,
    progress: bool = True,
    check_hash: bool = False,
    file_name: str | None = None,
    weights_only: bool = True,
) -> Any:
    """Load a file that was downloaded before, or one with a `file:` URL."""
    parts = urlparse(url)
    if parts.scheme == "file":
        path = Path(url2pathname(parts.path))
    else:
        folder = Path(model_dir or os.path.join(get_dir(), "checkpoints"))
        path = folder / (file_name or os.path.basename(parts.path))
    if not path.exists():
        raise _not_downloaded(f"{url} as {path}")
    return load_file(path, map_location, weights_only=weights_only)


def download_url_to_file(url: str, dst: str, *args: Any, **options: Any) -> None:
    """Raises: nothing is downloaded."""
    raise _not_downloaded(f"{url} as {dst}")


def _not_downloaded(what: str) -> RuntimeError:
    return RuntimeError(f"torch.hub downloads nothing here; save {what} and call this again")


def _configuration(folder: str, source: str) -> ModuleType:
    if source != "local":
        raise _not_downloaded(f"the repository {folder} in a folder, say source='local'")
    path = os.path.join(os.path.expanduser(folder), "hubconf.py")
    if not os.path.exists(path):
        raise FileNotFoundError(f"no hubconf.py in {folder}")
    spec = importlib.util.spec_from_file_location("hubconf", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, os.path.dirname(path))
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(os.path.dirname(path))
    return module


def _entry(module: ModuleType, name: str) -> Any:
    found = getattr(module, name, None)
    if not callable(found):
        raise RuntimeError(f"Cannot find callable {name} in hubconf")
    return found


class PlainProgress:
    """Used where tqdm is not installed: iterates over the items and displays nothing."""

    def __init__(self, iterable: Any = None, total: Any = None, **options: Any) -> None:
        self.iterable = iterable
        self.total = total
        self.n = 0

    def __iter__(self) -> Any:
        for item in self.iterable:
            self.update()
            yield item

    def update(self, n: int = 1) -> None:
        """Advance the count."""
        self.n += n

    def close(self) -> None:
        """Does nothing."""

    def set_description(self, *args: Any, **options: Any) -> None:
        """Does nothing."""

    def __enter__(self) -> PlainProgress:
        return self

    def __exit__(self, *error: object) -> None:
        pass


def __getattr__(name: str) -> Any:
    if name != "tqdm":
        raise AttributeError(f"module 'torch.hub' has no attribute {name!r}")
    try:
        return importlib.import_module("tqdm.auto").tqdm
    except ImportError:
        return PlainProgress
