"""tapegrad: PyTorch's API, a tape you can hold in your hand, and a training step that replays.

The main namespace has PyTorch's names. Operations come from the op table (`tapegrad.ops`); the
parts that not every program needs (`nn`, `optim`, `func`, `compile`, ...) are loaded at first
use.
"""

import gc as _gc
from importlib import import_module as _import_module
from math import e, inf, nan, pi

from .autograd.gradients import GradientMap, Gradients
from .core.allocator import keep_freed_memory as _keep_freed_memory
from .core.device import Device, device, get_default_device, set_default_device
from .core.dtypes import (
    DType,
    bfloat16,
    bool_,
    complex32,
    complex64,
    complex128,
    finfo,
    float8_e4m3fn,
    float8_e4m3fnuz,
    float8_e5m2,
    float8_e5m2fnuz,
    float8_e8m0fnu,
    float16,
    float32,
    float64,
    get_default_dtype,
    iinfo,
    int8,
    int16,
    int32,
    int64,
    promote_types,
    set_default_dtype,
    uint8,
    uint16,
    uint32,
    uint64,
)
from .core.layouts import FORMATS as _FORMATS
from .core.layouts import LAYOUTS as _LAYOUTS
from .core.layouts import layout, memory_format
from .core.layouts import strided as _strided
from .core.modes import (
    enable_grad,
    inference_mode,
    is_grad_enabled,
    is_inference,
    is_inference_mode_enabled,
    no_grad,
    set_grad_enabled,
)
from .core.other_paths import OtherPaths as _OtherPaths
from .core.tape import GradientTape, Tape
from .core.tensor import Size, Tensor
from .core.tracebacks import install as _shorten_tracebacks
from .random import (
    Generator,
    default_generator,
    get_rng_state,
    initial_seed,
    manual_seed,
    seed,
    set_rng_state,
)

_collecting = _gc.isenabled()
_gc.disable()  # imports create objects that live on; collecting meanwhile takes 8 ms of 60
try:
    from . import ops as _ops
finally:
    if _collecting:
        _gc.enable()

__version__ = "0.1.0"

bool = bool_
float = float32
double = float64
half = float16
chalf = complex32
cfloat = complex64
cdouble = complex128
long = int64
int = int32
short = int16
dtype = DType
newaxis = None
# Memory formats that scripts ask for. There is only one here, so asking has no effect.
channels_last = _FORMATS["channels_last"]
channels_last_3d = _FORMATS["channels_last_3d"]
contiguous_format = _FORMATS["contiguous_format"]
preserve_format = _FORMATS["preserve_format"]
strided = _strided
sparse_coo = _LAYOUTS["sparse_coo"]

#: if False, `autocast` contexts entered from then on have no effect
enable_autocast = True

#: modules that are loaded at first use
_MODULES = (
    "__future__",
    "_vmap_internals",
    "amp",
    "array_api",
    "autograd",
    "backends",
    "backward_functions",
    "cpu",
    "cuda",
    "data",
    "debug",
    "dialects",
    "func",
    "distributed",
    "fft",
    "distributions",
    "futures",
    "linalg",
    "masked",
    "multiprocessing",
    "nn",
    "optim",
    "quasirandom",
    "serialization",
    "signal",
    "sparse",
    "special",
    "overrides",
    "storage",
    "testing",
    "utils",
)

#: names of `amp.autocast_mode` that are here too
_AUTOCAST = (
    "autocast",
    "autocast_decrement_nesting",
    "autocast_increment_nesting",
    "clear_autocast_cache",
    "get_autocast_cpu_dtype",
    "get_autocast_dtype",
    "get_autocast_gpu_dtype",
    "is_autocast_cache_enabled",
    "is_autocast_cpu_enabled",
    "is_autocast_enabled",
    "set_autocast_cache_enabled",
    "set_autocast_cpu_dtype",
    "set_autocast_cpu_enabled",
    "set_autocast_dtype",
    "set_autocast_enabled",
    "set_autocast_gpu_dtype",
)

#: functions that draw from distributions with parameters
_DRAWS = (
    *("_dirichlet_grad", "_sample_dirichlet", "_standard_gamma", "_standard_gamma_grad"),
    *("binomial", "poisson"),
)

#: constructors of one dtype
_TYPED = (
    *("FloatTensor", "DoubleTensor", "HalfTensor", "BFloat16Tensor", "LongTensor", "IntTensor"),
    *("ShortTensor", "CharTensor", "ByteTensor", "BoolTensor"),
)

#: windows of signals
_WINDOWS = ("bartlett_window", "blackman_window", "hamming_window", "hann_window", "kaiser_window")

#: removed names of PyTorch, whose errors name the replacement
_REMOVED = ("eig", "lstsq", "matrix_rank", "solve", "symeig")

#: classes and functions of `storage`
_STORAGES = (
    *("BFloat16Storage", "BoolStorage", "ByteStorage", "CharStorage", "ComplexDoubleStorage"),
    *("ComplexFloatStorage", "DoubleStorage", "FloatStorage", "HalfStorage", "IntStorage"),
    *("LongStorage", "ShortStorage", "TypedStorage", "UntypedStorage", "is_storage"),
)

