"""Pruning: a mask keeps some elements of a parameter at 0.

Comes in: a module and the name of a parameter. The parameter becomes `name_orig`, a buffer
`name_mask` says which elements stay, and before each forward `name` is set to their product.
Pruning the same parameter again continues from its mask. `remove` makes the result permanent.
"""

from __future__ import annotations

import numbers
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any

from ...ops.creation import CREATION
from ..state import SavedByParts
from .convert_parameters import parameters_to_vector

__all__ = [
    "BasePruningMethod", "CustomFromMask", "Identity", "L1Unstructured", "LnStructured",
    "PruningContainer", "RandomStructured", "RandomUnstructured", "custom_from_mask",
    "global_unstructured", "identity", "is_pruned", "l1_unstructured", "ln_structured",
    "random_structured", "random_unstructured", "remove",
]  # fmt: skip


class BasePruningMethod(SavedByParts, ABC):
    """A way to choose elements; subclasses have `PRUNING_TYPE` and `compute_mask`.

    `PRUNING_TYPE` is "unstructured" (elements), "structured" (whole channels along `dim`) or
    "global" (all elements at once).
    """

    PRUNING_TYPE: str
    _tensor_name: Any = None

    def __call__(self, module: Any, inputs: Any) -> None:
        """Multiply by the mask: the hook that runs before forward."""
        setattr(module, self._tensor_name, self.apply_mask(module))

    @abstractmethod
    def compute_mask(self, t: Any, default_mask: Any) -> Any:
        """The mask of a tensor of importances: 1 where `default_mask` is 1 and elements stay."""

    def apply_mask(self, module: Any) -> Any:
        """The parameter times its mask."""
        assert self._tensor_name is not None, f"Module {module} has to be pruned"
        mask = getattr(module, f"{self._tensor_name}_mask")
        original = getattr(module, f"{self._tensor_name}_orig")
        return mask.to(dtype=original.dtype) * original

    @classmethod
    def apply(
        cls, module: Any, name: str, *args: Any, importance_scores: Any = None, **kwargs: Any
    ) -> Any:
        """Prune a parameter of a module by this method; returns the hook that was added."""
        method = cls._joined(module, name, *args, **kwargs)
        original = getattr(module, name)
        if importance_scores is None:
            importance_scores = original
        assert importance_scores.shape == original.shape, (
            f"importance_scores must have the shape of {name} of {module}, "
            f"{tuple(original.shape)}; got {tuple(importance_scores.shape)}"
        )
        first = not isinstance(method, PruningContainer)
        if first:
            module.register_parameter(f"{name}_orig", original)
            del module._parameters[name]
            default_mask = CREATION["ones_like"](original)
        else:
            default_mask = getattr(module, f"{name}_mask").detach().clone()
        try:
            mask = method.compute_mask(importance_scores, default_mask=default_mask)
            module.register_buffer(f"{name}_mask", mask)
            setattr(module, name, method.apply_mask(module))
            module.register_forward_pre_hook(method)
        except Exception:
            if first:  # leave the module as it was
                original = getattr(module, f"{name}_orig")
                module.register_parameter(name, original)
                del module._parameters[f"{name}_orig"]
            raise
        return method

    @classmethod
    def _joined(cls, module: Any, name: str, *args: Any, **kwargs: Any) -> Any:
        """Put the new method after those that prune the parameter, and remove their hook."""
        present = _hooks_of(module, name)
        assert len(present) <= 1, (
            f"{name} of {module} has several pruning hooks; a PruningContainer joins them into one"
        )
        for key, _ in present:
            del module._forward_pre_hooks[key]
        method = cls(*args, **kwargs)
        method._tensor_name = name
        if not present:
            return method
        ((_, old),) = present
        container = old if isinstance(old, PruningContainer) else PruningContainer(old)
        container.add_pruning_method(method)
        return container

    def prune(self, t: Any, default_mask: Any = None, importance_scores: Any = None) -> Any:
        """A pruned copy of a tensor, without a module."""
        if importance_scores is None:
            importance_scores = t
        assert importance_scores.shape == t.shape, (
            f"importance_scores must have the shape of t, {tuple(t.shape)}; got "
            f"{tuple(importance_scores.shape)}"
        )
        if default_mask is None:
            default_mask = CREATION["ones_like"](t)
        return t * self.compute_mask(importance_scores, default_mask=default_mask)

    def remove(self, module: Any) -> None:
        """Store the pruned values in the parameter, and remove the mask and the original."""
        name = self._tensor_name
        assert name is not None, f"{module} is not pruned, so there is nothing to remove"
        pruned = self.apply_mask(module)
        if hasattr(module, name):
            delattr(module, name)
        original = module._parameters.pop(f"{name}_orig")
        original.data = pruned.data
        del module._buffers[f"{name}_mask"]
        setattr(module, name, original)


