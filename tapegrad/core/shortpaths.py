"""Functions that are written for each primitive, because general ones would take longer.

`pull` calls the gradient rules of a recorded operation, `saver` picks what its entry keeps, and
`direct` is the short way through `bind`: the checks and the entry in one frame, for the inputs that
this primitive has. Unpacking by name in loops would cost 1 µs more for `pull` and `saver` each, and
`bind` costs 5 µs more than `direct`. Called by `primitive.py`, on the first use of a primitive.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from . import source
from .numeric import DIFFERENTIABLE

if TYPE_CHECKING:
    from .primitive import Primitive, Rule

_SAVED = {
    "in": "{array}",
    "shape": "getattr({array}, 'shape', ())",
    "dtype": "getattr({array}, 'dtype', None)",
    "rest": "list(arrays[{index}:])",
    "shapes": "[a.shape for a in arrays[{index}:]]",
    "out": "{out}",
}


def parameters(rule: Rule) -> tuple[str, ...]:
    """The names of what a rule needs beside the gradient."""
    code = rule.__code__
    names: tuple[str, ...] = code.co_varnames[1 : code.co_argcount + code.co_kwonlyargcount]
    return names


def source_of(p: Primitive, name: str) -> tuple[str, int]:
    """Where a rule's parameter comes from: a saved slot or a static parameter."""
    made = p.outputs + p.extras
    if name in made:
        return "out", made.index(name)
    if p.rest is not None and name in (p.rest, "shapes"):
        return ("shapes" if name == "shapes" else "rest"), len(p.inputs)
    if name in p.inputs:
        return "in", p.inputs.index(name)
    stem, _, what = name.rpartition("_")
    if stem in p.inputs and what in ("shape", "dtype"):
        return what, p.inputs.index(stem)
    return "param", 0


def _compiled(name: str, of: Primitive, lines: Sequence[str], namespace: dict[str, Any]) -> Any:
    # Named as a part of the library, so that source lines are those of its caller.
    exec(compile("\n".join(lines), f"{source.LIBRARY}{name} of {of.name}", "exec"), namespace)
    return namespace[name]


def pull(
    p: Primitive, condition: str | None, namespace: dict[str, Any]
) -> Callable[..., Sequence[Any]]:
    """`pull(g, edges, saved, params)`, which asks `_native` first where the condition holds."""
    position = {(what, index): i for i, (what, index, _) in enumerate(p.slots)}

    def argument(name: str) -> str:
        if name == "needs":
            return "needs=[e is not None for e in edges]"
        origin = source_of(p, name)
        value = f"params[{name!r}]" if origin[0] == "param" else f"saved[{position[origin]}]"
        return f"{name}={value}"

    def call(label: str, rule: Rule) -> str:
        namespace[label] = rule
        return f"{label}({', '.join(['g', *map(argument, parameters(rule))])})"

    if p.joint is not None:
        body = call("joint", p.joint)
    else:
        parts = [
            "None"
            if rule is None
            else f"({call(f'rule{i}', rule)} if edges[{i}] is not None else None)"
            for i, rule in enumerate(p.rules)
        ]
        body = f"({', '.join(parts)},)"
    lines = [f"def plain(g, edges, saved, params):\n    return {body}"]
    lines.append("def pull(g, edges, saved, params):")
    if condition is not None:
        lines.append(f"    if {condition}:")
        lines.append("        return _native(p, plain, g, edges, saved, params)")
    lines.append(f"    return {body}")
    function: Callable[..., Sequence[Any]] = _compiled("pull", p, lines, namespace | {"p": p})
    return function


def _kept(p: Primitive, array: str, out: str, edge: str) -> str:
    """The tuple of what an entry keeps, where inputs, results and edges have these names."""
    parts = []
    for what, index, users in p.slots:
        part = _SAVED[what].format(array=array.format(index), out=out.format(index), index=index)
        if users is not None:
            wanted = " or ".join(f"{edge.format(i)} is not None" for i in users)
            part = f"({part} if {wanted} else None)"
        parts.append(f"{part}, ")
    return f"({''.join(parts)})"


def saver(p: Primitive) -> Callable[..., tuple[Any, ...]]:
    """`saver(arrays, outs, edges)`: what an entry keeps, in the order of the slots."""
    kept = _kept(p, "arrays[{}]", "outs[{}]", "edges[{}]")
    lines = ["def saver(arrays, outs, edges):", f"    return {kept}"]
    function: Callable[..., tuple[Any, ...]] = _compiled("saver", p, lines, {})
    return function


