"""Expressions: what a primitive computes for one element, as text that every target can read.

Comes in: `Primitive.expression`, an expression in a subset of Python, such as `x * y` or
`where(x > 0, x, 0)`. Goes out: Python's own syntax tree, which passes and targets read. Called by
`passes/` and by `native/scalar.py`.
"""

from __future__ import annotations

import ast
import functools


class NoLowering(Exception):
    """There is no native code for this; the message says why."""


@functools.cache
def parsed(expression: str) -> ast.expr:
    """The syntax tree of an expression."""
    return ast.parse(expression, mode="eval").body
