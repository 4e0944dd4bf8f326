"""Recurrent layers: RNN, LSTM, GRU over whole sequences, and the cells for one step.

The layers hold PyTorch's parameters under PyTorch's names, check their inputs, and call
`ops/nn/sequence.py`. They take (steps, batch, features), the same without a batch, or a
PackedSequence.
"""

from __future__ import annotations

import math
import numbers
import warnings
from typing import TYPE_CHECKING, Any

from ..core.modes import AUTOCAST, STATE
from ..core.tensor import Tensor
from ..ops.creation import CREATION
from ..ops.nn.sequence import GATES, STATES, Segments, run_layers, segments_of
from ..ops.table import TABLE
from . import init
from .linear import checked_size, new_parameter
from .module import Module
from .packed import PackedSequence

if TYPE_CHECKING:
    from ..ops.annotations import DeviceLike, DTypeLike

_zeros = CREATION["zeros"]


def _shape(x: Any) -> tuple[int, ...]:
    return tuple(x.shape)


class RNNBase(Module):
    """Base of RNN, LSTM and GRU; `mode` is "RNN_TANH", "RNN_RELU", "LSTM" or "GRU"."""

    def __init__(
        self,
        mode: str,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device: DeviceLike | None = None,
        dtype: DTypeLike | None = None,
    ) -> None:
        super().__init__()
        _check_options(self, mode, input_size, hidden_size, num_layers, dropout, proj_size)
        self.mode = mode
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.num_layers = num_layers
        self.bias = bias
        self.batch_first = batch_first
        self.dropout = float(dropout)
        self.bidirectional = bidirectional
        self.proj_size = proj_size
        self._all_weights: list[list[str]] = []
        for layer in range(num_layers):
            for direction in range(self._directions):
                self._add_layer(layer, direction, device, dtype)
        self.reset_parameters()

    @property
    def _directions(self) -> int:
        return 2 if self.bidirectional else 1

    @property
    def _out_size(self) -> int:
        return self.proj_size or self.hidden_size

    def _add_layer(self, layer: int, direction: int, device: Any, dtype: Any) -> None:
        rows = GATES[self.mode] * self.hidden_size
        width = self.input_size if layer == 0 else self._out_size * self._directions
        shapes: dict[str, tuple[int, ...]] = {
            "weight_ih": (rows, width),
            "weight_hh": (rows, self._out_size),
        }
        if self.bias:
            shapes |= {"bias_ih": (rows,), "bias_hh": (rows,)}
        if self.proj_size:
            shapes["weight_hr"] = (self.proj_size, self.hidden_size)
        names = []
        for name, shape in shapes.items():
            names.append(f"{name}_l{layer}{'_reverse' if direction else ''}")
            self.register_parameter(names[-1], new_parameter(*shape, device=device, dtype=dtype))
        self._all_weights.append(names)

    def reset_parameters(self) -> None:
        """Uniform in ±1 / sqrt(hidden_size), all of them."""
        bound = 1.0 / math.sqrt(self.hidden_size)
        for parameter in self.parameters():
            init.uniform_(parameter, -bound, bound)

    def flatten_parameters(self) -> None:
        """Does nothing: no library needs the parameters in contiguous memory."""

    @property
    def all_weights(self) -> list[list[Any]]:
        """The parameters of each layer and direction."""
        return [[getattr(self, name) for name in names] for names in self._all_weights]

    @property
    def _flat_weights(self) -> list[Any]:
        return [parameter for group in self.all_weights for parameter in group]

    # -- checks ------------------------------------------------------------------------------

    def check_input(self, input: Any, batch_sizes: Any) -> None:
        """Raise unless the input has as many features as the layer takes, and its dtype."""
        weight = self._flat_weights[0]
        if input.dtype is not weight.dtype and not STATE.mode & AUTOCAST:
            raise ValueError(
                f"the input is {input.dtype} and the weights are {weight.dtype}: use "
                f"input.to({weight.dtype}), or module.to({input.dtype})"
            )
        expected = 2 if batch_sizes is not None else 3
        if input.ndim != expected:
            raise RuntimeError(f"input must have {expected} dimensions, got {input.ndim}")
        if input.shape[-1] != self.input_size:
            raise RuntimeError(
                f"the last dimension of the input must be input_size = {self.input_size}, got "
                f"{input.shape[-1]}"
            )

    def get_expected_hidden_size(self, input: Any, batch_sizes: Any) -> tuple[int, int, int]:
        """The shape of the hidden states."""
        if batch_sizes is not None:
            batch = int(batch_sizes[0])
        else:
            batch = input.shape[0 if self.batch_first else 1]
        return self.num_layers * self._directions, batch, self._out_size

    def check_hidden_size(
        self,
        hx: Any,
        expected_hidden_size: tuple[int, int, int],
        msg: str = "Expected hidden size {}, got {}",
    ) -> None:
        """Raise unless states have the shape they need."""
        if _shape(hx) != tuple(expected_hidden_size):
            raise RuntimeError(msg.format(expected_hidden_size, list(hx.shape)))

    def _state_shapes(self, hidden: tuple[int, int, int]) -> list[tuple[int, int, int]]:
        shapes = [hidden]
        if STATES[self.mode] == 2:
            shapes.append((*hidden[:2], self.hidden_size))
        return shapes

    def _checked_states(self, hx: list[Any], hidden: tuple[int, int, int]) -> list[Any]:
        names = ["hidden"] if len(hx) == 1 else [f"hidden[{i}]" for i in range(len(hx))]
        for name, state, shape in zip(names, hx, self._state_shapes(hidden), strict=True):
            self.check_hidden_size(state, shape, f"Expected {name} size {{}}, got {{}}")
        return hx

    def _as_states(self, hx: Any) -> list[Any]:
        """The states in `hx`, as a list of one or two."""
        name, found = type(self).__name__, type(hx).__name__
        if STATES[self.mode] == 1:
            if not isinstance(hx, Tensor):
                raise TypeError(f"{name} needs hx as one tensor, got {found}")
            return [hx]
        if not isinstance(hx, (tuple, list)) or len(hx) != 2:
            raise RuntimeError(f"{name} needs hx as a pair (hidden, cell), got {found}")
        for state in hx:
            if not isinstance(state, Tensor):
                raise TypeError(f"{name} needs tensors in hx, got {type(state).__name__}")
        return list(hx)

    # -- running -----------------------------------------------------------------------------

    def forward(self, input: Any, hx: Any = None) -> tuple[Any, Any]:
        """The results of all steps of the last layer, and the last states of all layers."""
        if isinstance(input, PackedSequence):
            return self._forward_packed(input, hx)
        name = type(self).__name__
        if input.ndim not in (2, 3):
            raise ValueError(
                f"{name} takes (length, features) or a batch of that, got {input.ndim} dimensions"
            )
        alone = input.ndim == 2
        states = None if hx is None else self._as_states(hx)
        if states is not None and any(s.ndim != input.ndim for s in states):
            kind, size = ("unbatched", "2-D") if alone else ("batched", "3-D")
            found = ", ".join(f"{s.ndim}-D" for s in states)
            raise RuntimeError(f"For {kind} {size} input, hx should also be {size} but got {found}")
        if alone:
            input = input.unsqueeze(0 if self.batch_first else 1)
            states = None if states is None else [s.unsqueeze(1) for s in states]
        self.check_input(input, None)
        x = input.transpose(0, 1) if self.batch_first else input
        steps, batch, size = x.shape
        if not steps:
            raise RuntimeError("the input has no time steps")
        hidden = self.get_expected_hidden_size(input, None)
        rows = x.reshape(steps * batch, size)
        flat, last = self._run(rows, [(steps, batch)], self._first(states, hidden, input))
        out = flat.reshape(steps, batch, flat.shape[1])
        out = out.transpose(0, 1) if self.batch_first else out
        if alone:
            out, last = out.squeeze(0 if self.batch_first else 1), [s.squeeze(1) for s in last]
        return out, self._as_result(last)

    def _forward_packed(self, packed: PackedSequence, hx: Any) -> tuple[Any, Any]:
        data, batch_sizes, sorted_indices, unsorted_indices = packed
        self.check_input(data, batch_sizes)
        sizes = [int(size) for size in batch_sizes.tolist()]
        hidden = (self.num_layers * self._directions, sizes[0], self._out_size)
        states = None if hx is None else self._as_states(hx)
        if states is not None and sorted_indices is not None:
            states = [s.index_select(1, sorted_indices) for s in states]
        first = self._first(states, hidden, data)
        out, last = self._run(data, segments_of(sizes), first, packed=True)
        if unsorted_indices is not None:
            last = [s.index_select(1, unsorted_indices) for s in last]
        result = PackedSequence(out, batch_sizes, sorted_indices, unsorted_indices)
        return result, self._as_result(last)

    def _first(self, states: Any, hidden: tuple[int, int, int], like: Any) -> list[Any]:
        if states is not None:
            return self._checked_states(states, hidden)
        shapes = self._state_shapes(hidden)
        return [_zeros(shape, dtype=like.dtype, device=like.device) for shape in shapes]

    def _run(
        self, rows: Any, segments: Segments, states: list[Any], packed: bool = False
    ) -> tuple[Any, list[Any]]:
        return run_layers(
            self.mode,
            rows,
            segments,
            states,
            self._flat_weights,
            self.bias,
            self.num_layers,
            self.dropout,
            self.training,
            self.bidirectional,
            packed,
        )

    def _as_result(self, last: list[Any]) -> Any:
        return last[0] if len(last) == 1 else tuple(last)

    def extra_repr(self) -> str:
        shown = f"{self.input_size}, {self.hidden_size}"
        defaults: dict[str, Any] = {
            "proj_size": 0,
            "num_layers": 1,
            "bias": True,
            "batch_first": False,
        }
        defaults |= {"dropout": 0.0, "bidirectional": False}
        for name, default in defaults.items():
            if getattr(self, name) != default:
                shown += f", {name}={getattr(self, name)}"
        return shown


