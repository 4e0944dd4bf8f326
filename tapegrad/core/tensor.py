"""Tensor: an array and its history on the tape.

This module knows no operation: operators and methods are attached to the class from the op table,
when `tapegrad.ops` is imported (see `ops/table.py`). This module has identity, gradients, hooks,
conversion and display. Everything above uses it; inside the library, `wrap` makes a tensor from an
array.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Self, TypeVar, overload

import numpy as np

from . import dtypes, numeric, storage
from .complexes import real_number
from .device import (
    CPU,
    MetaArray,
    device,
    device_of,
    to_device,
)
from .dtypes import DType
from .handles import Extra as Extra
from .handles import Hooks as Hooks
from .handles import RemovableHandle as RemovableHandle
from .histories import refresh as refresh
from .histories import warn_of_missing_grad
from .layouts import layout, strided
from .methods import TensorMethods
from .modes import GRAD, INFERENCE, INFERRED, STATE, TAPE, capturing, numbers
from .size import Size as Size
from .sparse import dense_array, refusal
from .tape import Entry, Output, add_hook, shown_node
from .tree import NUMBERS

if TYPE_CHECKING:
    from ..autograd.gradients import Gradients
    from ..ops.annotations import DeviceLike, DTypeLike

_new = object.__new__


class Tensor(TensorMethods):
    """An n-dimensional array that remembers how it was made.

    `id` is its sequence number, the key in mappings of gradients.

    >>> import tapegrad
    >>> x = tapegrad.Tensor([1.0, 2.0], requires_grad=True)
    >>> grads = (x * x).sum().backward()
    >>> x.grad
    tensor([2., 4.])
    """

    __slots__ = (
        "__dict__",  # attributes that users set; 10 ns of the 1 µs that a small operation takes
        "__weakref__",
        "_array",  # the NumPy or CuPy array
        "_edge",  # Entry or Output that made this tensor; None for a leaf
        "_extra",
        "_grad",
        "_requires",  # whether gradients are wanted
        # None, or (base tensor, ((primitive, params), ...), sequence number of the last refresh;
        # see `UNTRACKED`)
        "_view",
        "id",  # unique and growing; never reused
    )
    _array: Any
    _edge: Any
    _extra: Extra | None
    _grad: Tensor | None
    _requires: bool
    _view: tuple[Tensor, tuple[Any, ...], float] | None
    id: int

    #: whether tapes log its operations; for a wrapped tensor they log those of its value
    _on_tapes = True

    def __new__(
        cls,
        array: Any = (),
        *more: Any,
        device: DeviceLike | None = None,
        dtype: DTypeLike | None = None,
        requires_grad: bool = False,
    ) -> Self:
        """Make a tensor from data, in `dtype` or else the default dtype; or from sizes.

        `Tensor(2, 3)` has unset values, as in PyTorch. `tapegrad.tensor` keeps the dtype of data.
        """
        default = dtypes.get_default_dtype()
        if isinstance(array, (int, np.integer, Size)):
            unset = np.zeros if STATE.mode & TAPE else np.empty  # recordings must be equal
            array = unset(array if isinstance(array, Size) else (array, *more), default.numpy)
        elif len(more) > 3:
            raise TypeError(f"Tensor takes data and at most 3 options, got {len(more)}")
        elif more:
            options = [*more, *(device, dtype, requires_grad)[len(more) :]]
            device, dtype, requires_grad = options
        if isinstance(array, Tensor):
            own(array)
        elif dtype is None:
            dtype = default
        self = wrap(_conversion().as_array(array, dtype, device), cls)
        if requires_grad:
            self.requires_grad_()
        return self

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Do nothing: `__new__` has made the tensor; subclasses may have other parameters."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        from .overriding import prepare_subclass

        prepare_subclass(cls)

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Run a function on objects of a subclass; its results are of that subclass too."""
        from .overriding import default_torch_function

        return default_torch_function(cls, func, types, args, kwargs)

    def as_subclass(self, cls: Any) -> Any:
        """An object of a subclass of Tensor, with the same memory and history."""
        from .overriding import as_subclass

        return as_subclass(self, cls)

    @staticmethod
    def _make_subclass(cls: Any, data: Tensor, require_grad: bool = False) -> Any:
        made = wrap(dense_array(data.detach()), cls)
        return made.requires_grad_(require_grad)

    # -- what it is --------------------------------------------------------------------------

    @property
    def shape(self) -> Size:
        """The size of each dimension."""
        return Size(self._array.shape)

    @property
    def dtype(self) -> DType:
        """The type of the elements."""
        return dtypes.from_numpy_dtype(self._array.dtype)

    @property
    def device(self) -> device:
        """Where the elements are: `cpu` or `cuda`."""
        return device_of(self._array)

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return int(self._array.ndim)

    @property
    def is_cuda(self) -> bool:
        """Whether the elements are on a GPU."""
        return not isinstance(self._array, np.ndarray)

    @property
    def itemsize(self) -> int:
        """The size of one element in bytes."""
        return int(self._array.dtype.itemsize)

    @property
    def nbytes(self) -> int:
        """The size of all elements in bytes."""
        return int(self._array.nbytes)

    @property
    def is_sparse(self) -> bool:
        """Whether it stores coordinates and elements (`sparse_coo`) instead of all elements."""
        return False

    @property
    def layout(self) -> layout:
        """How elements are stored: `strided` or `sparse_coo`."""
        return strided

    # Kinds of tensors that exist in PyTorch only.
    is_mkldnn = is_mps = is_mtia = is_sparse_csr = is_vulkan = is_xla = is_xpu = False

    def __len__(self) -> int:
        if self._array.ndim == 0:
            raise TypeError("a 0-d tensor has no length; use .item() for its number")
        return len(self._array)

    def __iter__(self) -> Iterator[Tensor]:
        if self._array.ndim == 0:
            raise TypeError("a 0-d tensor cannot be iterated; use .item() for its number")
        return iter(self.unbind(0))

    # -- gradients ---------------------------------------------------------------------------

    @property
    def requires_grad(self) -> bool:
        """Whether gradients are wanted for this tensor or for something it was made of."""
        if self._view is not None:
            refresh(self)
        return self._requires

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        self.requires_grad_(value)

    def requires_grad_(self, requires_grad: bool = True) -> Tensor:
        """Set whether this leaf requires gradients; returns the tensor itself."""
        if requires_grad and not numeric.is_differentiable(self._array.dtype):
            raise RuntimeError(
                f"only floating and complex tensors can require gradients, not {self.dtype}; "
                "convert it first, for example with .float()"
            )
        if not requires_grad and self._requires and self._edge is not None:
            raise RuntimeError(
                "this tensor is the result of an operation, so requires_grad cannot be turned off "
                "for it; use .detach() for a tensor without gradients"
            )
        if requires_grad and INFERRED and self.is_inference() and not STATE.mode & INFERENCE:
            raise RuntimeError(
                "this tensor was made inside of inference_mode and cannot require gradients "
                "outside of it; use a clone()"
            )
        if STATE.mode & TAPE:
            for tape in STATE.tapes:
                tape.note_flag(self)
        if not self._requires:
            self._edge = None  # drop a history that only a tape wrote
        self._requires = bool(requires_grad)
        return self

    @property
    def is_leaf(self) -> bool:
        """Whether this tensor is not the result of a recorded operation."""
        return not (self.requires_grad and self._edge is not None)

    @property
    def grad_fn(self) -> Entry | None:
        """The entry that made this tensor; None for a leaf."""
        if not self.requires_grad:
            return None
        edge = self._edge
        entry = edge.entry if isinstance(edge, Output) else edge
        return None if entry is None else shown_node(entry)

    @property
    def output_nr(self) -> int:
        """The index of this tensor among the results of its operation."""
        return self._edge.index if isinstance(self._edge, Output) else 0

    @property
    def grad(self) -> Tensor | None:
        """The gradient accumulated by backward calls; None before the first one."""
        if STATE.mode & TAPE:
            _note_grad(self)
        if self._edge is not None and self._grad is None:
            warn_of_missing_grad(self)
        return self._grad

    @grad.setter
    def grad(self, value: Tensor | None) -> None:
        if value is not None:
            if not isinstance(value, Tensor):
                raise TypeError(f".grad must be a Tensor or None, got {type(value).__name__}")
            if value._array.shape != self._array.shape:
                raise RuntimeError(
                    f".grad of a tensor of shape {tuple(self.shape)} must have the same shape, "
                    f"got {tuple(value.shape)}"
                )
            if value._array.dtype != self._array.dtype:
                raise RuntimeError(f".grad of a {self.dtype} tensor cannot be {value.dtype}")
            if value._array.__class__ is not self._array.__class__ and value.device != self.device:
                raise RuntimeError(f".grad of a {self.device} tensor cannot be on {value.device}")
        if STATE.mode & TAPE:
            _note_grad(self)
        self._grad = value

    @grad.deleter
    def grad(self) -> None:
        self.grad = None

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drop the gradient, or with `set_to_none=False` fill it with zeros."""
        if STATE.mode & TAPE:
            _note_grad(self)
        if set_to_none or self._grad is None:
            self._grad = None
        else:
            _forget_history(self._grad)
            self._grad.zero_()

    def backward(
        self,
        gradient: Tensor | None = None,
        retain_graph: bool | None = None,
        create_graph: bool = False,
        inputs: Any = None,
    ) -> Gradients:
        """Add the gradient of this tensor to `.grad` of the leaves it was made of.

        Returns this call's gradients as a mapping. `gradient` is needed unless this tensor has one
        element. With `inputs`, only those tensors get gradients.
        """
        gradients: Gradients = _backward_calls().backward(
            (self,), (gradient,), retain_graph, create_graph, inputs
        )
        return gradients

    def retain_grad(self) -> None:
        """Fill `.grad` of this non-leaf tensor in later backward calls, too."""
        if not self.requires_grad:
            raise RuntimeError("retain_grad needs a tensor that requires gradients")
        if self._edge is None or self.retains_grad:
            return
        from .copying import duplicate

        reference = weakref.ref(self)

        def keep(gradient: Tensor) -> None:
            tensor = reference()
            if tensor is not None:
                before = tensor._grad
                if before is not None:
                    tensor._grad = before + gradient
                elif gradient._requires:
                    tensor._grad = gradient
                else:
                    tensor._grad = duplicate(gradient)

        keep.retains = self.id  # type: ignore[attr-defined]  # backward reports this gradient too
        self._add_entry_hook(keep)

    @property
    def retains_grad(self) -> bool:
        """Whether `retain_grad` was called on this result of an operation."""
        edge = self._edge
        hooks = getattr(edge.entry if isinstance(edge, Output) else edge, "hooks", None) or ()
        return any(i == self.output_nr and hasattr(h, "retains") for i, h in hooks)

    def register_hook(self, hook: Callable[[Tensor], Tensor | None]) -> RemovableHandle:
        """Call `hook(gradient)` in backward; a tensor that it returns replaces the gradient."""
        if not self.requires_grad:
            raise RuntimeError(
                "register_hook needs a tensor that requires gradients; call requires_grad_() first"
            )
        if self._edge is not None:
            return self._add_entry_hook(hook)
        return self._add_hook("hooks", hook)

    def register_post_accumulate_grad_hook(self, hook: Callable[[Tensor], None]) -> RemovableHandle:
        """Call `hook(tensor)` after backward has added to this leaf's `.grad`."""
        if not self.is_leaf or not self.requires_grad:
            raise RuntimeError("only leaves that require gradients accumulate into .grad")
        return self._add_hook("post_hooks", hook)

    def _add_hook(self, group: str, hook: Callable[..., Any]) -> RemovableHandle:
        if self._extra is None:
            self._extra = Extra()
        hooks: dict[int, Any] = getattr(self._extra, group) or {}
        setattr(self._extra, group, hooks)
        key = next(numbers)
        hooks[key] = hook

        def remove() -> None:
            hooks.pop(key, None)

        return RemovableHandle(remove)

    def _add_entry_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        edge = self._edge
        entry, index = (edge.entry, edge.index) if isinstance(edge, Output) else (edge, 0)
        return add_hook(entry, index, hook)

    def detach(self) -> Tensor:
        """A tensor that shares this one's memory and has no history."""
        if self._extra is not None:
            own(self)
        out = wrap(self._array)
        if STATE.mode & TAPE:
            from .primitive import PRIMITIVES, record

            if self._view is not None:
                refresh(self)
                if capturing():
                    # Under capture: view the detached base, so that writes reach the base.
                    out = self._view[0].detach()
                    for primitive, params in self._view[1]:
                        out = primitive(out, **params)
                    return out
            record(PRIMITIVES["detach"], {}, (self,), [self._array], (self._array,), (out,), TAPE)
        return out

    def detach_(self) -> Tensor:
        """Cut this tensor from its history, in place."""
        if self._view is not None:
            raise RuntimeError("detach_() of a view would leave its base attached; use detach()")
        self._edge = None
        self._requires = False
        return self

    @property
    def data(self) -> Tensor:
        """The same data without history; assigning replaces this tensor's data.

        Changes through the result do not count as changes of this tensor.
        """
        if self._array.__class__ is not np.ndarray or STATE.mode & TAPE:
            shown = self.detach()
            for tape in STATE.tapes:
                tape.note_data(shown)
            return shown
        if self._extra is not None:
            own(self)
        return wrap(storage.apart(self._array))

    @data.setter
    def data(self, value: Tensor) -> None:
        if not isinstance(value, Tensor):
            raise TypeError(f".data must be a Tensor, got {type(value).__name__}")
        if isinstance(value._array, MetaArray):
            from .meta import replace_data

            replace_data(self, value)
            return
        if value.is_sparse:
            raise refusal("setting .data")
        array = storage.rejoined(value._array)  # tensors that share memory count changes together
        if array is not self._array:
            for tape in STATE.tapes:
                tape.note_replaced(self, "setting .data")
        self._array = array
        self._view = None
        for tape in STATE.tapes:
            tape.rebind(self, value)

    def _is_view(self) -> bool:
        return self._view is not None

    def is_inference(self) -> bool:
        """Whether this tensor, or its base if it is a view, was made inside of inference_mode."""
        extra = (self if self._view is None else self._view[0])._extra
        return extra is not None and extra.inference

    @property
    def _version(self) -> int:
        if self.is_inference():
            raise RuntimeError("a tensor made inside of inference_mode has no version")
        return storage.version(self._array)

    @property
    def _base(self) -> Tensor | None:
        return None if self._view is None else self._view[0]

    # -- leaving tapegrad --------------------------------------------------------------------

    def numpy(self, *, force: bool = False) -> np.ndarray[Any, Any]:
        """The data as a NumPy array that shares memory (a copy with `force` where needed)."""
        if self.requires_grad and not force and STATE.mode & GRAD:
            raise RuntimeError(
                "this tensor requires gradients, which NumPy would lose; "
                "use tensor.detach().numpy()"
            )
        if self.is_cuda and not force:
            raise TypeError("this tensor is on a GPU; use tensor.cpu().numpy()")
        not_recorded(self, "numpy()")
        own(self)
        # A view: setting `flags.writeable` or the like on it does not affect the tensor's array.
        array: np.ndarray[Any, Any] = to_device(self._array, CPU)
        return array.view()

    def item(self) -> int | float:
        """The number in a tensor of one element."""
        if self._array.size != 1:
            raise RuntimeError(
                f"item() needs a tensor of one element, this one has shape {tuple(self.shape)}"
            )
        not_recorded(self, "item()")
        on_cpu = self._array.__class__ is np.ndarray
        number: Any = (self._array if on_cpu else to_device(self._array, CPU)).item()
        return number if number.__class__ in NUMBERS else float(number)  # bfloat16's own scalar

    def tolist(self) -> list[Any]:
        """The data as nested lists of Python numbers."""
        not_recorded(self, "tolist()")
        array = to_device(self._array, CPU)
        wide = array.astype(np.float32) if numeric.is_foreign(array.dtype) else array
        values: list[Any] = wide.tolist()
        return values

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        array = self.numpy()
        return np.array(array, dtype=dtype) if copy else np.asarray(array, dtype=dtype)

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: Any = None,
        copy: bool | None = None,
    ) -> Any:
        if self.requires_grad:
            raise BufferError("this tensor requires gradients, which DLPack would lose; detach it")
        not_recorded(self, "__dlpack__()")
        own(self)
        options = {"max_version": max_version, "dl_device": dl_device, "copy": copy}
        return self._array.__dlpack__(
            stream=stream, **{name: v for name, v in options.items() if v is not None}
        )

    def __array_namespace__(self, *, api_version: str | None = None) -> Any:
        """The functions of the Array API standard for tensors: `tapegrad.array_api`."""
        from importlib import import_module

        if api_version not in (None, "2021.12", "2022.12", "2023.12", "2024.12", "2025.12"):
            raise ValueError(f"there is no version {api_version!r} of the array API here")
        return import_module("tapegrad.array_api")

    def to_device(self, device: Any, /, *, stream: Any = None) -> Tensor:
        """This tensor on a device: `to(device)`, as the array API standard names it."""
        out: Tensor = self.to(device)
        return out

    def __dlpack_device__(self) -> Any:
        return self._array.__dlpack_device__()

    def __bool__(self) -> bool:
        if self._array.size != 1:
            raise RuntimeError(
                f"the truth of a tensor of shape {tuple(self.shape)} is ambiguous; "
                "use .any() or .all()"
            )
        return bool(self.item())

    def __int__(self) -> int:
        return int(real_number(self))

    def __float__(self) -> float:
        return float(real_number(self))

    def __complex__(self) -> complex:
        return complex(self.item())

    def __index__(self) -> int:
        if not numeric.is_exact(self._array.dtype) or self._array.size != 1:
            raise TypeError("only integer tensors of one element can be an index")
        return int(self.item())

    __hash__ = object.__hash__  # in C, because optimizers look up their state by parameter

    def __format__(self, spec: str) -> str:
        return format(self.item() if self._array.ndim == 0 else str(self), spec)

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        from ..insight.tensor_text import tensor_text

        if STATE.mode & TAPE:
            not_recorded(self, "repr()")
        return tensor_text(self)

    # -- copying -----------------------------------------------------------------------------

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        from .copying import deep_copy

        return deep_copy(self, memo)

    def __copy__(self) -> Tensor:
        from .copying import shallow_copy

        return shallow_copy(self)

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        from .copying import reduced

        return reduced(self)


