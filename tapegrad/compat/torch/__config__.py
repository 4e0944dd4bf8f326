"""`torch.__config__`: the build configuration as text."""

from __future__ import annotations

from ... import __version__, get_num_threads


def show() -> str:
    """The build settings; libraries that packages look for, such as MKL, are OFF."""
    return (
        f"tapegrad {__version__}\n"
        "  - native code is compiled by LLVM when it is first needed\n"
        "  - Build settings: USE_CUDA=OFF, USE_CUDNN=OFF, USE_MKL=OFF, USE_MKLDNN=OFF, USE_MPI=ON, "
        "USE_NCCL=OFF, USE_OPENMP=OFF\n"
    )


def parallel_info() -> str:
    """The number of threads that operations use."""
    return f"tapegrad's threads: {get_num_threads()}\n"
