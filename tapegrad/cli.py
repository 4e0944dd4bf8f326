"""The command line: `tapegrad demo` and `tapegrad info`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="tapegrad", description="Automatic differentiation and deep learning on a tape."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    demo = commands.add_parser("demo", help="train a small classifier of handwritten digits")
    demo.add_argument("--epochs", type=int, default=30, help="passes over the data (default 30)")
    demo.add_argument("--seed", type=int, default=0, help="random seed (default 0)")
    commands.add_parser("info", help="show versions, devices and the number of operations")
    options = parser.parse_args(arguments)
    if options.command == "info":
        return _info()
    if options.epochs < 1:
        parser.error("--epochs must be at least 1")
    from .demo import digits

    digits(options.epochs, options.seed)
    return 0


def _info() -> int:
    import platform
    from importlib import metadata

    import tapegrad

    def version(package: str) -> str:
        try:
            return metadata.version(package)
        except metadata.PackageNotFoundError:
            return "not installed"

    print(f"tapegrad  {tapegrad.__version__}")
    print(f"python    {platform.python_version()} on {platform.machine()}")
    for package in ("numpy", "scipy", "llvmlite"):
        print(f"{package:<9} {version(package)}")
    gpus = tapegrad.cuda.device_count()
    names = ", ".join(tapegrad.cuda.get_device_name(i) for i in range(gpus))
    print(f"GPUs      {names or 'none that CuPy can use'}")
    from .ops import TABLE
    from .primitive import PRIMITIVES

    print(f"{len(TABLE)} operations on {len(PRIMITIVES)} primitives")
    return 0


if __name__ == "__main__":
    sys.exit(main())