def _check_options(
    owner: Module,
    mode: str,
    input_size: int,
    hidden_size: int,
    num_layers: int,
    dropout: float,
    proj_size: int,
) -> None:
    if mode not in STATES:
        raise ValueError(f"Unrecognized RNN mode: {mode}; expected one of {', '.join(STATES)}")
    if not isinstance(hidden_size, int):
        raise TypeError(f"hidden_size must be an int, got {type(hidden_size).__name__}")
    sizes = {"input_size": input_size, "hidden_size": hidden_size, "num_layers": num_layers}
    for name, size in sizes.items():
        if size <= 0:
            raise ValueError(f"{name} must be at least 1, got {size}")
    if (
        not isinstance(dropout, numbers.Number)
        or isinstance(dropout, bool)
        or not 0 <= dropout <= 1
    ):
        raise ValueError(f"dropout is a probability between 0 and 1, got {dropout!r}")
    if dropout > 0 and num_layers == 1:
        warnings.warn(
            "dropout is applied after all but the last recurrent layer, so it does nothing with "
            f"num_layers=1, got dropout={dropout}",
            stacklevel=4,
        )
    if proj_size < 0:
        raise ValueError(f"proj_size must be 0 (no projection) or more, got {proj_size}")
    if proj_size and mode != "LSTM":
        raise ValueError("only LSTM has a proj_size")
    if proj_size >= hidden_size:
        raise ValueError(
            f"proj_size must be less than hidden_size, got {proj_size} and {hidden_size}"
        )


