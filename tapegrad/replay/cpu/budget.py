"""Budgets: the plan of a program, within the memory that the user allows.

Comes in: a recorded program, with `Program.budget` bytes for the values of a run (none: no limit).
Goes out: its `Plan`. Without a budget, a large program recomputes only values that cost next to
nothing. If the plain program exceeds its budget, `passes/recompute.py` recomputes values; functions
under `checkpoint` are then recomputed only as far as the budget requires. The program's notes say
what was done and what it costs. Called by `executable.py`.
"""

from __future__ import annotations

import warnings
from dataclasses import replace

from ...core import source
from ...core.amounts import shown
from ..ir.program import Apply, Program
from ..native.plan import Plan, plan
from ..passes import pipeline
from ..passes.recompute import recomputed, work_of
from ..passes.simplify import dead
from . import tuning
from .blueprint import blueprint_of
from .emit import emit
from .machine import CPUMachine
from .progress import Progress

#: attempts with ever smaller limits, because live values did not fit together in memory
ATTEMPTS = 6

_MACHINE = CPUMachine()


def planned(program: Program, general: bool, threads: int, progress: Progress) -> Plan:
    """The plan of a recorded program after all passes."""
    progress.stage(f"passes over {len(program.instructions)} operations")
    if program.budget is None:
        return _thrifty(_passed(program, progress), threads)
    forms = [_without_regions(program), program]
    found: list[Plan] = []
    for form in forms if forms[0] != forms[1] else forms[1:]:
        found.append(_fitted(_passed(form, progress), program.budget, general, threads, progress))
        if _total(found[-1], general, threads) <= program.budget:
            return found[-1]
    return min(found, key=lambda one: one.arena)


def _thrifty(program: Program, threads: int) -> Plan:
    """A plan in which a large program recomputes values that save memory at almost no cost."""
    plain = plan(program, threads)
    if plain.arena < tuning.MIN_ARENA_BYTES_TO_SAVE:
        return plain
    limit = int(tuning.WANTED_SHARE_OF_ARENA * plain.arena)
    most = tuning.MAX_SHARE_OF_WORK_TO_SAVE_MEMORY
    less = plan(dead(recomputed(program, _sizes(plain), limit, most), _MACHINE), threads)
    return less if less.arena < plain.arena else plain


def _sizes(made: Plan) -> dict[int, int]:
    """The bytes of values in the arena."""
    return {number: a.size for number, a in made.allocations.items() if a.kind == "arena"}


def warn_if_exceeded(name: str, budget: int | None, taken: int) -> None:
    """Warn that a program takes more memory than its budget."""
    if budget is not None and taken > budget:
        warnings.warn(
            f"memory={shown(budget)!r} is not enough for {name}: a replay takes {shown(taken)} "
            "for its values, whatever is computed again",
            stacklevel=source.stacklevel(),
        )


def _passed(program: Program, progress: Progress) -> Program:
    return pipeline.run_passes(program, _MACHINE, progress.check)


def _without_regions(program: Program) -> Program:
    """A program without checkpointed regions, so that passes merge what these compute twice."""
    return program.with_instructions(
        replace(x, region=0) if isinstance(x, Apply) and x.region else x
        for x in program.instructions
    )


def _total(made: Plan, general: bool, threads: int) -> int:
    """The bytes of a plan: its arena, and the scratch memory that threads share."""
    return made.arena + blueprint_of(made, emit(made, general, threads)).scratch


def _fitted(program: Program, budget: int, general: bool, threads: int, progress: Progress) -> Plan:
    """A plan within the budget, or the smallest that was found."""
    plain = least = plan(program, threads)
    aside = _total(plain, general, threads) - plain.arena
    limit = budget = max(budget - aside, 1)
    done: Program | None = None
    for _ in range(ATTEMPTS):
        if least.arena <= budget or limit <= 0:
            break
        progress.stage("computing values again")
        found = dead(recomputed(program, _sizes(plain), limit), _MACHINE)
        progress.check()
        made = plan(found, threads)
        if made.arena < least.arena:
            least, done = made, found
        # Live values may not fit into memory without gaps.
        limit -= max(made.arena - budget, budget // 64)
    note = f"memory: {shown(least.arena + aside)} for values"
    if done is not None:
        again = len(done.instructions) - len(program.instructions)
        before, after = (sum(map(work_of, p.instructions)) for p in (program, done))
        note += (
            f" ({shown(plain.arena + aside)} if all were kept): {again} kernels run again, "
            f"{after / max(before, 1.0) - 1:.1%} more work"
        )
    with_note = replace(least.program, notes=(*least.program.notes, note))
    return replace(least, program=with_note)
