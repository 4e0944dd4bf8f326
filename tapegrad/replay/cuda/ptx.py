"""PTX: the text of a kernel becomes the assembly of a GPU, by LLVM.

Comes in: the text that a `DeviceGrid` wrote, and the compute capability of a GPU. Goes out: PTX,
which the GPU's driver turns into machine code. Functions such as `exp` of float64 come from
libdevice, a library of LLVM code in NVIDIA's wheels (`libdevice` finds it). Called by `modules.py`,
and by tests, which need no GPU for it.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ..cpu import jit
from .grid import LIBRARY_PREFIX

#: the version of PTX: that of CUDA 12.0, which supports GPUs of compute capability 9.0
VERSION = "+ptx80"
_TRIPLE = "nvptx64-nvidia-cuda"
_FILE = Path("nvvm", "libdevice", "libdevice.10.bc")


def _folders() -> Iterator[Path]:
    """Where CUDA may be installed: by wheels, or by the system."""
    for name in ("nvidia", "nvidia.cuda_nvcc", "triton.backends.nvidia"):
        try:
            spec = find_spec(name)
        except ImportError:
            continue
        for folder in () if spec is None else spec.submodule_search_locations or ():
            yield from (Path(folder), *Path(folder).glob("cu*"))
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if variable in os.environ:
            yield Path(os.environ[variable])
    yield from (Path(sys.prefix), Path("/usr/local/cuda"), Path("/opt/cuda"))


@functools.cache
def libdevice() -> bytes | None:
    """The library of functions for GPUs; None if it is not installed."""
    for folder in _folders():
        for path in (folder / _FILE, folder / "lib" / _FILE.name):
            if path.is_file():
                return path.read_bytes()
    return None


def ptx_of(text: str, capability: tuple[int, int]) -> str:
    """The PTX of a kernel, for GPUs of this compute capability or a newer one."""
    return jit.undisturbed(functools.partial(_assembled, text, capability))


@functools.cache
def _target() -> Any:
    import llvmlite.binding as llvm

    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    return llvm.Target.from_triple(_TRIPLE)


def _assembled(text: str, capability: tuple[int, int]) -> str:
    major, minor = capability
    machine = _target().create_target_machine(cpu=f"sm_{major}{minor}", features=VERSION, opt=3)
    link = _with_library if f"@{LIBRARY_PREFIX}" in text else None
    machine, module = jit.optimised(text, machine, link)
    return jit.code_of(machine, module, binary=False).decode()


def _with_library(module: Any, context: Any) -> None:
    """Link a kernel with the functions of libdevice that it calls."""
    import llvmlite.binding as llvm

    code = libdevice()
    if code is None:
        raise RuntimeError("libdevice is not installed: pip install 'tapegrad[cuda]'")
    library = llvm.parse_bitcode(code, context)
    library.triple = module.triple
    library.data_layout = module.data_layout
    wanted = {function.name for function in module.functions if function.is_declaration}
    for function in library.functions:
        if not function.is_declaration and function.name not in wanted:
            function.linkage = "internal"
    module.link_in(library)
