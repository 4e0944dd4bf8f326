"""A stand-in for CuPy in host memory, so that code for GPU arrays is tested without a GPU.

`modules()` returns the modules `cupy` and `cupyx` with the parts that tapegrad uses; the fixture
`gpu` in `conftest.py` puts them into `sys.modules`. An array wraps an `np.ndarray`, its host array,
and is not one itself. NumPy computes, so results are those of the CPU. The stand-in imitates what
CuPy refuses and where it differs from NumPy:

- nothing is converted to a NumPy array implicitly: `np.asarray(x)` raises TypeError, and so does an
  operand in host memory, except for numbers;
- reductions return 0-d arrays, never NumPy scalars;
- integer indices out of range wrap around silently;
- `flags` has no `writeable`; there is no `__array_interface__`;
- only `add` and `multiply` have `reduce` and `accumulate`; some functions of NumPy are missing.
"""

from __future__ import annotations

import functools
import operator
import sys
import types
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_tuple
from numpy.lib.stride_tricks import as_strided
from stand_in_cuda import (
    ALLOCATOR,
    Device,
    Event,
    Memory,
    MemoryHook,
    MemoryPointer,
    OutOfMemoryError,
    Pool,
    Stream,
    get_current_stream,
    get_elapsed_time,
    runtime,
)

__name__ = "cupy"  # compiled functions recognise code of array libraries by its module's name

#: functions of NumPy that CuPy does not have
MISSING = {
    *("insert", "nditer", "ndenumerate", "spacing", "frompyfunc", "matrix", "asmatrix", "bmat"),
    *("mask_indices", "nested_iters", "memmap", "isnat", "float_power", "matvec", "vecmat"),
    *("vecdot", "unstack", "astype", "permute_dims", "unique_all", "unique_counts"),
    *("unique_inverse", "char", "rec", "ma", "strings", "core", "ctypeslib", "typing"),
}
#: functions of `numpy.linalg` that CuPy has
LINALG = (
    *("cholesky", "cond", "det", "eig", "eigh", "eigvals", "eigvalsh", "inv", "lstsq"),
    *("matrix_power", "matrix_rank", "norm", "pinv", "qr", "slogdet", "solve", "svd"),
    *("tensorinv", "tensorsolve", "LinAlgError"),
)
KINDS = "?bhilqBHILQefdFD"
SCALARS = (bool, int, float, complex, np.generic)


class Flags:
    """The layout flags of an array, without `writeable`."""

    def __init__(self, host: Any, owns: bool) -> None:
        self.c_contiguous: bool = host.flags.c_contiguous
        self.f_contiguous: bool = host.flags.f_contiguous
        self.owndata = owns
        self.fnc = self.f_contiguous and not self.c_contiguous
        self.forc = self.f_contiguous or self.c_contiguous

    def __getitem__(self, name: str) -> bool:
        return getattr(self, name.lower())


def check_dtype(dtype: Any) -> Any:
    dtype = np.dtype(dtype)
    if dtype.char not in KINDS and dtype.name != "bfloat16":
        raise ValueError(f"Unsupported dtype {dtype}")
    return dtype


