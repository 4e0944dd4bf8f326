"""Rarely used operations: their file is imported when one of its names is first used.

Comes in: the name of a function of `tapegrad` or of a Tensor method. Goes out: the operation, after
its file has entered it in the table like any other. `LATE` lists the names of each file, so that
they are known before the import; `tests/test_structure.py` compares the list with the entries of
the files. A file takes 0.2 to 1 ms to import, and `import tapegrad` must stay fast.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any, NamedTuple

from ..core import primitive, rewrites
from ..core.tensor import Tensor
from . import table


class Late(NamedTuple):
    """The names that a file enters, with spaces between them."""

    #: functions of the main namespace that are methods too
    both: str = ""
    #: functions that are not methods
    functions: str = ""
    #: methods that are not functions, such as those that change the tensor
    methods: str = ""


#: files below `tapegrad.ops` that `nn.functional` imports, and what else they enter
LAYERS: dict[str, Late] = {
    "window.columns": Late(),
    "window.convolution": Late(functions="conv1d conv2d conv3d conv_tbc"),
    "window.transposed_convolution": Late(
        functions="conv_transpose1d conv_transpose2d conv_transpose3d"
    ),
    "window.pooling": Late(functions="max_pool1d max_pool2d max_pool3d"),
    "window.averaging": Late(functions="avg_pool1d"),
    "window.resampling": Late(),
    "window.adaptive": Late(functions="adaptive_avg_pool1d"),
    "window.sampling": Late(),
    "loss.regression": Late(),
    "loss.classification": Late(),
    "loss.margin": Late(),
    "loss.ctc": Late(),
    "nn.normalization": Late(functions="group_norm layer_norm rms_norm"),
    "nn.embedding": Late(functions="dropout"),
    "nn.bags": Late(),
    "nn.sequence": Late(
        functions="gru gru_cell lstm lstm_cell rnn_relu rnn_relu_cell rnn_tanh rnn_tanh_cell"
    ),
    "nn.attention": Late(),
    "nn.multihead": Late(),
}

#: all files of operations that are imported late, and what they enter
LATE: dict[str, Late] = {
    **LAYERS,
    # it enters only rewrites of programs, which `replay/` loads
    "nn.attention_rewrite": Late(),
    "elementwise.parts": Late(
        both="frexp gcd lcm ldexp nextafter",
        methods="gcd_ lcm_ ldexp_ nextafter_",
    ),
    "index.counting": Late(
        both="histc histogram index_reduce mode put",
        functions="histogramdd",
        methods="index_reduce_ put_",
    ),
    "index.quantiles": Late(both="nanquantile quantile"),
    "index.segments": Late(
        functions="_segment_reduce _unsafe_masked_index _unsafe_masked_index_put_accumulate "
        "segment_reduce",
    ),
    # those of decompositions use the ones above them
    "factors.spectra": Late(),
    "factors.triangles": Late(
        both="cholesky cholesky_inverse cholesky_solve triangular_solve",
    ),
    "factors.systems": Late(functions="vander"),
    "factors.eigen": Late(),
    "factors.orthogonal": Late(both="geqrf orgqr ormqr qr"),
    "factors.lu": Late(functions="lu_unpack"),
    "factors.least_squares": Late(both="pinverse"),
    "factors.low_rank": Late(functions="lobpcg pca_lowrank svd_lowrank"),
    "factors.older": Late(
        both="lu lu_solve svd",
        functions="chain_matmul frobenius_norm nuclear_norm",
    ),
    # `fft` names the files here
    "fourier.primitives": Late(),
    "fourier.transforms": Late(),
    "fourier.short_time": Late(both="istft stft"),
    "linalg.sums": Late(
        both="addbmm addr",
        functions="_addmm_activation _int_mm",
        methods="addbmm_ addr_",
    ),
    "masked.reducing": Late(),
    "masked.scanning": Late(),
    "nn.natives": Late(
        functions="_native_batch_norm_legit _softmax_backward_data native_batch_norm "
        "native_group_norm native_layer_norm",
    ),
    "reduce.running": Late(
        both="logcumsumexp",
        functions="cumulative_trapezoid gradient",
        methods="logcumsumexp_",
    ),
    "shape.uncommon": Late(
        both="nonzero_static unsafe_chunk unsafe_split unsafe_split_with_sizes",
        functions="_chunk_cat constant_pad_nd fill unravel_index",
        methods="sum_to_size",
    ),
    "shape.view_copies": Late(
        both="as_strided_scatter narrow_copy",
        functions="alias_copy as_strided_copy diagonal_copy expand_copy permute_copy select_copy "
        "slice_copy split_copy split_with_sizes_copy squeeze_copy t_copy transpose_copy "
        "unbind_copy unfold_copy unsqueeze_copy view_copy",
    ),
    "special.bessel": Late(both="i0", methods="i0_"),
    "special.gamma": Late(
        both="igamma igammac mvlgamma",
        methods="igamma_ igammac_ mvlgamma_",
    ),
    "special.normal": Late(),
    "special.polynomials": Late(),
    "window.samplers": Late(functions="grid_sampler grid_sampler_2d grid_sampler_3d"),
}

_loaded: set[str] = set()


def load(file: str) -> None:
    """Import a file of operations, once."""
    if file not in _loaded:
        import_module(f"{__package__}.{file}")
        _loaded.add(file)


def load_all(folder: str = "") -> None:
    """Import all files, or those of a folder, for callers that need the whole table."""
    for file in LATE:
        if file.startswith(folder):
            load(file)


def load_layers() -> None:
    """Import the files whose functions `nn.functional` has."""
    for file in LAYERS:
        load(file)


def _waiting(name: str, file: str) -> Callable[..., Any]:
    """A method that imports its file, which replaces it by the real method."""

    def method(self: Tensor, *args: Any, **kwargs: Any) -> Any:
        load(file)
        return getattr(Tensor, name)(self, *args, **kwargs)

    method.__name__ = name
    return method


#: the file of each function of the main namespace
FILES: dict[str, str] = {}

for _file, _names in LATE.items():
    for _name in _names.both.split():
        FILES[_name] = _file
        setattr(Tensor, _name, _waiting(_name, _file))
    for _name in _names.functions.split():
        FILES[_name] = _file
    for _name in _names.methods.split():
        setattr(Tensor, _name, _waiting(_name, _file))


def function(name: str) -> Callable[..., Any]:
    """A function of the main namespace, from one of the files."""
    load(FILES[name])
    return table.public_functions("")[name]


def _removed(name: str) -> Callable[..., Any]:
    """A method that PyTorch has removed: it says what to use."""

    def method(self: Tensor, *args: object, **kwargs: object) -> Any:
        from .factors import removed

        getattr(removed, name)()

    method.__name__ = name
    method.__doc__ = "Raises an error that says what to use instead, as PyTorch's does."
    return method


for _name in ("eig", "lstsq", "solve", "symeig"):
    setattr(Tensor, _name, _removed(_name))

primitive.PRIMITIVES.loader = load_all
rewrites.LOADERS.append(partial(load, "nn.attention_rewrite"))
