"""`tapegrad run`: runs a Python program in which `import torch` imports tapegrad.

Comes in: the arguments that would follow `python` on the command line. The program runs in a new
Python process, which replaces this one on POSIX systems; so its arguments, tracebacks, signals and
exit status are those of `python script.py`. Called by `cli.py`.
"""

from __future__ import annotations

import os
import subprocess
import sys

from .install import environment, installed_torch


def run(program: list[str], shadow: bool = False) -> int:
    """Run a script or `-m module` with its arguments; does not return on POSIX systems."""
    where = None if shadow else installed_torch()
    if where is not None:
        raise RuntimeError(
            f"PyTorch is installed ({where}); to let tapegrad take its place, say --shadow"
        )
    if sys.flags.ignore_environment:
        raise RuntimeError("Python was started with -E or -I, so the program would not find torch")
    flags: list[str] = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    command = [sys.executable, *flags, *program]
    sys.stdout.flush()
    sys.stderr.flush()
    if os.name == "posix":
        os.execve(sys.executable, command, environment(os.environ))
    return subprocess.run(command, env=environment(os.environ), check=False).returncode