class ndarray:
    """An array of the stand-in."""

    __slots__ = ("__weakref__", "_host", "base", "data")
    __array_priority__ = 100

    def __init__(
        self, shape: Any, dtype: Any = float, memptr: Any = None, strides: Any = None, order="C"
    ) -> None:
        dtype = check_dtype(dtype)
        shape = (shape,) if isinstance(shape, int) else tuple(shape)
        if memptr is None:
            if strides is not None:
                raise ValueError("memptr is required if strides is given.")
            # As on a GPU, new memory is not zero.
            host = np.empty(shape, dtype, order)
            host.reshape(-1, order="A").view(np.uint8)[...] = 0xA5 if dtype.char != "?" else 1
            self._take(host, None, None)
        else:
            memory = memptr.mem
            base = memory.host
            flat = base.reshape(-1, order="A").view(np.uint8)
            host = np.ndarray(shape, dtype, flat, memptr.ptr - memory.ptr, strides, order)
            self._take(host, None, memory)

    def _take(self, host: Any, base: ndarray | None, memory: Memory | None) -> None:
        self._host = host
        self.base = base
        if memory is None:
            memory = Memory(host) if base is None else base.data.mem
        self.data = MemoryPointer(memory, host.__array_interface__["data"][0] - memory.ptr)

    def _set_shape_and_strides(self, shape: Any, strides: Any, c: bool, f: bool) -> None:
        self._take(as_strided(self._host, shape, strides), self.base, self.data.mem)

    # -- attributes --------------------------------------------------------------------------

    dtype = property(lambda self: self._host.dtype)
    strides = property(lambda self: self._host.strides)
    ndim = property(lambda self: self._host.ndim)
    size = property(lambda self: self._host.size)
    itemsize = property(lambda self: self._host.itemsize)
    nbytes = property(lambda self: self._host.nbytes)
    device = property(lambda self: self.data.device)
    T = property(lambda self: self if self.ndim < 2 else shown(self._host.T, self))
    mT = property(lambda self: shown(self._host.mT, self))
    real = property(lambda self: shown(self._host.real, self))
    imag = property(lambda self: shown(self._host.imag, self))
    flat = property(lambda self: self._host.flat)

    @real.setter
    def real(self, value: Any) -> None:
        self._host.real = host_of(value)

    @imag.setter
    def imag(self, value: Any) -> None:
        self._host.imag = host_of(value)

    @property
    def shape(self) -> tuple[int, ...]:
        return self._host.shape

    @property
    def flags(self) -> Flags:
        return Flags(self._host, self.base is None)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {
            "shape": self.shape,
            "typestr": self.dtype.str,
            "descr": self.dtype.descr,
            "stream": 1,
            "version": 3,
            "strides": None if self._host.flags.c_contiguous else self.strides,
            "data": (self.data.ptr if self.size else 0, False),
        }

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, 0

    def __dlpack__(self, **options: Any) -> Any:
        return self  # not a capsule: only `from_dlpack` below accepts it

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        raise TypeError(
            "Implicit conversion to a NumPy array is not allowed. "
            "Please use `.get()` to construct a NumPy array explicitly."
        )

    def __repr__(self) -> str:
        return repr(self._host)

    def __format__(self, spec: str) -> str:
        return format(self.get(), spec)

    def __reduce__(self) -> Any:
        return array, (self.get(),)

    def __copy__(self) -> ndarray:
        return self.copy()

    def __deepcopy__(self, memo: Any) -> ndarray:
        return self.copy()

    def __len__(self) -> int:
        return len(self._host)

    def __iter__(self) -> Any:
        if not self.ndim:
            raise TypeError("iteration over a 0-d array")
        return (self[i] for i in range(len(self)))

    def __bool__(self) -> bool:
        return bool(self._host)

    def __int__(self) -> int:
        return int(self._host)

    def __float__(self) -> float:
        return float(self._host)

    def __complex__(self) -> complex:
        return complex(self._host)

    def __index__(self) -> int:
        return operator.index(self._host)

    __hash__ = None

    # -- to and from the host ----------------------------------------------------------------

    def get(self, stream: Any = None, order: str = "C", out: Any = None, blocking=True) -> Any:
        if out is None:
            return np.array(self._host, order=order)
        if not isinstance(out, np.ndarray) or out.dtype != self.dtype:
            raise TypeError(f"{type(out)} cannot be obtained from a {self.dtype} array")
        out[...] = self._host
        return out

    def set(self, arr: Any, stream: Any = None) -> None:
        if not isinstance(arr, np.ndarray) or arr.dtype != self.dtype:
            raise TypeError("Only numpy.ndarray of the same dtype can be set to cupy.ndarray")
        if arr.shape != self.shape:
            raise ValueError(f"Shape mismatch. Old shape: {self.shape}, new shape: {arr.shape}")
        self._host[...] = arr

    def item(self, *args: Any) -> Any:
        return self._host.item(*args)

    def tolist(self) -> Any:
        return self._host.tolist()

    def tobytes(self, order: str = "C") -> bytes:
        return self._host.tobytes(order)

    # -- indexing ----------------------------------------------------------------------------

    def __getitem__(self, key: Any) -> ndarray:
        return shown(self._host[index_of(self, key)], self)

    def __setitem__(self, key: Any, value: Any) -> None:
        if isinstance(value, np.ndarray):
            if value.ndim:
                raise ValueError("non-scalar numpy.ndarray cannot be used for fill")
            value = value.item()
        elif not isinstance(value, (ndarray, *SCALARS)):
            raise TypeError(f"Unsupported type {type(value)}")
        self._host[index_of(self, key)] = host_of(value)

    def take(self, indices: Any, axis: Any = None, out: Any = None, mode: str = "wrap") -> ndarray:
        return take(self, indices, axis, out)

    def fill(self, value: Any) -> None:
        self[...] = value

    def astype(
        self, dtype: Any, order: str = "K", casting: Any = None, subok: Any = None, copy=True
    ) -> ndarray:
        dtype = check_dtype(dtype)
        if not copy and dtype == self.dtype:
            return self
        return shown(self._host.astype(dtype, order), self)

    def view(self, dtype: Any = None) -> ndarray:
        if dtype is None:
            return shown(self._host.view(), self)
        return shown(self._host.view(check_dtype(dtype)), self)

    # -- NumPy's functions -------------------------------------------------------------------

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        given = kwargs.get("out")
        if given is not None:
            if len(given) != 1:
                raise ValueError("The 'out' parameter must have exactly one array value")
            kwargs["out"] = given[0]
        function = FUNCTIONS.get(ufunc.__name__) or SPECIAL.get(ufunc.__name__)
        if function is None:
            return NotImplemented
        for x in (*inputs, *(given or ())):
            if not isinstance(x, (ndarray, np.ndarray, tuple, list, slice, *SCALARS)):
                return NotImplemented
        if ufunc in COMPARISONS:
            inputs = tuple(
                x.item() if isinstance(x, np.ndarray) and not x.ndim else x for x in inputs
            )
        run = function if method == "__call__" else getattr(function, method)
        return run(*inputs, **kwargs)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        names = func.__module__.split(".")[1:]
        found: Any = sys.modules.get("cupy")
        try:
            found = functools.reduce(getattr, names, found)
            function = getattr(found, func.__name__)
        except AttributeError:
            return NotImplemented
        if not all(issubclass(t, (ndarray, np.ndarray)) for t in types):
            return NotImplemented
        return function(*args, **kwargs)


