"""Writes a file atomically: its path always leads to a complete file, the old or the new one.

Comes in: a path. `replacing(path)` gives a file descriptor of a temporary file in the same folder.
If the block ends well, the file is synced, renamed to `path`, and the folder is synced. If it
fails, the temporary file is removed and `path` is as before. A killed process leaves its temporary
file behind; `remove_leftovers` recognizes it, because a living writer holds a lock on its file.
Called by `files.py` and `checkpoint.py`.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

try:
    import fcntl
except ImportError:  # not on Windows: there leftovers stay
    fcntl = None  # type: ignore[assignment]

_SUFFIX = ".unfinished"


@contextmanager
def replacing(path: str) -> Iterator[int]:
    """A descriptor to write to; when the block ends, its contents become the file `path`."""
    target = os.path.realpath(path)  # a symbolic link stays, and leads to the new file
    with _explained(path):
        temporary, descriptor = _create_beside(target)
        try:
            try:
                yield descriptor
                os.fsync(descriptor)
                os.replace(temporary, target)
            finally:
                os.close(descriptor)
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary)
            raise
    sync_folder(os.path.dirname(target))


@contextmanager
def _explained(path: str) -> Iterator[None]:
    """Errors of the operating system name the file itself, not the temporary one."""
    try:
        yield
    except OSError as error:
        if error.errno is None:
            raise
        reason = f"{error.strerror}: could not be saved, and is as it was before"
        raise OSError(error.errno, reason, path) from error


def _create_beside(target: str) -> tuple[str, int]:
    folder, name = os.path.split(target)
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0)
    while True:
        temporary = os.path.join(folder, f".{name}.{secrets.token_hex(6)}{_SUFFIX}")
        descriptor = os.open(temporary, flags | getattr(os, "O_BINARY", 0), 0o666)
        if _claimed(descriptor):
            with suppress(OSError, AttributeError):  # a file that is replaced keeps its permissions
                os.fchmod(descriptor, stat.S_IMODE(os.stat(target).st_mode))
            return temporary, descriptor
        os.close(descriptor)


def _claimed(descriptor: int) -> bool:
    """Lock a new file for its writer; False if it was deleted as a leftover before that."""
    if fcntl is None:
        return True
    with suppress(OSError):  # a file system without locks
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    return os.fstat(descriptor).st_nlink > 0


def sync_folder(folder: str) -> None:
    """Make a rename in `folder` survive a power cut."""
    try:
        descriptor = os.open(folder or ".", os.O_RDONLY)
    except PermissionError:  # Windows does not open folders
        return
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # file systems that cannot do that
            raise
    finally:
        os.close(descriptor)


def write_all(descriptor: int, data: memoryview | bytes) -> None:
    """Write everything: one system call may write less (at most 2 GB on Linux)."""
    rest = memoryview(data).cast("B")
    while rest:
        rest = rest[os.write(descriptor, rest[: 1 << 28]) :]


def remove_leftovers(folder: Path) -> list[Path]:
    """Delete temporary files whose writers are dead; returns them."""
    if fcntl is None:
        return []
    return [path for path in sorted(folder.glob(f".*{_SUFFIX}")) if _removed(path)]


def _removed(path: Path) -> bool:
    """Delete a temporary file if no process holds its lock; True if deleted."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path.unlink()
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True
