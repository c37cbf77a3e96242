"""Activation functions and their gradients.

If a comparison chooses a factor, the gradient is multiplied by it, as in TensorFlow: an infinite gradient times a
factor of zero is NaN, not zero. The kernels choose by minimum, maximum and products rather than by `where`, which is
many times slower on large arrays of mixed signs.
Next to read: `nn_ops.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from aexec.framework import dtypes, errors
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.kernel_contract.op_kernel import Builder, Compute, OpKernelConstruction, Scratch
from aexec.framework.memory.allocator import announce_scratch
from aexec.framework.shape import check_same_shape, shape_text
from aexec.framework.waiting.intra_op import in_pieces
from aexec.kernels.common.array_module import chooser, reducer
from aexec.kernels.common.elementwise import CLIP_ABOVE, clipper, in_float32, register
from aexec.kernels.common.single_loops import by_loop

__all__: list[str] = []

_CHEAP, _EXP = 0.5, 3.0

# Self-normalising networks, https://arxiv.org/abs/1706.02515
_SCALE = 1.0507009873554804934193349852946
_SCALE_ALPHA = 1.7580993408473768599402175208123


def _relu(c: OpKernelConstruction) -> Compute:
    if c.input_types[0] in dtypes.UNSIGNED_INTEGRAL:
        return lambda x: x
    return _clipped(c, 0, None)


def _relu6(c: OpKernelConstruction) -> Compute:
    return _clipped(c, 0, 6)


def _clipped(c: OpKernelConstruction, low: float, high: float | None) -> Compute:
    c.forward_inputs(0)
    return clipper(c, c.input_types[0].np, low, high)


def _parts(c: OpKernelConstruction) -> tuple[Compute, Compute]:
    """Two functions of an array: its part above 0, and its part below, in the type of the computation."""
    dtype = np.result_type(c.input_types[0].np, np.float32)
    return clipper(c, dtype, 0, None), clipper(c, dtype, None, 0)


def _slope(c: OpKernelConstruction) -> Any:
    """Attr alpha, a float, rounded to the node's type, in the type of the computation."""
    dtype = c.input_types[0].np
    alpha = dtype.type(np.float32(c.attr("alpha")))
    return alpha if dtype.kind in "iu" else np.result_type(dtype, np.float32).type(alpha)


def _leaky_relu(c: OpKernelConstruction) -> Compute:
    xp, alpha = c.xp, _slope(c)
    positive, negative = _parts(c)

    def of_parts(x: Any, out: Any = None) -> Any:
        if x.size <= CLIP_ABOVE:
            return xp.maximum(x, x * alpha)
        above = positive(x)
        out = negative(x, out)
        out *= alpha
        out += above
        return out

    if 0 < alpha <= 1 and c.input_types[0].is_floating:
        return in_float32(c, of_parts, forwards=(0,))
    return in_float32(c, lambda x: xp.where(x > 0, x, x * alpha))


def _elu(c: OpKernelConstruction) -> Compute:
    maximum, minimum, expm1 = c.xp.maximum, c.xp.minimum, c.xp.expm1
    positive, negative = _parts(c)

    def compute(x: Any, out: Any = None) -> Any:
        if x.size <= CLIP_ABOVE:
            return maximum(x, 0) + expm1(minimum(x, 0))
        above = positive(x)
        out = negative(x, out)
        expm1(out, out)
        out += above
        return out

    return in_float32(c, compute, forwards=(0,))


def _selu(c: OpKernelConstruction) -> Compute:
    maximum, minimum, expm1 = c.xp.maximum, c.xp.minimum, c.xp.expm1
    positive, negative = _parts(c)

    def compute(x: Any, out: Any = None) -> Any:
        if x.size <= CLIP_ABOVE:
            return _SCALE * maximum(x, 0) + _SCALE_ALPHA * expm1(minimum(x, 0))
        above = positive(x)
        above *= _SCALE
        out = negative(x, out)
        expm1(out, out)
        out *= _SCALE_ALPHA
        out += above
        return out

    return in_float32(c, compute, forwards=(0,))


# Up to this size one logaddexp, which is not vectorised, is faster than the five calls of the formula.
_LOGADDEXP_BELOW = 200


def _softplus(c: OpKernelConstruction) -> Compute:
    """log(1 + exp(x)) without overflow."""
    logaddexp, log1p, exp, absolute, negate = (
        getattr(c.xp, name) for name in ("logaddexp", "log1p", "exp", "absolute", "negative")
    )
    positive, _ = _parts(c)

    def compute(x: Any, out: Any = None) -> Any:
        if x.size < _LOGADDEXP_BELOW:
            return logaddexp(x, 0)
        above = positive(x)
        out = absolute(x, out)
        for step in (negate, exp, log1p):
            step(out, out)
        out += above
        return out

    return in_float32(c, compute, forwards=(0,))


