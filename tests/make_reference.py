"""Writes tests/reference/ops.npz, values and gradients of every op sample as PyTorch computes them.

Run `python tests/make_reference.py` with torch installed after samples have changed. The file holds
all numbers in one float64 array, and for each sample where its arrays begin.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE / "oracle")]

import torch  # noqa: E402
from sweep import as_real, cases, flat  # noqa: E402
from test_ops_torch import COMPARED, NO_GRADIENT  # noqa: E402
from torch_oracle import (  # noqa: E402
    arguments_for_torch,
    leaves_of,
    torch_function,
    torch_gradients,
)

from tapegrad.ops import TABLE  # noqa: E402


def array_of(x: Any) -> Any:
    x = x.detach().numpy(force=True) if isinstance(x, torch.Tensor) else np.asarray(x)
    return as_real(x)


def main() -> None:
    numbers: list[Any] = []
    index: dict[str, list[Any]] = {}
    for name in COMPARED:
        function = torch_function(TABLE[name])
        index[name] = []
        for number, (op, sample, arguments) in enumerate(cases(name)):
            theirs = arguments_for_torch(arguments)
            result = function(*theirs[0], **theirs[1])
            gradients: list[Any] = []
            if op.differentiable and (name, number) not in NO_GRADIENT:
                gradients = torch_gradients(result, leaves_of(theirs))
            arrays = [array_of(y) for y in flat(result)]
            pulled = [None if g is None else array_of(g) for g in gradients]
            numbers += [a.reshape(-1) for a in (*arrays, *pulled) if a is not None]
            index[name].append(
                {
                    "sample": str(sample),
                    "results": [a.shape for a in arrays],
                    "gradients": [None if g is None else g.shape for g in pulled],
                }
            )
    text = np.frombuffer(json.dumps(index).encode(), np.uint8)
    path = HERE / "reference" / "ops.npz"
    np.savez_compressed(path, numbers=np.concatenate(numbers), index=text)
    print(f"{path}: {sum(map(len, index.values()))} samples, {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
