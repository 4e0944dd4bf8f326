"""Scalar expressions, translated to LLVM instructions.

Comes in: a primitive and registers of its operands. Its `expression` is Python: arithmetic,
comparisons, `and`/`or`, and calls of functions, over the names of its inputs and parameters. Goes
out: instructions, in the `Code` of a kernel. A called function is an LLVM intrinsic (`INTRINSICS`),
or written in `functions.py` or in the random number generator, or one of the C library (`LIBRARY`).
Half precision is computed in float32 and rounded at the end. Called by
`elements.py`, `loops.py` and `machine.py`.
"""

from __future__ import annotations

import ast
import functools
import inspect
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ... import random
from ...core import numeric
from ...core.primitive import Primitive
from ..ir.expressions import NoLowering, parsed
from ..ir.target import Cost
from . import functions, tuning
from .code import (
    BOOL,
    FLOAT16,
    FLOAT32,
    FLOAT64,
    INT32,
    INT64,
    UINT64,
    Code,
    Register,
    literal,
    memory_type,
    type_of,
)
from .integers import Integers

#: functions of floats that are LLVM intrinsics: one instruction or a short sequence
INTRINSICS = {
    "abs": "fabs",
    "ceil": "ceil",
    "copysign": "copysign",
    "fabs": "fabs",
    "floor": "floor",
    "fma": "fma",
    "maximum": "maximum",
    "minimum": "minimum",
    "rint": "rint",
    "sqrt": "sqrt",
    "trunc": "trunc",
}

#: functions of the C library; those for float32 end in f
LIBRARY = {
    *("acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cos", "cosh", "sin", "sinh"),
    *("tan", "tanh", "exp", "exp2", "expm1", "log", "log10", "log1p", "log2", "pow", "hypot"),
    *("erf", "erfc", "fmod", "lgamma"),
}

_ARITHMETIC: dict[type, tuple[str, str, Callable[[Any, Any], Any]]] = {
    ast.Add: ("fadd", "add", lambda a, b: a + b),
    ast.Sub: ("fsub", "sub", lambda a, b: a - b),
    ast.Mult: ("fmul", "mul", lambda a, b: a * b),
    ast.Div: ("fdiv", "", lambda a, b: a / b),
    ast.BitAnd: ("", "and", lambda a, b: a & b),
    ast.BitOr: ("", "or", lambda a, b: a | b),
    ast.BitXor: ("", "xor", lambda a, b: a ^ b),
}

#: the predicates for floats and for signed integers (unsigned ones begin with u)
_COMPARISONS: dict[type, tuple[str, str]] = {
    ast.Eq: ("oeq", "eq"),
    ast.NotEq: ("une", "ne"),
    ast.Lt: ("olt", "slt"),
    ast.LtE: ("ole", "sle"),
    ast.Gt: ("ogt", "sgt"),
    ast.GtE: ("oge", "sge"),
}

_FOLDED: dict[type, Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}


@functools.cache
def _functions() -> dict[str, ast.FunctionDef]:
    found: dict[str, ast.FunctionDef] = {}
    for module in (functions, random):
        tree = ast.parse(inspect.getsource(module))
        found.update({node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)})
    return found