class RNN(RNNBase):
    """h' = tanh(x @ W_ih.T + b_ih + h @ W_hh.T + b_hh), or with ReLU, in one or more layers.

    >>> import tapegrad
    >>> layer = tapegrad.nn.RNN(3, 4, num_layers=2)
    >>> out, h_n = layer(tapegrad.ones(5, 2, 3))
    >>> out.shape, h_n.shape
    (Size([5, 2, 4]), Size([2, 2, 4]))
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        nonlinearity: str = "tanh",
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device: DeviceLike | None = None,
        dtype: DTypeLike | None = None,
        **options: Any,
    ) -> None:
        if nonlinearity not in ("tanh", "relu"):
            raise ValueError(f"nonlinearity must be 'tanh' or 'relu', got {nonlinearity!r}")
        super().__init__(
            f"RNN_{nonlinearity.upper()}",
            input_size,
            hidden_size,
            num_layers,
            bias,
            batch_first,
            dropout,
            bidirectional,
            device=device,
            dtype=dtype,
            **options,
        )
        self.nonlinearity = nonlinearity

    if TYPE_CHECKING:

        def forward(
            self, input: Tensor | PackedSequence, hx: Tensor | None = None
        ) -> tuple[Any, Tensor]: ...


class LSTM(RNNBase):
    """Layers with cells that three gates write, keep and read; `proj_size` makes h smaller.

    i, f, g, o = the four parts of x @ weight_ih.T + h @ weight_hh.T + biases;
    c' = sigmoid(f) * c + sigmoid(i) * tanh(g); h' = sigmoid(o) * tanh(c').
    Inputs are (times, batch, features), or (batch, times, features) with `batch_first`; h and c are
    (layers * directions, batch, hidden).

    >>> import tapegrad
    >>> layer = tapegrad.nn.LSTM(3, 4, batch_first=True, bidirectional=True)
    >>> out, (h_n, c_n) = layer(tapegrad.ones(2, 5, 3))
    >>> out.shape, c_n.shape
    (Size([2, 5, 8]), Size([2, 2, 4]))
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device: DeviceLike | None = None,
        dtype: DTypeLike | None = None,
    ) -> None:
        super().__init__(
            "LSTM",
            input_size,
            hidden_size,
            num_layers,
            bias,
            batch_first,
            dropout,
            bidirectional,
            proj_size,
            device,
            dtype,
        )

    if TYPE_CHECKING:

        def forward(
            self, input: Tensor | PackedSequence, hx: tuple[Tensor, Tensor] | None = None
        ) -> tuple[Any, tuple[Tensor, Tensor]]: ...

    def get_expected_cell_size(self, input: Any, batch_sizes: Any) -> tuple[int, int, int]:
        """The shape of the cells."""
        return (*self.get_expected_hidden_size(input, batch_sizes)[:2], self.hidden_size)


