"""Generates specialized Python functions for each primitive, because general ones are slower.

`pull` calls the gradient rules of a recorded operation, `saver` selects what its entry keeps, and
`direct` is a short `bind`: checks, kernel and entry in one frame, unrolled over the inputs. Loops
that unpack by name would cost 1 µs more for `pull` and `saver` each, and `bind` costs 5 µs more
than `direct`. `primitive.py` calls them on the first use of a primitive. `small_unary` and
`small_binary` serve elementwise operations on small tensors, for `fast.py`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .codegen import function_of
from .numeric import COMPLEX, DIFFERENTIABLE, FLOATING

if TYPE_CHECKING:
    from .primitive import Primitive, Rule

#: more elements than any array has
NEVER = 1 << 62

#: most arguments for which a primitive with any number of inputs gets a short path
MOST_UNROLLED = 5

_SAVED = {
    "in": "{array}",
    "shape": "getattr({array}, 'shape', ())",
    "dtype": "getattr({array}, 'dtype', None)",
    "rest": "list(arrays[{index}:])",
    "shapes": "[a.shape for a in arrays[{index}:]]",
    "out": "{out}",
}


def parameters(rule: Rule) -> tuple[str, ...]:
    """The parameter names of a rule, or of the rule it wraps, without the gradient."""
    code = getattr(rule, "__wrapped__", rule).__code__
    names: tuple[str, ...] = code.co_varnames[1 : code.co_argcount + code.co_kwonlyargcount]
    return names


def source_of(p: Primitive, name: str) -> tuple[str, int]:
    """Where a rule's parameter comes from: the key of a saved slot, or a static parameter."""
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
    return function_of(lines, name, namespace, f"{name} of {of.name}")


def pull(
    p: Primitive, condition: str | None, namespace: dict[str, Any]
) -> Callable[..., Sequence[Any]]:
    """`pull(g, edges, saved, params)`, which calls `_native` where the condition holds."""
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
        inputs = len(p.rules) if p.joint is None else len(p.inputs)
        needs = [f"edges[{i}] is None" for i in range(inputs)]
        site = _site(p, "plain", needs) if p.called_natively else None
        if site is not None:
            several = len(p.outputs) > 1
            lines += [
                *_indented(site, 2),
                "        if found is not None" + (" and g.__class__ is list:" if several else ":"),
                f"            out = found({'*g' if several else 'g'}, *saved)",
                "            if out.__class__ is tuple:",
                "                return out",
            ]
        lines.append("        return _native(p, plain, g, edges, saved, params)")
    lines.append(f"    return {body}")
    function: Callable[..., Sequence[Any]] = _compiled("pull", p, lines, namespace | {"p": p})
    return function


def _kept(p: Primitive, array: str, out: str, wanted: Callable[[Any], str]) -> str:
    """The text of the tuple that an entry saves, given names for inputs and results.

    `wanted` gives the condition under which the rules of some inputs are needed.
    """
    parts = []
    for what, index, users in p.slots:
        part = _SAVED[what].format(array=array.format(index), out=out.format(index), index=index)
        condition = "True" if users is None else wanted(users)
        if condition == "False":
            part = "None"
        elif condition != "True":
            part = f"({part} if {condition} else None)"
        parts.append(f"{part}, ")
    return f"({''.join(parts)})"


def _any_edge(edge: str) -> Callable[[Any], str]:
    return lambda users: " or ".join(f"{edge.format(i)} is not None" for i in users)


def saver(p: Primitive) -> Callable[..., tuple[Any, ...]]:
    """`saver(arrays, outs, edges)`: what an entry saves, in the order of the slots."""
    kept = _kept(p, "arrays[{}]", "outs[{}]", _any_edge("edges[{}]"))
    lines = ["def saver(arrays, outs, edges):", f"    return {kept}"]
    function: Callable[..., tuple[Any, ...]] = _compiled("saver", p, lines, {})
    return function


def small_savers(p: Primitive) -> list[Callable[..., tuple[Any, ...]]]:
    """`saver(a0, a1, out)` for each set of inputs that need gradients: bit i for input i.

    Primitives that save the same values share these functions.
    """

    def text_of(needs: int) -> str:
        return _kept(p, "a{}", "out", lambda users: str(any(needs >> i & 1 for i in users)))

    texts = [text_of(needs) for needs in range(1 << len(p.inputs))]
    for text in texts:
        if text not in _SMALL_SAVERS:
            _SMALL_SAVERS[text] = eval(f"lambda a0, a1, out: {text}")
    return [_SMALL_SAVERS[text] for text in texts]


