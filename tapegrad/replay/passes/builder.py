"""The builder: how a primitive's own lowering writes loops, products and contractions.

Comes in: ghosts of the results and inputs of a primitive. A ghost is a NumPy array with the right
strides whose contents mean nothing, so a lowering slices it like a real array. Goes out:
instructions, appended to those of the `Lowering`. Made by `lower.py`, called by the `lower`
functions of operations.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from ...core import numeric
from ...core.failures import BAD_INDEX, BAD_POSITION
from ...core.primitive import ELEMENTWISE, Primitive
from ...core.storage import owner_of
from ...core.tape import Value
from ...core.xp import address
from ..ir.expressions import NoLowering
from ..ir.program import (
    Access,
    Apply,
    Attention,
    Compute,
    Contraction,
    Instruction,
    Literal,
    Loop,
    Node,
    Pick,
    Product,
    Read,
    Shape,
    Store,
    View,
    in_order,
    size_of,
)
from .fuse import join
from .loops import Body

if TYPE_CHECKING:
    from .lower import Lowering

#: the identity, as loops that copy compute it
COPY = Primitive("copy", lambda x: x.copy(), ELEMENTWISE, ("x",), expression="x")
CAST = Primitive("convert", lambda x: x, ELEMENTWISE, ("x",), expression="cast(x)")


INT64 = np.dtype(np.int64)
FLOAT32 = np.dtype(np.float32)


class Picked:
    """Elements of a ghost that index arrays pick; made by `Builder.along` and `Builder.index`."""

    def __init__(
        self,
        array: Any,
        shape: Shape,
        strides: tuple[int, ...],
        picks: Any,
        failure: int = BAD_INDEX,
    ) -> None:
        self.array = array
        self.shape = shape
        self.strides = strides  # of the loop's dimensions, in elements of the array
        self.picks = picks  # (ghost of an index, its strides, stride, size)
        self.failure = failure  # the error if an index is out of range


class Builder:
    """What `Primitive.lower` calls: loops over ghosts of its result and inputs.

    Ghosts are sliced like real arrays: `b.fill(out, 0); b.copy(out[2:4], x)`.
    """

    def __init__(self, lowering: Lowering, apply: Apply) -> None:
        self._lowering = lowering
        self.machine = lowering.machine
        self.origins = apply.origins
        #: by id() of a ghost's memory: the memory, the value, and the memory's offset in the value
        self._memories: dict[int, tuple[Any, Value, int]] = {}
        #: ids of the memories whose indices were checked to be in range
        self._valid: set[int] = set()

    # -- ghosts ------------------------------------------------------------------------------

    def ghost(self, view: View) -> Any:
        """An array with the shape and strides of a view."""
        ends = [(n - 1) * s for n, s in zip(view.shape, view.strides, strict=True) if n > 1]
        low = sum(e for e in ends if e < 0)
        high = sum(e for e in ends if e > 0)
        dtype = view.root.dtype
        memory = np.empty(high - low + 1, dtype)
        self._memories[id(memory)] = (memory, view.root, view.offset + low)
        steps = tuple(s * dtype.itemsize for s in view.strides)
        return np.ndarray(view.shape, dtype, memory, -low * dtype.itemsize, steps)

    def view(self, ghost: Any) -> View:
        """The view that a ghost, or a part of one, stands for."""
        known = self._memories.get(id(owner_of(ghost)))
        if known is None:
            raise NoLowering("in this memory order its movements copy")
        memory, root, first = known
        if ghost.dtype != memory.dtype:
            raise NoLowering("it shows elements of another dtype")
        size = ghost.itemsize
        offset = (address(ghost) - address(memory)) // size + first
        return View(root, offset, ghost.shape, tuple(s // size for s in ghost.strides))

    def strided(self, x: Any, shape: Shape, strides: tuple[int, ...]) -> Any:
        """A ghost on the memory of another, with strides in bytes."""
        view, size = self.view(x), x.itemsize
        return self.ghost(View(view.root, view.offset, shape, tuple(s // size for s in strides)))

    def shown(self, primitive: Primitive, params: dict[str, Any], view: View) -> View | None:
        """The view that a movement makes of a view; None if it copies."""
        ghost = self.ghost(view)
        out = primitive.kernel(ghost, **params)
        return self.view(out) if id(owner_of(out)) in self._memories else None

    # -- loops -------------------------------------------------------------------------------

    def refuse(self, reason: str) -> NoReturn:
        """Leave the operation to NumPy."""
        raise NoLowering(reason)

    def fill(self, out: Any, number: Any) -> None:
        """out[...] = number"""
        view = self.view(out)
        node = Compute(COPY, {}, (Literal(number),), view.root.dtype)
        store = Store(self._lowering.spread(view, view.shape), 0)
        self.add_loop(Loop(view.shape, (node,), (store,), (), self.origins))

    def copy(self, out: Any, x: Any) -> None:
        """out[...] = x, with broadcasting; either side may be picked by indices."""
        self._put(out, x, adds=False)

    def add(self, out: Any, x: Any) -> None:
        """out[...] += x, counting every repetition of an index."""
        self._put(out, x, adds=True)

    def constant(self, array: Any) -> Any:
        """A ghost of a known array."""
        lowering = self._lowering
        value = lowering.new(array.shape, array.dtype)
        lowering.added.append((value, np.ascontiguousarray(array)))
        lowering.constants[value.number] = array
        return self.ghost(lowering.views[value.number])

    def ordered(self, x: Any) -> Any:
        """`x`, or a contiguous copy of it."""
        if in_order(x.shape, self.view(x).strides):
            return x
        copy = self.new(x.shape, x.dtype)
        self.copy(copy, x)
        return copy

    def apply(self, out: Any, primitive: Primitive, *inputs: Any, adds: bool = False) -> None:
        """out[...] = an elementwise primitive's expression on ghosts and numbers."""
        to = self._lowering.spread(self.view(out), out.shape)
        nodes: list[Node] = []
        operands: list[Any] = []
        for x in inputs:
            if isinstance(x, (bool, int, float)):
                operands.append(Literal(x))
                continue
            nodes.append(Read(self._lowering.spread(self.view(x), out.shape)))
            operands.append(len(nodes) - 1)
        types = [o.number if isinstance(o, Literal) else nodes[o].dtype for o in operands]
        self.machine.examine(primitive, {}, types, to.value.dtype)
        nodes.append(Compute(primitive, {}, tuple(operands), to.value.dtype))
        store = Store(to, len(nodes) - 1, adds)
        self.add_loop(Loop(out.shape, tuple(nodes), (store,), (), self.origins))

    @contextmanager
    def together(self) -> Iterator[None]:
        """Fuse the loops that are added inside: all have one shape and write separate elements."""
        instructions = self._lowering.instructions
        start = len(instructions)
        yield
        loops = [i for i in instructions[start:] if isinstance(i, Loop)]
        if loops:
            instructions[start:] = [join(loops)]

    def contract(self, out: Any, x: Any, y: Any) -> None:
        """out = the sum of x * y (broadcast) over the dimensions where `out` has size 1."""
        if out.dtype not in (np.float32, np.float64) or not out.dtype == x.dtype == y.dtype:
            raise NoLowering(f"sums of products of {x.dtype} and {y.dtype} in {out.dtype}")
        shape = np.broadcast_shapes(x.shape, y.shape)
        if out.size == 0:
            return
        if 0 in shape:
            self.fill(out, 0)
            return
        dims = tuple(d for d, (n, k) in enumerate(zip(shape, out.shape, strict=True)) if n != k)
        to, first, second = (
            self._lowering.spread(self.view(np.broadcast_to(z, shape)), shape) for z in (out, x, y)
        )
        self.add_loop(Contraction(shape, dims, to, first, second, self.origins))

    def _put(self, out: Any, x: Any, adds: bool) -> None:
        to = self.access(out, out.shape)
        shape = out.shape
        nodes: list[Node] = []
        operand: Any = Literal(x)
        if not isinstance(x, (bool, int, float)):
            known = None
            if not isinstance(x, Picked):
                known = self._lowering.number_in(self.view(x))
            if known is None:
                nodes.append(Read(self.access(x, shape)))
                if nodes[0].dtype != to.value.dtype:
                    raise NoLowering(f"it puts {nodes[0].dtype} into {to.value.dtype}")
            operand = 0 if known is None else known
        nodes.append(Compute(COPY, {}, (operand,), to.value.dtype))
        store = Store(to, len(nodes) - 1, adds)
        self.add_loop(Loop(shape, tuple(nodes), (store,), (), self.origins))

    def access(self, x: Any, shape: Shape) -> Access:
        """The access of a loop over `shape` to the elements of a ghost."""
        lowering = self._lowering
        if not isinstance(x, Picked):
            return lowering.spread(self.view(x), shape)
        root = self.view(x.array)
        picks = tuple(
            Pick(
                Access(self.view(index).root, self.view(index).offset, strides),
                stride,
                size,
                x.failure,
                id(owner_of(index)) in self._valid,
            )
            for index, strides, stride, size in x.picks
        )
        return Access(root.root, root.offset, x.strides, picks)

    def valid(self, index: Any, size: int, failure: int = BAD_INDEX) -> Any:
        """Indices as positions from the front, checked before any later instruction.

        A write at these positions cannot fail, so it may change memory from outside in place.
        """
        out = self.new(index.shape, INT64)
        self._valid.add(id(owner_of(out)))
        body = self.over(out.shape)
        among = body.position((0,) * len(out.shape), size)  # no literal: all sizes share the code
        text = f"valid_index(as_int64(x), among, {failure})"
        body.store(out, body.compute(text, INT64, x=body.read(index), among=among))
        body.done()
        return out

    def along(self, x: Any, index: Any, dim: int) -> Picked:
        """The elements that `index`, with as many dimensions as `x`, picks along `dim`."""
        steps = self.view(x).strides
        strides = tuple(0 if d == dim else s for d, s in enumerate(steps))
        pick = (index, self.view(index).strides, steps[dim], x.shape[dim])
        return Picked(x, index.shape, strides, (pick,), BAD_POSITION)

    def index(self, x: Any, indices: Sequence[Any], dims: Sequence[int]) -> Picked:
        """x[..., index, ...] with index arrays at `dims`, with NumPy's order of dimensions."""
        steps = self.view(x).strides
        joint = np.broadcast_shapes(*(i.shape for i in indices))
        others = [d for d in range(x.ndim) if d not in dims]
        adjacent = list(dims) == list(range(dims[0], dims[0] + len(dims)))
        front = [d for d in others if d < dims[0]] if adjacent else []
        back = [d for d in others if d not in front]
        shape = (*(x.shape[d] for d in front), *joint, *(x.shape[d] for d in back))
        strides = (*(steps[d] for d in front), *(0,) * len(joint), *(steps[d] for d in back))
        picks = []
        for i, d in zip(indices, dims, strict=True):
            inner = self._lowering.spread(self.view(i), joint).strides
            picks.append((i, ((0,) * len(front) + inner + (0,) * len(back)), steps[d], x.shape[d]))
        return Picked(x, shape, strides, tuple(picks))

    # -- other loops -------------------------------------------------------------------------

    def over(self, shape: Shape) -> Body:
        """A loop over a shape, to which the caller adds nodes."""
        return Body(self, tuple(shape))

    def each(self, out: Any, expression: str, **operands: Any) -> None:
        """out[...] = an expression on ghosts that broadcast to it, and numbers."""
        body = self.over(out.shape)
        given = {
            name: body.read(x) if isinstance(x, np.ndarray) else Literal(x)
            for name, x in operands.items()
        }
        body.store(out, body.compute(expression, out.dtype, **given))
        body.done()

    def new(self, shape: Shape, dtype: Any) -> Any:
        """A ghost of a new intermediate value."""
        lowering = self._lowering
        return self.ghost(lowering.views[lowering.new(shape, np.dtype(dtype)).number])

    def number_in(self, x: Any) -> Literal | None:
        """The number that all elements of a ghost are known to have, if there is one."""
        return None if isinstance(x, Picked) else self._lowering.number_in(self.view(x))

    def widest(self, dtype: Any) -> Any:
        """The dtype in which elements of a dtype are accumulated."""
        return FLOAT32 if numeric.is_half(dtype) else dtype

    def widened(self, x: Any) -> Any:
        """`x`, or a copy in float32 if it is of half precision."""
        if not numeric.is_half(x.dtype):
            return x
        wide = self.new(x.shape, FLOAT32)
        self.rounded(wide, x)
        return wide

    def rounded(self, out: Any, x: Any) -> None:
        """out[...] = x, in the dtype of `out`."""
        self._lowering.cast(self.view(out), self.view(x), self.origins)

    def product(self, out: Any, x: Any, y: Any, triangle: str = "") -> None:
        """out = x @ y, with batches that broadcast; `triangle` as that of `Product`."""
        if out.size == 0:
            return
        half = numeric.is_half(out.dtype)
        if half and (triangle or not out.dtype == x.dtype == y.dtype):
            wide = self.new(out.shape, FLOAT32)
            self.product(wide, x, y, triangle)
            self.rounded(out, wide)
            return
        if not half:
            x, y = self.widened(x), self.widened(y)
        known = half or out.dtype in (np.float32, np.float64)
        if not known or not out.dtype == x.dtype == y.dtype:
            raise NoLowering(f"matrix products of {x.dtype} and {y.dtype}")
        down, across = self.view(out).strides[-2:]
        transposed = across != 1 and out.shape[-1] > 1
        if transposed and triangle:
            straight = self.new(out.shape, out.dtype)
            self.product(straight, x, y, triangle)
            self.copy(out, straight)
            return
        if transposed or (out.shape[-1] == 1 and down == 1 and not triangle):
            # out^T = y^T @ x^T. A single column becomes a row, along which kernels vectorise.
            out, x, y = (np.swapaxes(z, -1, -2) for z in (out, y, x))
        *batch, rows, columns = out.shape
        inner = x.shape[-1]
        if inner == 0:
            self.fill(out, 0)
            return
        plain = not batch and not triangle and not half
        if plain and rows > 1 and self._is_better_sideways(x, columns):
            sideways = self.new((columns, rows), out.dtype)
            self.product(sideways, y.T, x.T)
            self.copy(out, sideways.T)
            return
        if plain:
            longer = y if columns >= rows else np.swapaxes(x, -1, -2)
            steps = self.machine.steps_of_part(
                rows, inner, columns, longer.strides[0] == longer.itemsize
            )
            if steps:
                self._in_parts(out, x, y, steps)
                return
        spread = self._lowering.spread

        def matrix(ghost: Any) -> Access:
            view = self.view(ghost)
            shape = (*batch, *view.shape[-2:])
            access = spread(view, shape)
            return Access(access.value, access.offset, (*access.strides[:-2], *view.strides[-2:]))

        self.add_loop(
            Product(
                tuple(batch),
                rows,
                inner,
                columns,
                matrix(out),
                matrix(self._ordered(x)),
                matrix(self._ordered(y)),
                self.origins,
                triangle=triangle,
            )
        )

    def _is_better_sideways(self, x: Any, columns: int) -> bool:
        if not x.strides[0] == x.itemsize < x.strides[1]:
            return False
        rows, inner = x.shape
        return self.machine.is_better_sideways(rows, inner, columns, x.itemsize)

    def _in_parts(self, out: Any, x: Any, y: Any, steps: int) -> None:
        """A product whose inner dimension is split into parts of `steps`, summed in order."""
        (rows, inner), columns = x.shape, y.shape[1]
        many = self.machine.parts_at_a_time()
        total = None
        for first in range(0, inner, steps * many):
            some = slice(first, first + steps * many)
            left, right = x[:, some], y[some]
            count = right.shape[0] // steps
            (down, across), (step, along) = left.strides, right.strides
            parts = self.new((count, rows, columns), out.dtype)
            self.product(
                parts,
                self.strided(left, (count, rows, steps), (across * steps, down, across)),
                self.strided(right, (count, steps, columns), (step * steps, step, along)),
            )
            names = {f"p{i}": parts[i] for i in range(count)}
            if total is not None:
                names = {"total": total, **names}
            total = out if some.stop >= inner else self.new(out.shape, out.dtype)
            self.each(total, " + ".join(names), **names)

    def attention(
        self,
        results: Sequence[Any],
        operands: Sequence[Any],
        mask: Any,
        state: Any,
        *,
        scale: float,
        causal: bool,
        dropout: float,
        safe: bool,
        backward: bool,
    ) -> None:
        """Attention in tiles, or its gradients; see `Attention`.

        Half precision is computed in float32 if the machine has no attention in half precision.
        """
        is_plain = mask is None and state is None
        if numeric.is_half(results[0].dtype) and not self._attends(results[0].dtype, is_plain):
            wide = [self.new(x.shape, self.widest(x.dtype)) for x in results]
            options: dict[str, Any] = {"scale": scale, "causal": causal, "dropout": dropout}
            options |= {"safe": safe, "backward": backward}
            self.attention(wide, operands, mask, state, **options)
            for x, found in zip(results, wide, strict=True):
                self.rounded(x, found)
            return
        dtype = results[0].dtype
        self.machine.check_attention(dtype, is_plain)
        # Backward reads `delta`, operand 5; in half precision it reads `out`, operand 6, instead.
        chosen = [*operands[:5], *operands[6 if numeric.is_half(dtype) else 5 :][:1]]
        given = [self._in_rows(x if x.dtype == dtype else self.widened(x)) for x in chosen]
        q, k, v = given[:3]
        if any(x.dtype not in (dtype, self.widest(dtype)) for x in given):
            raise NoLowering(f"attention of several dtypes, {dtype} among them")
        *batch, queries, features = q.shape
        if mask is not None and mask.dtype != np.bool_:
            mask = self.widened(mask)
        if mask is not None and mask.dtype not in (np.bool_, dtype):
            raise NoLowering(f"a mask of {mask.dtype}")
        spread = self._lowering.spread

        def matrix(ghost: Any, rows: int, columns: int) -> Access:
            return spread(self.view(ghost), (*batch, rows, columns))

        self.add_loop(
            Attention(
                tuple(batch),
                queries,
                k.shape[-2],
                features,
                v.shape[-1],
                tuple(matrix(x, *x.shape[-2:]) for x in given),
                None if mask is None else matrix(mask, queries, k.shape[-2]),
                None if state is None else self._pair(state, len(batch) + 2),
                tuple(matrix(x, *x.shape[-2:]) for x in results),
                scale,
                causal,
                dropout,
                safe,
                backward,
                self.origins,
            )
        )

    def _attends(self, dtype: Any, is_plain: bool) -> bool:
        try:
            self.machine.check_attention(dtype, is_plain)
        except NoLowering:
            return False
        return True

    def _pair(self, x: Any, dimensions: int) -> Access:
        """The access of a kernel to two adjacent numbers, the same for every index."""
        view = self.view(x if self.view(x).strides == (1,) else self.ordered(x))
        return Access(view.root, view.offset, (0,) * dimensions)

    def _in_rows(self, x: Any) -> Any:
        """`x`, or a contiguous copy if its rows are not contiguous."""
        return x if x.shape[-1] == 1 or self.view(x).strides[-1] == 1 else self.ordered(x)

    def _ordered(self, x: Any) -> Any:
        """`x`, or a contiguous copy if neither its rows nor its columns are contiguous."""
        view = self.view(x)
        (rows, columns), (down, across) = x.shape[-2:], view.strides[-2:]
        if (across == 1 or columns == 1) and (down >= columns or rows == 1):
            return x
        if (down == 1 or rows == 1) and (across >= rows or columns == 1):
            return x
        copy = self._lowering.new(x.shape, view.root.dtype)
        to = self._lowering.views[copy.number]
        self._lowering.copy(to, view, self.origins)
        return self.ghost(to)

    def add_loop(self, instruction: Instruction) -> None:
        """Append an instruction, except an empty loop; an empty fold still gives a start value."""
        if (
            isinstance(instruction, Loop)
            and size_of(instruction.shape) == 0
            and not instruction.folds
        ):
            return
        self._lowering.instructions.append(instruction)
