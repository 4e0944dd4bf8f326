"""Streams and events of GPUs, with PyTorch's names.

Comes in: calls of the user. Goes out: CuPy's streams and events. Eager operations and compiled
functions run in CuPy's current stream, so `with stream(s):` runs them in another one. Only events
order the work of two streams, as in PyTorch.
"""

from __future__ import annotations

from typing import Any

from ..core.deferred import settle
from ..core.device import Device, as_device, cupy


class Event:
    """A marker in the work of a stream, which other streams can wait for.

    With `enable_timing=True`, `elapsed_time` returns the milliseconds between two events.
    """

    def __init__(
        self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False
    ) -> None:
        if interprocess:
            raise NotImplementedError("events cannot be shared between processes here")
        self._timed = enable_timing
        self._event = cupy().cuda.Event(block=blocking, disable_timing=not enable_timing)
        self._is_recorded = False

    def record(self, stream: Stream | None = None) -> None:
        """Record the event after the work now queued on a stream, by default the current one."""
        self._event.record((stream or current_stream())._stream)
        self._is_recorded = True

    def wait(self, stream: Stream | None = None) -> None:
        """Make a stream, by default the current one, wait for the event before later work."""
        if self._is_recorded:
            (stream or current_stream())._stream.wait_event(self._event)

    def query(self) -> bool:
        """Whether all work before the event is done."""
        return not self._is_recorded or bool(self._event.done)

    def synchronize(self) -> None:
        """Wait until all work before the event is done."""
        if self._is_recorded:
            self._event.synchronize()
        settle()

    def elapsed_time(self, end_event: Event) -> float:
        """The milliseconds from this event to another one, which must be done."""
        if not (self._timed and end_event._timed):
            raise ValueError("both events must be made with Event(enable_timing=True)")
        if not (self._is_recorded and end_event._is_recorded):
            raise ValueError("both events must be recorded before the time between them is known")
        return float(cupy().cuda.get_elapsed_time(self._event, end_event._event))

    @property
    def cuda_event(self) -> int:
        """The driver's handle of the event."""
        return int(self._event.ptr)


class Stream:
    """A queue of work for a GPU, which runs concurrently with other streams.

    A tensor that is made in one stream and used in another must outlive its use there: keep a
    reference, or call its `record_stream`.
    """

    def __init__(self, device: Any = None, priority: int = 0, **given: Any) -> None:
        library = cupy()
        index = _index(device)
        with library.cuda.Device(index):
            self._stream = given.get("stream") or library.cuda.Stream(
                non_blocking=True, priority=priority
            )
        self.device = Device("cuda", index)
        self.priority = priority

    @property
    def cuda_stream(self) -> int:
        """The driver's handle of the stream."""
        return int(self._stream.ptr)

    stream_id = cuda_stream

    def record_event(self, event: Event | None = None) -> Event:
        """Record an event after the work now queued on the stream, and return it."""
        event = event or Event()
        event.record(self)
        return event

    def wait_event(self, event: Event) -> None:
        """Make the stream wait for an event before later work."""
        event.wait(self)

    def wait_stream(self, stream: Stream) -> None:
        """Make the stream wait for all work now queued on another one."""
        self.wait_event(stream.record_event())

    def query(self) -> bool:
        """Whether all work of the stream is done."""
        return bool(self._stream.done)

    def synchronize(self) -> None:
        """Wait until all work of the stream is done."""
        self._stream.synchronize()
        settle()

    def __enter__(self) -> Stream:
        self._context = StreamContext(self)
        self._context.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._context.__exit__(*error)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Stream):
            return NotImplemented
        return (self.device, self.cuda_stream) == (other.device, other.cuda_stream)

    def __hash__(self) -> int:
        return hash((self.device, self.cuda_stream))

    def __repr__(self) -> str:
        return f"<tapegrad.cuda.Stream device={self.device} cuda_stream={self.cuda_stream:#x}>"


class ExternalStream(Stream):
    """A stream that other code has made, given by its driver handle."""

    def __init__(self, stream_ptr: int, device: Any = None) -> None:
        super().__init__(device, stream=cupy().cuda.ExternalStream(stream_ptr, _index(device)))


class StreamContext:
    """A context in which a stream is the current one; None changes nothing."""

    def __init__(self, stream: Stream | None) -> None:
        self.stream = stream
        self._before: list[Stream] = []

    def __enter__(self) -> None:
        if self.stream is not None:
            self._before.append(current_stream())
            set_stream(self.stream)

    def __exit__(self, *error: object) -> None:
        if self.stream is not None:
            set_stream(self._before.pop())


def stream(stream: Stream | None) -> StreamContext:
    """A context in which operations on a GPU run in a stream; None changes nothing."""
    return StreamContext(stream)


def set_stream(stream: Stream | None) -> None:
    """Make a stream and its GPU the current ones of this thread; None changes nothing."""
    if stream is not None:
        cupy().cuda.Device(stream.device.index or 0).use()
        stream._stream.use()


def current_stream(device: Any = None) -> Stream:
    """The stream in which operations on a GPU run now."""
    index = _index(device)
    return Stream(index, stream=cupy().cuda.get_current_stream(index))


def default_stream(device: Any = None) -> Stream:
    """The stream that is the current one until another is set."""
    return Stream(device, stream=cupy().cuda.Stream.null)


def _index(device: Any) -> int:
    if device is None:
        return int(cupy().cuda.runtime.getDevice())
    return device if isinstance(device, int) else as_device(device).index or 0
