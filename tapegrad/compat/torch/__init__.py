"""Names of `torch` that `tapegrad` lacks."""

from __future__ import annotations

import importlib
import math
from typing import Any

from ... import backends as switches
from ...core import dtypes
from ...core.exhaustion import OutOfMemoryError as OutOfMemoryError
from ...core.layouts import FORMATS, LAYOUTS
from ...core.tensor import Tensor
from ...futures import Future
from ...nn import functional
from ..absent import NamedDType, absent, absent_class
from .jit import ScriptModule
from .random import get_rng_state, set_rng_state
from .serialization import load, save
from .torch_version import TorchVersion, __version__

__all__ = ["Future", "ScriptModule", "TorchVersion", "__version__", "load", "save"]
__all__ += ["get_rng_state", "set_rng_state"]

_SYMBOLIC = "sizes are plain numbers: use int, float and bool"
SymInt = absent_class("torch.SymInt", _SYMBOLIC)
SymFloat = absent_class("torch.SymFloat", _SYMBOLIC)
SymBool = absent_class("torch.SymBool", _SYMBOLIC)

_STREAMS = "operations on a GPU run in order, and CuPy's streams can be used"
Stream = absent_class("torch.Stream", _STREAMS)
Event = absent_class("torch.Event", _STREAMS)

_FILES = "torch.save and torch.load read and write files"
PyTorchFileReader = absent_class("torch.PyTorchFileReader", _FILES)
PyTorchFileWriter = absent_class("torch.PyTorchFileWriter", _FILES)

#: types of TorchScript; packages use them in annotations, often by mistake
_TYPES = "there is no TorchScript: annotate with Python's types and torch.Tensor"
Type = absent_class("torch.Type", _TYPES)
for _name in (
    *("AnyType", "AwaitType", "BoolType", "ClassType", "ComplexType", "DeviceObjType", "DictType"),
    *("EnumType", "FloatType", "FutureType", "InterfaceType", "IntType", "ListType", "NoneType"),
    *("NumberType", "OptionalType", "PyObjectType", "RRefType", "StreamObjType", "StringType"),
    *("SymBoolType", "SymIntType", "TensorType", "TupleType", "UnionType"),
):
    globals()[_name] = absent_class(f"torch.{_name}", _TYPES, Type)

sparse_coo = LAYOUTS["sparse_coo"]
sparse_csr = LAYOUTS["sparse_csr"]
sparse_csc = LAYOUTS["sparse_csc"]
sparse_bsr = LAYOUTS["sparse_bsr"]
sparse_bsc = LAYOUTS["sparse_bsc"]
_COMPRESSED = "sparse tensors have coordinates here; use torch.sparse_coo_tensor"
sparse_csr_tensor = absent("torch.sparse_csr_tensor", _COMPRESSED)
sparse_csc_tensor = absent("torch.sparse_csc_tensor", _COMPRESSED)
sparse_bsr_tensor = absent("torch.sparse_bsr_tensor", _COMPRESSED)
sparse_bsc_tensor = absent("torch.sparse_bsc_tensor", _COMPRESSED)
sparse_compressed_tensor = absent("torch.sparse_compressed_tensor", _COMPRESSED)
jagged = LAYOUTS["jagged"]
legacy_contiguous_format = FORMATS["contiguous_format"]