class GRU(RNNBase):
    """Layers with a gate that resets the hidden state and one that updates it."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device: DeviceLike | None = None,
        dtype: DTypeLike | None = None,
        **options: Any,
    ) -> None:
        super().__init__(
            "GRU",
            input_size,
            hidden_size,
            num_layers,
            bias,
            batch_first,
            dropout,
            bidirectional,
            device=device,
            dtype=dtype,
            **options,
        )

    if TYPE_CHECKING:

        def forward(
            self, input: Tensor | PackedSequence, hx: Tensor | None = None
        ) -> tuple[Any, Tensor]: ...


# -- cells -------------------------------------------------------------------------------------


class RNNCellBase(Module):
    """Base of the cells: parameters for one step, and checks of what comes in."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool,
        num_chunks: int,
        device: DeviceLike | None = None,
        dtype: DTypeLike | None = None,
    ) -> None:
        super().__init__()
        self.input_size = checked_size(input_size, "input_size", self)
        self.hidden_size = checked_size(hidden_size, "hidden_size", self)
        self.bias = bias
        options: dict[str, Any] = {"device": device, "dtype": dtype}
        rows = num_chunks * hidden_size
        self.weight_ih = new_parameter(rows, input_size, **options)
        self.weight_hh = new_parameter(rows, hidden_size, **options)
        self.register_parameter("bias_ih", new_parameter(rows, **options) if bias else None)
        self.register_parameter("bias_hh", new_parameter(rows, **options) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Uniform in ±1 / sqrt(hidden_size), all of them."""
        bound = 1.0 / math.sqrt(self.hidden_size) if self.hidden_size else 0.0
        for parameter in self.parameters():
            init.uniform_(parameter, -bound, bound)

    def _step(self, function: str, input: Any, states: list[Any] | None, count: int) -> Any:
        """One step; missing states are 0, and a state without a batch serves the whole batch."""
        name = type(self).__name__
        if input.ndim not in (1, 2):
            raise ValueError(
                f"{name} takes (features,) or (batch, features), got {input.ndim} dimensions"
            )
        if states is None:
            zeros = _zeros(
                (*input.shape[:-1], self.hidden_size), dtype=input.dtype, device=input.device
            )
            states = [zeros] * count
        for i, state in enumerate(states):
            what = "hidden" if count == 1 else f"hx[{i}]"
            if not isinstance(state, Tensor):
                raise TypeError(f"{name}: {what} must be a tensor, got {type(state).__name__}")
            if state.ndim not in (1, 2):
                raise ValueError(
                    f"{name}: {what} must be (features,) or (batch, features), got {state.ndim} "
                    "dimensions"
                )
        hx: Any = states[0] if count == 1 else states
        weights = (self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh)
        return TABLE[function].function(input, hx, *weights)

    def extra_repr(self) -> str:
        shown = f"{self.input_size}, {self.hidden_size}"
        if not self.bias:
            shown += f", bias={self.bias}"
        if getattr(self, "nonlinearity", "tanh") != "tanh":
            shown += f", nonlinearity={self.nonlinearity}"
        return shown


class RNNCell(RNNCellBase):
    """One step of an RNN layer: the next hidden state."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        nonlinearity: str = "tanh",
        device: DeviceLike | None = None,
        dtype: DTypeLike | None = None,
    ) -> None:
        super().__init__(input_size, hidden_size, bias, 1, device, dtype)
        self.nonlinearity = nonlinearity

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        if self.nonlinearity not in ("tanh", "relu"):
            raise RuntimeError(f"nonlinearity must be 'tanh' or 'relu', got {self.nonlinearity!r}")
        states = None if hx is None else [hx]
        out: Tensor = self._step(f"rnn_{self.nonlinearity}_cell", input, states, 1)
        return out


class LSTMCell(RNNCellBase):
    """One step of an LSTM layer: the next hidden state and cell."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        device: DeviceLike | None = None,
        dtype: DTypeLike | None = None,
    ) -> None:
        super().__init__(input_size, hidden_size, bias, 4, device, dtype)

    def forward(
        self, input: Tensor, hx: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Tensor, Tensor]:
        if hx is not None and (not isinstance(hx, (tuple, list)) or len(hx) != 2):
            raise TypeError(f"LSTMCell needs hx as (hidden, cell), got {type(hx).__name__}")
        states = None if hx is None else list(hx)
        out: tuple[Tensor, Tensor] = self._step("lstm_cell", input, states, 2)
        return out


class GRUCell(RNNCellBase):
    """One step of a GRU layer: the next hidden state."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        device: DeviceLike | None = None,
        dtype: DTypeLike | None = None,
    ) -> None:
        super().__init__(input_size, hidden_size, bias, 3, device, dtype)

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        out: Tensor = self._step("gru_cell", input, None if hx is None else [hx], 1)
        return out