class Scalar(Integers):
    """Writes the instructions of one expression."""

    def __init__(self, code: Code, names: dict[str, Any], result: Any, flags: str) -> None:
        self.code = code
        self.names = names
        self.target = result  # the dtype of the whole expression
        self.result = FLOAT32 if numeric.is_half(result) else result  # the dtype of the computation
        self.flags = flags

    def evaluate(self, node: ast.expr) -> Any:
        """The value of a node: a Register, or a Python number if it is known."""
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.Name):
            return self._name(node.id)
        if isinstance(node, ast.Attribute):
            return self._name(node.attr)
        if isinstance(node, ast.BinOp):
            return self._binary(type(node.op), self.evaluate(node.left), self.evaluate(node.right))
        if isinstance(node, ast.UnaryOp):
            return self._unary(type(node.op), self.evaluate(node.operand))
        if isinstance(node, ast.Compare):
            assert len(node.ops) == 1, "comparisons are not chained in expressions"
            left, right = self.evaluate(node.left), self.evaluate(node.comparators[0])
            return self._compare(type(node.ops[0]), left, right)
        if isinstance(node, ast.BoolOp):
            operation = "and" if isinstance(node.op, ast.And) else "or"
            parts = [self._truth(self.evaluate(v)) for v in node.values]
            total = parts[0]
            for part in parts[1:]:
                total = Register(self.code.value(f"{operation} i1 {total.text}, {part.text}"), BOOL)
            return total
        if isinstance(node, ast.Call):
            function = node.func
            name = function.id if isinstance(function, ast.Name) else function.attr  # type: ignore[attr-defined]
            return self._call(name, [self.evaluate(a) for a in node.args])
        raise NoLowering(f"expressions have no {type(node).__name__}")

    def _name(self, name: str) -> Any:
        if name in self.names:
            return self.names[name]
        if name in ("inf", "nan", "pi"):
            return getattr(math, name)
        raise NoLowering(f"{name!r} is not known in an expression")

    def same(self, *operands: Any) -> list[Any]:
        """The operands in one dtype; numbers take the dtype of the registers."""
        found = {o.dtype for o in operands if isinstance(o, Register)}
        if not found:
            return [literal(o, self.result) for o in operands]
        if len(found) > 1:
            raise NoLowering(f"operands of types {' and '.join(sorted(map(str, found)))}")
        (dtype,) = found
        return [o if isinstance(o, Register) else literal(o, dtype) for o in operands]

    def _binary(self, kind: type, x: Any, y: Any) -> Any:
        if kind in (ast.LShift, ast.RShift):
            x, y = self.same(x, y)
            return self.shifted(x, y, left=kind is ast.LShift)
        of_floats, of_integers, fold = _ARITHMETIC[kind]
        if not isinstance(x, Register) and not isinstance(y, Register):
            return fold(x, y)
        x, y = self.same(x, y)
        if numeric.is_numpy_float(x.dtype) and of_floats:
            operation = f"{of_floats} {self.flags}"
        elif of_integers and (numeric.is_integer(x.dtype) or of_integers in ("and", "or", "xor")):
            operation = of_integers
        else:
            raise NoLowering(f"{kind.__name__} of {x.dtype}")
        text = self.code.value(f"{operation} {type_of(x.dtype)} {x.text}, {y.text}")
        return Register(text, x.dtype)

    def _unary(self, kind: type, x: Any) -> Any:
        if not isinstance(x, Register):
            return -x if kind is ast.USub else not x if kind is ast.Not else ~x
        if kind is ast.USub and numeric.is_numpy_float(x.dtype):
            return Register(self.code.value(f"fneg {type_of(x.dtype)} {x.text}"), x.dtype)
        if kind is ast.USub and numeric.is_integer(x.dtype):
            return self._binary(ast.Sub, 0, x)
        if kind is ast.Invert and numeric.is_exact(x.dtype):
            return self._binary(ast.BitXor, x, literal(True if x.dtype == BOOL else -1, x.dtype))
        if kind is ast.Not:
            return self._binary(ast.BitXor, self._truth(x), literal(True, BOOL))
        raise NoLowering(f"{kind.__name__} of {x.dtype}")

    def _compare(self, kind: type, x: Any, y: Any) -> Any:
        if not isinstance(x, Register) and not isinstance(y, Register):
            return _FOLDED[kind](x, y)
        x, y = self.same(x, y)
        of_floats, of_integers = _COMPARISONS[kind]
        if numeric.is_numpy_float(x.dtype):
            operation = f"fcmp {of_floats}"
        else:
            unsigned = numeric.is_unsigned_or_boolean(x.dtype) and of_integers.startswith("s")
            operation = f"icmp {'u' + of_integers[1:] if unsigned else of_integers}"
        text = self.code.value(f"{operation} {type_of(x.dtype)} {x.text}, {y.text}")
        return Register(text, BOOL)

    def _truth(self, x: Any) -> Register:
        if not isinstance(x, Register):
            return literal(bool(x), BOOL)
        return x if x.dtype == BOOL else self._compare(ast.NotEq, x, 0)

    # -- calls -------------------------------------------------------------------------------

    def _call(self, name: str, given: list[Any]) -> Any:
        special = getattr(self, f"_call_{name}", None)
        if special is not None:
            return special(*given)
        operands = self.same(*given)
        dtype = operands[0].dtype
        if not numeric.is_numpy_float(dtype):
            body = _functions().get(f"{name}_{dtype}")
            if body is not None:
                return self._inlined(body, given)
            return self._of_integers(name, operands)
        kind = type_of(dtype)
        arguments = [(kind, o.text) for o in operands]
        if name in INTRINSICS:
            suffix = "f32" if dtype == FLOAT32 else "f64"
            text = self.code.call(kind, f"llvm.{INTRINSICS[name]}.{suffix}", *arguments)
            return Register(text, dtype)
        body = _functions().get(f"{name}_{dtype}") or _functions().get(name)
        if body is not None:
            return self._inlined(body, operands)
        if name in LIBRARY:
            text = self.code.call(kind, self.code.library(name, dtype == FLOAT32), *arguments)
            return Register(text, dtype)
        raise NoLowering(f"{name} of {dtype}")

    def _of_integers(self, name: str, operands: Sequence[Register]) -> Any:
        dtype = operands[0].dtype
        if name in ("maximum", "minimum"):
            wins = self._compare(ast.Gt if name == "maximum" else ast.Lt, *operands)
            return self._call_where(wins, *operands)
        if name == "abs" and numeric.is_signed_integer(dtype):
            negative = self._compare(ast.Lt, operands[0], 0)
            return self._call_where(negative, self._unary(ast.USub, operands[0]), operands[0])
        if name in ("floor", "ceil", "trunc", "rint") or (
            name == "abs" and numeric.is_unsigned(dtype)
        ):
            return operands[0]
        if numeric.is_integer(dtype) and name in ("floor_divide", "remainder", "fmod", "pow"):
            return getattr(self, f"integer_{name}")(*operands)
        raise NoLowering(f"{name} of {dtype}")

    def _inlined(self, body: ast.FunctionDef, operands: Sequence[Any]) -> Any:
        """The inlined body of a function, with operands for its parameters."""
        parameters = [a.arg for a in body.args.args]
        names = dict(zip(parameters, operands, strict=True))
        # Without fast-math flags: its error is known only for the operations as written.
        first = next(o for o in operands if isinstance(o, Register))
        inner = Scalar(self.code, names, first.dtype, "")
        for statement in body.body:
            if isinstance(statement, ast.Assign):
                inner._assign(statement)
            elif isinstance(statement, ast.For):
                assert isinstance(statement.iter, ast.Call)
                for _ in range(ast.literal_eval(statement.iter.args[0])):
                    for step in statement.body:
                        assert isinstance(step, ast.Assign)
                        inner._assign(step)
            elif isinstance(statement, ast.Return):
                assert statement.value is not None
                return inner.evaluate(statement.value)
        raise AssertionError(f"{body.name} does not return")

    def _assign(self, statement: ast.Assign) -> None:
        target = statement.targets[0]
        assert isinstance(target, ast.Name)
        self.names[target.id] = self.evaluate(statement.value)

    def _call_where(self, condition: Any, x: Any, y: Any) -> Any:
        if not isinstance(condition, Register):
            return x if condition else y
        condition = self._truth(condition)
        dtypes = {o.dtype for o in (x, y) if isinstance(o, Register)}
        if len(dtypes) > 1:
            x, y = self.convert(x, self.result), self.convert(y, self.result)
        x, y = self.same(x, y)
        kind = type_of(x.dtype)
        text = self.code.value(f"select i1 {condition.text}, {kind} {x.text}, {kind} {y.text}")
        return Register(text, x.dtype)

    def _call_cast(self, x: Any) -> Any:
        return self.convert(x, self.target)

    def _call_sign(self, x: Any) -> Any:
        if x.dtype == BOOL:
            return x
        assert isinstance(x, Register)
        negative = self._call_where(self._compare(ast.Lt, x, 0), -1, 0)
        return self._call_where(self._compare(ast.Gt, x, 0), 1, negative)

    def _call_isinf(self, x: Any) -> Any:
        if not numeric.is_numpy_float(x.dtype):
            return literal(False, BOOL)
        return self._compare(ast.Eq, self._call("abs", [x]), math.inf)

    def _call_isfinite(self, x: Any) -> Any:
        if not numeric.is_numpy_float(x.dtype):
            return literal(True, BOOL)
        return self._compare(ast.Lt, self._call("abs", [x]), math.inf)

    def _call_same_bits(self, x: Register) -> Register:
        """The bits of `x` reinterpreted as the dtype of the result, which has the same width."""
        to, dtypes = self.target, (x.dtype, self.target)
        if BOOL in dtypes or any(map(numeric.is_half, dtypes)) or x.dtype.itemsize != to.itemsize:
            raise NoLowering(f"the bits of {x.dtype} as {to}")
        return Register(
            self.code.value(f"bitcast {type_of(x.dtype)} {x.text} to {type_of(to)}"), to
        )

    def _call_quotient(self, x: Any, y: Any) -> Any:
        x, y = self.same(x, y)
        return Register(self.code.quotient(x.text, y.text), x.dtype)

    def _call_bits(self, x: Register) -> Register:
        to = INT32 if x.dtype == FLOAT32 else INT64
        kinds = f"{type_of(x.dtype)} {x.text} to {type_of(to)}"
        return Register(self.code.value(f"bitcast {kinds}"), to)

    def _call_of_bits(self, x: Register) -> Register:
        to = FLOAT32 if x.dtype == INT32 else np.dtype(np.float64)
        kinds = f"{type_of(x.dtype)} {x.text} to {type_of(to)}"
        return Register(self.code.value(f"bitcast {kinds}"), to)

    def _call_as_float32(self, x: Any) -> Any:
        return self.convert(x, FLOAT32)

    def _call_as_float64(self, x: Any) -> Any:
        return self.convert(x, FLOAT64)

    def _call_as_int32(self, x: Any) -> Any:
        return self.convert(x, INT32)

    def _call_as_int64(self, x: Any) -> Any:
        return self.convert(x, INT64)

    def _call_as_uint64(self, x: Any) -> Any:
        return self.convert(x, UINT64)

    def convert(self, x: Any, to: Any) -> Register:
        """`x` converted to another dtype, as by NumPy's astype."""
        if not isinstance(x, Register):
            return literal(x, to)
        if x.dtype == to:
            return x
        if numeric.is_half(x.dtype):
            return self.convert(Register(x.text, FLOAT32), to)
        if numeric.is_half(to):
            return self._to_half(x, to)
        if to == BOOL:
            return self._truth(x)
        old, new = type_of(x.dtype), type_of(to)
        if numeric.is_numpy_float(x.dtype):
            if not numeric.is_numpy_float(to):
                return self._to_integer(x, to)
            operation = "fpext" if to.itemsize > x.dtype.itemsize else "fptrunc"
        elif numeric.is_numpy_float(to):
            operation = "uitofp" if numeric.is_unsigned_or_boolean(x.dtype) else "sitofp"
        elif to.itemsize == x.dtype.itemsize and x.dtype != BOOL:
            return Register(x.text, to)
        elif x.dtype == BOOL or to.itemsize > x.dtype.itemsize:
            operation = "zext" if numeric.is_unsigned_or_boolean(x.dtype) else "sext"
        else:
            operation = "trunc"
        return Register(self.code.value(f"{operation} {old} {x.text} to {new}"), to)

    def _to_half(self, x: Register, to: Any) -> Register:
        if not numeric.is_numpy_float(x.dtype):
            x = self.convert(x, FLOAT64 if to == FLOAT16 else FLOAT32)
        if x.dtype == FLOAT64 and to == FLOAT16:
            x = self._inlined(_functions()["to_odd_float64"], [x])
        return self.code.rounded(self.convert(x, FLOAT32).text, to)

    def _to_integer(self, x: Register, to: Any) -> Register:
        """Truncate towards zero; values out of range become what NumPy gives on this machine."""
        if to.itemsize < 4:
            return self.convert(self._to_integer(x, INT32), to)
        if to == UINT64:
            raise NoLowering("a float as an unsigned integer of 64 bits")
        limit = 2.0 ** (8 * to.itemsize - 1)
        not_a_number, above, below = _outside(x.dtype, to)
        fits = self._call_where(self._compare(ast.Lt, x, limit), x, 0.0)
        fits = self._call_where(self._compare(ast.GtE, fits, -limit), fits, 0.0)
        operation = f"fptosi {type_of(x.dtype)} {fits.text} to {type_of(to)}"
        out: Any = Register(self.code.value(operation), to)
        out = self._call_where(self._compare(ast.GtE, x, limit), above, out)
        out = self._call_where(self._compare(ast.Lt, x, -limit), below, out)
        return self._call_where(self._compare(ast.NotEq, x, x), not_a_number, out)  # type: ignore[no-any-return]


