"""What a compiled function has to say about itself."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from .plan import bytes_of
from .program import show_origins

if TYPE_CHECKING:
    from .compiled import Compiled
    from .repeat import Replay
    from .run import Executable
    from .signature import Signature


def explain(compiled: Compiled, programs: bool = False) -> str:
    """Signatures, kernels with their primitives and lines, callbacks, memory, compile time."""
    lines = [f"compiled function {compiled.name}: {len(compiled._signatures)} signature(s)"]
    if compiled.why_eager is not None:
        lines.append(f"  last ran eagerly because {compiled.why_eager}")
    for signature in compiled._signatures.values():
        lines += _signature(signature)
    for replay in compiled.replays if programs else ():
        lines.append(str(replay.program))
        if replay.node is not None:
            lines.append(f"backward {replay.node.halves.backward}")
    return "\n".join(lines)


def _signature(signature: Signature) -> list[str]:
    lines = [f"  {signature.shown}"]
    if signature.eager is not None:
        lines.append(f"    runs eagerly: {signature.eager}")
    reasons = Counter(signature.reasons)
    for reason, count in reasons.items():
        lines.append(f"    recorded {count} time(s) because {reason}")
    for replay in signature.replays:
        lines += _replay(replay)
    return lines


def _replay(replay: Replay) -> list[str]:
    lines = [f"    replayed {replay.count} time(s)"]
    executable = replay.executable
    if executable is None:
        return [*lines, "    not compiled yet"]
    lines.append(
        f"    reads {len(replay.captured)} captured tensors, changes {len(replay.written)}; "
        f"{_memory(replay, executable)}"
    )
    lines += _executable("", executable, len(replay.program.instructions))
    if replay.node is not None:
        recorded = len(replay.node.halves.backward.instructions)
        lines += [] if replay.node.programs else ["    backward: not compiled yet"]
        for found, _, places in replay.node.programs.values():
            wanted = sum(place is not None for place in places)
            lines += _executable(f"backward for {wanted} gradients: ", found, recorded)
    return lines


def _memory(replay: Replay, executable: Executable) -> str:
    """What a call needs besides its inputs: what all its programs hold at the same time."""
    node = replay.node
    results = sum(map(bytes_of, replay.program.results))
    arena = int(executable.plan.arena)
    if node is None:
        return f"arena {arena} + results {results} = {arena + results} bytes at most"
    own = {k.result for k in (*node.halves.kept, *node.halves.again)} - set(node.derivative.outputs)
    kept = sum(bytes_of(replay.program.results[i]) for i in own if i is not None)
    gradients = sum(map(bytes_of, node.halves.backward.results))
    arena += max((int(found.plan.arena) for found, _, _ in node.programs.values()), default=0)
    return (
        f"arena {arena} + results {results - kept} + kept for backward {kept} + gradients "
        f"{gradients} = {arena + results + gradients} bytes at most"
    )


def _executable(title: str, executable: Executable, recorded: int) -> list[str]:
    """Kernels and callbacks with their primitives and source lines."""
    kernels = executable.emitted.kernels
    lines = [
        f"    {title}{recorded} primitives became {len(kernels)} kernels "
        f"({len({text for text, _ in kernels})} different) and "
        f"{len(executable.callbacks)} callbacks; compiled in {executable.compile_seconds:.2f} s"
    ]
    numbers: dict[str, int] = {}
    for text, instruction in kernels:
        number = numbers.setdefault(text, len(numbers))
        lines.append(f"      kernel {number}: {show_origins(instruction.origins)}")
    for callback in executable.callbacks:
        lines.append(f"      callback {show_origins(callback.origins)}")
    for note in dict.fromkeys(executable.program.notes):
        lines.append(f"      note: {note}")
    return lines
