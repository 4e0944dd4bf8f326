"""`torch.fx`: names for annotations and type checks; nothing is traced symbolically."""

from __future__ import annotations

from typing import Any

from ....nn.module import Module
from ...absent import absent, absent_class

_NO_GRAPH = "print a tape (tapegrad.Tape) to see operations, and use torch.compile to run them"

Graph = absent_class("torch.fx.Graph", _NO_GRAPH)
GraphModule = absent_class("torch.fx.GraphModule", _NO_GRAPH, Module)
Interpreter = absent_class("torch.fx.Interpreter", _NO_GRAPH)
Node = absent_class("torch.fx.Node", _NO_GRAPH)
Proxy = absent_class("torch.fx.Proxy", _NO_GRAPH)
Tracer = absent_class("torch.fx.Tracer", _NO_GRAPH)
Transformer = absent_class("torch.fx.Transformer", _NO_GRAPH)
symbolic_trace = absent("torch.fx.symbolic_trace", _NO_GRAPH)
replace_pattern = absent("torch.fx.replace_pattern", _NO_GRAPH)


def wrap(fn_or_name: Any) -> Any:
    """The function or name itself: nothing is traced."""
    if not callable(fn_or_name) and not isinstance(fn_or_name, str):
        raise RuntimeError("expected a function or the name of one, got " + repr(fn_or_name))
    return fn_or_name


def has_side_effect(fn: Any) -> Any:
    """The function itself."""
    return fn