@functools.cache
def _outside(dtype: Any, to: Any) -> list[int]:
    """NumPy's results for NaN and for numbers above and below an integer type's range."""
    with np.errstate(invalid="ignore"):
        found: list[int] = np.array([math.nan, 1e30, -1e30], dtype).astype(to).tolist()
    return found


def emit(
    code: Code,
    primitive: Primitive,
    params: dict[str, Any],
    operands: Sequence[Any],
    dtype: Any,
    flags: str = "contract",
) -> Register:
    """Write the instructions of an elementwise primitive; returns the register of its result."""
    halves = [o.dtype for o in operands if isinstance(o, Register) and numeric.is_half(o.dtype)]
    halves += [dtype] if numeric.is_half(dtype) else []
    names = {k: v for k, v in params.items() if isinstance(v, (bool, int, float, Register))}
    if halves and halves[0] == FLOAT16:
        # In NumPy, Python numbers take the dtype of the array operand.
        names = {k: _in_half(v, FLOAT16) for k, v in names.items()}
    wide = [_in_half(o, halves[0]) for o in operands] if halves else operands
    names.update(zip(primitive.inputs, wide, strict=True))
    memory_type(dtype)
    assert primitive.expression is not None
    scalar = Scalar(code, names, dtype, flags)
    found = scalar.evaluate(parsed(primitive.expression))
    if not isinstance(found, Register):
        return literal(found, dtype)
    if numeric.is_half(dtype) and found.dtype == FLOAT32:
        return code.rounded(found.text, dtype)
    if found.dtype != dtype:
        raise NoLowering(f"{primitive.name} gives {found.dtype} where {dtype} is needed")
    return found