_SMALL_SAVERS: dict[str, Callable[..., tuple[Any, ...]]] = {}


def _entry(params: str, edges: str, saved: str, number: str) -> list[str]:
    """Lines that make `entry`, with the location of the generated function's caller."""
    return [
        "entry = new(Entry)",
        "entry.primitive = p",
        f"entry.params = {params}",
        f"entry.number = {number}",
        "entry.shapes = entry.hooks = entry.log = None",
        f"entry.edges = {edges}",
        f"entry.saved = {saved}",
        "frame = getframe(1)",
        "code = frame.f_code",
        "if code.co_filename.startswith(LIBRARY):",
        "    entry.location = outside(frame)",
        "else:",  # nearly always: saves a call
        "    entry.location = (code, frame.f_lasti)",
    ]


def _small(run: str, needs: str, edges: str, saved: str, more: Sequence[str] = ()) -> list[str]:
    """Lines that run a kernel, make `result` and its entry, and return."""
    return [
        f"out = {run}",
        "if out.__class__ is not ndarray and isinstance(out, generic):",
        "    out = as_array(out)",
        "result = new(Tensor)",
        "result._array = out",
        "result._extra = result._grad = result._view = None",
        "result.id = number = next(numbers)",
        f"if not ({needs}) or not mode & recording:",
        "    result._edge = None",
        "    result._requires = False",
        "    return result",
        *_entry("NO_PARAMS", edges, f"(savers or fill(savers, p))[{saved}", "number"),
        *more,
        "result._edge = entry",
        "result._requires = True",
        "return result",
    ]


def _on_any(array: str, given: str) -> str:
    """The text of the call: the kernel for NumPy arrays, the primitive for others."""
    return f"kernel({given}) if {array}.__class__ is ndarray else p({given})"


def _indented(lines: Sequence[str], depth: int) -> list[str]:
    return ["    " * depth + line for line in lines]


def small_unary(namespace: dict[str, Any]) -> Callable[..., Callable[..., Any]]:
    """`make(p, kernel, slow, recording, limit)`: makes `call(input)` for an elementwise operation.

    `call` does everything in one frame for a tensor of fewer elements than the limit, or of any
    size on a GPU. It hands other tensors, and every tensor while a tape, hooks or other modes are
    on, to `slow` or, if that is None, to `bind`.
    """
    lines = [
        "def make_unary(p, kernel, slow, recording, limit):",
        "    savers = []",
        "    def call(input):",
        "        x = input",
        "        mode = STATE.mode",
        "        if mode <= GRAD:",
        "            if x._view is not None:",
        "                refresh(x)",
        "            a = x._array",
        "            if (a.dtype is F32 or a.dtype is F64) and (",
        "                a.size < limit or a.__class__ in on_gpu",
        "            ):",
        *_indented(
            _small(_on_any("a", "a"), "x._requires", "(x._edge or x,)", "1](a, None, out)"), 4
        ),
        "        return p.direct(x, NO_PARAMS) if slow is None else slow(x)",
        "    return call",
    ]
    make: Callable[..., Callable[..., Any]] = function_of(lines, "make_unary", namespace)
    return make


