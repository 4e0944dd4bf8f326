"""Styles: which layers of an existing model are divided among ranks, and how.

`parallelize_module(model, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})` replaces the
layers that the plan names by those of `tensor_parallel.py`. Other styles change the layouts of a
layer's inputs and results (`layouts.py`). Names are PyTorch's:
`tapegrad.distributed.tensor.parallel`. There is no DTensor: layers exchange ordinary tensors, this
rank's piece or the whole.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Any

from ..core.modes import no_grad
from ..core.tensor import Tensor
from ..nn.embedding import Embedding
from ..nn.linear import Linear
from ..nn.module import Module
from ..ops.collective.conjugate import copy_to
from ..ops.collective.moving import broadcast_
from .layouts import Partial, Placement, Replicate, Shard, redistributed
from .members import group_or_self, own_piece
from .tensor_parallel import ColumnParallelLinear, ParallelEmbedding, RowParallelLinear


class ParallelStyle:
    """How one layer is divided; subclasses make the divided layer."""

    src_data_rank: int | None = 0

    def _apply(self, module: Module, group: Any) -> Module:
        raise NotImplementedError("a style needs _apply(module, group), which returns the layer")

    def _share(self, module: Module, group: Any) -> None:
        """Copy the parameters of rank `src_data_rank` of the group to all ranks."""
        if self.src_data_rank is None or group.size == 1:
            return
        with no_grad():
            for p in module.parameters():
                p.detach().copy_(broadcast_(p.detach(), source=self.src_data_rank, group=group))


_WHOLE, _LAST = Replicate(), Shard(-1)


def _layout(given: Any, default: Placement, what: str) -> Any:
    layout = default if given is None else given
    if not isinstance(layout, (Replicate, Shard)):
        raise ValueError(f"{what} must be Replicate() or Shard(dim), got {layout!r}")
    return layout


def _check_local(use_local_output: bool, style: str) -> None:
    if not use_local_output:
        raise ValueError(
            f"{style} gives each rank an ordinary tensor, its piece of the result: there is no "
            "DTensor. Leave use_local_output out, and use sizes of pieces in the model, such as "
            "n_heads // mesh.size()"
        )


def _dim_of(layout: Placement) -> int | None:
    return layout.dim if isinstance(layout, Shard) else None


class ColwiseParallel(ParallelStyle):
    """Divide the output features of a `Linear`, or the columns of an `Embedding`.

    The input is replicated, or sharded with `input_layouts=Shard(dim)`. The result is this rank's
    piece along the last dimension, or has the layout `output_layouts`.
    """

    def __init__(
        self,
        *,
        input_layouts: Placement | None = None,
        output_layouts: Placement | None = None,
        use_local_output: bool = True,
    ) -> None:
        _check_local(use_local_output, "ColwiseParallel")
        self.input_layouts = _layout(input_layouts, _WHOLE, "input_layouts of ColwiseParallel")
        self.output_layouts = _layout(output_layouts, _LAST, "output_layouts of ColwiseParallel")

    def _apply(self, module: Module, group: Any) -> Module:
        self._share(module, group)
        gathers = self.output_layouts == _WHOLE
        layer: Module
        if isinstance(module, Embedding):
            if self.input_layouts != _WHOLE:
                raise ValueError("an Embedding that is divided by columns needs all numbers")
            layer, gathers = _divide_columns(module, group), False
        elif isinstance(module, Linear):
            dim = _dim_of(self.input_layouts)
            layer = ColumnParallelLinear.from_linear(module, gathers, group, dim)
        else:
            raise TypeError(
                f"ColwiseParallel divides Linear and Embedding layers, got {type(module).__name__}"
            )
        if not gathers and self.output_layouts != _LAST:
            _change_results(layer, _LAST, self.output_layouts, group)
        return layer


def _divide_columns(table: Embedding, group: Any) -> Embedding:
    """Keep only this rank's columns of an embedding."""
    if table.max_norm is not None:
        raise ValueError("an embedding with max_norm cannot be divided by columns")
    piece = own_piece(table.weight, 1, group, "embedding_dim")
    table.weight = type(table.weight)(piece, requires_grad=table.weight.requires_grad)
    table.embedding_dim = piece.shape[1]
    return table