class PruningContainer(BasePruningMethod):
    """Methods that prune one parameter, one after another."""

    def __init__(self, *args: Any) -> None:
        self._pruning_methods: tuple[Any, ...] = ()
        if len(args) == 1:
            self._tensor_name = args[0]._tensor_name
        for method in args:
            self.add_pruning_method(method)

    def add_pruning_method(self, method: Any) -> None:
        """Add a method, which prunes what those before it left."""
        if method is not None:
            if not isinstance(method, BasePruningMethod):
                raise TypeError(f"{type(method)} is not a BasePruningMethod subclass")
            if self._tensor_name != method._tensor_name:
                raise ValueError(
                    f"this PruningContainer prunes '{self._tensor_name}'; a method for "
                    f"'{method._tensor_name}' does not fit"
                )
        self._pruning_methods += (method,)

    def __len__(self) -> int:
        return len(self._pruning_methods)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._pruning_methods)

    def __getitem__(self, idx: Any) -> Any:
        return self._pruning_methods[idx]

    def compute_mask(self, t: Any, default_mask: Any) -> Any:
        """The mask of the last method, which chooses among the elements of `default_mask`."""
        method = self._pruning_methods[-1]
        part = _part_for(method, t, default_mask)
        mask = default_mask.to(dtype=t.dtype).clone()
        chosen = method.compute_mask(t[part], default_mask=default_mask[part])
        mask[part] = chosen.to(dtype=mask.dtype)
        return mask


def _part_for(method: Any, t: Any, mask: Any) -> Any:
    """The index of the elements that a method may choose from."""
    kind = method.PRUNING_TYPE
    everything: list[Any] = [slice(None)] * t.dim()
    if kind == "unstructured":
        return mask == 1
    if kind == "global":
        return tuple(everything)
    if kind != "structured":
        raise ValueError(f"Unrecognized PRUNING_TYPE {kind}")
    if not hasattr(method, "dim"):
        raise AttributeError("a pruning method of the type 'structured' needs an attribute dim")
    dim = method.dim + t.dim() if method.dim < 0 else method.dim
    if dim < 0:
        raise IndexError(f"dim {method.dim} is out of range for a tensor of {t.dim()} dimensions")
    everything[dim] = mask.sum(dim=[d for d in range(t.dim()) if d != dim]) != 0
    return tuple(everything)


class Identity(BasePruningMethod):
    """Prunes nothing, but gives the parameter a mask of ones."""

    PRUNING_TYPE = "unstructured"

    def compute_mask(self, t: Any, default_mask: Any) -> Any:
        """The mask unchanged."""
        return default_mask

    @classmethod
    def apply(cls, module: Any, name: str) -> Any:  # type: ignore[override]
        """Give a parameter a mask of ones."""
        return super().apply(module, name)


class _OfElements(BasePruningMethod):
    """Prunes a number or a share of the elements: those with the lowest scores."""

    PRUNING_TYPE = "unstructured"

    def __init__(self, amount: Any) -> None:
        _validate_pruning_amount_init(amount)
        self.amount = amount

    def _scores(self, t: Any) -> Any:
        raise NotImplementedError

    def compute_mask(self, t: Any, default_mask: Any) -> Any:
        """The mask without the elements that have the lowest scores."""
        count = _compute_nparams_toprune(self.amount, t.numel())
        _validate_pruning_amount(count, t.numel())
        mask = default_mask.clone()
        if count:
            least = self._scores(t).reshape(-1).topk(k=count, largest=False).indices
            mask.view(-1)[least] = 0
        return mask


class RandomUnstructured(_OfElements):
    """Prunes random elements."""

    def _scores(self, t: Any) -> Any:
        return CREATION["rand_like"](t)

    @classmethod
    def apply(cls, module: Any, name: str, amount: Any) -> Any:  # type: ignore[override]
        """Prune random elements of a parameter."""
        return super().apply(module, name, amount=amount)