#: dtypes that packages compare with or list in tables: name, category, bytes, signed
_NAMED_DTYPES = (
    *(("uint16", dtypes.INTEGER, 2, False), ("uint32", dtypes.INTEGER, 4, False)),
    *(("uint64", dtypes.INTEGER, 8, False), ("complex32", dtypes.FLOAT + 1, 4, True)),
    *(("complex64", dtypes.FLOAT + 1, 8, True), ("complex128", dtypes.FLOAT + 1, 16, True)),
    *(("float8_e4m3fn", dtypes.FLOAT, 1, True), ("float8_e5m2", dtypes.FLOAT, 1, True)),
    *(("float8_e4m3fnuz", dtypes.FLOAT, 1, True), ("float8_e5m2fnuz", dtypes.FLOAT, 1, True)),
    *(("float8_e8m0fnu", dtypes.FLOAT, 1, False), ("float4_e2m1fn_x2", dtypes.FLOAT, 1, True)),
    *(("qint8", dtypes.INTEGER, 1, True), ("quint8", dtypes.INTEGER, 1, False)),
    *(("qint32", dtypes.INTEGER, 4, True), ("quint4x2", dtypes.INTEGER, 1, False)),
    *(("quint2x4", dtypes.INTEGER, 1, False), ("bits8", dtypes.INTEGER, 1, False)),
    *((f"int{n}", dtypes.INTEGER, 1, True) for n in range(1, 8)),
    *((f"uint{n}", dtypes.INTEGER, 1, False) for n in range(1, 8)),
)
_EXISTING = {dtype.name for dtype in (*dtypes.ALL, *dtypes.STORED)}
for _name, _category, _size, _signed in _NAMED_DTYPES:
    if _name not in _EXISTING:
        globals()[_name] = NamedDType(_name, _category, _size, _signed)
for _name, _short in (("complex32", "chalf"), ("complex64", "cfloat"), ("complex128", "cdouble")):
    if _name in globals():
        globals()[_short] = globals()[_name]


class AcceleratorError(RuntimeError):
    """PyTorch's error for failures of a GPU; never raised here."""


def _assert(condition: Any, message: str) -> None:
    """`assert` as a function."""
    assert condition, message


def _check(cond: Any, message: Any = None) -> None:
    _check_with(RuntimeError, cond, message)


def _check_with(error_type: type[Exception], cond: Any, message: Any = None) -> None:
    """Raise an error unless `cond` is True; `message` is a function that returns the text."""
    if not isinstance(cond, bool):
        raise TypeError(f"a check takes True or False, got {type(cond).__name__}")
    if not cond:
        raise error_type("Expected cond to be True" if message is None else str(message()))


def _check_value(cond: Any, message: Any = None) -> None:
    _check_with(ValueError, cond, message)


def _check_index(cond: Any, message: Any = None) -> None:
    _check_with(IndexError, cond, message)


def _check_type(cond: Any, message: Any = None) -> None:
    _check_with(TypeError, cond, message)


def _check_not_implemented(cond: Any, message: Any = None) -> None:
    _check_with(NotImplementedError, cond, message)


def _check_is_size(i: Any, message: Any = None, *, max: Any = None) -> None:
    _check(i >= 0 and (max is None or i <= max), message)


def _check_tensor_all(cond: Tensor, message: Any = None) -> None:
    _check(bool(cond.all()), message)


def _assert_async(condition: Tensor, message: str = "Expected Tensor to be true") -> None:
    assert bool(condition), message


def _softmax_backward_data(
    grad_output: Tensor, output: Tensor, dim: int, input_dtype: Any
) -> Tensor:
    """The gradient of a softmax, from its result."""
    inner = (grad_output * output).sum(dim, keepdim=True)
    return ((grad_output - inner) * output).to(input_dtype)


def typename(obj: Any) -> str:
    """The name of an object's type with its module; for tensors, e.g. "torch.FloatTensor"."""
    if isinstance(obj, Tensor):
        return str(obj.type())
    kind = obj if hasattr(obj, "__qualname__") else type(obj)
    module = getattr(kind, "__module__", "") or ""
    plain = module in ("builtins", "__builtin__", "")
    return str(kind.__qualname__) if plain else f"{module}.{kind.__qualname__}"


def set_flush_denormal(mode: bool) -> bool:
    """Always False: denormal numbers are not flushed to zero."""
    return False


def is_deterministic_algorithms_warn_only_enabled() -> bool:
    """Always False: all operations are deterministic, so no warnings are needed."""
    return False


