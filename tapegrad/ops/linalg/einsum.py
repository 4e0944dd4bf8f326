"""Sums of products by Einstein's notation.

Comes in: an equation such as "ij,jk->ik" and a tensor for each of its terms. Goes out: one tensor.
Operands are contracted one after another: each pair is permuted and reshaped to one batched matrix
product. `tensordot` writes its dims as an equation.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from ...core.tensor import Tensor
from ..reduce.reductions import sum
from ..shape.dims import normal_dim
from ..shape.reordering import permute_
from ..shape.reshaping import reshape_
from ..table import Sample, op
from .diagonals import diagonal
from .matmul import bmm, matmul_

if TYPE_CHECKING:
    from collections.abc import Sequence


def _from_labels(given: tuple[Any, ...]) -> tuple[str, tuple[Any, ...]]:
    """The equation and the operands, from tensors that are each followed by a list of labels."""
    count = len(given) // 2
    terms = [_letters(given[2 * i + 1]) for i in range(count)]
    out = f"->{_letters(given[-1])}" if len(given) % 2 else ""
    return ",".join(terms) + out, given[: 2 * count : 2]


def _letters(labels: Sequence[Any]) -> str:
    """Labels 0 to 51 as the letters A to Z and a to z."""
    text = ""
    for label in labels:
        if label is Ellipsis:
            text += "..."
        elif 0 <= label < 52:
            text += chr(65 + label if label < 26 else 71 + label)
        else:
            raise ValueError(f"einsum: labels lie in 0..51, got {label}")
    return text


def _check_letters(equation: str) -> None:
    rest = equation.replace("->", ",", 1).replace(" ", "")
    for part in rest.split(","):
        plain = part.replace("...", "", 1)
        if plain and not (plain.isascii() and plain.isalpha()):
            raise RuntimeError(f"einsum {equation!r}: {part!r} is not made of letters and one ...")


def _parse_einsum(equation: str, operands: list[Any]) -> tuple[list[str], str]:
    if ". ." in equation:
        raise RuntimeError(f"einsum {equation!r}: there is a space in an ellipsis")
    _check_letters(equation)
    equation = equation.replace(" ", "")
    left, arrow, right = equation.partition("->")
    terms = left.split(",")
    if len(terms) != len(operands):
        raise RuntimeError(f"einsum {equation!r} names {len(terms)} operands, got {len(operands)}")
    names = [chr(c) for c in range(0x1F00, 0x1F80)]
    dots = 0
    for term, x in zip(terms, operands, strict=True):
        if "..." in term:
            dots = max(dots, x._array.ndim - len(term) + 3)
    batch = "".join(names[:dots])
    full = []
    for term, x in zip(terms, operands, strict=True):
        if "..." in term:
            n = x._array.ndim - len(term) + 3
            term = term.replace("...", batch[dots - n :])
        if len(term) != x._array.ndim:
            raise RuntimeError(
                f"einsum {equation!r}: operand of shape {tuple(x.shape)} has {x._array.ndim} "
                f"dimensions but {len(term)} subscripts"
            )
        full.append(term)
    if arrow:
        out = right.replace("...", batch)
    else:
        letters = "".join(full)
        out = batch + "".join(
            sorted(c for c in set(letters) if letters.count(c) == 1 and c not in batch)
        )
    return full, out


@op(
    method=False,
    samples=lambda: [
        Sample("ij,jk->ik", (3, 4), (4, 2)),
        Sample("bij,bjk->bik", (2, 3, 4), (2, 4, 5)),
        Sample("i,j->ij", (3,), (4,)),
        Sample("ij->ji", (3, 4)),
        Sample("ii->i", (3, 3)),
        Sample("ii", (3, 3)),
        Sample("ij,ij->", (3, 4), (3, 4)),
        Sample("...ij,...jk->...ik", (2, 3, 4), (4, 5)),
        Sample("bhqd,bhkd->bhqk", (2, 2, 3, 4), (2, 2, 5, 4)),
        Sample("ij,jk,kl->il", (2, 3), (3, 4), (4, 2)),
        Sample("ij->j", (3, 4)),
    ],
    autocast={"cuda": "lower"},
)
def einsum(equation: str | Tensor, *operands: Any) -> Any:
    """Sums of products by Einstein's notation.

    A letter names a dimension. Letters that are not right of "->" are summed over; without "->"
    the result has the letters that occur once, in alphabetical order. "..." stands for dimensions
    that broadcast. Instead of an equation, each tensor may be followed by a list of integer labels
    of its dimensions, with those of the result at the end.

    >>> import tapegrad
    >>> a, b = tapegrad.tensor([[1.0, 2.0], [3.0, 4.0]]), tapegrad.tensor([[1.0, 1.0], [0.0, 1.0]])
    >>> tapegrad.einsum("ij,jk->ik", a, b)
    tensor([[1., 3.],
            [3., 7.]])
    """
    if isinstance(equation, Tensor):
        equation, operands = _from_labels((equation, *operands))
    elif len(operands) == 1 and isinstance(operands[0], (list, tuple)):
        operands = tuple(operands[0])
    if not operands:
        raise ValueError("einsum needs at least one operand")
    tensors: list[Any] = list(operands)
    terms, out = _parse_einsum(equation, tensors)
    sizes: dict[str, int] = {}
    for term, x in zip(terms, tensors, strict=True):
        for c, n in zip(term, x._array.shape, strict=True):
            if sizes.setdefault(c, n) != n and n != 1:
                if sizes[c] != 1:
                    raise RuntimeError(
                        f"einsum {equation!r}: subscript {c!r} has sizes {sizes[c]} and {n}"
                    )
                sizes[c] = n
    for c in out:
        if c not in sizes or out.count(c) > 1:
            raise RuntimeError(f"einsum {equation!r}: bad output subscript {c!r}")
    term, x = _without_repeats(terms[0], tensors[0])
    for k in range(1, len(tensors)):
        other_term, y = _without_repeats(terms[k], tensors[k])
        later = set(out).union(*terms[k + 1 :])
        term, x = _contract(term, x, other_term, y, later)
    gone = tuple(i for i, c in enumerate(term) if c not in out)
    if gone:
        x = sum(x, gone)
        term = "".join(c for c in term if c in out)
    order = tuple(term.index(c) for c in out)
    return permute_(x, dims=order) if order != tuple(range(len(order))) else x


def _without_repeats(term: str, x: Any) -> tuple[str, Any]:
    """Take the diagonal for each subscript repeated in one operand."""
    for c in dict.fromkeys(term):
        while term.count(c) > 1:
            i = term.index(c)
            j = term.index(c, i + 1)
            x = diagonal(x, 0, i, j)
            term = term[:i] + term[i + 1 : j] + term[j + 1 :] + c
    return term, x


def _contract(a: str, x: Any, b: str, y: Any, later: set[str]) -> tuple[str, Any]:
    """Contract two operands by a batched matrix product; sum over subscripts not needed later."""
    only = [c for c in a if c not in b and c not in later]
    if only:
        x = sum(x, tuple(a.index(c) for c in only))
        a = "".join(c for c in a if c not in only)
    only = [c for c in b if c not in a and c not in later]
    if only:
        y = sum(y, tuple(b.index(c) for c in only))
        b = "".join(c for c in b if c not in only)
    shared = [c for c in a if c in b]
    batch = [c for c in shared if c in later]
    inner = [c for c in shared if c not in later]
    left = [c for c in a if c not in b]
    right = [c for c in b if c not in a]
    n: dict[str, int] = {}
    for term, v in ((a, x), (b, y)):
        for c, wide in zip(term, v._array.shape, strict=True):
            n[c] = wide if n.get(c, 1) == 1 else n[c]

    def arranged(term: str, v: Any, order: list[str]) -> Any:
        v = v.expand([n[c] for c in term])
        return permute_(v, dims=tuple(term.index(c) for c in order))

    def size(group: list[str]) -> int:
        return math.prod([n[c] for c in group])

    p = reshape_(arranged(a, x, batch + left + inner), shape=(size(batch), size(left), size(inner)))
    q = reshape_(
        arranged(b, y, batch + inner + right), shape=(size(batch), size(inner), size(right))
    )
    names = batch + left + right
    # Autocast treats it as a matrix product if it sums, else as a multiplication.
    product = bmm if inner else matmul_
    return "".join(names), reshape_(product(p, q), shape=tuple(n[c] for c in names))


@op(
    samples=lambda: [
        Sample((2, 3, 4), (3, 4, 5)),
        Sample((2, 3, 4), (4, 5), 1),
        Sample((2, 3, 4), (4, 5, 2), dims=([0, 2], [2, 0])),
    ],
    method=False,
    autocast={"cpu": "lower", "cuda": "widest"},
)
def tensordot(a: Tensor, b: Tensor, dims: int | Sequence[Sequence[int]] = 2) -> Any:
    """Sums of products over `dims` last dimensions of `a` and first of `b`, or over named pairs.

    >>> import tapegrad
    >>> a, b = tapegrad.ones(2, 3, 4), tapegrad.ones(4, 5)
    >>> tapegrad.tensordot(a, b, dims=1).shape
    Size([2, 3, 5])
    >>> tapegrad.tensordot(a, tapegrad.ones(5, 2), dims=([0], [1])).shape
    Size([3, 4, 5])
    """
    if isinstance(dims, int):
        if dims < 0:
            raise RuntimeError(f"tensordot needs dims of at least 0, got {dims}")
        n = a._array.ndim
        pairs = [list(range(n - dims, n)), list(range(dims))]
    else:
        pairs = [
            [dims[0]] if isinstance(dims[0], int) else list(dims[0]),
            [dims[1]] if isinstance(dims[1], int) else list(dims[1]),
        ]
    first = [normal_dim(d, a._array.ndim) for d in pairs[0]]
    second = [normal_dim(d, b._array.ndim) for d in pairs[1]]
    letters = [chr(97 + i) for i in range(a._array.ndim + b._array.ndim)]
    left = letters[: a._array.ndim]
    right = letters[a._array.ndim :]
    for i, j in zip(first, second, strict=True):
        right[j] = left[i]
    out = [c for i, c in enumerate(left) if i not in first]
    out += [c for j, c in enumerate(right) if j not in second]
    return einsum(f"{''.join(left)},{''.join(right)}->{''.join(out)}", a, b)
