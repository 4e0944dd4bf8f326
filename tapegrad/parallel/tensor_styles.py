"""Styles: which layers of an existing model are divided among ranks, and how.

`parallelize_module(model, group, {"up": ColwiseParallel(), "down": RowwiseParallel()})` puts the
layers of `tensor_parallel.py` in the places of those that the plan names. Names are PyTorch's:
`tapegrad.distributed.tensor.parallel`.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Any

from ..core.modes import no_grad
from ..nn.embedding import Embedding
from ..nn.linear import Linear
from ..nn.module import Module
from ..ops.collective.moving import broadcast_
from .members import group_or_self
from .tensor_parallel import ColumnParallelLinear, ParallelEmbedding, RowParallelLinear


class Placement:
    """How a tensor lies on the ranks."""

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash((type(self), *sorted(vars(self).items())))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{k}={v}' for k, v in vars(self).items())})"


class Replicate(Placement):
    """All ranks have the whole tensor."""


class Shard(Placement):
    """Each rank has its piece of one dimension."""

    def __init__(self, dim: int) -> None:
        self.dim = dim


class ParallelStyle:
    """How one layer is divided. Subclasses make the divided layer of it."""

    src_data_rank: int | None = 0

    def _apply(self, module: Module, group: Any) -> Module:
        raise NotImplementedError("a style needs _apply(module, group), which returns the layer")


def _layout(given: Any, default: Placement, allowed: tuple[Placement, ...], what: str) -> Any:
    layout = default if given is None else given
    if layout not in allowed:
        shown = " or ".join(map(repr, allowed))
        raise ValueError(f"{what} must be {shown}, got {layout!r}")
    return layout


_WHOLE, _LAST = Replicate(), Shard(-1)


class ColwiseParallel(ParallelStyle):
    """Divide the results of a `Linear`: input on all ranks, result in pieces.

    With `output_layouts=Replicate()` all ranks get the whole result.
    """

    def __init__(
        self,
        *,
        input_layouts: Placement | None = None,
        output_layouts: Placement | None = None,
        use_local_output: bool = True,
    ) -> None:
        _layout(input_layouts, _WHOLE, (_WHOLE,), "input_layouts of ColwiseParallel")
        self.output_layouts = _layout(
            output_layouts, _LAST, (_LAST, _WHOLE), "output_layouts of ColwiseParallel"
        )

    def _apply(self, module: Module, group: Any) -> Module:
        if not isinstance(module, Linear):
            raise TypeError(f"ColwiseParallel divides Linear layers, got {type(module).__name__}")
        return ColumnParallelLinear.from_linear(module, self.output_layouts == _WHOLE, group)


class RowwiseParallel(ParallelStyle):
    """Divide the inputs of a `Linear`, or the rows of an `Embedding`: the result is on all ranks.

    The input of a `Linear` comes in pieces, or whole with `input_layouts=Replicate()`; the numbers
    for an `Embedding` are always the same on all ranks.
    """

    def __init__(
        self,
        *,
        input_layouts: Placement | None = None,
        output_layouts: Placement | None = None,
        use_local_output: bool = True,
    ) -> None:
        self.input_layouts = _layout(
            input_layouts, _LAST, (_LAST, _WHOLE), "input_layouts of RowwiseParallel"
        )
        _layout(output_layouts, _WHOLE, (_WHOLE,), "output_layouts of RowwiseParallel")

    def _apply(self, module: Module, group: Any) -> Module:
        if isinstance(module, Embedding):
            return ParallelEmbedding.from_embedding(module, group)
        if not isinstance(module, Linear):
            raise TypeError(
                f"RowwiseParallel divides Linear and Embedding layers, got {type(module).__name__}"
            )
        return RowParallelLinear.from_linear(module, self.input_layouts == _LAST, group)


def parallelize_module(
    module: Module,
    device_mesh: Any = None,
    parallelize_plan: ParallelStyle | dict[str, ParallelStyle] | None = None,
    *,
    src_data_rank: int | None = 0,
) -> Module:
    """Divide layers of a model among the ranks of a group (all ranks for None).

    A plan maps names of layers, such as "layers.*.up", to styles; a single style is for the module
    itself. The layers are replaced inside of the module; returns the module. The weights of the
    member `src_data_rank` are divided; with None each rank cuts its piece of its own weights, which
    must then be equal.
    """
    group = group_or_self(device_mesh)
    if parallelize_plan is None:
        raise ValueError("parallelize_module needs a plan: a style, or names of layers with styles")
    if isinstance(parallelize_plan, ParallelStyle):
        return _divided(module, parallelize_plan, group, src_data_rank)
    found = {
        pattern: [name for name, _ in module.named_modules() if _matches(name, pattern)]
        for pattern in parallelize_plan
    }
    for pattern, names in found.items():
        if not names:
            raise ValueError(f"the plan names {pattern!r}, and the model has no such layer")
    for pattern, names in found.items():
        for name in names:
            owner_name, _, last = name.rpartition(".")
            owner = module.get_submodule(owner_name)
            layer = module.get_submodule(name)
            setattr(owner, last, _divided(layer, parallelize_plan[pattern], group, src_data_rank))
    return module


def _matches(name: str, pattern: str) -> bool:
    parts, wanted = name.split("."), pattern.split(".")
    return len(parts) == len(wanted) and all(map(fnmatchcase, parts, wanted))


def _divided(layer: Module, style: ParallelStyle, group: Any, source: int | None) -> Module:
    if source is not None and group.size > 1:
        with no_grad():
            for p in layer.parameters():
                p.detach().copy_(broadcast_(p.detach(), source=source, group=group))
    return style._apply(layer, group)
