"""Integer arithmetic that takes more than one instruction, with NumPy's results.

Comes in: integer registers. Goes out: LLVM instructions for division, powers, shifts and checked
indices. `scalar.Scalar` inherits these methods and calls them for expressions on integers. Division
by zero sets the status, as a bad index does; a divisor with which the processor would trap is
replaced by 1.
"""

from __future__ import annotations

import ast
import math
from typing import Any

from ...core import numeric
from ...core.failures import BAD_LABEL, ZERO_DIVISION
from .code import BOOL, INT64, UINT64, Code, Register, literal, type_of


class Integers:
    """Division, powers and shifts, built from methods of `Scalar`."""

    code: Code
    _binary: Any
    _compare: Any
    _call_where: Any
    _unary: Any
    convert: Any

    def _instruction(self, operation: str, x: Register, y: Register) -> Register:
        text = self.code.value(f"{operation} {type_of(x.dtype)} {x.text}, {y.text}")
        return Register(text, x.dtype)

    # -- division ----------------------------------------------------------------------------

    def _divided(self, x: Register, y: Register) -> tuple[Register, Register]:
        """The quotient, rounded towards zero, and its remainder."""
        if y.text == "0" or not y.text.lstrip("-").isdigit():
            self.code.fail(self._compare(ast.Eq, y, 0).text, ZERO_DIVISION)
        safe = self._call_where(self._compare(ast.Eq, y, 0), 1, y)
        if numeric.is_unsigned(x.dtype):
            return self._instruction("udiv", x, safe), self._instruction("urem", x, safe)
        # The smallest integer divided by -1 traps; NumPy gives the smallest integer.
        negates = self._compare(ast.Eq, y, -1)
        safe = self._call_where(negates, 1, safe)
        quotient = self._instruction("sdiv", x, safe)
        quotient = self._call_where(negates, self._unary(ast.USub, x), quotient)
        return quotient, self._instruction("srem", x, safe)

    def _signs_differ(self, rest: Register, y: Register) -> Register:
        """Whether a remainder is not 0 and its sign differs from the divisor's."""
        differ = self._compare(
            ast.NotEq, self._compare(ast.Lt, rest, 0), self._compare(ast.Lt, y, 0)
        )
        there = self._compare(ast.NotEq, rest, 0)
        found: Register = self._binary(ast.BitAnd, differ, there)
        return found

    def integer_floor_divide(self, x: Register, y: Register) -> Any:
        quotient, rest = self._divided(x, y)
        if numeric.is_unsigned(x.dtype):
            return quotient
        lower = self._binary(ast.Sub, quotient, 1)
        return self._call_where(self._signs_differ(rest, y), lower, quotient)

    def integer_remainder(self, x: Register, y: Register) -> Any:
        _, rest = self._divided(x, y)
        if numeric.is_unsigned(x.dtype):
            return rest
        return self._call_where(self._signs_differ(rest, y), self._binary(ast.Add, rest, y), rest)

    def integer_fmod(self, x: Register, y: Register) -> Any:
        return self._divided(x, y)[1]

    def _call_label(self, x: Register, count: int) -> Register:
        """`x`; sets the status unless it is a label from 0 to count - 1."""
        self.code.fail(self.code.value(f"icmp uge i64 {x.text}, {count}"), BAD_LABEL)
        return x

    def _call_valid_index(self, x: Register, size: Register, failure: int) -> Any:
        """`x` counted from the front; if it is out of range, sets the status and gives 0.

        Later instructions may still run, and must stay inside the memory.
        """
        negative = self._compare(ast.Lt, x, 0)
        index = self._call_where(negative, self._binary(ast.Add, x, size), x)
        bad = self.code.value(f"icmp uge i64 {index.text}, {size.text}")
        self.code.fail(bad, failure)
        return Register(self.code.value(f"select i1 {bad}, i64 0, i64 {index.text}"), INT64)

    def _call_checked(
        self, x: Any, tested: Any, low: float, high: float, besides: float, failure: int
    ) -> Any:
        """`x`; sets the status unless `tested` is in [low, high] or is `besides`. NaN is not."""
        if isinstance(tested, Register):
            if not numeric.is_numpy_float(tested.dtype):
                tested = self.convert(tested, INT64)
            good = literal(True, BOOL)
            for kind, limit in ((ast.GtE, low), (ast.LtE, high)):
                # An infinite limit only finds NaN.
                if math.isfinite(limit) or numeric.is_numpy_float(tested.dtype):
                    good = self._binary(ast.BitAnd, good, self._compare(kind, tested, limit))
            if math.isfinite(besides):
                good = self._binary(ast.BitOr, good, self._compare(ast.Eq, tested, besides))
            bad = self._binary(ast.BitXor, good, literal(True, BOOL))
            self.code.fail(bad.text, failure)
        return x

    # -- powers ------------------------------------------------------------------------------

    def integer_pow(self, x: Register, y: Register) -> Any:
        """By repeated squaring, modulo 2**bits of the type; negative powers round to zero."""
        code = self.code
        total, base, left = code.cell(x.dtype), code.cell(x.dtype), code.cell(x.dtype)
        code.store(literal(1, x.dtype), total)
        code.store(x, base)
        code.store(y, left)
        with code.loop("0", str(8 * x.dtype.itemsize)):
            now, square, rest = (code.load(cell, x.dtype) for cell in (total, base, left))
            odd = self._compare(ast.NotEq, self._binary(ast.BitAnd, rest, 1), 0)
            code.store(self._call_where(odd, self._binary(ast.Mult, now, square), now), total)
            code.store(self._binary(ast.Mult, square, square), base)
            code.store(self._instruction("lshr", rest, literal(1, x.dtype)), left)
        found = code.load(total, x.dtype)
        if numeric.is_unsigned(x.dtype):
            return found
        even = self._compare(ast.Eq, self._binary(ast.BitAnd, y, 1), 0)
        unit = self._binary(ast.BitOr, self._compare(ast.Eq, x, 1), self._compare(ast.Eq, x, -1))
        negative = self._call_where(unit, self._call_where(even, 1, x), 0)
        return self._call_where(self._compare(ast.Lt, y, 0), negative, found)

    # -- bits --------------------------------------------------------------------------------

    def shifted(self, x: Register, y: Register, left: bool) -> Any:
        """A shift; a count that is negative or not below the width shifts all bits out."""
        width = 8 * x.dtype.itemsize
        operation = "shl" if left else "ashr" if numeric.is_signed_integer(x.dtype) else "lshr"
        if y.text.isdigit() and int(y.text) < width:
            return self._instruction(operation, x, y)
        kind = type_of(x.dtype)
        inside = Register(self.code.value(f"icmp ult {kind} {y.text}, {width}"), BOOL)
        if operation == "ashr":
            return self._instruction(operation, x, self._call_where(inside, y, width - 1))
        moved = self._instruction(operation, x, self._call_where(inside, y, 0))
        return self._call_where(inside, moved, 0)

    def _call_mulhi(self, x: Any, y: Any) -> Any:
        """The upper 64 bits of the product of two unsigned 64-bit integers."""
        if not isinstance(x, Register) and not isinstance(y, Register):
            return (x * y) >> 64
        code = self.code
        wide = []
        for z in (x, y):
            text = (z if isinstance(z, Register) else literal(z, UINT64)).text
            wide.append(code.value(f"zext i64 {text} to i128"))
        product = code.value(f"mul i128 {wide[0]}, {wide[1]}")
        high = code.value(f"lshr i128 {product}, 64")
        return Register(code.value(f"trunc i128 {high} to i64"), UINT64)
