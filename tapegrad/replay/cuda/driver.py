"""The driver of NVIDIA's GPUs, called through ctypes: modules, launches, graphs, copies.

Comes in: addresses and handles as numbers. Goes out: the same, or RuntimeError with the driver's
message. CuPy makes the context and manages the memory; a launch through this file costs a fraction
of one through CuPy. Called by `gpu.py` and `modules.py`.
"""

from __future__ import annotations

import ctypes
import functools
import sys
from collections.abc import Sequence
from typing import Any

_Handle = ctypes.c_void_p
_Size = ctypes.c_size_t
_Number = ctypes.c_uint

#: the types of the parameters of each function
_FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "cuCtxGetCurrent": (ctypes.POINTER(_Handle),),
    "cuCtxSetCurrent": (_Handle,),
    "cuGetErrorString": (ctypes.c_int, ctypes.POINTER(ctypes.c_char_p)),
    "cuModuleLoadData": (ctypes.POINTER(_Handle), ctypes.c_char_p),
    "cuModuleUnload": (_Handle,),
    "cuModuleGetFunction": (ctypes.POINTER(_Handle), _Handle, ctypes.c_char_p),
    "cuLinkCreate_v2": (_Number, _Handle, _Handle, ctypes.POINTER(_Handle)),
    "cuLinkAddData_v2": (
        *(_Handle, ctypes.c_int, ctypes.c_char_p, _Size, ctypes.c_char_p, _Number),
        *(_Handle, _Handle),
    ),
    "cuLinkComplete": (_Handle, ctypes.POINTER(_Handle), ctypes.POINTER(_Size)),
    "cuLinkDestroy": (_Handle,),
    "cuLaunchKernel": (_Handle, *(_Number,) * 7, _Handle, _Handle, _Handle),
    "cuMemcpyHtoDAsync_v2": (ctypes.c_uint64, _Handle, _Size, _Handle),
    "cuMemcpyDtoHAsync_v2": (_Handle, ctypes.c_uint64, _Size, _Handle),
    "cuMemsetD8Async": (ctypes.c_uint64, ctypes.c_ubyte, _Size, _Handle),
    "cuEventCreate": (ctypes.POINTER(_Handle), _Number),
    "cuEventRecord": (_Handle, _Handle),
    "cuEventSynchronize": (_Handle,),
    "cuEventElapsedTime": (ctypes.POINTER(ctypes.c_float), _Handle, _Handle),
    "cuEventDestroy_v2": (_Handle,),
    "cuStreamWaitEvent": (_Handle, _Handle, _Number),
    "cuStreamCreate": (ctypes.POINTER(_Handle), _Number),
    "cuStreamSynchronize": (_Handle,),
    "cuStreamBeginCapture_v2": (_Handle, ctypes.c_int),
    "cuStreamGetCaptureInfo_v2": (_Handle, *(ctypes.POINTER(_Handle),) * 5),
    "cuStreamUpdateCaptureDependencies": (_Handle, _Handle, _Size, _Number),
    "cuStreamEndCapture": (_Handle, ctypes.POINTER(_Handle)),
    "cuGraphInstantiateWithFlags": (ctypes.POINTER(_Handle), _Handle, ctypes.c_uint64),
    "cuGraphDestroy": (_Handle,),
    "cuGraphExecDestroy": (_Handle,),
    "cuGraphLaunch": (_Handle, _Handle),
}

#: flags and options of the driver
_NON_BLOCKING = 1
_WITHOUT_TIME = 2
_RELAXED_CAPTURE = 2
_SET_DEPENDENCIES = 1
_INPUT_IS_PTX = 1
_ERROR_LOG, _ERROR_LOG_SIZE = 5, 6
_LOG_BYTES = 8192


@functools.cache
def _library() -> Any:
    name = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
    library = ctypes.CDLL(name)
    for function, types in _FUNCTIONS.items():
        found = getattr(library, function)
        found.argtypes, found.restype = types, ctypes.c_int
    return library


def missing() -> str | None:
    """Why the driver cannot be called; None if it can."""
    try:
        _library()
    except (OSError, AttributeError) as error:
        return f"the driver of the GPU does not load ({error}); install or update it"
    return None


def _check(code: int, what: str, log: str = "") -> None:
    if code:
        words = ctypes.c_char_p()
        _library().cuGetErrorString(code, ctypes.byref(words))
        said = (words.value or b"unknown error").decode()
        raise RuntimeError(f"the GPU's driver could not {what}: {said} (error {code}){log}")


