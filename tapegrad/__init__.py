"""tapegrad: PyTorch's API, a tape you can hold in your hand, and a training step that replays."""

from . import dtypes as _dtypes
from . import ops as _ops
from .device import Device, device
from .dtypes import (
    DType,
    bfloat16,
    finfo,
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
)
from .gradients import GradientMap, Gradients
from .random import Generator, get_rng_state, initial_seed, manual_seed, seed, set_rng_state
from .state import (
    enable_grad,
    inference_mode,
    is_grad_enabled,
    is_inference_mode_enabled,
    no_grad,
    set_grad_enabled,
)
from .tape import GradientTape, Tape
from .tensor import Size, Tensor

__version__ = "0.1.0"
bool = _dtypes.bool_
float = float32
double = float64
half = float16
long = int64
int = int32
short = int16
dtype = DType

globals().update(_ops.CREATION)
for _op in _ops.TABLE.values():
    if _op.module == "":
        for _name in (_op.name, *_op.aliases):
            globals()[_name] = _op.function
