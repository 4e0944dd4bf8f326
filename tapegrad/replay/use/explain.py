"""Reports about a compiled function.

Comes in: a `Compiled`. Goes out: text. `brief` is one line, `summary` about ten lines, `explain`
everything. Called by the methods of `Compiled`; `scale.py` uses `values_of`.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ...core import source
from ..cpu.executable import NativeProgram
from ..cpu.timing import measure
from ..cuda.divide import DividedProgram
from ..cuda.timing import StepTiming
from ..cuda.timing import measure as measure_on_gpu
from ..ir.program import Instruction, Origin, bytes_of, show_location, show_origins
from ..trace.slots import Captured, Number

if TYPE_CHECKING:
    from ..cuda.limits import Limits
    from ..ir.target import Executable
    from .compiled import Compiled
    from .replay import Replay
    from .variant import Signature


#: by language in which kernels can be shown: the mark that begins a comment
LANGUAGES = {"llvm": ";", "assembly": "#"}

#: most signatures, reasons of each, kernels, and parts of a kernel's name in a summary
SIGNATURES = 4
REASONS = 4
KERNELS = 10
PARTS = 4

#: a location as `source.describe` writes it; `brief` keeps only its `file.py:12`
LOCATION = re.compile(r"(?:\S*[/\\])?([^\s/\\]+:\d+), in .*")


# -- one line ------------------------------------------------------------------------------------


def brief(compiled: Compiled) -> str:
    """The name, the line, how often it was recorded and replayed, and whether it runs eagerly."""
    code = source.code_of(compiled.function)
    where = ""
    if code is not None:
        where = f" at {os.path.basename(code.co_filename)}:{code.co_firstlineno}"
    variants = sum(len(s.variants) for s in compiled._signatures)
    told = f"{compiled.name}{where}: {_counted(compiled)}, {_number(variants, 'variant')}"
    if compiled.why_eager is None:
        return told
    reason = compiled.why_eager.split(" (the function is at ")[0].split("\n")[0]
    reason = LOCATION.sub(r"\1", reason)
    return f"{told}; {_how(compiled)}: {reason if len(reason) <= 80 else reason[:79] + '…'}"


def _number(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def _counted(compiled: Compiled) -> str:
    recordings = sum(s.recordings for s in compiled._signatures)
    replays = sum(r.count for r in compiled.replays)
    return f"{_number(recordings, 'recording')}, {_number(replays, 'replay')}"


def _how(compiled: Compiled) -> str:
    """Whether all calls or some of them run eagerly."""
    some = any(r.count for r in compiled.replays) and not compiled._off
    return "some calls run eagerly" if some else "runs eagerly"


# -- ten lines -----------------------------------------------------------------------------------


def summary(compiled: Compiled) -> str:
    """What calls did and why, and the slowest kernels."""
    replays = [r for r in compiled.replays if r.executable is not None]
    native = [r for r in replays if isinstance(r.executable, NativeProgram)]
    chosen = max(native, key=lambda r: r.count, default=None)
    kernels = None if chosen is None else _Kernels(chosen)
    lines = _verdict(compiled, "" if kernels is None else kernels.took)
    signatures = list(compiled._signatures)
    for signature in signatures[:SIGNATURES]:
        lines += _in_short(signature, compiled.why_eager or "")
    if len(signatures) > SIGNATURES:
        lines.append(f"  and {_number(len(signatures) - SIGNATURES, 'more signature')}")
    if kernels is not None:
        lines += kernels.lines(len(replays))
    on_gpu = [r for r in replays if isinstance(r.executable, DividedProgram)]
    if on_gpu:
        lines += _on_gpu(max(on_gpu, key=lambda r: r.count))
    return "\n".join(lines)


def _verdict(compiled: Compiled, took: str) -> list[str]:
    name, replays = compiled.name, sum(r.count for r in compiled.replays)
    if compiled.why_eager is not None and (not replays or compiled._off):
        return [f"{name}: runs eagerly, because {compiled.why_eager}"]
    if not compiled._signatures:
        return [f"{name}: was not called yet"]
    lines = [f"{name}: {_counted(compiled)}{took}"]
    if compiled.why_eager is not None:
        lines.append(f"  some calls run eagerly, because {compiled.why_eager}")
    return [*lines, *_dropped(compiled)]


def _dropped(compiled: Compiled) -> list[str]:
    """How many signatures were dropped to make room, if any were."""
    signatures = compiled._signatures
    if not signatures.dropped:
        return []
    return [
        f"  keeps the {signatures.most} signatures used last (max_signatures); "
        f"{_number(signatures.dropped, 'other')} went with their programs"
    ]


def _in_short(signature: Signature, said: str) -> list[str]:
    """A signature, its variants, why it was recorded, and reasons that `said` does not contain."""
    replays = sorted(signature.replays, key=lambda r: -r.count)
    told = f"  {signature.shown}: {_number(len(signature.variants), 'variant')}"
    if replays:
        times = " + ".join(str(r.count) for r in replays)
        told += f", replayed {times} {'time' if times == '1' else 'times'}"
    elif signature.difference is not None and signature.eager is None:
        told += f", no two recordings agree: {signature.difference}"
    lines = [told]
    reasons = Counter(signature.reasons)
    for reason, count in list(reasons.items())[:REASONS]:
        lines.append(f"    recorded{'' if count == 1 else f' {count} times'}: {reason}")
    if len(reasons) > REASONS:
        lines.append(f"    recorded for {_number(len(reasons) - REASONS, 'more reason')}")
    refused = [v.eager for v in signature.variants if v.eager is not None]
    if signature.eager is not None:
        refused.append(signature.eager)
    lines += [f"    eagerly: {reason}" for reason in dict.fromkeys(refused) if reason not in said]
    return lines


def _on_gpu(replay: Replay) -> list[str]:
    """The slowest steps of a program on a GPU, and the share of the GPU's limits they reach."""
    executable = replay.executable
    assert isinstance(executable, DividedProgram)
    program = executable.grid
    found = sorted(measure_on_gpu(program), key=lambda step: -step.seconds)
    total = sum(step.seconds for step in found)
    moved = sum(step.bytes for step in found)
    lines = [
        f"  {executable.describe()}, which take {_time(total)} one by one and move at least "
        f"{moved / 1e6:.3g} MB; the slowest (measured now, with made-up arguments):"
    ]
    for step in found[:KERNELS]:
        title = "product of a library " if step.library else ""
        said = _kernel(step.seconds, title, step.instruction.origins, total)
        lines.append(f"{said}{_share(step, program.device.limits())}")
    lines += [_kernel(None, f"{_kind(c)} ", c.origins, total) for c in program.callbacks]
    return lines


