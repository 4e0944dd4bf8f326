"""LLVM and BLAS: text of a module goes in, addresses of functions come out.

llvmlite is loaded here, at the first compilation, and nowhere else.
"""

from __future__ import annotations

import ctypes
import functools
import threading
from typing import Any

from ..blas import library as private_blas

_lock = threading.Lock()


class Library:
    """A compiled module. Its functions live as long as it does."""

    def __init__(self, engine: Any, assembly: str) -> None:
        self._engine = engine
        self.assembly = assembly

    def address(self, name: str) -> int:
        return int(self._engine.get_function_address(name))


@functools.cache
def available() -> bool:
    """Whether llvmlite can be imported."""
    try:
        import llvmlite.binding  # noqa: F401
    except ImportError:
        return False
    return True


@functools.cache
def _target() -> Any:
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    llvm.initialize_native_asmparser()
    options = {
        "cpu": llvm.get_host_cpu_name(),
        "features": llvm.get_host_cpu_features().flatten(),
        "opt": 3,
        "jit": True,
    }
    return llvm.Target.from_default_triple(), options


def compile_module(text: str) -> Library:
    """Optimise and compile the text of a module for this processor."""
    import llvmlite.binding as llvm

    with _lock:
        target, settings = _target()
        # An engine takes its target machine with it when it goes.
        machine = target.create_target_machine(**settings)
        blas()
        module = llvm.parse_assembly(text)
        module.triple = machine.triple
        module.data_layout = str(machine.target_data)
        options = llvm.create_pipeline_tuning_options(speed_level=3)
        options.loop_vectorization = True
        options.slp_vectorization = True
        builder = llvm.create_pass_builder(machine, options)
        builder.getModulePassManager().run(module, builder)
        optimised = str(module)
        engine = llvm.create_mcjit_compiler(module, machine)
        engine.finalize_object()
    return Library(engine, optimised)


@functools.cache
def blas() -> bool:
    """Whether the private BLAS is there; its functions are then known to compiled code."""
    library = private_blas()
    if library is None:
        return False
    import llvmlite.binding as llvm

    for name in ("scipy_cblas_sgemm", "scipy_cblas_dgemm"):
        address = ctypes.cast(getattr(library, name), ctypes.c_void_p).value
        llvm.add_symbol(name, address)
    return True
