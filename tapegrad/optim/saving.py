"""State dicts of optimizers: parameters as positions, state as tensors, options as they are.

`packed` makes PyTorch's format, `unpacked` reads it without changing anything. Used by
`optimizer.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import deepcopy
from numbers import Real
from typing import Any

import numpy as np

from ..core.tensor import Tensor, wrap
from .groups import Group, States


def packed(groups: Iterable[Group], state: Mapping[Any, Any]) -> dict[str, Any]:
    """State and options, with parameters replaced by their position."""
    position: dict[int, int] = {}
    start, written = 0, []
    for group in groups:
        for i, p in enumerate(group["params"], start):
            position.setdefault(p.id, i)
        start += len(group["params"])
        options = {key: value for key, value in group.items() if key != "params"}
        written.append({**options, "params": [position[p.id] for p in group["params"]]})
    values = {
        position[key.id] if isinstance(key, Tensor) else key: (
            dict(value) if isinstance(value, dict) else value
        )
        for key, value in state.items()
    }
    return {"state": values, "param_groups": written}


def unpacked(
    groups: list[Group], saved: Mapping[str, Any], own: bool, shapes_of_their_own: tuple[str, ...]
) -> tuple[States, list[Group]]:
    """Loaded state and options for these groups; tensors are copied.

    `own` says that the optimizer is the library's: its state has the shapes of its parameters,
    except for counts and the names `shapes_of_their_own`, and its counts are tensors.
    """
    theirs = saved["param_groups"]
    if len(theirs) != len(groups):
        raise ValueError(
            f"the loaded state has {len(theirs)} parameter groups, this optimizer has {len(groups)}"
        )
    parameters: dict[Any, Tensor] = {}
    options: list[Group] = []
    for i, (group, other) in enumerate(zip(groups, theirs, strict=True)):
        if len(group["params"]) != len(other["params"]):
            raise ValueError(
                f"group {i} of the loaded state has {len(other['params'])} parameters, this "
                f"optimizer's has {len(group['params'])}"
            )
        parameters.update(zip(other["params"], group["params"], strict=True))
        names = {key: value for key, value in group.items() if key == "param_names"}
        given = {key: deepcopy(value) for key, value in other.items() if key != "params"}
        options.append({"params": group["params"], **names, **given})
    state = States()
    for key, values in saved["state"].items():
        if key in parameters:
            state[parameters[key]] = _copied(parameters[key], values, own, shapes_of_their_own)
        else:
            state[key] = deepcopy(values)
    return state, options


def _copied(
    parameter: Tensor, values: Mapping[str, Any], own: bool, shapes_of_their_own: tuple[str, ...]
) -> dict[str, Any]:
    """Copy the loaded state of one parameter, to its dtype and device except for counts."""
    copies: dict[str, Any] = {}
    for key, value in values.items():
        if own and key == "step" and isinstance(value, Real) and not isinstance(value, bool):
            copies[key] = wrap(np.asarray(value, np.float32))
        elif key == "step" and isinstance(value, Tensor):
            copies[key] = value.detach().clone()
        else:
            copies[key] = _fitting(parameter, value)
        copy = copies[key]
        wrong = isinstance(copy, Tensor) and copy.ndim and copy.shape != parameter.shape
        if wrong and own and key not in shapes_of_their_own:
            raise ValueError(
                f"the loaded state {key!r} of a parameter of shape {tuple(parameter.shape)} has "
                f"shape {tuple(copy.shape)}"
            )
    return copies


def _fitting(parameter: Tensor, value: Any) -> Any:
    """A copy of a loaded value, with its tensors on the parameter's device."""
    if isinstance(value, Tensor):
        dtype = parameter.dtype if parameter.dtype.is_floating_point else value.dtype
        return value.detach().clone().to(parameter.device, dtype)
    if isinstance(value, dict):
        return {key: _fitting(parameter, v) for key, v in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_fitting(parameter, v) for v in value)
    return deepcopy(value)