def factors(primitive: Primitive) -> set[str]:
    """The parameters of an elementwise primitive that are only multiplied by an operand."""
    tree = parsed(primitive.expression or "0")
    names = [node.id for node in ast.walk(tree) if isinstance(node, ast.Name)]
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
            sides = {side.id for side in (node.left, node.right) if isinstance(side, ast.Name)}
            others = sides.difference(primitive.inputs)
            found |= others if len(others) < len(sides) else set()
    return {name for name in found if names.count(name) == 1}


def _in_half(x: Any, dtype: Any) -> Any:
    """An operand of a half-precision computation: a float whose value that dtype can hold."""
    if isinstance(x, Register):
        return Register(x.text, FLOAT32) if numeric.is_half(x.dtype) else x
    return float(dtype.type(x)) if isinstance(x, float) else x


#: results of `examine`, by its arguments
_examined: dict[Any, Cost] = {}


def examine(
    primitive: Primitive, params: dict[str, Any], operands: Sequence[Any], dtype: Any
) -> Cost:
    """The cost of a computation: whether its code may fail, and its number of instructions.

    Raises NoLowering if `emit` would. Operands are dtypes and numbers.
    """
    shown = tuple([o if isinstance(o, np.dtype) else (type(o), repr(o)) for o in operands])
    key = (primitive, repr(params) if params else "", shown, dtype)
    found = _examined.get(key)
    if found is None:
        if primitive.expression is None:
            raise NoLowering("it has no expression")
        stand_ins = []
        for o in operands:
            if isinstance(o, np.dtype):
                type_of(o)
                o = Register("%x", o)
            stand_ins.append(o)
        code = Code()
        emit(code, primitive, params, stand_ins, dtype)
        if len(_examined) >= tuning.MAX_EXAMINED_COMPUTATIONS:
            _examined.clear()
        found = _examined[key] = Cost(code.fails, len(code.lines))
    return found


