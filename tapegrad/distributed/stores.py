"""Stores: keys and values that processes share, with the names of torch.distributed.

MPI connects the ranks of a job, so `init_process_group` needs no store. Programs use stores for
their own messages: "this file is written", counters, settings that one rank has found. Values are
bytes. A `HashStore` is within a process, a `FileStore` in a file that all processes see, a
`TCPStore` in a server on the network; do not open its port to strangers.

The process with `is_master` starts that server as a separate process, because MPI holds Python's
lock while it connects the ranks.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import socket
import socketserver
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from ..core import locks

_DEFAULT = timedelta(seconds=300)
#: seconds between two polls of a store or server
_PAUSE = 0.01


def _seconds(timeout: timedelta | float) -> float:
    return timeout.total_seconds() if isinstance(timeout, timedelta) else float(timeout)


def _bytes(value: Any) -> bytes:
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    raise TypeError(f"a store keeps strings and bytes, got {type(value).__name__}")


class Store:
    """The methods of all stores. Subclasses implement `_do`."""

    def __init__(self) -> None:
        self._timeout = _seconds(_DEFAULT)

    @property
    def timeout(self) -> timedelta:
        """How long `get` and `wait` wait for a key."""
        return timedelta(seconds=self._timeout)

    def set_timeout(self, timeout: timedelta | float) -> None:
        """Set how long `get` and `wait` wait for a key: a timedelta, or seconds."""
        self._timeout = _seconds(timeout)

    def _do(self, what: str, *args: Any) -> Any:
        """Run one of ACTIONS atomically."""
        raise NotImplementedError

    def set(self, key: str, value: Any) -> None:
        """Set the value of a key."""
        self._do("set", key, _bytes(value))

    def get(self, key: str) -> bytes:
        """The value of a key; waits until the key exists."""
        self.wait([key])
        found: bytes = self._do("get", key)
        return found

    def add(self, key: str, amount: int) -> int:
        """Add to the number at a key, 0 if the key is missing; returns the sum."""
        return int(self._do("add", key, int(amount)))

    def compare_set(self, key: str, expected_value: Any, desired_value: Any) -> bytes:
        """Set a key if its value is the expected one; a missing key counts as "".

        Returns the value that the key then has, or the expected one if it is still missing.
        """
        wanted, new = _bytes(expected_value), _bytes(desired_value)
        found: bytes = self._do("compare_set", key, wanted, new)
        return found

    def append(self, key: str, value: Any) -> None:
        """Append bytes to the value of a key."""
        self._do("append", key, _bytes(value))

    def multi_get(self, keys: Sequence[str]) -> list[bytes]:
        """The values of keys; waits until all of them exist."""
        self.wait(keys)
        return [self.get(key) for key in keys]

    def multi_set(self, keys: Sequence[str], values: Sequence[Any]) -> None:
        """Set the value of each key."""
        for key, value in zip(keys, values, strict=True):
            self.set(key, value)

    def delete_key(self, key: str) -> bool:
        """Remove a key; returns whether it existed."""
        return bool(self._do("delete", key))

    def num_keys(self) -> int:
        """The number of keys."""
        return int(self._do("count"))

    def check(self, keys: Sequence[str]) -> bool:
        """Whether all keys exist."""
        return bool(self._do("check", *keys))

    def wait(self, keys: Sequence[str], timeout: timedelta | float | None = None) -> None:
        """Wait until all keys exist; raise after the timeout."""
        seconds = self._timeout if timeout is None else _seconds(timeout)
        end = time.monotonic() + seconds
        while not self.check(keys):
            if time.monotonic() > end:
                raise RuntimeError(f"keys {list(keys)} were not set within {seconds:g} s")
            time.sleep(_PAUSE)


def _set(kept: dict[str, bytes], key: str, value: bytes) -> None:
    kept[key] = value


def _add(kept: dict[str, bytes], key: str, amount: int) -> int:
    total = int(kept.get(key, b"0")) + amount
    kept[key] = str(total).encode()
    return total


def _compare_set(kept: dict[str, bytes], key: str, wanted: bytes, new: bytes) -> bytes:
    if kept.get(key, b"") == wanted:
        kept[key] = new
    return kept.get(key, wanted)


def _append(kept: dict[str, bytes], key: str, value: bytes) -> None:
    kept[key] = kept.get(key, b"") + value


#: the actions on the keys and values of a store, by name
ACTIONS: dict[str, Callable[..., Any]] = {
    "set": _set,
    "get": lambda kept, key: kept[key],
    "add": _add,
    "compare_set": _compare_set,
    "append": _append,
    "delete": lambda kept, key: kept.pop(key, None) is not None,
    "count": lambda kept: len(kept),
    "check": lambda kept, *keys: all(key in kept for key in keys),
}


class HashStore(Store):
    """A store within this process, shared by its threads."""

    def __init__(self) -> None:
        super().__init__()
        self._kept: dict[str, bytes] = {}
        self._lock = locks.new()

    def _do(self, what: str, *args: Any) -> Any:
        with self._lock:
            return ACTIONS[what](self._kept, *args)


class PrefixStore(Store):
    """Another store, with a prefix before each key."""

    def __init__(self, prefix: str, store: Store) -> None:
        super().__init__()
        self._timeout = store._timeout
        self.prefix = prefix
        self.underlying_store = store

    def _do(self, what: str, *args: Any) -> Any:
        if what == "check":
            args = tuple(f"{self.prefix}/{key}" for key in args)
        elif args:
            args = (f"{self.prefix}/{args[0]}", *args[1:])
        return self.underlying_store._do(what, *args)


# -- shared by processes -------------------------------------------------------------------------


def _encoded(value: Any) -> bytes:
    """A value as one line of JSON, in which bytes are marked latin-1 strings."""
    return json.dumps(value, default=lambda b: {"bytes": b.decode("latin-1")}).encode() + b"\n"


def _decoded(line: bytes) -> Any:
    def bytes_of(value: dict[str, Any]) -> Any:
        return value["bytes"].encode("latin-1") if set(value) == {"bytes"} else value

    return json.loads(line, object_hook=bytes_of)


class FileStore(Store):
    """A store in a file, for processes that see it. The file remains; remove it after use."""

    def __init__(self, file_name: str | os.PathLike[str], world_size: int = -1) -> None:
        super().__init__()
        self.path = os.fspath(file_name)
        self.world_size = world_size

    @contextmanager
    def _open(self) -> Iterator[Any]:
        with open(self.path, "a+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            yield file

    def _do(self, what: str, *args: Any) -> Any:
        with self._open() as file:
            # Pairs, because a dict with the single key "bytes" would be decoded as bytes.
            before = file.read()
            kept = dict(_decoded(before)) if before else {}
            result = ACTIONS[what](kept, *args)
            after = _encoded(list(kept.items()))
            if after != before:
                file.truncate(0)
                file.write(after)
        return result


class _Server(socketserver.ThreadingTCPServer):
    """Answers requests, one line each, with its store."""

    allow_reuse_address = True
    daemon_threads = True
    kept = HashStore()


class _Answers(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        with contextlib.suppress(ConnectionError):
            for line in self.rfile:
                what, *args = _decoded(line)
                try:
                    answer = [_Server.kept._do(what, *args), None]
                except (KeyError, ValueError) as error:
                    answer = [None, f"{type(error).__name__}: {error}"]
                self.wfile.write(_encoded(answer))


def serve(host: str, port: int) -> None:
    """Run a server until the other end of stdin is closed."""
    with _Server((host, port), _Answers) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        print(server.server_address[1], flush=True)
        sys.stdin.read()
        server.shutdown()


#: the program of a server: its arguments are the host and the port
_SERVER = f"import sys; from {__name__} import serve; serve(sys.argv[1], int(sys.argv[2]))"


def _start_server(host: str, port: int) -> tuple[Any, int]:
    """Start a server; returns its process and port."""
    process = subprocess.Popen(
        [sys.executable, "-c", _SERVER, host, str(port)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,  # Ctrl-C must reach only the ranks
    )
    assert process.stdout is not None
    assert process.stderr is not None
    line = process.stdout.readline()
    if not line:
        said = process.stderr.read().decode().strip().rpartition("\n")[2]
        _stop_server(process)
        raise RuntimeError(f"no store could be opened at {host}:{port}: {said}")
    return process, int(line)


def _stop_server(process: Any) -> None:
    for pipe in (process.stdin, process.stdout, process.stderr):
        pipe.close()
    process.wait()


class TCPStore(Store):
    """A store at a host and port; the process with `is_master` starts and stops its server.

    With `wait_for_workers` each process waits until `world_size` processes have connected, itself
    among them. Port 0 is any free port; `port` says which.
    """

    def __init__(
        self,
        host_name: str,
        port: int,
        world_size: int | None = None,
        is_master: bool = False,
        timeout: timedelta | float = _DEFAULT,
        wait_for_workers: bool = True,
        multi_tenant: bool = False,
        master_listen_fd: int | None = None,
        use_libuv: bool = True,
    ) -> None:
        super().__init__()
        if multi_tenant or master_listen_fd is not None:
            raise ValueError(
                "TCPStore opens a port of its own; leave multi_tenant and master_listen_fd out"
            )
        self._timeout = _seconds(timeout)
        self.host, self.port = host_name, int(port)
        self._lock = locks.new()
        if is_master:
            process, self.port = _start_server(self.host, self.port)
            weakref.finalize(self, _stop_server, process)
        self._file = self._connect()
        if world_size is not None and wait_for_workers:
            self._wait_for(world_size)

    def _connect(self) -> Any:
        end = time.monotonic() + self._timeout
        while True:
            try:
                connection = socket.create_connection((self.host, self.port), timeout=5)
            except OSError as error:
                if time.monotonic() > end:
                    raise RuntimeError(
                        f"no store answers at {self.host}:{self.port} after {self._timeout:g} s"
                    ) from error
                time.sleep(_PAUSE)
            else:
                connection.settimeout(None)
                return connection.makefile("rwb")

    def _wait_for(self, world_size: int) -> None:
        end = time.monotonic() + self._timeout
        joined = self.add("/workers", 1)
        while joined < world_size:
            if time.monotonic() > end:
                raise RuntimeError(f"{joined} of {world_size} processes have come to the store")
            time.sleep(_PAUSE)
            joined = self.add("/workers", 0)

    def _do(self, what: str, *args: Any) -> Any:
        with self._lock:
            self._file.write(_encoded([what, *args]))
            self._file.flush()
            line = self._file.readline()
        if not line:
            raise RuntimeError(f"the store at {self.host}:{self.port} has closed the connection")
        answer, error = _decoded(line)
        if error is not None:
            raise RuntimeError(error)
        return answer