def direct(
    p: Primitive, same_shape: bool, shapes: bool, namespace: dict[str, Any]
) -> Callable[..., Any]:
    """`direct(*inputs, params)`: what `bind` does, for ordinary tensors (and None) on the CPU.

    With `same_shape` inputs that broadcast are left to `bind`, as are those that need another
    dtype; with `shapes` an entry keeps the inputs' shapes, unless there are no dimensions beside
    those of matrices that could have been broadcast.
    """
    count = range(len(p.inputs))
    lines = [
        f"def direct({''.join(f't{i}, ' for i in count)}params):",
        "    mode = STATE.mode",
        "    plain = mode <= GRAD and isinstance(t0, Tensor)",
        "    if plain:",
        "        if t0._view is not None:",
        "            refresh(t0)",
        "        a0 = t0._array",
        "        plain = a0.__class__ is ndarray",
        "        size = a0.size if plain else 0",
    ]
    if p.promote is not None:
        lines += [
            "        dtype = a0.dtype",
            "        if dtype is not F32 and dtype is not F64:",
            "            plain = False",
        ]
    if p.view:
        lines += ["        if t0._extra is not None:", "            plain = False"]
    for i in count[1:]:
        differs = f"a{i}.__class__ is not ndarray"
        differs += f" or a{i}.dtype is not dtype" if p.promote is not None else ""
        differs += f" or a{i}.shape != a0.shape" if same_shape else ""
        lines += [
            f"        if t{i} is None:",
            f"            a{i} = None",
            f"        elif isinstance(t{i}, Tensor):",
            f"            if t{i}._view is not None:",
            f"                refresh(t{i})",
            f"            a{i} = t{i}._array",
            f"            if {differs}:",
            "                plain = False",
            f"            elif a{i}.size > size:",
            f"                size = a{i}.size",
            "        else:",
            "            plain = False",
        ]
    arrays = "".join(f"a{i}, " for i in count)
    made = range(len(p.outputs) + len(p.extras))
    outs = ", ".join(f"out{i}" for i in made)
    results = range(len(p.outputs))
    several = len(p.outputs) > 1
    lines += [
        "    if not plain:",
        f"        return bind(p, ({''.join(f't{i}, ' for i in count)}), params)",
        f"    if size >= {p.native_size}:",
        f"        {outs} = run(p, ({arrays}), params)",
        "    else:",
        f"        {outs} = kernel({arrays}**params)",
    ]
    for i in made:
        lines += [
            f"    if out{i}.__class__ is not ndarray:",
            f"        out{i} = as_array(out{i})",
        ]
    lines += [f"    result{i} = wrap(out{i})" for i in results]
    if p.view:
        lines.append("    note_view(p, params, t0, result0)")
    if p.differentiable:
        edges = []
        for i in count:
            if p.joint is None and p.rules[i] is None:
                edges.append("None")
                continue
            edges.append(f"e{i}")
            there = "" if i == 0 else f"t{i} is not None and "
            lines.append(f"    e{i} = (t{i}._edge or t{i}) if {there}t{i}._requires else None")
        needed = " or ".join(f"{e} is not None" for e in edges if e != "None")
        lines += [
            f"    if mode and ({needed}):",
            "        entry = new(Entry)",
            "        entry.primitive = p",
            "        entry.params = params",
            f"        entry.edges = ({''.join(f'{e}, ' for e in edges)})",
            "        entry.number = result0.id",
            "        entry.location = outside(getframe(1))",
            "        entry.hooks = entry.log = entry.shapes = None",
            f"        entry.saved = {_kept(p, 'a{}', 'out{}', 'e{}')}",
        ]
        if shapes:
            shown = "".join(f"getattr(a{i}, 'shape', ()), " for i in count)
            lines.append(f"        entry.shapes = ({shown}) if out0.ndim > 2 else None")
        for i in results:
            lines += [
                f"        if out{i}.dtype.kind in {DIFFERENTIABLE!r}:",
                f"            result{i}._edge = {f'Output(entry, {i})' if several else 'entry'}",
                f"            result{i}._requires = True",
            ]
    lines.append(f"    return {', '.join(f'result{i}' for i in results)}")
    function: Callable[..., Any] = _compiled("direct", p, lines, namespace | {"p": p})
    return function
