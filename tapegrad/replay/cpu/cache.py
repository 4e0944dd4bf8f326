"""Object code and blueprints on disk, by name, so that a later process need not make them.

Comes in: a name and bytes. A file holds a checksum and the data. It is written under another name
and renamed, so other processes see it complete or not at all; a file that does not match its
checksum is ignored and replaced. The folder belongs to the user alone. `TAPEGRAD_CACHE` names
another folder; `TAPEGRAD_CACHE=0` stores nothing. If there are too many files, some of the oldest
are removed, but only files with names like those made here. Called by `jit.py` and `stored.py`.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import re
import sys
import tempfile
from pathlib import Path

from . import tuning

CHECKSUM = hashlib.sha256().digest_size
#: the end of the name of a file that is being written
UNFINISHED = ".part"
OWN = re.compile(rf"[kp][0-9a-f]{{64}}|.+\{UNFINISHED}")


@functools.cache
def _folder(setting: str | None) -> Path | None:
    """The folder of the cache; None if no such folder is writable by this user alone."""
    if setting == "0":
        return None
    if setting:
        folder = Path(setting).expanduser().absolute()
    elif sys.platform == "win32":
        folder = Path(os.environ.get("LOCALAPPDATA") or Path.home()) / "tapegrad"
    elif sys.platform == "darwin":
        folder = Path.home() / "Library" / "Caches" / "tapegrad"
    else:
        folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tapegrad"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        about = folder.stat()
        if hasattr(os, "getuid") and (about.st_uid != os.getuid() or about.st_mode & 0o022):
            return None
    except (OSError, RuntimeError):  # the latter if there is no home
        return None
    return folder


def prune(folder: Path) -> None:
    """Remove some of the oldest files if there are too many: all at once would take seconds."""
    try:
        files = [entry for entry in os.scandir(folder) if OWN.fullmatch(entry.name)]
    except OSError:
        return
    if len(files) > tuning.MAX_CACHE_FILES:
        for path in sorted(files, key=_age, reverse=True)[: tuning.CACHE_FILES_PRUNED_AT_ONCE]:
            with contextlib.suppress(OSError):  # another process may have been quicker
                os.unlink(path)


def _age(entry: os.DirEntry[str]) -> float:
    try:
        return -entry.stat().st_mtime
    except OSError:
        return 0.0


def folder() -> Path | None:
    return _folder(os.environ.get("TAPEGRAD_CACHE"))


def problem() -> str | None:
    """Why nothing can be stored, in words for the user; None if it can."""
    setting = os.environ.get("TAPEGRAD_CACHE")
    if setting == "0":
        return "the cache is switched off: unset TAPEGRAD_CACHE, which is 0"
    directory = folder()
    if directory is None:
        what = "the default folder" if not setting else f"TAPEGRAD_CACHE={setting}"
        return (
            f"there is no cache folder that only you can write: {what} cannot be made, or others "
            "own it or can write it; let TAPEGRAD_CACHE name another folder"
        )
    try:
        handle, path = tempfile.mkstemp(UNFINISHED, dir=directory)
    except OSError as error:
        return f"the cache folder {directory} is not writable: {error.strerror}"
    os.close(handle)
    os.unlink(path)
    return None


def load(name: str) -> bytes | None:
    """The content stored under this name; None if it is missing or damaged."""
    directory = folder()
    if directory is None:
        return None
    try:
        data = (directory / name).read_bytes()
    except OSError:
        return None
    checksum, content = data[:CHECKSUM], data[CHECKSUM:]
    return content if hashlib.sha256(content).digest() == checksum else None


def store(name: str, content: bytes) -> None:
    """Store content under a name; a full or read-only disk is no error."""
    directory = folder()
    if directory is None:
        return
    try:
        handle, path = tempfile.mkstemp(UNFINISHED, dir=directory)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(hashlib.sha256(content).digest() + content)
            os.replace(path, directory / name)
        except BaseException:
            os.unlink(path)
            raise
    except OSError:
        return
    # At random, because most processes store few files, and counting takes a while.
    if os.urandom(1)[0] < 256 // tuning.STORES_FOR_EACH_PRUNING:
        prune(directory)