# -- from the host and back --------------------------------------------------------------------


def shown(result: Any, *sources: Any) -> Any:
    """NumPy's result on the hosts of `sources` as an array: one of them, a view or a new one."""
    if isinstance(result, (tuple, list)):
        parts = [shown(part, *sources) for part in result]
        if hasattr(result, "_fields"):
            return type(result)(*parts)
        return parts if isinstance(result, list) else tuple(parts)
    if isinstance(result, np.generic):
        result = np.asarray(result)
    if not isinstance(result, np.ndarray):
        return result
    memory = root(result)
    for source in sources:
        if source._host is result:
            return source
        if root(source._host) is memory:
            new = ndarray.__new__(ndarray)
            host = result.view()
            host.flags.writeable = True  # CuPy has no read-only arrays
            base = source if source.base is None else source.base
            new._take(host, base, source.data.mem)
            return new
    check_dtype(result.dtype)
    if memory is not result:  # a view of an intermediate array of NumPy
        result = result.copy("K")
    new = ndarray.__new__(ndarray)
    new._take(result, None, None)
    return new


def root(host: Any) -> Any:
    while hasattr(host.base, "base"):  # the owner of memory given by its address has no `base`
        host = host.base
    return host


def host_of(value: Any) -> Any:
    """The host of an array, also inside lists and tuples; NumPy arrays raise TypeError."""
    if isinstance(value, ndarray):
        return value._host
    if isinstance(value, np.ndarray):
        raise TypeError(f"Unsupported type {type(value)}")
    if type(value) in (tuple, list):
        return type(value)([host_of(v) for v in value])
    return value


def arrays_in(values: Any) -> list[ndarray]:
    found: list[ndarray] = []
    for value in values:
        if isinstance(value, ndarray):
            found.append(value)
        elif type(value) in (tuple, list):
            found += arrays_in(value)
    return found


def wrapped(index: Any, size: int) -> Any:
    """Indices that wrap around if they are out of range."""
    return index % size if size else index


def index_of(x: ndarray, key: Any) -> Any:
    """The key for the host array; integer arrays wrap around."""
    parts = key if isinstance(key, tuple) else (key,)
    given = [p._host if isinstance(p, ndarray) else p for p in parts]
    given = [np.asarray(p) if isinstance(p, list) else p for p in given]
    used = [0 if p is None or p is Ellipsis else (p.ndim if is_mask(p) else 1) for p in given]
    dim, found = 0, []
    for p, count in zip(given, used, strict=True):
        if p is Ellipsis:
            dim = x.ndim - sum(used[len(found) + 1 :])
        elif isinstance(p, np.ndarray) and p.dtype.kind in "iu" and p.ndim and dim < x.ndim:
            p = wrapped(p, x.shape[dim])
        elif isinstance(p, np.ndarray) and p.dtype.kind not in "iub":
            raise IndexError("arrays used as indices must be of integer or boolean type")
        found.append(p)
        dim += count
    return tuple(found) if isinstance(key, tuple) else found[0]


