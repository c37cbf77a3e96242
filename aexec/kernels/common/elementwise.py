"""Code that elementwise kernels share: registration, rounding of narrow floats, errors about shapes.

If a NumPy ufunc does what TensorFlow does, the compute callable *is* the ufunc.  An error that NumPy raises about
shapes is then translated into TensorFlow's words (`broadcast_error`, set as `c.explain`). half and bfloat16 are
computed in float32 and rounded once.
Next to read: `aexec/kernels/math/cwise_ops.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from aexec.framework import dtypes, errors
from aexec.framework.dtypes import DType
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.kernel_contract.op_kernel import Builder, Compute, Cost, OpKernelConstruction, Scratch
from aexec.framework.kernel_contract.output_sizes import broadcast_elements
from aexec.framework.memory.allocator import announce_scratch
from aexec.framework.memory.memory import is_out_of_memory
from aexec.framework.shape import shape_text
from aexec.framework.waiting.intra_op import in_pieces
from aexec.kernels.common.registration import on_host

__all__ = [
    "CLIP_ABOVE",
    "FLOAT_COMPLEX",
    "SIGNED",
    "broadcast_error",
    "by_ufunc",
    "clipper",
    "in_float32",
    "piece_scratch",
    "register",
    "shared",
    "shared_rows",
    "ufunc",
]

FLOAT_COMPLEX = (*dtypes.FLOAT, *dtypes.COMPLEX)
SIGNED = (*dtypes.FLOAT, *dtypes.SIGNED_INTEGRAL)

# Above this number of elements it pays to convert bfloat16 to float32, compute there, and convert back: ml_dtypes
# computes element by element, NumPy's float32 loops are vectorised.
_WIDEN_ABOVE = 1024
# Bytes that an element of a converted array needs: its float32 value, and the result.
_WIDE_BYTES = 12

# Up to this many elements, one or two ufuncs are faster than the method `clip`.
CLIP_ABOVE = 2000


def register(
    op: str,
    builder: Builder,
    types: Iterable[DType],
    *,
    cost: Cost = 1.0,
    host_int32: tuple[str, ...] = (),
    needs: tuple[str, ...] = (),
    scratch: Scratch = 0.0,
) -> None:
    """Register the CPU kernel of an op whose one type attr is `T`.

    Args:
        host_int32: names of all inputs and outputs, if TensorFlow has an int32 kernel that works in host memory on a
            device of any type.
        needs, scratch: as of `kernel`.
    """
    kernel(op, cost=cost, needs=needs, scratch=scratch, T=types)(builder)
    if host_int32:
        kernel(op, device="DEFAULT", host_memory=host_int32, cost=cost, T=(dtypes.int32,))(on_host(builder))


def ufunc(c: OpKernelConstruction, name: str) -> Compute:
    """The array module's ufunc of this name, for the type of the node's first input.

    For bfloat16 it computes in float32 and rounds to bfloat16.
    """
    plain: Compute = getattr(c.xp, name)
    if not c.input_types or c.input_types[0].base is not dtypes.bfloat16:
        return plain
    out = None if c.output_types[0] is dtypes.bool_ else dtypes.bfloat16.np

    def widened(*inputs: Any) -> Any:
        if sum(x.size for x in inputs) <= _WIDEN_ABOVE:
            return plain(*inputs)
        announce_scratch(_WIDE_BYTES * max([x.size for x in inputs]))
        wide = plain(*[x.astype(np.float32) for x in inputs])
        return wide if out is None else wide.astype(out)

    return widened


def by_ufunc(c: OpKernelConstruction, name: str) -> Compute:
    """A kernel that is a ufunc of all inputs, and may write over one of them.

    It does not write over complex inputs, since NumPy then rounds complex products differently.
    """
    if c.input_types[0].base is not dtypes.bfloat16 and not c.input_types[0].is_complex:
        c.forward_inputs(*range(len(c.input_types)))
    return ufunc(c, name)


# Elements in a piece of a costly function of one array, about 0.2 ms.
_PIECE = 1 << 15


def shared(xp: Any, function: Compute) -> Compute:
    """An elementwise, costly `function` of one array, in pieces that several threads share."""
    if xp is not np:
        return function

    def compute(x: Any) -> Any:
        if x.size < 2 * _PIECE or not x.flags.c_contiguous:
            return function(x)
        flat, out = x.reshape(-1), np.empty(x.size, x.dtype)

        def piece(i: int) -> None:
            part = slice(i * _PIECE, (i + 1) * _PIECE)
            out[part] = function(flat[part])

        in_pieces(-(-x.size // _PIECE), piece)
        return out.reshape(x.shape)

    return compute


def shared_rows(xp: Any, function: Compute, dtype: Any, piece: int | None = None) -> Compute:
    """Like `shared`, for several arrays, which are broadcast; the results are converted to `dtype`.

    Args:
        piece: elements in a piece, if not as many as of `shared`.
    """

    def whole(*arrays: Any) -> Any:
        return function(*arrays).astype(dtype, copy=False)

    if xp is not np:
        return whole

    def compute(*arrays: Any) -> Any:
        at_once = piece or _PIECE
        shape = np.broadcast_shapes(*(array.shape for array in arrays))
        size = math.prod(shape)
        if not size:
            return np.empty(shape, dtype)  # whatever the function does with long arrays beside an empty one
        if size < 2 * at_once:
            return whole(*arrays)
        out, inputs = np.empty(shape, dtype), [np.broadcast_to(array, shape) for array in arrays]
        target = out
        if all(array.flags.c_contiguous for array in inputs):
            target, inputs = out.reshape(-1), [array.reshape(-1) for array in inputs]
        # Cut the longest axis, so that pieces are not too large where other axes are short.
        length = max(target.shape)
        every = (slice(None),) * target.shape.index(length)
        rows = max(1, at_once * length // size)

        def compute_rows(i: int) -> None:
            part = (*every, slice(i * rows, (i + 1) * rows))
            target[part] = function(*(array[part] for array in inputs))

        in_pieces(-(-length // rows), compute_rows)
        return out

    return compute


def piece_scratch(element_bytes: int) -> Callable[..., int]:
    """Scratch of a kernel that is `shared_rows` of a function which needs this many bytes per element."""
    return lambda *arrays: element_bytes * min(broadcast_elements(arrays), 2 * _PIECE)


def in_float32(c: OpKernelConstruction, compute: Compute, forwards: Sequence[int] = ()) -> Compute:
    """`compute`, for a node on half or bfloat16: converts inputs to float32 and rounds the result.

    Args:
        forwards: inputs that `compute` may be given as `out`; see `OpKernelConstruction.forward_inputs`.
    """
    dtype = c.input_types[0].base
    if dtype is not dtypes.float16 and dtype is not dtypes.bfloat16:
        if forwards:
            c.forward_inputs(*forwards)
        return compute
    narrow, wide = dtype.np, np.float32
    if len(c.input_types) == 1:

        def of_one(x: Any) -> Any:
            announce_scratch(_WIDE_BYTES * x.size)
            return compute(x.astype(wide)).astype(narrow)

        return of_one

    def of_two(x: Any, y: Any) -> Any:
        announce_scratch(_WIDE_BYTES * max(x.size, y.size))
        return compute(x.astype(wide), y.astype(wide)).astype(narrow)

    return of_two


def clipper(c: OpKernelConstruction, dtype: np.dtype[Any], low: float | None, high: float | None) -> Compute:
    """A function that clips arrays of `dtype` to [low, high], keeps NaN, and takes `out`.

    Large arrays are clipped by their method `clip`, whose loop is several times as fast as those of `maximum` and
    `minimum`.  It keeps the sign of zeros, they do not.

    Args:
        dtype: the node's type, or the wider one that it is computed in.
        low, high: bounds, of which one may be None.
    """
    names = [(name, bound) for name, bound in (("maximum", low), ("minimum", high)) if bound is not None]
    of_node = dtype == c.input_types[0].np
    bounds = [(ufunc(c, name) if of_node else getattr(c.xp, name), c.xp.array(v, dtype)) for name, v in names]
    in_one_loop = dtype.kind in "iu" or dtype in (np.float32, np.float64)
    # Arrays of the type are faster than scalars.
    lowest, highest = (np.iinfo(dtype).min, np.iinfo(dtype).max) if dtype.kind in "iu" else (-np.inf, np.inf)
    lower = c.xp.array(lowest if low is None else low, dtype)
    upper = c.xp.array(highest if high is None else high, dtype)

    def compute(x: Any, out: Any = None) -> Any:
        if in_one_loop and x.size > CLIP_ABOVE:
            return x.clip(lower, upper, out)
        for choose, bound in bounds:
            x = choose(x, bound)
        return x

    return compute


def broadcast_error(exc: BaseException, *inputs: Any) -> errors.OpError:
    """A ufunc's error in TensorFlow's words; an `explain` for kernels of two inputs.

    Shapes that do not broadcast, and negative powers of integers, are InvalidArgument; too little memory is
    ResourceExhausted; anything else is a bug in the kernel.
    """
    if is_out_of_memory(exc):
        return errors.ResourceExhaustedError(f"OOM when allocating the output: {exc}")
    shapes = [x.shape for x in inputs]
    try:
        np.broadcast_shapes(*shapes)
    except ValueError:
        return errors.InvalidArgumentError("Incompatible shapes: " + " vs. ".join(map(shape_text, shapes)))
    if "negative integer powers" in str(exc):
        return errors.InvalidArgumentError("Integers to negative integer powers are not allowed")
    return errors.InternalError(f"{type(exc).__name__}: {exc}")
