"""The targets that compiled functions can be built for, by name.

Comes in: the name of a backend, or a target that the user registers. Goes out: a `Target`. A
function is compiled for a backend; each of its programs is built for the target of the device on
which it was recorded (`target_for`). Called by `compiled.py`, `update.py`, `eager.py` and
`replay.py`; `register_target` is public.
"""

from __future__ import annotations

from dataclasses import replace

from ...core.device import Device
from ..cpu.target import CPU
from ..cuda.target import CUDA
from ..ir.program import Program
from ..ir.target import Executable, Target
from ..reference.target import CuPyTarget, NumPyTarget

#: native code on the CPU: the target of everything that asks for no other
DEFAULT = CPU()

#: the names of the library's own targets
BUILT_IN = ("cpu", "numpy", "cuda", "cupy")

_targets: dict[str, Target] = {
    target.name: target for target in (DEFAULT, NumPyTarget(), CuPyTarget(), CUDA())
}

#: other names of backends: the target of each, or None for no compilation at all
BACKENDS: dict[str, str | None] = {"inductor": "cpu", "native": "cpu", "eager": None}


def register_target(target: Target) -> None:
    """Let `compile(backend=target.name)` build programs for a target."""
    name = getattr(target, "name", None)
    methods = [getattr(target, method, None) for method in ("missing", "build")]
    if not isinstance(name, str) or not all(map(callable, methods)):
        raise TypeError(
            "a target has a name, missing() and build(program, name): see replay/ir/target.py"
        )
    if name in _targets or name in BACKENDS:
        raise ValueError(f"a backend named {name!r} exists already; give the target another name")
    _targets[name] = target


def unregister_target(name: str) -> None:
    """Forget a registered target; functions compiled for it keep it."""
    if name not in _targets or name in BUILT_IN:
        raise ValueError(f"no target named {name!r} was registered")
    del _targets[name]


def target_names() -> tuple[str, ...]:
    """The names of all targets."""
    return tuple(_targets)


def target_of(name: str) -> Target:
    """The target of this name."""
    return _targets[name]


def target_for(asked: Target, device: Device) -> Target:
    """The target of programs on a device: its own, if `asked` is the default target."""
    if device.type == "cpu" or asked.name != DEFAULT.name:
        return asked
    found = _targets[device.type]
    if found.missing() is not None:
        found = _targets["cupy"]
    return asked.of(found) if isinstance(asked, Budgeted) else found


def unfit(target: Target, device: Device) -> str | None:
    """Why a target cannot run programs on a device; None if it can."""
    if device.type in getattr(target, "devices", ("cpu",)):
        return None
    return f"the backend {target.name!r} has no programs for tensors on {device}"


class Budgeted:
    """A target whose programs may take a limited number of bytes for their values."""

    def __init__(self, target: Target, budget: int) -> None:
        self.name = target.name
        self.missing = target.missing
        self.devices = getattr(target, "devices", ("cpu",))
        self._target = target
        self._budget = budget

    def of(self, target: Target) -> Budgeted:
        """Another target with the same limit."""
        return Budgeted(target, self._budget)

    def build(self, program: Program, name: str = "a program") -> Executable:
        return self._target.build(replace(program, budget=self._budget), name)
