"""What a compiled function has to say about itself."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from .program import Instruction, bytes_of, show_origins

if TYPE_CHECKING:
    from .compiled import Compiled
    from .repeat import Replay
    from .run import Executable
    from .variant import Signature


#: what kernels can be shown as, and how a comment begins there
LANGUAGES = {"llvm": ";", "assembly": "#"}


def explain(compiled: Compiled, programs: bool = False, code: str | None = None) -> str:
    """Signatures, kernels with their primitives and lines, callbacks, memory, compile time."""
    if code is not None and code not in LANGUAGES:
        raise ValueError(f"code is shown as one of {', '.join(LANGUAGES)}, got {code!r}")
    lines = [f"compiled function {compiled.name}: {len(compiled._signatures)} signature(s)"]
    if compiled.why_eager is not None:
        lines.append(f"  last ran eagerly because {compiled.why_eager}")
    for signature in compiled._signatures.values():
        lines += _signature(signature)
    for replay in compiled.replays if programs else ():
        lines.append(str(replay.program))
        if replay.node is not None:
            lines.append(f"backward {replay.node.halves.backward}")
    for replay in compiled.replays if code is not None else ():
        assert code is not None
        if replay.executable is not None:
            lines += _code("", replay.executable, code)
        for found, _, places in replay.node.programs.values() if replay.node is not None else ():
            lines += _code(_backward(places), found, code)
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
            lines += _executable(_backward(places), found, recorded)
    return lines


def _backward(places: Any) -> str:
    return f"backward for {sum(place is not None for place in places)} gradients: "


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
        lines.append(f"      {_titled(number, instruction)}")
    for callback in executable.callbacks:
        lines.append(f"      callback {show_origins(callback.origins)}")
    for note in dict.fromkeys(executable.program.notes):
        lines.append(f"      note: {note}")
    return lines


def _titled(number: int, instruction: Instruction) -> str:
    return f"kernel {number}: {show_origins(instruction.origins)}"


def _code(title: str, executable: Executable, language: str) -> list[str]:
    """The text of each different kernel, under the name that it has above."""
    titles: dict[str, str] = {}
    for text, instruction in executable.emitted.kernels:
        titles.setdefault(text, _titled(len(titles), instruction))
    lines = []
    for text, function in executable.functions.items():
        name = titles.get(text, "what threads have folded becomes one element")
        lines.append(f"{LANGUAGES[language]} {title}{name}")
        shown = function.assembly if language == "assembly" else function.llvm
        lines.append(shown.strip())
    return lines