class RowwiseParallel(ParallelStyle):
    """Divide the input features of a `Linear`, or the rows of an `Embedding`.

    The input of a `Linear` is sharded along the last dimension, or has the layout `input_layouts`;
    the indices for an `Embedding` are the same on all ranks. The result is replicated; with
    `output_layouts=Shard(dim)` each rank gets a piece of it.
    """

    def __init__(
        self,
        *,
        input_layouts: Placement | None = None,
        output_layouts: Placement | None = None,
        use_local_output: bool = True,
    ) -> None:
        _check_local(use_local_output, "RowwiseParallel")
        self.input_layouts = _layout(input_layouts, _LAST, "input_layouts of RowwiseParallel")
        self.output_layouts = _layout(output_layouts, _WHOLE, "output_layouts of RowwiseParallel")

    def _apply(self, module: Module, group: Any) -> Module:
        self._share(module, group)
        dim = _dim_of(self.output_layouts)
        if isinstance(module, Embedding):
            return ParallelEmbedding.from_embedding(module, group, dim)
        if not isinstance(module, Linear):
            raise TypeError(
                f"RowwiseParallel divides Linear and Embedding layers, got {type(module).__name__}"
            )
        is_whole = self.input_layouts == _WHOLE
        layer = RowParallelLinear.from_linear(module, not is_whole, group, dim)
        if not is_whole and self.input_layouts != _LAST:
            _change_inputs(layer, (self.input_layouts,), (_LAST,), {}, {}, group)
        return layer


class SequenceParallel(ParallelStyle):
    """Apply a layer, such as a norm or dropout, to pieces of the sequence.

    Its parameters are replicated, and their gradients are summed over all ranks.
    """

    def __init__(self, *, sequence_dim: int = 1, use_local_output: bool = False) -> None:
        self.sequence_sharding = (Shard(sequence_dim),)

    def _apply(self, module: Module, group: Any) -> Module:
        self._share(module, group)
        kind = type(module)
        module.__dict__["_sequence_group"] = group
        module.__class__ = type(f"SequenceParallel{kind.__name__}", (_OfSequence, kind), {})
        return module


class _OfSequence(Module):
    """The class that `SequenceParallel` adds to the class of a module."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        group = self.__dict__["_sequence_group"]
        # `fully_shard` sets attributes to the whole parameters, which hide the shards.
        shown = [
            (module.__dict__, name, module.__dict__.get(name), getattr(module, name))
            for module in self.modules()
            for name, parameter in module._parameters.items()
            if parameter is not None
        ]
        try:
            for attributes, name, _, value in shown:
                attributes[name] = copy_to(value, group)
            return super().__call__(*args, **kwargs)
        finally:
            for attributes, name, before, _ in shown:
                if before is None:
                    attributes.pop(name, None)
                else:
                    attributes[name] = before


# -- other layouts of inputs and results ---------------------------------------------------------


def _listed(layouts: Any) -> tuple[Any, ...]:
    return (layouts,) if layouts is None or isinstance(layouts, Placement) else tuple(layouts)


def _check_pairs(before: tuple[Any, ...], after: tuple[Any, ...], what: str) -> None:
    if len(before) != len(after):
        raise ValueError(f"{what}: {len(before)} layouts were given, and {len(after)} desired ones")


def _moved(x: Any, before: Any, after: Any, group: Any) -> Any:
    """Convert a tensor to another layout; values without a layout do not change."""
    if before is None or after is None or not isinstance(x, Tensor):
        return x
    return redistributed(x, before, after, group)


def _change_inputs(
    module: Module,
    before: tuple[Any, ...],
    after: tuple[Any, ...],
    named_before: dict[str, Any],
    named_after: dict[str, Any],
    group: Any,
) -> None:
    def hook(_: Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if len(args) < len(before):
            raise ValueError(f"layouts of {len(before)} inputs were given, and {len(args)} came")
        changed = [_moved(*given, group) for given in zip(args, before, after, strict=False)]
        for name, layout in named_before.items():
            if name in kwargs:
                kwargs = {**kwargs, name: _moved(kwargs[name], layout, named_after[name], group)}
        return (*changed, *args[len(changed) :]), kwargs

    module.register_forward_pre_hook(hook, with_kwargs=True)


def _change_results(module: Module, before: Any, after: Any, group: Any) -> None:
    befores, afters = _listed(before), _listed(after)

    def hook(_: Module, args: Any, result: Any) -> Any:
        if not isinstance(result, tuple):
            return _moved(result, befores[0], afters[0], group)
        if len(result) != len(befores):
            raise ValueError(
                f"layouts of {len(befores)} results were given, and {len(result)} came"
            )
        return tuple(_moved(*given, group) for given in zip(result, befores, afters, strict=True))

    module.register_forward_hook(hook)


class PrepareModuleInput(ParallelStyle):
    """Change the layouts of a module's inputs before each call.

    `input_layouts` has one layout per positional argument; None leaves an argument unchanged.
    """

    def __init__(
        self,
        *,
        input_layouts: Any = None,
        desired_input_layouts: Any = None,
        input_kwarg_layouts: dict[str, Any] | None = None,
        desired_input_kwarg_layouts: dict[str, Any] | None = None,
        use_local_output: bool = False,
    ) -> None:
        self.input_layouts = () if input_layouts is None else _listed(input_layouts)
        desired = desired_input_layouts
        self.desired_input_layouts = () if desired is None else _listed(desired)
        self.input_kwarg_layouts = input_kwarg_layouts or {}
        self.desired_input_kwarg_layouts = desired_input_kwarg_layouts or {}
        _check_pairs(self.input_layouts, self.desired_input_layouts, "PrepareModuleInput")
        if set(self.input_kwarg_layouts) != set(self.desired_input_kwarg_layouts):
            raise ValueError("PrepareModuleInput needs desired layouts for the same keywords")

    def _apply(self, module: Module, group: Any) -> Module:
        _change_inputs(
            module,
            self.input_layouts,
            self.desired_input_layouts,
            self.input_kwarg_layouts,
            self.desired_input_kwarg_layouts,
            group,
        )
        return module


class PrepareModuleOutput(ParallelStyle):
    """Change the layouts of a module's results after each call."""

    def __init__(
        self, *, output_layouts: Any, desired_output_layouts: Any, use_local_output: bool = True
    ) -> None:
        _check_local(use_local_output, "PrepareModuleOutput")
        self.output_layouts = _listed(output_layouts)
        self.desired_output_layouts = _listed(desired_output_layouts)
        _check_pairs(self.output_layouts, self.desired_output_layouts, "PrepareModuleOutput")

    def _apply(self, module: Module, group: Any) -> Module:
        _change_results(module, self.output_layouts, self.desired_output_layouts, group)
        return module