def small_binary(namespace: dict[str, Any]) -> tuple[Callable[..., Callable[..., Any]], ...]:
    """Two functions `make(p, kernel, slow, recording)`, as `small_unary`: `x op y` and `y op x`.

    In the first, y is a number or a small tensor whose shape broadcasts; in the second, a number.
    """
    plain = [
        "def make_binary(p, kernel, slow, recording):",
        "    savers = []",
        "    def call(x, y):",
        "        mode = STATE.mode",
        "        if mode <= GRAD:",
        "            if x._view is not None:",
        "                refresh(x)",
        "            a = x._array",
        "            dtype = a.dtype",
        "            if (dtype is F32 or dtype is F64) and (",
        "                a.size < ARRAY_SIZE or a.__class__ in on_gpu",
        "            ):",
        "                if isinstance(y, Tensor):",
        "                    if y._view is not None:",
        "                        refresh(y)",
        "                    b = y._array",
        "                    same = (",
        "                        b.dtype is dtype",
        "                        and b.__class__ is a.__class__",
        "                        and (",
        "                            b.shape == a.shape",
        "                            or b.size < ARRAY_SIZE and fits(a.shape, b.shape)",
        "                        )",
        "                    )",
        "                    needs = x._requires | y._requires << 1",
        "                elif y.__class__ is float or y.__class__ is int:",
        "                    b = y",
        "                    same = True",
        "                    needs = x._requires | 0",
        "                else:",
        "                    same = False",
        "                if same:",
        *_indented(
            _small(
                _on_any("a", "a, b"),
                "needs",
                "(x._edge or x if needs & 1 else None, y._edge or y if needs & 2 else None)",
                "needs](a, b, out)",
                [
                    "if b is not y and b.shape != a.shape:",
                    "    entry.shapes = (a.shape, b.shape)",
                ],
            ),
            5,
        ),
        "        return bind(p, (x, y)) if slow is None else slow(x, y)",
        "    return call",
    ]
    reflected = [
        "def make_reflected(p, kernel, slow, recording):",
        "    savers = []",
        "    def call(x, y):",
        "        mode = STATE.mode",
        "        if mode <= GRAD and (y.__class__ is int or y.__class__ is float):",
        "            if x._view is not None:",
        "                refresh(x)",
        "            a = x._array",
        "            if (a.dtype is F32 or a.dtype is F64) and (",
        "                a.size < ARRAY_SIZE or a.__class__ in on_gpu",
        "            ):",
        *_indented(
            _small(_on_any("a", "y, a"), "x._requires", "(None, x._edge or x)", "2](y, a, out)"), 4
        ),
        "        return bind(p, (y, x)) if slow is None else slow(y, x)",
        "    return call",
    ]
    return (
        function_of(plain, "make_binary", namespace),
        function_of(reflected, "make_reflected", namespace),
    )


def _kernel_call(p: Primitive, arrays: str) -> str:
    """The text of the kernel's call, with parameters by name: packing them costs 0.15 µs more."""
    names = keywords(p)
    if names is None:
        return f"kernel({arrays}**params)"
    return f"kernel({arrays}{', '.join(f'{name}=params[{name!r}]' for name in names)})"


def keywords(p: Primitive) -> tuple[str, ...] | None:
    """The names of a kernel's parameters, all of which each call gives; None if they vary."""
    if p._keywords is False:  # not looked up yet; kept there, so that primitives can be freed
        p._keywords = _keywords_of(p)
    names: tuple[str, ...] | None = p._keywords
    return names


def _keywords_of(p: Primitive) -> tuple[str, ...] | None:
    if isinstance(p.kernel, np.ufunc):
        return ()
    kernel = getattr(p.kernel, "__wrapped__", p.kernel)
    code = getattr(kernel, "__code__", None)
    packed = inspect.CO_VARARGS * (p.rest is None) | inspect.CO_VARKEYWORDS
    if code is None or code.co_flags & packed or kernel.__kwdefaults__:
        return None
    first = code.co_argcount
    names: tuple[str, ...] = code.co_varnames[first : first + code.co_kwonlyargcount]
    return names


def _site(p: Primitive, of: str, needs: Sequence[str] = ()) -> list[str] | None:
    """Lines that look up the site of a kernel or rule as `found`; None if it has none.

    Its key has parameters with their types, because 1, 1.0 and True are equal. It agrees with
    `site_key`.
    """
    names = keywords(p)
    if names is None or p.rest is not None:
        return None
    parts = [of, *needs]
    for name in names:
        parts += [f"params[{name!r}]", f"params[{name!r}].__class__"]
    return [
        "try:",
        f"    found = sites.get(({', '.join(parts)},))",
        "except TypeError:",  # a parameter without a hash
        "    found = None",
    ]


def site_key(
    p: Primitive, of: Any, params: dict[str, Any], edges: Sequence[Any] = ()
) -> tuple[Any, ...] | None:
    """The key of a kernel's or rule's site; None if it has none."""
    names = keywords(p)
    if names is None or p.rest is not None:
        return None
    parts = [of, *[edge is None for edge in edges]]
    for name in names:
        parts += [params[name], params[name].__class__]
    return tuple(parts)


