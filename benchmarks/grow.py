"""Products, convolutions, larger models and eager steps against PyTorch, NumPy and JAX.

`python -m benchmarks grow [products] [convolutions] [models] [eager] [memory]` measures all parts
or those named.
Libraries take turns, each in a process of its own (`grow_child.py`), because spinning threads of
one library would slow another in the same process. The cells of products and convolutions are
measured one by one, each in every library (`lasting.py`). `--small` checks in minutes that
everything runs, with tiny sizes; `--all` prints every cell of products and convolutions; `--large`
adds a product of square matrices of 4,096 rows; `--only=ResNet` measures only models and
convolutions with this in their name; `--threads=2` sets the number of threads of products and
convolutions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from . import grow_convolutions, grow_products, grow_steps
from .lasting import Lasting
from .measure import Report

PARTS: dict[str, Callable[[Report, Callable[..., Any]], None]] = {
    "products": grow_products.run,
    "convolutions": grow_convolutions.run,
    "models": grow_steps.run_compiled,
    "eager": grow_steps.run_eager,
    "memory": grow_steps.run_memory,
}
#: parts whose cells are measured in turn, one in every library before the next one
IN_TURN = {"products", "convolutions"}


def run(report: Report, parts: Sequence[str] = ()) -> None:
    for part in parts or PARTS:
        print(f"\n{part}", flush=True)
        if part in IN_TURN:
            with Lasting() as lasting:
                PARTS[part](report, lasting.ask)
        else:
            PARTS[part](report, ask)


def ask(label: str, **job: Any) -> Any:
    """The answer to a job from a process of its own; None, with the reason printed, if it fails."""
    with Lasting() as once:
        return once.ask(label, **job)