def is_mask(part: Any) -> bool:
    return isinstance(part, np.ndarray) and part.dtype.kind == "b"


def on_device(function: Any) -> Any:
    """A NumPy function that takes and returns arrays of the stand-in."""

    @functools.wraps(function, updated=())
    def call(*args: Any, **kwargs: Any) -> Any:
        sources = arrays_in((*args, *kwargs.values()))
        given = [host_of(x) for x in args]
        return shown(function(*given, **{k: host_of(v) for k, v in kwargs.items()}), *sources)

    return call


class ufunc:
    """A ufunc; like CuPy's, it has reductions only of sums and products, and `at` only for some."""

    def __init__(self, function: Any) -> None:
        self._function = function
        self._call = on_device(function)
        self.__name__: str = function.__name__
        self.nin, self.nout = function.nin, function.nout

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._call(*args, **kwargs)

    def outer(self, a: Any, b: Any, **kwargs: Any) -> Any:
        return on_device(self._function.outer)(a, b, **kwargs)

    def reduce(
        self, array: Any, axis: Any = 0, dtype: Any = None, out: Any = None, keepdims: Any = False
    ) -> Any:
        self._check("reduce", "add", "multiply")
        return on_device(self._function.reduce)(array, axis, dtype, out, keepdims)

    def accumulate(self, array: Any, axis: int = 0, dtype: Any = None, out: Any = None) -> Any:
        self._check("accumulate", "add", "multiply")
        return on_device(self._function.accumulate)(array, axis, dtype, out)

    def reduceat(self, array: Any, indices: Any, *args: Any, **kwargs: Any) -> Any:
        self._check("reduceat", "add")
        return on_device(self._function.reduceat)(array, indices, *args, **kwargs)

    def at(self, a: Any, indices: Any, b: Any = None) -> None:
        names = ("add", "subtract", "maximum", "minimum", "bitwise_and", "bitwise_or")
        self._check("at", *names, "bitwise_xor")
        if self.__name__ == "add" and a.dtype.char not in "efdilIL":
            raise TypeError(f"cupy.add.at does not support {a.dtype}")
        self._function.at(a._host, index_of(a, indices), host_of(b))

    def _check(self, method: str, *names: str) -> None:
        if self.__name__ not in names:
            raise NotImplementedError(f"`cupy_{self.__name__}.{method}` is not supported yet")


# -- functions ---------------------------------------------------------------------------------


def array(
    obj: Any, dtype: Any = None, copy: Any = True, order: str = "K", subok=False, ndmin: int = 0
) -> ndarray:
    if isinstance(obj, ndarray):
        if not copy and dtype in (None, obj.dtype) and ndmin <= obj.ndim:
            return obj
        return shown(np.array(obj._host, dtype, order=order, ndmin=ndmin))
    if type(obj) in (list, tuple) and arrays_in(obj):
        return shown(np.array(host_of(obj), dtype, order=order, ndmin=ndmin))
    made = np.array(obj, dtype, order=order, ndmin=ndmin)
    check_dtype(made.dtype)
    return shown(made)


def asarray(a: Any, dtype: Any = None, order: str = "K", *, copy: Any = False) -> ndarray:
    return array(a, dtype, copy, order)


def asnumpy(a: Any, stream: Any = None, order: str = "C", out: Any = None) -> Any:
    return a.get(stream, order, out) if isinstance(a, ndarray) else np.asarray(a, order=order)


def empty(shape: Any, dtype: Any = float, order: str = "C") -> ndarray:
    return ndarray(shape, dtype, order=order)


def full(shape: Any, fill_value: Any, dtype: Any = None, order: str = "C") -> ndarray:
    if dtype is None:
        dtype = fill_value.dtype if hasattr(fill_value, "dtype") else np.array(fill_value).dtype
    made = empty(shape, dtype, order)
    made[...] = fill_value
    return made


def zeros(shape: Any, dtype: Any = float, order: str = "C") -> ndarray:
    return full(shape, 0, dtype, order)


def ones(shape: Any, dtype: Any = float, order: str = "C") -> ndarray:
    return full(shape, 1, dtype, order)