def _softsign(c: OpKernelConstruction) -> Compute:
    absolute, divide = c.xp.absolute, c.xp.divide

    def compute(x: Any, out: Any = None) -> Any:
        scale = absolute(x)
        scale += 1
        return divide(x, scale, out)

    return in_float32(c, compute, forwards=(0,))


def _leaky_relu_grad(c: OpKernelConstruction) -> Compute:
    xp, alpha = c.xp, _slope(c)
    where = chooser(xp, np.float32)
    if not 0 <= alpha <= 1 or not c.input_types[0].is_floating:
        return in_float32(c, lambda g, x: where(x > 0, g, g * alpha))
    # 1 or alpha: a choice takes longer.
    return in_float32(c, lambda g, x: g * xp.maximum((x > 0).astype(g.dtype), alpha))


# Elements of a piece of a pass over large arrays: its temporaries stay in a core's caches.
_PIECE = 1 << 15


def _where(c: OpKernelConstruction, open_: Callable[[Any], Any]) -> Compute:
    """The gradient where `open_` of the other input holds, else 0; large arrays in pieces, which threads share."""
    xp = c.xp

    def compute(g: Any, x: Any, out: Any = None) -> Any:
        if xp is not np or g.size < 2 * _PIECE or not (g.flags.c_contiguous and x.flags.c_contiguous):
            # Converting the mask first is twice as fast as multiplying two types.
            announce_scratch(g.size * (1 + g.itemsize))
            return xp.multiply(g, open_(x).astype(g.dtype), out)
        if out is None:
            out = np.empty(g.shape, g.dtype)
        flat, flat_x, target = g.reshape(-1), x.reshape(-1), out.reshape(-1)

        def piece(i: int) -> None:
            part = slice(i * _PIECE, (i + 1) * _PIECE)
            np.multiply(flat[part], open_(flat_x[part]).astype(g.dtype), target[part])

        in_pieces(-(-g.size // _PIECE), piece)
        return out

    return in_float32(c, compute, forwards=(0,))


def _by_loop_or(c: OpKernelConstruction, loop: str, plain: Compute) -> Compute:
    """The gradient by a loop in C, for arrays that it takes, else by `plain`."""
    if c.xp is not np:
        return plain

    def compute(g: Any, x: Any, out: Any = None) -> Any:
        made = by_loop(loop, out, g, x)
        if made is not None:
            return made
        return plain(g, x) if out is None else plain(g, x, out)

    return compute


def _relu_grad(c: OpKernelConstruction) -> Compute:
    return _by_loop_or(c, "relu_grads", _where(c, lambda x: x > 0))


def _relu6_grad(c: OpKernelConstruction) -> Compute:
    return _by_loop_or(c, "relu6_grads", _where(c, lambda x: (x > 0) & (x < 6)))


def _elu_grad(c: OpKernelConstruction) -> Compute:
    """`y` is the output.  With fmin a NaN in `y` leaves the gradient unchanged."""
    fmin = c.xp.fmin
    return in_float32(c, lambda g, y: g * (fmin(y, 0) + 1))


def _selu_grad(c: OpKernelConstruction) -> Compute:
    where = chooser(c.xp, np.float32)
    return in_float32(c, lambda g, y: where(y < 0, g * (y + _SCALE_ALPHA), g * _SCALE))


def _softplus_grad(c: OpKernelConstruction) -> Compute:
    exp = c.xp.exp
    return in_float32(c, lambda g, x: g / (exp(-x) + 1))


def _softsign_grad(c: OpKernelConstruction) -> Compute:
    absolute, square = c.xp.absolute, c.xp.square
    return in_float32(c, lambda g, x: g / square(1 + absolute(x)))


def _of_same_shapes(make: Builder) -> Builder:
    def build(c: OpKernelConstruction) -> Compute:
        of_arrays = make(c)

        def compute(g: Any, x: Any, **out: Any) -> Any:
            if g.shape != x.shape:
                check_same_shape(c.name, c.op, g, x)
            return of_arrays(g, x, **out)

        return compute

    return build


def _of_inputs(arrays: int, element_bytes: int = 0) -> Scratch:
    """Scratch of a kernel that makes `arrays` arrays like its first input, and `element_bytes` per element."""
    return lambda x, *_: arrays * x.nbytes + element_bytes * x.size


for _op, _builder, _types, _cost, _scratch in (
    ("Relu", _relu, dtypes.REAL_NUMBER, _CHEAP, 0.0),
    ("Relu6", _relu6, dtypes.REAL_NUMBER, _CHEAP, 0.0),
    ("LeakyRelu", _leaky_relu, dtypes.REAL_NUMBER, _CHEAP, _of_inputs(1)),
    ("Elu", _elu, dtypes.FLOAT, _EXP, _of_inputs(1)),
    ("Selu", _selu, dtypes.FLOAT, _EXP, _of_inputs(1)),
    ("Softplus", _softplus, dtypes.FLOAT, 2 * _EXP, _of_inputs(1)),
    ("Softsign", _softsign, dtypes.FLOAT, _CHEAP, _of_inputs(1)),
    ("ReluGrad", _of_same_shapes(_relu_grad), dtypes.REAL_NUMBER, _CHEAP, 0.0),
    ("Relu6Grad", _of_same_shapes(_relu6_grad), dtypes.REAL_NUMBER, _CHEAP, 0.0),
    ("LeakyReluGrad", _of_same_shapes(_leaky_relu_grad), dtypes.REAL_NUMBER, 2.0, _of_inputs(1, 2)),
    ("EluGrad", _of_same_shapes(_elu_grad), dtypes.FLOAT, _CHEAP, _of_inputs(1)),
    ("SeluGrad", _of_same_shapes(_selu_grad), dtypes.FLOAT, 2.0, _of_inputs(2, 3)),
    ("SoftplusGrad", _of_same_shapes(_softplus_grad), dtypes.FLOAT, _EXP, _of_inputs(1)),
    ("SoftsignGrad", _of_same_shapes(_softsign_grad), dtypes.FLOAT, _CHEAP, _of_inputs(1)),
):
    register(_op, _builder, _types, cost=_cost, scratch=_scratch)


# --- softmax over the last dimension


def _check_logits(logits: Any) -> None:
    if logits.ndim < 1:
        raise errors.InvalidArgumentError(f"logits must have >= 1 dimension, got {shape_text(logits.shape)}")


# Rows up to this length are processed by columns: a reduction costs more per row than this many numbers.
_SHORT = 8


def _by_columns(xp: Any, logits: Any) -> bool:
    return xp is np and logits.shape[-1] <= _SHORT and logits.size >= 64 * _SHORT


def _columns(logits: Any) -> Any:
    """A copy [columns, rows] of logits."""
    return logits.reshape(-1, logits.shape[-1]).T.copy()


def _rows(columns: Any, logits: Any, out: Any) -> Any:
    """The inverse of `_columns`, for an array of the shape of `logits`."""
    result = np.empty(logits.shape, logits.dtype) if out is None else out
    result[...] = columns.T.reshape(logits.shape)
    return result


def _softmax_scratch(logits: Any) -> int:
    """Bytes of the columns, and of their rows."""
    return 2 * int(logits.nbytes) if logits.ndim and logits.shape[-1] <= _SHORT else 0


@kernel("Softmax", T=dtypes.FLOAT, cost=_EXP, scratch=_softmax_scratch)
def softmax(c: OpKernelConstruction) -> Compute:
    xp = c.xp
    subtract, exp, largest, total = xp.subtract, xp.exp, reducer(xp, "maximum"), reducer(xp, "add")

    def compute(logits: Any, out: Any = None) -> Any:
        _check_logits(logits)
        if not logits.size:
            return logits.copy()
        if _by_columns(xp, logits):
            columns = _columns(logits)
            columns -= largest(columns, 0)
            exp(columns, columns)
            columns /= total(columns, 0)
            return _rows(columns, logits, out)
        out = subtract(logits, largest(logits, -1, keepdims=True), out)
        exp(out, out)
        out /= total(out, -1, keepdims=True)
        return out

    return in_float32(c, compute, forwards=(0,))


@kernel("LogSoftmax", T=dtypes.FLOAT, cost=_EXP, scratch=_of_inputs(1))
def log_softmax(c: OpKernelConstruction) -> Compute:
    xp = c.xp
    subtract, exp, log = xp.subtract, xp.exp, xp.log
    largest, total = reducer(xp, "maximum"), reducer(xp, "add")

    def compute(logits: Any, out: Any = None) -> Any:
        _check_logits(logits)
        if not logits.size:
            return logits.copy()
        if _by_columns(xp, logits):
            columns = _columns(logits)
            columns -= largest(columns, 0)
            columns -= log(total(exp(columns), 0))
            return _rows(columns, logits, out)
        out = subtract(logits, largest(logits, -1, keepdims=True), out)
        out -= log(total(exp(out), -1, keepdims=True))
        return out

    return in_float32(c, compute, forwards=(0,))