# -- folding -----------------------------------------------------------------------------------


def combine(code: Code, primitive: Primitive, total: Any, x: Any, flags: str) -> Any:
    """One step of a reduction: its expression on the running value `a` and the element `x`."""
    assert primitive.expression is not None
    scalar = Scalar(code, {"a": total, "x": x}, total.dtype, flags)
    found = scalar.evaluate(parsed(primitive.expression))
    if found.dtype != total.dtype:
        raise NoLowering(f"{primitive.name} of {total.dtype} and {x.dtype} gives {found.dtype}")
    return found


def is_sum(primitive: Primitive) -> bool:
    """Whether a reduction is a sum: its running value may then be wider than its elements."""
    node = parsed(primitive.expression or "0")
    return isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add)


def start_of(primitive: Primitive, dtype: Any) -> Any:
    """The initial value of a reduction, from the outermost operation of its expression."""
    node = parsed(primitive.expression or "0")
    if isinstance(node, ast.BinOp):
        return {ast.Add: 0, ast.Mult: 1}[type(node.op)]
    if isinstance(node, ast.BoolOp):
        return isinstance(node.op, ast.And)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        sign = {"maximum": -1, "minimum": 1}[node.func.id]
        if numeric.is_numpy_float(dtype):
            return sign * math.inf
        if dtype == BOOL:
            return sign > 0
        return np.iinfo(dtype).min if sign < 0 else np.iinfo(dtype).max
    raise NoLowering(f"{primitive.name} has no value to begin with")
