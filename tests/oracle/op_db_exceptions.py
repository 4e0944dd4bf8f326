"""Entries of PyTorch's operator database that do not pass, each with its reason.

`test_op_db.py` fails for an entry of these lists that passes, so they can only become shorter.
"""

from __future__ import annotations

#: entries that PyTorch offers under no public name, or that the database calls in a way of its own
NOT_PUBLIC = {
    "_batch_norm_with_update": "only torch.ops.aten has it",
    "_upsample_bilinear2d_aa": "only torch.ops.aten has it; interpolate(antialias=True) calls it",
    "max_pool2d_with_indices_backward": "only torch.ops.aten has it",
    "native_dropout_backward": "only torch.ops.aten has it",
    "slice": "only torch.ops.aten has it; x[...] slices",
    "torch.ops.aten._safe_softmax.default": "only torch.ops.aten has it",
    **dict.fromkeys(
        (
            "jiterator_2inputs_2outputs",
            "jiterator_4inputs_with_extra_args",
            "jiterator_binary",
            "jiterator_binary_return_by_ref",
            "jiterator_unary",
        ),
        "kernels for CUDA, written as text",
    ),
}

#: entries whose samples fail
FAILING: dict[str, str] = {
    "as_strided[partial_views]": "samples are parts of larger tensors, which the call copies",
    "as_strided_scatter": "PyTorch gives the input the gradients of the elements it overwrites",
    "chalf": "there is no complex half precision",
    "hash_tensor": "gives uint64, which only stores here",
    "histogramdd": "an element at the edge of two bins: edges are rounded otherwise",
    "linalg.eig": "the phase of eigenvectors is free",
    "linalg.eigh": "the sign of eigenvectors is free",
    "linalg.svd": "the sign of singular vectors is free",
    "matrix_exp": "elements of 0.1 beside some of 1e4: rounding differs by 2e-3",
    "pca_lowrank": "the sign of singular vectors is free, and a random start",
    "sparse.mm[reduce]": "there are no compressed sparse matrices",
    "sparse.sampled_addmm": "there are no compressed sparse matrices",
    "svd": "the sign of singular vectors is free",
    "svd_lowrank": "the sign of singular vectors is free, and a random start",
}

#: error inputs that raise in PyTorch and not here: how many, and why
ACCEPTED: dict[str, tuple[int, str]] = {
    **dict.fromkeys(
        ("__radd__", "__rand__", "__rdiv__", "__rmul__", "__ror__", "__rxor__"),
        (1, "a method called on a number; Python never does, and a check would cost each call"),
    ),
    "arange": (1, "whole numbers into an out= of integers: the step is rounded after the range"),
    "cat": (2, "out= that is an input with gaps; no sequence, but a tensor"),
    "gather": (1, "out= overlaps the index only after PyTorch has resized it"),
    "masked_fill": (1, "a complex number into integers: its real part counts"),
}