def get_deterministic_debug_mode() -> int:
    """2 if deterministic algorithms are enabled, else 0."""
    return 2 if switches.are_deterministic_algorithms_enabled() else 0


def set_deterministic_debug_mode(debug_mode: int | str) -> None:
    """Turn deterministic algorithms on or off: 0, 1, 2 or "default", "warn", "error"."""
    names = {"default": 0, "warn": 1, "error": 2}
    level = names.get(debug_mode) if isinstance(debug_mode, str) else debug_mode
    if level not in (0, 1, 2):
        raise RuntimeError(f"expected 0, 1, 2 or one of {sorted(names)}, got {debug_mode!r}")
    switches.use_deterministic_algorithms(level > 0)


_warn_always = [False]


def set_warn_always(b: bool, /) -> None:
    """Store the setting; it has no effect: only Python's filters control warnings here."""
    if not isinstance(b, bool):
        raise TypeError(f"set_warn_always takes True or False, got {type(b).__name__}")
    _warn_always[0] = b


def is_warn_always_enabled() -> bool:
    """The setting of `set_warn_always`."""
    return _warn_always[0]


def embedding(
    weight: Tensor,
    indices: Tensor,
    padding_idx: int = -1,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:
    """Rows of `weight`; its order of arguments differs from `torch.nn.functional.embedding`."""
    padding = None if padding_idx == -1 else padding_idx
    return functional.embedding(
        indices, weight, padding, scale_grad_by_freq=scale_grad_by_freq, sparse=sparse
    )


def batch_norm(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool,
) -> Tensor:
    """Batch norm; its order of arguments differs from `torch.nn.functional.batch_norm`."""
    return functional.batch_norm(
        input, running_mean, running_var, weight, bias, training, momentum, eps
    )


def instance_norm(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    use_input_stats: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool,
) -> Tensor:
    """Instance norm; its order of arguments differs from `torch.nn.functional.instance_norm`."""
    return functional.instance_norm(
        input, running_mean, running_var, weight, bias, use_input_stats, momentum, eps
    )


def bilinear(input1: Tensor, input2: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """The bilinear form of two inputs with each slice of `weight`."""
    return functional.bilinear(input1, input2, weight, bias)


def alpha_dropout(input: Tensor, p: float, train: bool) -> Tensor:
    """Dropout that keeps mean and variance."""
    return functional.alpha_dropout(input, p, train)


def get_num_interop_threads() -> int:
    """Always 1: operations run one after another."""
    return 1


def set_num_interop_threads(n: int) -> None:
    """Has no effect: operations run one after another."""
    if not isinstance(n, int) or n <= 0:
        raise RuntimeError(f"expected a positive number of threads, got {n!r}")


def sym_int(a: Any) -> int:
    """A number as int, rounded towards zero."""
    return int(a)


def sym_float(a: Any) -> float:
    """A number as float."""
    return float(a)


def sym_not(a: Any) -> bool:
    """Whether `a` is false."""
    return not a


def sym_max(a: Any, b: Any) -> Any:
    """The larger number; float if one of them is."""
    return float(max(a, b)) if isinstance(a, float) or isinstance(b, float) else max(a, b)


def sym_min(a: Any, b: Any) -> Any:
    """The smaller number; float if one of them is."""
    return float(min(a, b)) if isinstance(a, float) or isinstance(b, float) else min(a, b)


def sym_sqrt(a: Any) -> float:
    """The square root of a number."""
    return math.sqrt(a)


def sym_ite(b: Any, t: Any, f: Any) -> Any:
    """`t` if `b`, else `f`."""
    return t if b else f


def get_device_module(device: Any = None) -> Any:
    """The module of a device type: `torch.cpu` or `torch.cuda`."""
    from ...core.device import as_device

    return importlib.import_module(f"torch.{as_device(device).type}")


def is_vulkan_available() -> bool:
    """False: Vulkan is not supported."""
    return False


def is_distributed(input: Tensor) -> bool:
    """False, as in PyTorch for ordinary tensors."""
    return False