class PrepareModuleInputOutput(ParallelStyle):
    """`PrepareModuleInput` and `PrepareModuleOutput` for one module."""

    def __init__(
        self,
        *,
        input_layouts: Any = None,
        desired_input_layouts: Any = None,
        input_kwarg_layouts: dict[str, Any] | None = None,
        desired_input_kwarg_layouts: dict[str, Any] | None = None,
        use_local_input: bool = False,
        output_layouts: Any,
        desired_output_layouts: Any,
        use_local_output: bool = True,
    ) -> None:
        self.prepare_module_input = PrepareModuleInput(
            input_layouts=input_layouts,
            desired_input_layouts=desired_input_layouts,
            input_kwarg_layouts=input_kwarg_layouts,
            desired_input_kwarg_layouts=desired_input_kwarg_layouts,
        )
        self.prepare_module_output = PrepareModuleOutput(
            output_layouts=output_layouts,
            desired_output_layouts=desired_output_layouts,
            use_local_output=use_local_output,
        )

    def _apply(self, module: Module, group: Any) -> Module:
        module = self.prepare_module_input._apply(module, group)
        return self.prepare_module_output._apply(module, group)


# -- a plan for a model --------------------------------------------------------------------------


def parallelize_module(
    module: Module,
    device_mesh: Any = None,
    parallelize_plan: ParallelStyle | dict[str, ParallelStyle] | None = None,
    *,
    src_data_rank: int | None = 0,
) -> Module:
    """Divide layers of a model among the ranks of a 1-D mesh or a group.

    A plan maps names of layers, such as "layers.*.up", to styles, and the layers are replaced
    inside the module, which is returned. A single style is for the module itself; its replacement
    is returned. The weights of rank `src_data_rank` of the group are divided; with None each rank
    takes its piece of its own weights, which must be equal on all ranks. Without a mesh all ranks
    take part.
    """
    group = group_or_self(device_mesh)
    if parallelize_plan is None:
        raise ValueError("parallelize_module needs a plan: a style, or names of layers with styles")
    if isinstance(parallelize_plan, ParallelStyle):
        parallelize_plan.src_data_rank = src_data_rank
        return parallelize_plan._apply(module, group)
    found = {
        pattern: [name for name, _ in module.named_modules() if _matches(name, pattern)]
        for pattern in parallelize_plan
    }
    for pattern, names in found.items():
        if not names:
            raise ValueError(f"the plan names {pattern!r}, and the model has no such layer")
    for pattern, names in found.items():
        style = parallelize_plan[pattern]
        style.src_data_rank = src_data_rank
        for name in names:
            owner_name, _, last = name.rpartition(".")
            owner = module.get_submodule(owner_name)
            setattr(owner, last, style._apply(module.get_submodule(name), group))
    return module


def _matches(name: str, pattern: str) -> bool:
    parts, wanted = name.split("."), pattern.split(".")
    return len(parts) == len(wanted) and all(map(fnmatchcase, parts, wanted))


__all__ = [
    "ColwiseParallel",
    "ParallelStyle",
    "Partial",
    "Placement",
    "PrepareModuleInput",
    "PrepareModuleInputOutput",
    "PrepareModuleOutput",
    "Replicate",
    "RowwiseParallel",
    "SequenceParallel",
    "Shard",
    "parallelize_module",
]