# -- contexts ------------------------------------------------------------------------------------


def current_context() -> int:
    """The context of the GPU that this thread uses."""
    found = _Handle()
    _check(_library().cuCtxGetCurrent(ctypes.byref(found)), "tell the context")
    return found.value or 0


def use_context(context: int) -> None:
    """Let this thread use a context."""
    _check(_library().cuCtxSetCurrent(context), "change the context")


# -- kernels -------------------------------------------------------------------------------------


def assembled(ptx: str) -> bytes:
    """The machine code of a text in PTX."""
    library = _library()
    log = ctypes.create_string_buffer(_LOG_BYTES)
    options = (ctypes.c_int * 2)(_ERROR_LOG, _ERROR_LOG_SIZE)
    values = (ctypes.c_void_p * 2)(ctypes.addressof(log), _LOG_BYTES)
    state = _Handle()
    _check(library.cuLinkCreate_v2(2, options, values, ctypes.byref(state)), "begin to assemble")
    try:
        text = ptx.encode() + b"\0"
        code = library.cuLinkAddData_v2(
            state, _INPUT_IS_PTX, text, len(text), b"kernel", 0, None, None
        )
        _check(code, "assemble a kernel", f"\n{log.value.decode(errors='replace')}")
        made, size = _Handle(), _Size()
        code = library.cuLinkComplete(state, ctypes.byref(made), ctypes.byref(size))
        _check(code, "finish a kernel", f"\n{log.value.decode(errors='replace')}")
        assert made.value is not None
        return ctypes.string_at(made.value, size.value)
    finally:
        library.cuLinkDestroy(state)


def load(code: bytes) -> int:
    """Load machine code as a module, in the current context."""
    found = _Handle()
    _check(_library().cuModuleLoadData(ctypes.byref(found), code), "load a kernel")
    return found.value or 0


def unload(module: int) -> None:
    """Unload a module; a context that is gone has already done so."""
    _library().cuModuleUnload(module)


def function_of(module: int, name: str) -> int:
    """A kernel of a module."""
    found = _Handle()
    code = _library().cuModuleGetFunction(ctypes.byref(found), module, name.encode())
    _check(code, f"find the kernel {name}")
    return found.value or 0


def launch(function: int, blocks: int, threads: int, words: Sequence[int], stream: int) -> None:
    """Run a kernel whose parameters are words."""
    given = (ctypes.c_uint64 * max(len(words), 1))(*words)
    first = ctypes.addressof(given)
    addresses = (ctypes.c_void_p * max(len(words), 1))(*(first + 8 * i for i in range(len(words))))
    code = _library().cuLaunchKernel(
        function, blocks, 1, 1, threads, 1, 1, 0, stream, addresses, None
    )
    _check(code, "launch a kernel")


class Launcher:
    """A kernel for many launches, with `count` words and constant `numbers` as arguments.

    Python keeps its lock during the call, so that no other thread changes the words.
    """

    def __init__(
        self, function: int, blocks: int, threads: int, count: int, numbers: Sequence[int]
    ) -> None:
        total = count + len(numbers)
        self._words = (ctypes.c_uint64 * max(total, 1))(*[0] * count, *numbers)
        first = ctypes.addressof(self._words)
        addresses = (ctypes.c_void_p * max(total, 1))(*(first + 8 * i for i in range(total)))
        self._count = count
        self._before = (function, blocks, 1, 1, threads, 1, 1, 0)
        self._addresses = addresses
        self._launch = _at_once()

    def __call__(self, words: Any, stream: int) -> None:
        self._words[: self._count] = words
        code = self._launch(*self._before, stream, self._addresses, None)
        if code:
            _check(code, "launch a kernel")


@functools.cache
def _at_once() -> Any:
    """The launch function, called without releasing Python's lock."""
    function = ctypes.PyDLL(_library()._name).cuLaunchKernel
    function.argtypes, function.restype = _FUNCTIONS["cuLaunchKernel"], ctypes.c_int
    return function


# -- memory --------------------------------------------------------------------------------------


def to_device(address: int, host: int, size: int, stream: int) -> None:
    """Copy bytes from the host; they may change as soon as this returns."""
    _check(_library().cuMemcpyHtoDAsync_v2(address, host, size, stream), "copy to the GPU")


def copy_out(host: int, address: int, size: int, stream: int) -> None:
    """Copy bytes to pinned host memory, without waiting."""
    _check(_library().cuMemcpyDtoHAsync_v2(host, address, size, stream), "copy from the GPU")


