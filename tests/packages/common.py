"""What the programs of this folder share: weights and inputs that any library can make equal.

Each program uses a package written for PyTorch, unmodified, and calls `record(name, value)` with
what it computed. It runs twice, on PyTorch and on tapegrad; `test_packages.py` compares.
"""

import sys

import numpy as np
import torch

_recorded = {}


def data(*shape, seed=0, low=None, high=None):
    """Numbers from NumPy's generator: normal ones, or whole ones from `low` up to `high`."""
    rng = np.random.default_rng([seed, *shape])
    if high is not None:
        return torch.from_numpy(rng.integers(low or 0, high, shape))
    return torch.from_numpy(rng.standard_normal(shape))


def prepared(model, seed=0):
    """A model in float64 whose parameters come from NumPy's generator, in the order of names."""
    model = model.double()
    rng = np.random.default_rng(seed)
    with torch.no_grad():
        for name, parameter in sorted(model.named_parameters(), key=lambda item: item[0]):
            values = rng.uniform(-1.0, 1.0, tuple(parameter.shape))
            if parameter.ndim >= 2:
                values *= (3.0 / max(int(np.prod(parameter.shape[1:])), 1)) ** 0.5
            else:
                values = 0.1 * values + (1.0 if name.endswith("weight") else 0.0)
            parameter.copy_(torch.from_numpy(np.asarray(values)))
    return model


def record(name, value):
    """Keep a tensor, a number or a (nested) list of them to be compared."""
    if isinstance(value, (list, tuple)):
        for i, part in enumerate(value):
            record(f"{name}.{i}", part)
    elif isinstance(value, dict):
        for key, part in value.items():
            record(f"{name}.{key}", part)
    elif isinstance(value, torch.Tensor):
        value = value.detach()
        assert name not in _recorded, name
        _recorded[name] = value.float().numpy() if value.dtype == torch.bfloat16 else value.numpy()
    else:
        assert name not in _recorded, name
        _recorded[name] = np.asarray(value)


def record_step(name, model, output, parameters=True):
    """Keep an output, and the gradients that a weighted sum of it has."""
    record(f"{name}.output", output)
    weights = data(*output.shape, seed=99).to(output.dtype)
    model.zero_grad()
    (output * weights).sum().backward()
    found = {n: p.grad for n, p in model.named_parameters() if p.grad is not None}
    record(f"{name}.count", len(found))
    assert found
    for key, gradient in found.items():
        flat = gradient.reshape(-1)
        step = max(flat.numel() // 2000, 1)  # of large ones, every so manieth element and a sum
        record(f"{name}.grad.{key}", flat[::step])
        if step > 1:
            record(f"{name}.sum.{key}", (flat * (torch.arange(flat.numel()) % 7 - 3)).sum())


def finish():
    """Write everything to the file that the command line names."""
    np.savez(sys.argv[1], **_recorded)
    print(f"{len(_recorded)} values")
