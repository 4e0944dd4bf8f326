"""Messages between a DataLoader and one of its workers, over a pair of Unix sockets.

Comes in: bytes, and open files that are sent along. Goes out: the same, in the other process. A
message is its length, then its bytes. Each worker has its own pair of sockets, so a worker killed
in the middle of a message disturbs no other. The loader never waits for a worker to read: bytes
that do not fit are kept, and `flush` sends them. Called by `crew.py` and `worker.py`.
"""

from __future__ import annotations

import array
import contextlib
import os
import socket
import struct
import weakref
from collections import deque

_HEADER = struct.Struct("<QB")  # how many bytes, how many files
_AT_ONCE = 1 << 16
_FILES_AT_ONCE = 8

#: the loader's open ends in this process
_loader_ends: weakref.WeakSet[Channel] = weakref.WeakSet()


class Channel:
    """One end of a pair of sockets."""

    def __init__(self, end: socket.socket) -> None:
        self.socket = end
        self._received = bytearray()
        self._files: deque[int] = deque()
        self._unsent: deque[memoryview] = deque()

    def send(self, data: bytes, files: tuple[int, ...] = ()) -> None:
        """Send a message; waits until the other end has room for it."""
        message = memoryview(_HEADER.pack(len(data), len(files)) + data)
        if files:
            message = message[socket.send_fds(self.socket, [message], files) :]
        self.socket.sendall(message)

    def post(self, data: bytes) -> None:
        """Send as much of a message as possible without waiting."""
        self._unsent.append(memoryview(_HEADER.pack(len(data), 0) + data))
        self.flush()

    def flush(self) -> None:
        """Send what could not be sent before."""
        try:
            while self._unsent:
                sent = self.socket.send(self._unsent[0], socket.MSG_DONTWAIT)
                self._unsent[0] = self._unsent[0][sent:]
                if not self._unsent[0]:
                    self._unsent.popleft()
        except BlockingIOError:
            pass
        except ConnectionError:  # the reader is gone; receive() will report it
            self._unsent.clear()

    @property
    def has_unsent(self) -> bool:
        return bool(self._unsent)

    def receive(self, wait: bool) -> list[tuple[bytes, list[int]]]:
        """All messages that have arrived, at least one with `wait`; EOFError at their end."""
        while True:
            if not self._read(wait):
                messages = self._complete()
                if not messages:
                    raise EOFError("the other process has closed its end")
                return messages
            messages = self._complete()
            if messages or not wait:
                return messages

    def _read(self, wait: bool) -> bool:
        """Read once; False when the other end is closed."""
        flags = getattr(socket, "MSG_CMSG_CLOEXEC", 0) | (0 if wait else socket.MSG_DONTWAIT)
        space = socket.CMSG_SPACE(_FILES_AT_ONCE * array.array("i").itemsize)
        try:
            data, extra, _, _ = self.socket.recvmsg(_AT_ONCE, space, flags)
        except BlockingIOError:
            return True
        except ConnectionError:
            return False
        for _, _, payload in extra:
            files = array.array("i")
            files.frombytes(payload[: len(payload) - len(payload) % files.itemsize])
            self._files.extend(files)
        self._received += data
        return bool(data)

    def _complete(self) -> list[tuple[bytes, list[int]]]:
        messages = []
        begin, buffer = 0, self._received
        while len(buffer) - begin >= _HEADER.size:
            size, files = _HEADER.unpack_from(buffer, begin)
            end = begin + _HEADER.size + size
            if len(buffer) < end:
                break
            data = bytes(memoryview(buffer)[begin + _HEADER.size : end])
            messages.append((data, [self._files.popleft() for _ in range(files)]))
            begin = end
        del buffer[:begin]
        return messages

    def end(self) -> None:
        """Shut the connection down, even if another process has inherited this end."""
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)
        self.close()

    def close(self) -> None:
        """Close this end in this process; processes that inherited it keep it open."""
        self.socket.close()
        while self._files:
            os.close(self._files.popleft())


def pair() -> tuple[Channel, socket.socket]:
    """The loader's end, and the socket for a worker."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    channel = Channel(ours)
    _loader_ends.add(channel)
    return channel, theirs


def _after_fork() -> None:
    """Close the loader's ends in a child: otherwise workers would not see the loader's end."""
    for channel in list(_loader_ends):
        channel.close()
    _loader_ends.clear()


def available() -> bool:
    """Whether this system has what worker processes need."""
    return hasattr(socket, "send_fds") and hasattr(socket, "MSG_DONTWAIT")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