def to_host(host: int, address: int, size: int, stream: int) -> None:
    """Copy bytes to the host, and wait for that and all earlier work of the stream."""
    _check(_library().cuMemcpyDtoHAsync_v2(host, address, size, stream), "copy from the GPU")
    synchronize(stream)


def clear(address: int, size: int, stream: int) -> None:
    """Fill memory with zeros."""
    _check(_library().cuMemsetD8Async(address, 0, size, stream), "clear memory")


# -- streams and graphs --------------------------------------------------------------------------


def new_stream() -> int:
    """A stream that waits for no other, not even the default stream."""
    found = _Handle()
    _check(_library().cuStreamCreate(ctypes.byref(found), _NON_BLOCKING), "make a stream")
    return found.value or 0


def synchronize(stream: int) -> None:
    """Wait for a stream; raises the errors of its work so far."""
    _check(_library().cuStreamSynchronize(stream), "finish its work")


class StreamMark:
    """A position in a stream for which other streams can wait; it can be moved."""

    def __init__(self) -> None:
        self._event = _Handle()
        _check(_library().cuEventCreate(ctypes.byref(self._event), _WITHOUT_TIME), "make an event")

    def put(self, stream: int) -> None:
        """Move it to the current end of a stream."""
        _check(_library().cuEventRecord(self._event, stream), "note an event")

    def hold(self, stream: int) -> None:
        """Let a stream wait for it."""
        _check(_library().cuStreamWaitEvent(stream, self._event, 0), "wait for an event")

    def __del__(self) -> None:
        if not sys.is_finalizing() and self._event:
            _library().cuEventDestroy_v2(self._event)


class Stopwatch:
    """Measures the GPU's time for the work that a `with` statement enqueues in a stream."""

    def __init__(self, stream: int) -> None:
        self._stream = stream
        self._events = [_Handle(), _Handle()]
        for event in self._events:
            _check(_library().cuEventCreate(ctypes.byref(event), 0), "make an event")

    def __enter__(self) -> Stopwatch:
        self._note(0)
        return self

    def __exit__(self, *_: object) -> None:
        self._note(1)

    def _note(self, which: int) -> None:
        _check(_library().cuEventRecord(self._events[which], self._stream), "note a time")

    def seconds(self) -> float:
        """Wait for the end; returns the time in seconds."""
        start, end = self._events
        _check(_library().cuEventSynchronize(end), "finish its work")
        spent = ctypes.c_float()
        code = _library().cuEventElapsedTime(ctypes.byref(spent), start, end)
        _check(code, "tell a time")
        return 1e-3 * spent.value

    def __del__(self) -> None:
        if not sys.is_finalizing():
            for event in self._events:
                _library().cuEventDestroy_v2(event)


def begin_capture(stream: int) -> None:
    """Record the work that is enqueued in a stream from now on."""
    _check(_library().cuStreamBeginCapture_v2(stream, _RELAXED_CAPTURE), "begin to record")


def newest_nodes(stream: int) -> list[int]:
    """The nodes that the next recorded node would wait for."""
    status, number, graph, nodes, count = (_Handle() for _ in range(5))
    given = [ctypes.byref(x) for x in (status, number, graph, nodes, count)]
    _check(_library().cuStreamGetCaptureInfo_v2(stream, *given), "tell what it records")
    if not nodes.value or not count.value:
        return []
    return [int(x or 0) for x in (_Handle * count.value).from_address(nodes.value)]


def wait_for(nodes: Sequence[int], stream: int) -> None:
    """Let the next recorded node wait for these nodes, and for no others."""
    given = (_Handle * max(len(nodes), 1))(*nodes)
    code = _library().cuStreamUpdateCaptureDependencies(
        stream, given, len(nodes), _SET_DEPENDENCIES
    )
    _check(code, "order what it records")


def end_capture(stream: int) -> int:
    """End the recording; returns it as an executable graph."""
    graph, ready = _Handle(), _Handle()
    _check(_library().cuStreamEndCapture(stream, ctypes.byref(graph)), "end recording")
    try:
        code = _library().cuGraphInstantiateWithFlags(ctypes.byref(ready), graph, 0)
        _check(code, "make a graph")
    finally:
        _library().cuGraphDestroy(graph)
    return ready.value or 0


def run_graph(graph: int, stream: int) -> None:
    """Enqueue a graph in a stream."""
    _check(_library().cuGraphLaunch(graph, stream), "run a graph")


def drop_graph(graph: int) -> None:
    """Destroy a graph."""
    _library().cuGraphExecDestroy(graph)