class L1Unstructured(_OfElements):
    """Prunes the elements with the smallest absolute values."""

    def _scores(self, t: Any) -> Any:
        return t.abs()

    @classmethod
    def apply(  # type: ignore[override]
        cls, module: Any, name: str, amount: Any, importance_scores: Any = None
    ) -> Any:
        """Prune the elements of a parameter with the smallest absolute value, or importance."""
        return super().apply(module, name, amount=amount, importance_scores=importance_scores)


class _OfChannels(BasePruningMethod):
    """Prunes a number or a share of the channels along `dim`: those with the lowest scores."""

    PRUNING_TYPE = "structured"
    amount: Any
    dim: int

    def _scores(self, t: Any) -> Any:
        raise NotImplementedError

    def compute_mask(self, t: Any, default_mask: Any) -> Any:
        """The mask without the channels that have the lowest scores."""
        _validate_structured_pruning(t)
        _validate_pruning_dim(t, self.dim)
        size = t.shape[self.dim]
        count = _compute_nparams_toprune(self.amount, size)
        _validate_pruning_amount(count, size)
        scores = self._scores(t)
        if count == 0:
            return default_mask
        mask = CREATION["zeros_like"](t)
        index: list[Any] = [slice(None)] * t.dim()
        index[self.dim] = scores.topk(k=size - count, largest=True).indices
        mask[tuple(index)] = 1
        return mask * default_mask.to(dtype=mask.dtype)


class RandomStructured(_OfChannels):
    """Prunes random channels along `dim`."""

    def __init__(self, amount: Any, dim: int = -1) -> None:
        _validate_pruning_amount_init(amount)
        self.amount = amount
        self.dim = dim

    def _scores(self, t: Any) -> Any:
        return CREATION["rand"](t.shape[self.dim])

    @classmethod
    def apply(  # type: ignore[override]
        cls, module: Any, name: str, amount: Any, dim: int = -1
    ) -> Any:
        """Prune random channels of a parameter."""
        return super().apply(module, name, amount=amount, dim=dim)


class LnStructured(_OfChannels):
    """Prunes the channels along `dim` with the smallest `n`-norm."""

    def __init__(self, amount: Any, n: Any, dim: int = -1) -> None:
        _validate_pruning_amount_init(amount)
        self.amount = amount
        self.n = n
        self.dim = dim

    def _scores(self, t: Any) -> Any:
        return _compute_norm(t, self.n, self.dim)

    @classmethod
    def apply(  # type: ignore[override]
        cls, module: Any, name: str, amount: Any, n: Any, dim: int, importance_scores: Any = None
    ) -> Any:
        """Prune the channels with the smallest norm of a parameter, or of its importances."""
        return super().apply(
            module, name, amount=amount, n=n, dim=dim, importance_scores=importance_scores
        )


class CustomFromMask(BasePruningMethod):
    """Prunes where a given mask is 0."""

    PRUNING_TYPE = "global"

    def __init__(self, mask: Any) -> None:
        self.mask = mask

    def compute_mask(self, t: Any, default_mask: Any) -> Any:
        """The product of both masks."""
        assert default_mask.shape == self.mask.shape, (
            f"default_mask must have the shape of the mask, {tuple(self.mask.shape)}; got "
            f"{tuple(default_mask.shape)}"
        )
        return default_mask * self.mask.to(dtype=default_mask.dtype)

    @classmethod
    def apply(cls, module: Any, name: str, mask: Any) -> Any:  # type: ignore[override]
        """Prune a parameter where a mask is 0."""
        return super().apply(module, name, mask=mask)


# -- functions -------------------------------------------------------------------------------------


def identity(module: Any, name: str) -> Any:
    """Give a parameter a mask of ones; returns the module."""
    Identity.apply(module, name)
    return module


def random_unstructured(module: Any, name: str, amount: Any) -> Any:
    """Prune random elements: `amount` is a number, or a share if it is a float."""
    RandomUnstructured.apply(module, name, amount)
    return module


def l1_unstructured(module: Any, name: str, amount: Any, importance_scores: Any = None) -> Any:
    """Prune the elements with the smallest absolute value, or importance."""
    L1Unstructured.apply(module, name, amount=amount, importance_scores=importance_scores)
    return module


def random_structured(module: Any, name: str, amount: Any, dim: int) -> Any:
    """Prune random channels along a dimension."""
    RandomStructured.apply(module, name, amount, dim)
    return module