def take(a: Any, indices: Any, axis: Any = None, out: Any = None, mode: str = "wrap") -> ndarray:
    size = a.size if axis is None else a.shape[axis]
    index = np.asarray(host_of(indices))
    made = shown(np.take(a._host, wrapped(index, size), axis))
    if out is None:
        return made
    out[...] = made
    return out


def take_along_axis(arr: Any, indices: Any, axis: Any = -1) -> ndarray:
    size = arr.size if axis is None else arr.shape[axis]
    return shown(np.take_along_axis(arr._host, wrapped(host_of(indices), size), axis))


def put_along_axis(arr: Any, indices: Any, values: Any, axis: Any) -> None:
    index = wrapped(host_of(indices), arr.shape[axis])
    np.put_along_axis(arr._host, index, host_of(values), axis)


def concatenate(
    tup: Any, axis: Any = 0, out: Any = None, *, dtype: Any = None, casting="same_kind"
):
    if not all(isinstance(part, ndarray) for part in tup):
        raise TypeError("Only cupy arrays can be concatenated")
    return on_device(np.concatenate)(list(tup), axis, out, dtype=dtype, casting=casting)


def from_dlpack(source: Any, **options: Any) -> ndarray:
    given = source.__dlpack__()
    if not isinstance(given, ndarray):
        raise BufferError("CuPy allows memory of a GPU only")
    new = ndarray.__new__(ndarray)
    host = given._host
    new._take(as_strided(host, host.shape, host.strides), None, Memory(root(host)))
    return new


def may_share_memory(a: Any, b: Any, max_work: Any = None) -> bool:
    both = isinstance(a, ndarray) and isinstance(b, ndarray)
    return both and np.may_share_memory(a._host, b._host)


def flip(m: Any, axis: Any = None) -> ndarray:
    dims = normalize_axis_tuple(range(m.ndim) if axis is None else axis, m.ndim)
    return m[tuple([slice(None, None, -1) if d in dims else slice(None) for d in range(m.ndim)])]


def strided(x: Any, shape: Any = None, strides: Any = None) -> ndarray:
    new = ndarray.__new__(ndarray)
    new._take(as_strided(x._host, shape, strides), None, x.data.mem)
    return new


OWN = {
    *(array, asarray, asnumpy, empty, full, zeros, ones, take, take_along_axis, put_along_axis),
    *(concatenate, from_dlpack, may_share_memory, flip, ndarray),
}
COMPARISONS = (np.greater, np.greater_equal, np.less, np.less_equal, np.equal, np.not_equal)


def _functions() -> dict[str, Any]:
    """The names of the module `cupy`."""
    found: dict[str, Any] = {}
    for name in dir(np):
        value = getattr(np, name)
        if name in MISSING or name.startswith("_") or isinstance(value, types.ModuleType):
            continue
        if isinstance(value, np.ufunc):
            found[name] = ufunc(value)
        elif callable(value) and not isinstance(value, type):
            found[name] = on_device(value)
        else:
            found[name] = value  # dtypes and constants
    return (
        found
        | {f.__name__: f for f in OWN}
        | {"asanyarray": asarray, "shares_memory": may_share_memory}
    )


FUNCTIONS = _functions()
SPECIAL: dict[str, Any] = {}

for _name in (
    *("all", "any", "argmax", "argmin", "argpartition", "argsort", "choose", "clip", "compress"),
    *("conj", "conjugate", "copy", "cumprod", "cumsum", "diagonal", "dot", "flatten", "max"),
    *("mean", "min", "nonzero", "prod", "ravel", "repeat", "reshape", "round", "squeeze", "std"),
    *("searchsorted", "sum", "swapaxes", "trace", "transpose", "var", "sort", "partition", "put"),
):
    setattr(ndarray, _name, on_device(getattr(np.ndarray, _name)))


