"""Interrupts native programs at random moments: `python tests/soak_signals.py 1000`.

A timer's handler raises while a loop runs compiled functions and large eager operations on two
threads. After each interrupt the results of the next calls are compared with those of the first.
In the second half, another Python thread runs programs too.
"""

from __future__ import annotations

import faulthandler
import random
import signal
import sys
import threading
import time
from typing import Any

import numpy as np

import tapegrad as tg

#: seconds without an interrupt after which the process dumps its stacks and ends
PATIENCE = 30


class Interrupt(Exception):
    """Raised by the handler."""


def interrupt(number: int, frame: Any) -> None:
    raise Interrupt


def main(count: int) -> None:
    tg.set_num_threads(2)
    tg.manual_seed(0)
    x = tg.randn(300, 1000)
    matrix = tg.randn(200, 300)

    def loss(x: Any) -> Any:
        return ((matrix @ x).tanh() * 2 + 1).sum(0)

    def gradient(x: Any) -> Any:
        leaf = x.detach().requires_grad_()
        loss(leaf).sum().backward()
        return leaf.grad

    functions = [
        tg.compile(loss),
        tg.compile(gradient),
        lambda x: (x * 2 + 1).exp(),
        lambda x: x.softmax(1).sum(0),
        lambda x: matrix @ x,
    ]
    expected = []
    for f in functions:
        for _ in range(4):
            result = f(x).numpy().copy()
        expected.append(result)

    def check() -> None:
        for f, wanted in zip(functions, expected, strict=True):
            np.testing.assert_array_equal(f(x).numpy(), wanted)

    running = True
    errors = []

    def beside() -> None:
        try:
            while running:
                check()
                time.sleep(0.002)
        except AssertionError as error:
            errors.append(error)

    other = threading.Thread(target=beside)
    signal.signal(signal.SIGALRM, interrupt)
    choose = random.Random(0)
    interrupts = 0
    try:
        while interrupts < count and not errors:
            if interrupts == count // 2 and not other.ident:
                other.start()
            faulthandler.dump_traceback_later(PATIENCE, exit=True)
            try:
                # Worker threads sleep after a pause; without one they still spin.
                pause, longest = choose.choice(((0, 3e-3), (0.003, 3e-3), (0.003, 3e-4)))
                turn = choose.randrange(len(functions))
                time.sleep(pause)
                signal.setitimer(signal.ITIMER_REAL, choose.uniform(50e-6, longest))
                while True:
                    for f in functions[turn:] + functions[:turn]:
                        f(x)
            except Interrupt:
                interrupts += 1
            check()
    finally:
        running = False
        if other.ident:
            other.join()
        faulthandler.cancel_dump_traceback_later()
    if errors:
        raise errors[0]
    print(f"{interrupts} interrupts, results right after each")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1000)