def _share(step: StepTiming, limits: Limits | None) -> str:
    """The share of its GPU's memory or arithmetic limit that a step reaches: the larger one."""
    if limits is None or not step.seconds:
        return ""
    memory = step.bytes / step.seconds / limits.bytes_per_second
    rate = limits.operations_per_second(step.instruction) if step.operations else None
    arithmetic = step.operations / step.seconds / rate if rate else 0.0
    if arithmetic > memory:
        return f" | {arithmetic:.0%} of the arithmetic limit"
    return f" | {memory:.0%} of the memory limit"


class _Kernels:
    """The kernels of a replay and of its backward passes, with the time that each takes."""

    def __init__(self, replay: Replay) -> None:
        executable = replay.executable
        assert isinstance(executable, NativeProgram)
        self.timings = [("", executable, measure(executable, values_of(replay)))]
        for found, _, _ in replay.vjp.programs.values() if replay.vjp is not None else ():
            assert isinstance(found, NativeProgram)
            made_up = [None] * len(found.program.inputs)
            self.timings.append(("backward: ", found, measure(found, made_up)))
        first = self.timings[0][2]
        self.took = "" if first.whole is None else f"; a replay takes {_time(first.whole)}"
        for _, _, timing in self.timings[1:2]:
            if timing.whole is not None:
                self.took += f", its backward pass {_time(timing.whole)}"

    def lines(self, programs: int) -> list[str]:
        """The slowest kernels, and all callbacks."""
        found = [
            (seconds, title, instruction.origins)
            for title, executable, timing in self.timings
            for seconds, (_, instruction) in zip(
                timing.kernels, executable.emitted.kernels, strict=True
            )
        ]
        called = [
            (seconds, f"{title}{_kind(callback)} ", callback.origins)
            for title, executable, timing in self.timings
            for seconds, callback in zip(timing.callbacks, executable.callbacks, strict=True)
        ]
        total = sum(seconds or 0.0 for seconds, _, _ in (*found, *called))
        found.sort(key=lambda kernel: -(kernel[0] or 0.0))
        whose = " of the recording that was replayed most" if programs > 1 else ""
        notes = (note for _, executable, _ in self.timings for note in executable.program.notes)
        return [
            *[f"  {note}" for note in notes if note.startswith("memory: ")],
            f"  the slowest of {_number(len(found), 'kernel')}{whose}{self._how()}:",
            *[_kernel(*kernel, total) for kernel in found[:KERNELS]],
            *[_kernel(*callback, total) for callback in called],
        ]

    def _how(self) -> str:
        """How the kernels were measured, or why they were not."""
        why = next((t.why_not for _, _, t in self.timings if t.why_not is not None), None)
        if why is not None:
            return f" (not measured: {why})"
        threads = max(timing.threads for _, _, timing in self.timings)
        return f" (measured now, on {_number(threads, 'thread')}, with made-up arguments)"


def _kind(callback: Any) -> str:
    return "collective" if callback.primitive.collective else "callback"


def values_of(replay: Replay) -> list[Any]:
    """The current values of a replay's inputs; None for those that only a call has."""
    return [
        slot.tensor._array
        if isinstance(slot, Captured)
        else slot.read()
        if isinstance(slot, Number)
        else None
        for slot in replay.slots
    ]


def _time(seconds: float) -> str:
    """Milliseconds or microseconds, to three digits."""
    if seconds >= 1e-3:
        return f"{seconds * 1e3:.3g} ms" if seconds < 1 else f"{seconds * 1e3:.0f} ms"
    return f"{seconds * 1e6:.3g} µs"


