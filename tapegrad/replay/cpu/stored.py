"""Whole programs on disk: a later process takes a blueprint instead of running the passes.

Comes in: a recorded program. Goes out: its blueprint, if one is stored. It is found by a checksum
of everything that decides it: the recorded program with its shapes, strides, parameters and the
bytes of its constants, the number of threads, the settings of passes, the source of passes and
operations, the versions of NumPy and LLVM, and the processor. Files hold JSON and raw arrays;
`cache.py` stores them and checks that they are complete. A program is not stored if it has
callbacks, or if a primitive or parameter that is not tapegrad's own cannot be described exactly.
Called by `executable.py`.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
from pathlib import Path
from typing import Any

import numpy as np

from ...core import dtypes, rewrites, source
from ...core.primitive import Primitive
from ...core.tape import Value
from ..ir.program import Apply, Program
from . import cache, jit, vectors, winograd
from .blueprint import PATCH_WORDS, STEP_WORDS, Blueprint, Steps

#: types whose `repr` describes a value exactly
PLAIN = (bool, int, float, complex, str, bytes, type(None), type(...))

#: the files of tapegrad on which a compiled program depends: those that this file may import
#: (`tests/test_structure.py` has the order). Hashing all files would take 5 ms longer.
_DECIDING = (
    *("random.py", "core/**/*.py", "autograd/**/*.py", "transforms/**/*.py", "ops/**/*.py"),
    "replay/**/*.py",
)

#: bytes of the number at the start, which is the length of the JSON
HEAD = 8


class _NotStorable(Exception):
    """A program depends on something that cannot be described exactly."""


@functools.cache
def _circumstances() -> str:
    """All that every blueprint depends on beside its program."""
    code = hashlib.sha256()
    folder = Path(source.LIBRARY)
    try:
        for path in sorted([path for part in _DECIDING for path in folder.glob(part)]):
            code.update(f"{path.relative_to(folder)}\n".encode() + path.read_bytes())
    except OSError as error:
        raise _NotStorable from error
    return f"{code.hexdigest()} {np.__version__} {jit.circumstances()}"


# -- names ---------------------------------------------------------------------------------------


def name_of(program: Program, general: bool, threads: int) -> str | None:
    """The name of the file for a program; None if it cannot be stored."""
    if cache.folder() is None:
        return None
    skipped = os.environ.get("TAPEGRAD_WITHOUT", "")
    processor = f"{vectors.registers()} {vectors.multiplies_bfloat16()}"
    settings = f"{skipped!r} {program.budget} {rewrites.settings()} {winograd.allowed()}"
    parts = [f"{general} {threads} {processor} {settings}"]
    try:
        parts.append(_circumstances())
        _describe(program, parts)
    except _NotStorable:
        return None
    text = "\n".join(parts)
    return f"p{hashlib.sha256(text.encode()).hexdigest()}"


def _describe(program: Program, parts: list[str]) -> None:
    """Append all parts of a program on which its blueprint depends."""
    for outside in program.inputs:
        parts.append(f"input {_typed(outside.value)} {outside.strides} {outside.aliased}")
    for value, array in program.constants:
        content = hashlib.sha256(array.tobytes()).hexdigest()
        parts.append(f"constant {_typed(value)} {array.dtype.str} {array.shape} {content}")
    # An error names the source line of its operation. So programs differ if their operations are
    # on the same line in one and on different lines in the other.
    lines: dict[Any, int] = {None: -1}
    for apply in program.instructions:
        if not isinstance(apply, Apply):
            raise _NotStorable
        location = apply.location and (id(apply.location[0]), apply.location[1])
        line = lines.setdefault(location, len(lines))
        given = ",".join(
            [f"%{x.number}" if x.__class__ is Value else _exact(x) for x in apply.inputs]
        )
        params = _exact(apply.params) if apply.params else ""
        made = ",".join(map(_typed, apply.outputs))
        parts.append(f"{made}={_named(apply.primitive)}({given}){params}@{line},{apply.region}")
    parts.append(f"writes {[(target.number, value.number) for target, value in program.writes]}")
    parts.append(f"results {[value.number for value in program.results]}")


def _typed(value: Value) -> str:
    return f"%{value.number}:{_dtype(value.dtype)}{value.shape}"


@functools.cache
def _dtype(dtype: Any) -> str:
    return f"{dtype.str}{dtype!r}"


def _named(p: Primitive) -> str:
    # Only what tapegrad itself defines is covered by the checksum of its source.
    if not is_own(p):
        raise _NotStorable
    return f"{p.name}[{p.expression}]"


@functools.cache
def is_own(p: Primitive) -> bool:
    """Whether tapegrad itself defines all of a primitive."""
    codes = [getattr(f, "__code__", None) for f in (p.kernel, p.lower, p.abstract)]
    return p.registered and all(
        code is None or code.co_filename.startswith(source.LIBRARY) for code in codes
    )


def _exact(value: Any) -> str:
    """A text that describes a value, and no other value."""
    kind = value.__class__
    if kind in PLAIN:
        return f"{kind.__name__} {value!r}"
    if isinstance(value, tuple):
        return f"{kind.__qualname__}({','.join(map(_exact, value))})"
    if kind is dict:
        return f"{{{','.join([f'{name!r}:{_exact(part)}' for name, part in value.items()])}}}"
    if kind is list:
        return f"[{','.join(map(_exact, value))}]"
    if kind is slice:
        return f"slice({_exact((value.start, value.stop, value.step))})"
    if kind is Primitive:
        return f"primitive {_named(value)}"
    if isinstance(value, dtypes.DType):
        return f"DType {value.name}"
    if isinstance(value, np.dtype):
        return f"dtype {_dtype(value)}"
    if kind is np.ndarray or isinstance(value, np.generic):
        if value.dtype.hasobject:
            raise _NotStorable
        content = hashlib.sha256(value.tobytes()).hexdigest()
        return f"{kind.__name__} {_dtype(value.dtype)} {value.shape} {content}"
    raise _NotStorable


# -- files ---------------------------------------------------------------------------------------


def store(name: str, program: Program, blueprint: Blueprint, kernels: list[str]) -> None:
    """Store the blueprint of a recorded program, with the names of its kernels."""
    segments = [s for s in blueprint.segments if isinstance(s, Steps)]
    if len(segments) < len(blueprint.segments):
        return
    lines = {(a.primitive.name, a.location): i for i, a in enumerate(program.applied())}
    failures = [lines.get(failure) for failure in blueprint.failures]
    if None in failures:
        return
    known = {id(array): i for i, (_, array) in enumerate(program.constants)}
    constants = [known.get(id(array)) for array in blueprint.constants]
    arrays = [part for s in segments for part in (s.steps, s.tables, s.patches)]
    new = [a for a, index in zip(blueprint.constants, constants, strict=True) if index is None]
    about = {
        "name": name,
        "kernels": kernels,
        "segments": [[len(s.steps), len(s.tables), len(s.patches)] for s in segments],
        "constants": constants,
        "sizes": [array.nbytes for array in new],
        "failures": failures,
        "arena": blueprint.arena,
        "scratch": blueprint.scratch,
        "work": blueprint.work,
    }
    head = json.dumps(about).encode()
    raw = b"".join(array.tobytes() for array in [*arrays, *new])
    cache.store(name, len(head).to_bytes(HEAD, "little") + head + raw)


def load(name: str, program: Program) -> tuple[Blueprint, list[str]] | None:
    """The blueprint of a recorded program and the names of its kernels, if they are on disk."""
    data = cache.load(name)
    if data is None:
        return None
    try:
        return _parsed(name, program, data)
    except (ValueError, KeyError, IndexError, TypeError):
        return None  # a file that something else has written, with a valid checksum


def _parsed(name: str, program: Program, data: bytes) -> tuple[Blueprint, list[str]]:
    end = HEAD + int.from_bytes(data[:HEAD], "little")
    about = json.loads(data[HEAD:end])
    if about["name"] != name:
        raise ValueError("the file of another program")

    def words(count: int) -> Any:
        nonlocal end
        end += 8 * count
        # A copy, because tables are filled in, and an array over bytes is read-only.
        return np.frombuffer(data, np.int64, count, end - 8 * count).copy()

    segments = [
        Steps(
            words(steps * STEP_WORDS).reshape(-1, STEP_WORDS),
            words(tables),
            words(patches * PATCH_WORDS).reshape(-1, PATCH_WORDS),
        )
        for steps, tables, patches in about["segments"]
    ]
    sizes = iter(about["sizes"])
    constants = []
    for index in about["constants"]:
        if index is None:
            size = next(sizes)
            constants.append(np.frombuffer(data, np.uint8, size, end).copy())
            end += size
        else:
            constants.append(np.ascontiguousarray(program.constants[index][1]))
    if end != len(data):
        raise ValueError("another length than the parts have")
    applied = program.instructions
    failures = []
    for i in about["failures"]:
        apply = applied[i]
        assert isinstance(apply, Apply)
        failures.append((apply.primitive.name, apply.location))
    blueprint = Blueprint(
        tuple(segments),
        tuple(constants),
        tuple(failures),
        about["arena"],
        about["scratch"],
        about["work"],
    )
    return blueprint, about["kernels"]