def direct(
    p: Primitive, same_shape: bool, shapes: bool, namespace: dict[str, Any]
) -> Callable[..., Any]:
    """`direct(*inputs, params)`: what `bind` does, for ordinary tensors (and None) on the CPU.

    It leaves inputs that need another dtype to `bind` and, with `same_shape`, inputs that
    broadcast. With `shapes` an entry keeps the inputs' shapes if the result has batch dimensions,
    which may have been broadcast.
    """
    if p.rest is None:
        return _direct_of(p, len(p.inputs), same_shape, shapes, namespace)
    made: dict[int, Callable[..., Any]] = {}
    bind = namespace["bind"]

    def direct(*given: Any) -> Any:
        found = made.get(len(given))
        if found is None:
            if len(given) > MOST_UNROLLED:
                return bind(p, given[:-1], given[-1])
            found = _direct_of(p, len(given) - 1, same_shape, shapes, dict(namespace))
            made[len(given)] = found
        return found(*given)

    return direct


def _direct_of(
    p: Primitive, inputs: int, same_shape: bool, shapes: bool, namespace: dict[str, Any]
) -> Callable[..., Any]:
    """`direct` for so many inputs."""
    count = range(inputs)
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
    if p.promote is not None or p.complex is None or not p.stores:
        truth = "" if p.promote == "numbers" else " or dtype is BOOL"
        lines += [
            "        dtype = a0.dtype",
            "        if dtype is not F32 and dtype is not F64:",
            # A single int64 or bool tensor needs no promotion either.
            f"            plain = plain and (dtype is I64{truth})"
            if inputs == 1 and p.promote != "float"
            else "            plain = False",
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
    ]
    site = _site(p, "p") if p.called_natively else None
    if site is not None:
        one = len(made) == 1
        lines += [
            f"    if size >= {p.native_size}:",
            *_indented(site, 2),
            f"        out = None if found is None else found({arrays})",
            f"        if out.__class__ is {'ndarray' if one else 'tuple'}:",
            f"            {outs} = out",
            "        else:",
            f"            {outs} = run(p, ({arrays}), params)",
            "    else:",
            f"        {outs} = {_kernel_call(p, arrays)}",
        ]
    elif p.native_size < NEVER:
        lines += [
            f"    if size >= {p.native_size}:",
            f"        {outs} = run(p, ({arrays}), params)",
            "    else:",
            f"        {outs} = {_kernel_call(p, arrays)}",
        ]
    else:
        lines.append(f"    {outs} = {_kernel_call(p, arrays)}")
    for i in made:
        lines += [
            f"    if out{i}.__class__ is not ndarray:",
            f"        out{i} = (asarray if isinstance(out{i}, generic) else as_array)(out{i})",
        ]
    for i in results:
        lines += [
            f"    result{i} = new(Tensor)",
            f"    result{i}._array = out{i}",
            f"    result{i}._edge = result{i}._extra = result{i}._grad = result{i}._view = None",
            f"    result{i}._requires = False",
            f"    result{i}.id = next(numbers)",
        ]
    if p.view:
        lines += [
            "    base = out0.base",
            # The common case, inlined to save a call: a view of a tensor that is not a view.
            "    if t0._view is None and base is not None and (base is a0 or base is a0.base):",
            "        number = result0.id if mode else result0.id + 0.5",  # see UNTRACKED
            "        result0._view = (t0, ((p, params),), number)",
            "    else:",
            "        note_view(p, params, t0, result0, mode)",
        ]
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
        kept = _kept(p, "a{}", "out{}", _any_edge("e{}"))
        lines.append(f"    if mode and ({needed}):")
        if "arrays[" in kept:
            lines.append(f"        arrays = ({arrays})")
        lines += _indented(
            _entry("params", f"({''.join(f'{e}, ' for e in edges)})", kept, "result0.id"), 2
        )
        if shapes:
            shown = "".join(f"getattr(a{i}, 'shape', ()), " for i in count)
            lines.append(f"        entry.shapes = ({shown}) if out0.ndim > 2 else None")
        conjugates = p.complex == "holomorphic"
        kinds = FLOATING if conjugates else DIFFERENTIABLE
        for i in results:
            lines += [
                f"        if out{i}.dtype.kind in {kinds!r}:",
                f"            result{i}._edge = {f'Output(entry, {i})' if several else 'entry'}",
                f"            result{i}._requires = True",
            ]
        if conjugates:  # checked last, so that real numbers pay nothing
            lines += [
                f"        elif out0.dtype.kind in {COMPLEX!r}:",
                f"            entry.primitive = conjugating(p, ({arrays}))",
                "            result0._edge = entry",
                "            result0._requires = True",
            ]
            assert not several, f"{p.name}: complex=OWN for primitives with several results"
    lines.append(f"    return {', '.join(f'result{i}' for i in results)}")
    function: Callable[..., Any] = _compiled("direct", p, lines, namespace | {"p": p})
    return function
