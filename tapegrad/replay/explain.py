"""What a compiled function has to say about itself."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from .program import show_origins

if TYPE_CHECKING:
    from .compiled import Compiled
    from .repeat import Replay
    from .signature import Signature


def explain(compiled: Compiled) -> str:
    """Signatures, kernels with their primitives and lines, callbacks, memory, compile time."""
    lines = [f"compiled function {compiled.name}: {len(compiled._signatures)} signature(s)"]
    if compiled.why_eager is not None:
        lines.append(f"  last ran eagerly because {compiled.why_eager}")
    for signature in compiled._signatures.values():
        lines += _signature(signature)
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
    recorded = len(replay.recording.program.instructions)
    lines.append(
        f"    {recorded} primitives became {len(executable.emitted.kernels)} kernels "
        f"({len({text for text, _ in executable.emitted.kernels})} different) and "
        f"{len(executable.callbacks)} callbacks; compiled in {executable.compile_seconds:.2f} s"
    )
    lines.append(
        f"    arena {executable.plan.arena} bytes, reads {len(replay.captured)} captured tensors, "
        f"changes {len(replay.written)}"
    )
    numbers: dict[str, int] = {}
    for text, instruction in executable.emitted.kernels:
        number = numbers.setdefault(text, len(numbers))
        lines.append(f"      kernel {number}: {show_origins(instruction.origins)}")
    for callback in executable.callbacks:
        lines.append(f"      callback {show_origins(callback.origins)}")
    for note in dict.fromkeys(executable.program.notes):
        lines.append(f"      note: {note}")
    return lines