#: PyTorch's modules of decorators and queries, which the facade `torch` has too
_SHARED = (
    *("accelerator", "compiler", "hub", "jit", "library", "mps", "mtia", "profiler", "types"),
    *("version", "xpu"),
)

#: where names that are loaded at first use come from: (module, name in it, or None for the module)
_LAZY: dict[str, tuple[str, str | None]] = {
    **{name: (f".{name}", None) for name in _MODULES},
    **{name: (f".compat.torch.{name}", None) for name in _SHARED},
    **{name: (".amp.autocast_mode", name) for name in _AUTOCAST},
    **{name: (".ops.draws.quantiles", name) for name in _DRAWS},
    **{name: (".typed", name) for name in _TYPED},
    **{name: (".storage", name) for name in _STORAGES},
    **{name: (".ops.factors.removed", name) for name in _REMOVED},
    **{name: (".signal.windows", name) for name in _WINDOWS},
    "AutogradContext": (".dialects", "AutogradContext"),
    "Checkpoint": (".saving", "Checkpoint"),
    "Context": (".autograd.function", "Context"),
    "CustomOp": (".dialects", "CustomOp"),
    "Function": (".autograd.function", "Function"),
    "DisableTorchFunction": (".core.overriding", "DisableTorchFunction"),
    "DisableTorchFunctionSubclass": (".core.overriding", "DisableTorchFunctionSubclass"),
    "GradScaler": (".amp", "GradScaler"),
    "GradientClipper": (".dialects", "GradientClipper"),
    "SavingError": (".saving", "SavingError"),
    "Variable": (".dialects", "Variable"),
    "are_deterministic_algorithms_enabled": (".backends", "are_deterministic_algorithms_enabled"),
    **{name: (".nn.functional", name) for name in ("celu_", "rrelu_", "selu_", "threshold_")},
    "can_cast": (".core.promotion", "can_cast"),
    "set_default_tensor_type": (".typed", "set_default_tensor_type"),
    "checkpoint": (".autograd.checkpointing", "checkpoint"),
    "compile": (".replay", "compile"),
    "custom_op": (".autograd.function", "custom_op"),
    "get_float32_matmul_precision": (".backends", "get_float32_matmul_precision"),
    "get_num_threads": (".replay", "get_num_threads"),
    "get_printoptions": (".insight.tensor_text", "get_printoptions"),
    "install_as_torch": (".compat", "install_as_torch"),
    "is_anomaly_enabled": (".autograd.anomaly", "is_anomaly_enabled"),
    "load": (".saving", "load"),
    "result_type": (".core.promotion", "result_type"),
    "sparse_coo_tensor": (".ops.sparse.creation", "sparse_coo_tensor"),
    "spmm": (".sparse", "mm"),
    "printoptions": (".insight.tensor_text", "printoptions"),
    "save": (".saving", "save"),
    "set_float32_matmul_precision": (".backends", "set_float32_matmul_precision"),
    "set_num_threads": (".replay", "set_num_threads"),
    "set_printoptions": (".insight.tensor_text", "set_printoptions"),
    "use_deterministic_algorithms": (".backends", "use_deterministic_algorithms"),
    "vmap": (".transforms.vmap", "vmap"),
}


#: folders and files that are no part of the API
_INNER = ("compat", "core", "replay", "insight", "saving", "demos", "cli", "typed")


#: in-place methods that PyTorch has as functions too
_CHANGING = """
    abs_ acos_ acosh_ addmv_ arccos_ arccosh_ arcsin_ arcsinh_ arctan_ arctanh_ as_strided_ asin_
    asinh_ atan_ atanh_ ceil_ clamp_ clamp_max_ clamp_min_ clip_ conj_physical_ cos_ cosh_
    deg2rad_ detach_ erf_ erfc_ exp2_ exp_ expm1_ fill_ fix_ floor_ frac_ gcd_ i0_ index_put_
    lcm_ ldexp_ log10_ log1p_
    log2_ log_ logit_ nan_to_num_ neg_ negative_ rad2deg_ reciprocal_ relu_ resize_as_ round_ rsqrt_
    sigmoid_ sin_ sinc_ sinh_ sqrt_ square_ tan_ tanh_ trunc_ xlogy_ zero_
"""


def __getattr__(name: str) -> object:
    if name[-1] == "_" and name in _CHANGING.split():
        return getattr(Tensor, name)
    if name in _ops.late.FILES:
        globals()[name] = operation = _ops.late.function(name)
        return operation
    try:
        module, attribute = (".foreach", name) if name[:9] == "_foreach_" else _LAZY[name]
    except KeyError:
        from .core.missing import missing

        # Python asks for a folder's name before it imports it, possibly one of the modules above.
        others = () if name in _INNER else ("nn", "nn.functional", "optim", "func")
        others = tuple(f"{__name__}.{other}" for other in others)
        raise missing(__name__, name, __dir__(), others) from None
    found = _import_module(module, __name__)
    value = found if attribute is None else getattr(found, attribute)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(
        n for n in {*globals(), *_LAZY, *_ops.late.FILES} if n[0] != "_" and n not in _INNER
    )


_OtherPaths(__name__, {name: f"{__name__}.compat.torch.{name}" for name in _SHARED})
_keep_freed_memory()
_shorten_tracebacks()
globals().update(_ops.CREATION)
globals().update(_ops.public_functions(""))