@functools.cache
def _conversion() -> Any:
    """The module `conversion`, which imports this one; an import in each call would take 1 µs."""
    from . import conversion

    return conversion


@functools.cache
def _backward_calls() -> Any:
    """The module `autograd.api`, which imports this one; an import in each call would take 1 µs."""
    from ..autograd import api

    return api


T = TypeVar("T", bound=Tensor)


@overload
def wrap(array: Any) -> Tensor: ...
@overload
def wrap(array: Any, kind: type[T]) -> T: ...
def wrap(array: Any, kind: type[Tensor] = Tensor) -> Tensor:
    """A new leaf around `array`, without checks or copies."""
    tensor = _new(kind)
    tensor._array = array
    tensor._edge = tensor._extra = tensor._grad = tensor._view = None
    tensor._requires = False
    tensor.id = next(numbers)
    return tensor


def own(tensor: Tensor) -> None:
    """Give a tensor its own memory if it still shares it with a mapping of gradients."""
    extra = tensor._extra
    if extra is not None and extra.lender is not None:
        if extra.lender() is not None:
            tensor._array = tensor._array.copy()
        extra.lender = None


def _forget_history(grad: Tensor) -> None:
    """Make a gradient with a history (from `create_graph`) a leaf; it stays the same tensor."""
    grad._edge = None
    grad._requires = False


def _note_grad(tensor: Tensor) -> None:
    for tape in STATE.tapes:
        tape.note_grad(tensor)


def not_recorded(tensor: Tensor, what: str) -> None:
    """Refuse to read values under capture: a replay has not computed them at this point."""
    if not tensor._on_tapes:
        tensor.refuse_read(what)  # type: ignore[attr-defined]
    for tape in STATE.tapes:
        tape.refuse_read(tensor, what)
