"""Forks while other threads are busy: `python tests/soak_forks.py 200`.

One thread replays, one runs large eager operations, one compiles new functions, one draws random
numbers and differentiates; the main thread forks. Each child immediately does all of that, also
with the function that was being compiled, and checks the results; it must end within 20 seconds.
"""

from __future__ import annotations

import faulthandler
import os
import random
import signal
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

import tapegrad as tg

#: most seconds for a child
PATIENCE = 20


def wait_for(child: int) -> None:
    """Wait for a child; raise if it fails or hangs."""
    deadline = time.monotonic() + PATIENCE + 5
    while time.monotonic() < deadline:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            if status:
                raise RuntimeError(f"a child ended with status {status}")
            return
        time.sleep(0.001)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    raise RuntimeError(f"a child took more than {PATIENCE} seconds")


def in_child(work: Callable[[], None]) -> None:
    """Do some work in a forked child, and end it."""
    faulthandler.dump_traceback_later(PATIENCE, exit=True)
    status = 1
    try:
        work()
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


def main(count: int) -> None:
    tg.set_num_threads(2)
    tg.manual_seed(0)
    x = tg.randn(300, 1000)
    matrix = tg.randn(200, 300)
    compiled = tg.compile(lambda x: ((matrix @ x).tanh() * 2 + 1).sum(0))

    def eager(x: Any) -> Any:
        return (x * 2 + 1).exp().softmax(1)

    for _ in range(4):
        expected = compiled(x).numpy().copy(), eager(x).numpy().copy()

    def right() -> None:
        np.testing.assert_array_equal(compiled(x).numpy(), expected[0])
        np.testing.assert_array_equal(eager(x).numpy(), expected[1])
        leaf = tg.randn(300, 1000).requires_grad_()
        (leaf * leaf).sum().backward()
        np.testing.assert_allclose(leaf.grad.numpy(), 2 * leaf.detach().numpy(), rtol=1e-6)
        leaf.detach().add_(1)
        if newest:
            f, factor = newest
            small = tg.randn(50, 50).requires_grad_()
            wanted = np.tanh(small.detach().numpy() * factor + factor).sum()
            for _ in range(3):
                np.testing.assert_allclose(f(small).detach().numpy(), wanted, rtol=1e-4)

    factors = iter(range(1, 1 << 30))
    newest: list[Any] = []

    def new_function() -> None:
        factor = float(next(factors))
        f = tg.compile(lambda x: (x * factor + factor).tanh().sum())
        newest[:] = [f, factor]
        leaf = tg.randn(50, 50).requires_grad_()
        for _ in range(3):
            f(leaf).backward()

    def differentiate() -> None:
        leaf = tg.randn(100, 1000).requires_grad_()
        ((leaf * 2).tanh() * leaf).sum().backward()
        leaf.detach().mul_(2)

    running = True
    errors: list[BaseException] = []

    def repeat(work: Callable[[], Any]) -> None:
        try:
            while running:
                work()
        except BaseException as error:
            errors.append(error)

    loads = (lambda: compiled(x), lambda: eager(x), new_function, differentiate)
    threads = [threading.Thread(target=repeat, args=(work,)) for work in loads]
    for thread in threads:
        thread.start()
    choose = random.Random(0)
    try:
        for _ in range(count):
            if errors:
                raise errors[0]
            time.sleep(choose.uniform(0, 0.01))
            with warnings.catch_warnings():
                # Python 3.12 warns about forks in multi-threaded processes; here they are wanted.
                warnings.filterwarnings("ignore", ".*multi-threaded.*", DeprecationWarning)
                child = os.fork()
            if child == 0:
                in_child(right)
            wait_for(child)
    finally:
        running = False
        for thread in threads:
            thread.join()
    print(f"{count} forks, all children right")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 200)
