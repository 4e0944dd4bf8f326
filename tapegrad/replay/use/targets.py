"""The targets that compiled functions can be built for, by name."""

from __future__ import annotations

from ..cpu.target import CPU
from ..ir.target import Target
from ..reference.target import NumPyTarget

#: native code on the CPU, which is what everything runs on that does not ask for another
DEFAULT = CPU()

_targets: dict[str, Target] = {target.name: target for target in (DEFAULT, NumPyTarget())}


def register_target(target: Target) -> None:
    """Let `compile(backend=target.name)` build programs for a target.

    A name that is taken stands for the new target from then on.
    """
    if not isinstance(getattr(target, "name", None), str) or not callable(
        getattr(target, "build", None)
    ):
        raise TypeError(
            "a target has a name, missing() and build(program, name): see replay/ir/target.py"
        )
    _targets[target.name] = target


def target_names() -> tuple[str, ...]:
    """The names of all targets."""
    return tuple(_targets)


def target_of(name: str) -> Target:
    """The target of this name."""
    return _targets[name]
