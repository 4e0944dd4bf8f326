"""The command line: `tapegrad demo`, `info`, `bench`, `warmup`, `launch` and `run`.

Comes in: the arguments. Goes out: the exit status; 0 done, 2 wrong arguments, 130 interrupted.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .demos import NAMES


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit status."""
    options = _parser().parse_args(arguments)
    try:
        if options.command == "info":
            from .insight.installation import show

            show()
            return 0
        if options.command == "launch":
            return _launch(options)
        if options.command == "run":
            return _run(options)
        if options.threads is not None:
            from .replay import set_num_threads

            set_num_threads(options.threads)
        if options.command == "warmup":
            return _warmup(options)
        if options.command == "bench":
            from .demos.bench import run

            run(options.seconds)
            return 0
        return _demo(options)
    except KeyboardInterrupt:
        print("\ninterrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # The reader has closed the pipe; Python's flush at exit must not fail either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="tapegrad", description="Automatic differentiation and deep learning on a tape."
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="command")
    demo = commands.add_parser(
        "demo",
        help="train a small model on this machine",
        description="Train a small model and save a picture of what it learned.",
        epilog="digits: reads handwritten digits, eager and replay compared; gpt: a transformer "
        "on a book; vae: draws digits; pinn: solves Burgers' equation.",
    )
    demo.add_argument(
        "name", nargs="?", choices=NAMES, default="digits", help="which (default digits)"
    )
    length = demo.add_mutually_exclusive_group()
    length.add_argument("--steps", type=_positive, help="training steps")
    length.add_argument("--epochs", type=_positive, help="passes over the images (digits, vae)")
    demo.add_argument("--eager", action="store_true", help="do not compile the training step")
    demo.add_argument(
        "--threads", type=_positive, help="threads of native code (default: one for each core)"
    )
    demo.add_argument("--seed", type=_seed, default=0, help="random seed (default 0)")
    demo.add_argument(
        "--output",
        type=Path,
        default=Path(),
        metavar="DIR",
        help="where the picture goes (default .)",
    )
    demo.set_defaults(wrong=demo.error)
    commands.add_parser("info", help="show versions, threads, native code, cache and devices")
    bench = commands.add_parser("bench", help="time eager code against replay on this machine")
    bench.add_argument(
        "--seconds", type=_positive, default=2, help="how long to measure each model (default 2)"
    )
    bench.add_argument(
        "--threads", type=_positive, help="threads of native code (default: one for each core)"
    )
    _add_warmup(commands)
    _add_launch(commands)
    _add_run(commands)
    return parser


def _add_warmup(commands: Any) -> None:
    warmup = commands.add_parser(
        "warmup",
        help="compile kernels before they are needed",
        usage="tapegrad warmup [--seconds N] [--threads N] [script.py [arguments]]",
        description="Compile the kernels of common models, or those that a script needs, into the "
        "cache on disk.",
    )
    warmup.add_argument(
        "--seconds", type=_positive, help="interrupt the script after so many (default: never)"
    )
    warmup.add_argument(
        "--threads", type=_positive, help="threads of native code (default: one for each core)"
    )
    warmup.add_argument("program", nargs=argparse.REMAINDER, help="a script and its arguments")
    warmup.set_defaults(wrong=warmup.error)


def _warmup(options: argparse.Namespace) -> int:
    program = [*options.program]
    if program[:1] == ["--"]:
        program.pop(0)
    script = Path(program[0]) if program else None
    if script is not None and not script.is_file():
        options.wrong(f"no such script: {script}")
    if script is None and options.seconds is not None:
        options.wrong("--seconds needs a script: tapegrad warmup --seconds 60 train.py")
    from .demos.warmup import run

    return run(script, program[1:], options.seconds)


def _add_launch(commands: Any) -> None:
    launch = commands.add_parser(
        "launch",
        help="train with many processes",
        usage="tapegrad launch [options] [--] [python] train.py [arguments]",
        description="Run a program in many processes, which are connected by MPI.",
    )
    launch.add_argument("-n", type=_positive, default=None, metavar="N", help="how many (default: "
                        "one for each physical core)")  # fmt: skip
    launch.add_argument(
        "--restarts", type=_seed, default=0, metavar="N", help="start again after failures, N times"
    )
    launch.add_argument(
        "--ranks-on-restart", type=_positive, metavar="M", help="processes after a restart"
    )
    launch.add_argument(
        "--timeout",
        type=_positive,
        metavar="S",
        help="seconds that a collective may take (default: 600)",
    )
    launch.add_argument("-m", dest="module", action="store_true", help="the program is a module")
    launch.add_argument("program", nargs=argparse.REMAINDER, help="the program and its arguments")
    launch.set_defaults(wrong=launch.error)


def _launch(options: argparse.Namespace) -> int:
    from .distributed.launch import Launch, command_of, run

    command = command_of(options.program, options.module)
    if len(command) < (3 if options.module else 1):
        options.wrong("say which program to run: tapegrad launch -n 4 train.py")
    size = options.n
    if size is None:
        from .replay.cpu.pool import default_threads

        size = default_threads()
    return run(Launch(command, size, options.restarts, options.ranks_on_restart, options.timeout))


def _add_run(commands: Any) -> None:
    run = commands.add_parser(
        "run",
        help="run a program written for PyTorch",
        usage="tapegrad run [--shadow] script.py [arguments] | -m module [arguments]",
        description="Run a program as Python does; `import torch` gives it tapegrad.",
    )
    run.add_argument("--shadow", action="store_true", help="even if PyTorch is installed")
    run.add_argument("-m", dest="module", action="store_true", help="the program is a module")
    run.add_argument("program", nargs=argparse.REMAINDER, help="the program and its arguments")
    run.set_defaults(wrong=run.error)


def _run(options: argparse.Namespace) -> int:
    program = [*options.program]
    if program[:1] == ["--"]:
        program.pop(0)
    if not program:
        options.wrong("say which program to run: tapegrad run train.py")
    from .compat.command import run

    try:
        return run(["-m", *program] if options.module else program, options.shadow)
    except RuntimeError as error:
        options.wrong(str(error))
        raise


def _demo(options: argparse.Namespace) -> int:
    from importlib import import_module

    from .demos.digits import EPOCH
    from .demos.report import Report
    from .demos.training import DemoOptions
    from .insight.installation import why_no_replay

    if options.epochs is not None and options.name not in ("digits", "vae"):
        options.wrong(f"demo {options.name} has no epochs; say how many --steps")
    try:
        options.output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        options.wrong(f"--output {options.output}: {error.strerror}")
    if not os.access(options.output, os.W_OK):
        options.wrong(f"--output {options.output}: not writable")
    module = import_module(f".demos.{options.name}", "tapegrad")
    steps = options.steps or (options.epochs * EPOCH if options.epochs else module.STEPS)
    report = Report()
    report.headline(f"demo {options.name}: {module.DESCRIPTION}")
    reason = why_no_replay()
    if reason is not None:
        report.say(f"runs eagerly: {reason}")
    eager = options.eager or reason is not None
    module.run(DemoOptions(steps, options.output, eager, options.seed), report)
    return 0


def _positive(text: str) -> int:
    """A whole number above 0."""
    return _whole(text, 1)


def _seed(text: str) -> int:
    """A whole number from 0 on."""
    return _whole(text, 0)


def _whole(text: str, least: int) -> int:
    try:
        value = int(text)
    except ValueError:
        value = least - 1
    if value < least:
        raise argparse.ArgumentTypeError(f"expected a whole number from {least} on, got {text!r}")
    return value


if __name__ == "__main__":
    sys.exit(main())