def _kernel(seconds: float | None, title: str, origins: tuple[Origin, ...], total: float) -> str:
    took = "not measured"
    if seconds is not None:
        share = seconds / total if total else 0.0
        took = f"{share:4.0%} {seconds * 1e6:8.1f} µs"
    names = _some((o.name for o in origins), " ")
    locations = _some((show_location(o.location) for o in origins if o.location is not None), ", ")
    layers = _layers(origins)
    parts = [f"{title}{names}", *([locations] if locations else []), *([layers] if layers else [])]
    return f"    {took}  {' | '.join(parts)}"


def _layers(origins: tuple[Origin, ...]) -> str:
    """The modules from which an instruction came."""
    return _some((o.layer for o in origins if o.layer), ", ")


def _some(names: Iterable[str], separator: str) -> str:
    """The first different names, and how many more there are."""
    found = list(dict.fromkeys(names))
    shown = separator.join(found[:PARTS])
    return shown if len(found) <= PARTS else f"{shown}{separator}… ({len(found) - PARTS} more)"


# -- everything ----------------------------------------------------------------------------------


def explain(compiled: Compiled, programs: bool = False, code: str | None = None) -> str:
    """Signatures, kernels with their primitives and lines, callbacks, memory, compile time."""
    if code is not None and code not in LANGUAGES:
        raise ValueError(f"code is shown as one of {', '.join(LANGUAGES)}, got {code!r}")
    lines = [f"compiled function {compiled.name}: {len(compiled._signatures)} signature(s)"]
    if compiled.why_eager is not None:
        lines.append(f"  last ran eagerly because {compiled.why_eager}")
    lines += _dropped(compiled)
    for signature in compiled._signatures:
        lines += _signature(signature)
    for replay in compiled.replays if programs else ():
        lines.append(str(replay.program))
        if replay.vjp is not None:
            lines.append(f"backward {replay.vjp.halves.backward}")
    for replay in compiled.replays if code is not None else ():
        assert code is not None
        if replay.executable is not None:
            lines += _code("", replay.executable, code)
        for found, _, indices in replay.vjp.programs.values() if replay.vjp is not None else ():
            lines += _code(_backward(indices), found, code)
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
    if replay.vjp is not None:
        recorded = len(replay.vjp.halves.backward.instructions)
        lines += [] if replay.vjp.programs else ["    backward: not compiled yet"]
        for found, _, indices in replay.vjp.programs.values():
            lines += _executable(_backward(indices), found, recorded)
    return lines


def _backward(indices: Any) -> str:
    return f"backward for {sum(index is not None for index in indices)} gradients: "


def _memory(replay: Replay, executable: Executable) -> str:
    """The bytes that a call needs besides its inputs, with all its programs."""
    vjp = replay.vjp
    results = sum(map(bytes_of, replay.program.results))
    arena = _arena(executable)
    if vjp is None:
        return f"arena {arena} + results {results} = {arena + results} bytes at most"
    own = {k.result for k in (*vjp.halves.kept, *vjp.halves.for_rerun)} - set(
        vjp.derivative.outputs
    )
    kept = sum(bytes_of(replay.program.results[i]) for i in own if i is not None)
    gradients = sum(map(bytes_of, vjp.halves.backward.results))
    arena += max((_arena(found) for found, _, _ in vjp.programs.values()), default=0)
    return (
        f"arena {arena} + results {results - kept} + kept for backward {kept} + gradients "
        f"{gradients} = {arena + results + gradients} bytes at most"
    )


def _arena(executable: Executable) -> int:
    """The bytes of a program's arena; 0 if its target does not say."""
    return int(executable.plan.arena) if isinstance(executable, NativeProgram) else 0


def _executable(title: str, executable: Executable, recorded: int) -> list[str]:
    """Kernels and callbacks with their primitives and source lines."""
    if not isinstance(executable, NativeProgram):
        return [f"    {title}{recorded} primitives, {executable.describe()}"]
    kernels = executable.emitted.kernels
    lines = [
        f"    {title}{recorded} primitives became {len(kernels)} kernels "
        f"({len({text for text, _ in kernels})} different) and "
        f"{len(executable.callbacks)} callbacks; compiled in {executable.compile_seconds:.2f} s"
    ]
    indices: dict[str, int] = {}
    for text, instruction in kernels:
        index = indices.setdefault(text, len(indices))
        lines.append(f"      {_titled(index, instruction)}")
    for callback in executable.callbacks:
        lines.append(f"      {_kind(callback)} {show_origins(callback.origins)}")
    for note in dict.fromkeys(executable.program.notes):
        lines.append(f"      note: {note}")
    return lines


def _titled(index: int, instruction: Instruction) -> str:
    layers = _layers(instruction.origins)
    shown = f"kernel {index}: {show_origins(instruction.origins)}"
    return f"{shown} | {layers}" if layers else shown


def _code(title: str, executable: Executable, language: str) -> list[str]:
    """The text of each different kernel, under the same title as in the list of kernels."""
    if not isinstance(executable, NativeProgram):
        return []
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