def ln_structured(
    module: Any, name: str, amount: Any, n: Any, dim: int, importance_scores: Any = None
) -> Any:
    """Prune the channels along a dimension with the smallest `n`-norm."""
    LnStructured.apply(module, name, amount, n, dim, importance_scores=importance_scores)
    return module


def custom_from_mask(module: Any, name: str, mask: Any) -> Any:
    """Prune a parameter where a mask is 0."""
    CustomFromMask.apply(module, name, mask)
    return module


def global_unstructured(
    parameters: Any, pruning_method: Any, importance_scores: Any = None, **kwargs: Any
) -> None:
    """Prune several parameters, pairs of module and name, as if they were one.

    `importance_scores` may have a tensor of importances for a pair.
    """
    if not isinstance(parameters, Iterable):
        raise TypeError(
            "global_unstructured takes an iterable of (module, name), got "
            f"{type(parameters).__name__}"
        )
    scores = {} if importance_scores is None else importance_scores
    if not isinstance(scores, dict):
        raise TypeError(
            f"global_unstructured takes importance_scores as a dict, got {type(scores).__name__}"
        )
    pairs = list(parameters)
    ones_like = CREATION["ones_like"]
    importance = parameters_to_vector(
        [scores.get((module, name), getattr(module, name)) for module, name in pairs]
    )
    present = parameters_to_vector(
        [getattr(m, f"{name}_mask", ones_like(getattr(m, name))) for m, name in pairs]
    )
    method = pruning_method(**kwargs)
    if method.PRUNING_TYPE != "unstructured":
        raise TypeError(
            f"global_unstructured prunes single elements: {pruning_method.__name__} has the type "
            f"{method.PRUNING_TYPE!r}"
        )
    mask = PruningContainer(method).compute_mask(importance, present)
    start = 0
    for module, name in pairs:
        parameter = getattr(module, name)
        count = parameter.numel()
        custom_from_mask(module, name, mask[start : start + count].view_as(parameter))
        start += count


def _hooks_of(module: Any, name: str | None = None) -> list[tuple[int, BasePruningMethod]]:
    """The methods that prune a module's parameter (or any of them), with their keys."""
    return [
        (key, hook)
        for key, hook in module._forward_pre_hooks.items()
        if isinstance(hook, BasePruningMethod) and name in (None, hook._tensor_name)
    ]


def remove(module: Any, name: str) -> Any:
    """Make the pruning of a parameter permanent, and remove the mask and the hook."""
    for key, hook in _hooks_of(module, name):
        hook.remove(module)
        del module._forward_pre_hooks[key]
        return module
    raise ValueError(f"'{name}' of {module} is not pruned, so there is nothing to remove")


def is_pruned(module: Any) -> bool:
    """Whether a parameter of the module, or of one inside of it, is pruned."""
    return any(_hooks_of(inner) for inner in module.modules())


# -- checks ----------------------------------------------------------------------------------------


def _validate_pruning_amount_init(amount: Any) -> None:
    if not isinstance(amount, numbers.Real):
        raise TypeError(f"amount must be an int or a float, got {amount!r}")
    most = float("inf") if isinstance(amount, numbers.Integral) else 1.0
    if not 0.0 <= float(amount) <= most:
        raise ValueError(
            f"amount must be a share between 0 and 1 or a number of elements, got {amount}"
        )


def _validate_pruning_amount(amount: Any, tensor_size: int) -> None:
    if isinstance(amount, numbers.Integral) and int(amount) > tensor_size:
        raise ValueError(f"cannot prune {amount} of {tensor_size} elements")


def _validate_structured_pruning(t: Any) -> None:
    if t.dim() <= 1:
        raise ValueError(
            f"structured pruning needs at least two dimensions, got the shape {tuple(t.shape)}"
        )


def _validate_pruning_dim(t: Any, dim: int) -> None:
    if dim >= t.dim():
        raise IndexError(f"dim {dim} is out of range for the shape {tuple(t.shape)}")


def _compute_nparams_toprune(amount: Any, tensor_size: int) -> int:
    """The number of elements to prune: the amount, or a share of the size."""
    if isinstance(amount, numbers.Integral):
        return int(amount)
    share: int = round(amount * tensor_size)
    return share


def _compute_norm(t: Any, n: Any, dim: int) -> Any:
    """The `n`-norm of each channel along `dim`."""
    dims = list(range(t.dim()))
    dims.remove(dims[dim] if dim < 0 else dim)
    return t.norm(p=n, dim=dims)