def _operators() -> None:
    pairs = (
        "add:add sub:subtract mul:multiply truediv:true_divide floordiv:floor_divide "
        "mod:remainder divmod:divmod pow:power lshift:left_shift rshift:right_shift "
        "and:bitwise_and or:bitwise_or xor:bitwise_xor matmul:matmul"
    )
    comparisons = "lt:less le:less_equal eq:equal ne:not_equal gt:greater ge:greater_equal"

    def defers(x: Any, y: Any) -> bool:
        """Whether the other operand's method takes precedence, as with a Tensor."""
        if isinstance(y, ndarray):
            return False
        if hasattr(y, "__array_ufunc__"):
            return y.__array_ufunc__ is None
        return bool(getattr(y, "__array_priority__", 0) > ndarray.__array_priority__)

    def binary(name: str, swapped: bool = False) -> Any:
        def run(self: Any, other: Any) -> Any:
            if defers(self, other):
                return NotImplemented
            function = getattr(np, name)
            return function(other, self) if swapped else function(self, other)

        return run

    def in_place(name: str) -> Any:
        def run(self: Any, other: Any) -> Any:
            return FUNCTIONS[name](self, other, out=self)

        return run

    for short, name in (pair.split(":") for pair in pairs.split()):
        setattr(ndarray, f"__{short}__", binary(name))
        setattr(ndarray, f"__r{short}__", binary(name, swapped=True))
        if short not in ("divmod", "matmul"):
            setattr(ndarray, f"__i{short}__", in_place(name))
    for short, name in (pair.split(":") for pair in comparisons.split()):
        setattr(ndarray, f"__{short}__", binary(name))
    for short, name in {"neg": "negative", "abs": "absolute", "invert": "invert"}.items():
        setattr(ndarray, f"__{short}__", lambda self, name=name: FUNCTIONS[name](self))
    ndarray.__pos__ = lambda self: self  # type: ignore[attr-defined]


_operators()


# -- modules -----------------------------------------------------------------------------------


def _module(name: str, entries: dict[str, Any]) -> types.ModuleType:
    made = types.ModuleType(name)
    made.__dict__.update(entries)
    return made


def _moved(module: Any) -> dict[str, Any]:
    """The functions of a SciPy or NumPy module, on arrays of the stand-in."""
    names = [name for name in dir(module) if not name.startswith("_")]
    found = {name: getattr(module, name) for name in names}
    return {
        name: ufunc(value) if isinstance(value, np.ufunc) else on_device(value)
        for name, value in found.items()
        if callable(value) and not isinstance(value, (type, types.ModuleType))
    }


@functools.cache
def modules() -> dict[str, types.ModuleType]:
    """All modules by name, for `sys.modules`."""
    import scipy.fft
    import scipy.special

    found_in_cupy = _moved(scipy.special)
    for name in [name for name in found_in_cupy if name.startswith("eval_")] + ["airy"]:
        del found_in_cupy[name]
    SPECIAL.update(found_in_cupy)
    linalg = {
        name: getattr(np.linalg, name)
        if name == "LinAlgError"
        else on_device(getattr(np.linalg, name))
        for name in LINALG
    }
    windows = on_device(np.lib.stride_tricks.sliding_window_view)
    tricks = {"as_strided": strided, "sliding_window_view": windows}
    pool = Pool()
    found = {
        "cupy": _module("cupy", FUNCTIONS | {"__version__": "14.0.0", "__path__": []}),
        "cupy.linalg": _module("cupy.linalg", linalg),
        "cupy.fft": _module("cupy.fft", _moved(np.fft)),
        "cupy.lib": _module("cupy.lib", {"__path__": []}),
        "cupy.lib.stride_tricks": _module("cupy.lib.stride_tricks", tricks),
        "cupy.cuda": _module(
            "cupy.cuda",
            {
                "Device": Device,
                "Event": Event,
                "Stream": Stream,
                "MemoryHook": MemoryHook,
                "ExternalStream": lambda ptr, device=0: Stream(ptr=ptr),
                "get_current_stream": get_current_stream,
                "get_elapsed_time": get_elapsed_time,
                "alloc_pinned_memory": bytearray,
                "get_allocator": ALLOCATOR.get,
                "set_allocator": ALLOCATOR.set,
                "memory": types.SimpleNamespace(OutOfMemoryError=OutOfMemoryError),
                "__path__": [],
            },
        ),
        "cupy.cuda.runtime": runtime(),
        "cupyx": _module("cupyx", {"__path__": []}),
        "cupyx.scipy": _module("cupyx.scipy", {"__path__": []}),
        "cupyx.scipy.special": _module("cupyx.scipy.special", SPECIAL),
        "cupyx.scipy.fft": _module("cupyx.scipy.fft", _moved(scipy.fft)),
    }
    found["cupy.cuda"].MemoryPointer = MemoryPointer  # type: ignore[attr-defined]
    found["cupy"].get_default_memory_pool = lambda: pool  # type: ignore[attr-defined]
    for name, module in found.items():
        parent, _, last = name.rpartition(".")
        if parent:
            setattr(found[parent], last, module)
    return found
