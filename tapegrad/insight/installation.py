"""`tapegrad info`: installed versions and the machine's hardware, for users and bug reports.

Comes in: nothing. Goes out: lines of text about this process and this machine. Called by `cli.py`.
"""

from __future__ import annotations

import os
import platform
from contextlib import suppress
from importlib import metadata


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


def why_no_replay() -> str | None:
    """The reason why compiled functions cannot replay on this machine, or None."""
    from ..replay.cpu import jit

    if not jit.available():
        return "llvmlite is not installed"
    if os.environ.get("TAPEGRAD_COMPILE", "1") == "0":
        return "TAPEGRAD_COMPILE=0"
    return None


def _native() -> str:
    reason = why_no_replay()
    if reason is not None:
        return f"compile is off: {reason}"
    import llvmlite.binding as llvm

    version = ".".join(map(str, llvm.llvm_version_info))
    return f"LLVM {version} for {llvm.get_host_cpu_name()}"


def _cache() -> str:
    from ..replay.cpu import cache

    folder = cache.folder()
    if folder is None:
        return "none (TAPEGRAD_CACHE=0, or no folder that only you can write)"
    sizes = []
    for entry in os.scandir(folder):
        if cache.OWN.fullmatch(entry.name):
            with suppress(FileNotFoundError):  # another process has just replaced it
                sizes.append(entry.stat().st_size)
    return f"{folder} ({len(sizes)} functions, {sum(sizes) / 1e6:.1f} MB)"


def _gpus() -> str:
    from .. import cuda

    names = [cuda.get_device_name(i) for i in range(cuda.device_count())]
    return ", ".join(names) or "none that CuPy can use"


def _ranks() -> str:
    from ..distributed import launch, process_group
    from ..distributed.job import is_launched

    mpi4py, mpiexec = _version("mpi4py"), launch.find_mpiexec()
    if mpi4py == "not installed" or mpiexec is None:
        return "none: `pip install 'tapegrad[mpi]'` connects several processes"
    if not is_launched():
        return f"mpi4py {mpi4py}, {mpiexec}; see `tapegrad launch -n 2 -m tapegrad info`"
    if not process_group.is_initialized():
        process_group.init_process_group()
    return process_group.describe()


def rows() -> dict[str, str]:
    """All facts, by their names."""
    from .. import __version__
    from ..core.primitive import PRIMITIVES
    from ..ops import TABLE
    from ..replay import get_num_threads

    ranks = _ranks()  # ranks divide the threads
    return {
        "tapegrad": __version__,
        "python": f"{platform.python_version()} on {platform.system()} {platform.machine()}",
        **{name: _version(name) for name in ("numpy", "scipy", "llvmlite")},
        "threads": f"{get_num_threads()} of {os.cpu_count()} processors",
        "native": _native(),
        "cache": _cache(),
        "GPUs": _gpus(),
        "ranks": ranks,
        "contents": f"{len(TABLE)} operations on {len(PRIMITIVES)} primitives",
    }


def show() -> None:
    """Print all facts; in a job, only the first rank prints."""
    from ..distributed import process_group

    found = rows()
    if process_group.is_initialized() and process_group.get_rank() > 0:
        return
    for name, value in found.items():
        print(f"{name:<9} {value}")
