"""Kernels of neural networks that are neither convolutions nor normalisations: biases, top-k, losses.

Half precision and bfloat16 are computed in float32 and rounded once.
Next to read: `batch_norm_ops.py`, then `conv_ops.py`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from aexec import native
from aexec.framework import dtypes, errors
from aexec.framework.abridged_text import abridged_list
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.kernel_contract.op_kernel import Compute, OpKernelConstruction
from aexec.framework.memory.allocator import announce_scratch
from aexec.framework.shape import shape_text
from aexec.framework.waiting.intra_op import in_pieces
from aexec.kernels.common.row_sums import sum_of_rows

__all__: list[str] = []

_NARROW = (dtypes.float16, dtypes.bfloat16)
_LABEL_TYPES = (dtypes.int32, dtypes.int64)
_TOP_K_INDEX_TYPES = (dtypes.int16, dtypes.int32, dtypes.int64)


def _channels_first(c: OpKernelConstruction) -> bool:
    layout = c.text("data_format") if "data_format" in c.attrs else "NHWC"
    if layout not in ("NHWC", "NCHW"):
        raise errors.InvalidArgumentError(f"Invalid data format: {layout}")
    return layout == "NCHW"


# -------------------------------------------------------------------- Bias


# From so many numbers on, rows of so many at most are joined, to about this length: NumPy adds row by row.
_MANY, _SHORT_ROW, _LONG_ROW = 1 << 13, 128, 1024


def _add_to_rows(value: Any, bias: Any, out: Any) -> Any:
    """`np.add(value, bias, out)` for a contiguous array with short rows."""
    if out is None or not out.flags.c_contiguous:
        out = np.empty(value.shape, value.dtype)
    columns = bias.size
    rows, target = value.reshape(-1, columns), out.reshape(-1, columns)
    joined = min(len(rows), _LONG_ROW // columns)
    whole, length = len(rows) // joined * joined, joined * columns
    np.add(rows[:whole].reshape(-1, length), np.tile(bias, joined), target[:whole].reshape(-1, length))
    np.add(rows[whole:], bias, target[whole:])
    return out


@kernel("BiasAdd", "BiasAddV1", T=dtypes.NUMBER, cost=0.5)
def bias_add(c: OpKernelConstruction) -> Compute:
    """`value + bias` along the channels: the last dimension, or the second one for NCHW."""
    add, on_host = c.xp.add, c.xp is np

    def check(value: Any, bias: Any, channels: int) -> None:
        if value.ndim < 2:
            raise errors.InvalidArgumentError(f"Input tensor must be at least 2D: {shape_text(value.shape)}")
        if bias.ndim != 1:
            raise errors.InvalidArgumentError(f"Biases must be 1D: {shape_text(bias.shape)}")
        if bias.shape[0] != value.shape[channels]:
            raise errors.InvalidArgumentError(
                "Must provide as many biases as the last dimension of the input tensor: "
                f"{shape_text(bias.shape)} vs. {shape_text(value.shape)}"
            )

    def last(value: Any, bias: Any, out: Any = None) -> Any:
        if value.ndim < 2 or bias.shape != value.shape[-1:]:
            check(value, bias, -1)
        if on_host and value.size >= _MANY and bias.size <= _SHORT_ROW and value.flags.c_contiguous:
            return _add_to_rows(value, bias, out)
        return add(value, bias, out)

    def second(value: Any, bias: Any, out: Any = None) -> Any:
        check(value, bias, 1)
        return add(value, bias.reshape(-1, *[1] * (value.ndim - 2)), out)

    c.forward_inputs(0)

    return second if _channels_first(c) else last


@kernel("BiasAddGrad", T=dtypes.NUMBER, cost=0.5)
def bias_add_grad(c: OpKernelConstruction) -> Compute:
    """Sum over all dimensions but the channels."""
    xp, first, dtype = c.xp, _channels_first(c), c.output_types[0]
    accumulator = np.dtype(np.float32) if dtype in _NARROW else dtype.np

    def compute(grad: Any) -> Any:
        if grad.ndim < 2:
            raise errors.InvalidArgumentError(f"Input tensor must be at least 2D: {shape_text(grad.shape)}")
        if accumulator is not dtype.np:
            announce_scratch(accumulator.itemsize * grad.shape[1 if first else -1])
        if first and grad.ndim > 2:
            total = grad.sum(axis=(0, *range(2, grad.ndim)), dtype=accumulator)
        else:
            rows = grad.reshape(grad.size // max(1, grad.shape[-1]), grad.shape[-1])
            by_rows = xp is np and accumulator.kind in "fc"
            total = sum_of_rows(rows, accumulator) if by_rows else rows.sum(axis=0, dtype=accumulator)
        return total.astype(dtype.np, copy=False)

    return compute


# ------------------------------------------------------------------- Top k


def _in_top_k(xp: Any, predictions: Any, targets: Any, k: int) -> Any:
    if predictions.ndim != 2:
        raise errors.InvalidArgumentError("predictions must be 2-dimensional")
    if targets.ndim != 1:
        raise errors.InvalidArgumentError("targets must be 1-dimensional")
    rows, classes = predictions.shape
    if rows != targets.shape[0]:
        raise errors.InvalidArgumentError(
            f"First dimension of predictions {rows} must match length of targets {targets.shape[0]}"
        )
    known = (targets >= 0) & (targets < classes)
    if not classes:
        return known
    own = predictions[xp.arange(rows), xp.where(known, targets, 0)]
    ahead = (predictions > own[:, None]).sum(axis=1)
    # A row with a non-finite value cannot be ranked.
    return known & xp.isfinite(predictions).all(axis=1) & (ahead < k)


@kernel("InTopK", T=_LABEL_TYPES, host_memory=("predictions", "targets", "precision"), cost=3.0, scratch=16)
def in_top_k(c: OpKernelConstruction) -> Compute:
    """Return whether the target's prediction is among the k largest; ties count."""
    xp, k = c.xp, c.attr("k")
    return lambda predictions, targets: _in_top_k(xp, predictions, targets, k)


@kernel("InTopKV2", T=_LABEL_TYPES, host_memory=("predictions", "targets", "k", "precision"), cost=3.0, scratch=16)
def in_top_k_v2(c: OpKernelConstruction) -> Compute:
    """Like InTopK, with k as an input."""
    xp = c.xp

    def compute(predictions: Any, targets: Any, k: Any) -> Any:
        if k.ndim:
            raise errors.InvalidArgumentError(f"k must be 0-D, got shape {shape_text(k.shape)}")
        return _in_top_k(xp, predictions, targets, int(k))

    return compute


def _ordered(x: Any) -> Any:
    """The array in a type that NumPy sorts fast and in the same order."""
    return x.astype(np.float32) if x.dtype.kind == "V" or (x.dtype.itemsize == 2 and x.dtype.kind == "f") else x


def _largest(xp: Any, rows: Any, k: int) -> Any:
    """Positions of the k largest of each row of [n, m], descending, the lower position first among equals."""
    width = rows.shape[1]
    if 0 < k < width // 4 and rows.size > 1024 and not (rows.dtype.kind == "f" and bool(xp.isnan(rows).any())):
        return _largest_of_long_rows(xp, rows, k)
    # Reversed twice: the stable ascending sort then leaves equals in ascending order of position.
    order = rows[:, ::-1].argsort(axis=1, kind="stable")[:, ::-1]
    return width - 1 - order[:, :k]


def _largest_of_long_rows(xp: Any, rows: Any, k: int) -> Any:
    """Like `_largest`, without sorting whole rows, which must not contain NaN."""
    threshold = xp.partition(rows, rows.shape[1] - k, axis=1)[:, -k, None]
    chosen = rows >= threshold
    if int(xp.count_nonzero(chosen)) > len(rows) * k:
        # Some rows have more equals than places: take the first ones.
        above, equal = rows > threshold, rows == threshold
        room = k - above.sum(axis=1, keepdims=True)
        chosen = above | (equal & (equal.astype(np.int64).cumsum(axis=1) <= room))
    where = xp.flatnonzero(chosen).reshape(len(rows), k) % rows.shape[1]
    return _taken(xp, where, _largest(xp, _taken(xp, rows, where), k))


def _taken(xp: Any, rows: Any, where: Any) -> Any:
    """`take_along_axis` of every row; for a single row a plain `take` is three times as fast."""
    return rows.take(where) if len(rows) == 1 else xp.take_along_axis(rows, where, axis=1)


# Elements of rows that are searched at a time.
_ROWS_PIECE = 1 << 15


def _top_k_in_pieces(rows: Any, k: int) -> tuple[Any, Any]:
    """(values, positions) of the k largest of each of many rows, which threads share."""
    values, where = np.empty((len(rows), k), rows.dtype), np.empty((len(rows), k), np.intp)
    size = max(1, _ROWS_PIECE // rows.shape[1])

    def piece(i: int) -> None:
        part = slice(i * size, (i + 1) * size)
        where[part] = _largest(np, _ordered(rows[part]), k)
        values[part] = _taken(np, rows[part], where[part])

    in_pieces(-(-len(rows) // size), piece)
    return values, where


# Bytes per element of a full sort: its position, and a copy of it.
_PLACED_BYTES = 16


def _top_k_cost(x: Any, *k: Any) -> float:
    return float(x.size) * 30.0


def _top_k_of(c: OpKernelConstruction) -> Compute:
    xp, index_type = c.xp, c.output_types[1]

    def top_k(x: Any, k: int) -> Any:
        if k < 0:
            raise errors.InvalidArgumentError(f"Need k >= 0, got {k}")
        if x.ndim < 1:
            raise errors.InvalidArgumentError(f"input must be >= 1-D, got shape {shape_text(x.shape)}")
        width = x.shape[-1]
        if width < k:
            raise errors.InvalidArgumentError(f"input must have at least k columns. Had {width}, needed {k}")
        if width > index_type.max:
            raise errors.InvalidArgumentError(
                f"Second dimension of flattened input must be <= {index_type.max}, got {width}"
            )
        rows = x.reshape(x.size // max(1, width), width)
        shape = (*x.shape[:-1], k)
        if xp is np and rows.size >= 2 * _ROWS_PIECE and len(rows) > 1:
            values, where = _top_k_in_pieces(rows, k)
            return values.reshape(shape), where.astype(index_type.np, copy=False).reshape(shape)
        announce_scratch(_PLACED_BYTES * rows.size)
        where = _largest(xp, _ordered(rows), k)
        values = _taken(xp, rows, where)
        return values.reshape(shape), where.astype(index_type.np).reshape(shape)

    return top_k


@kernel("TopK", T=dtypes.REAL_NUMBER, cost=_top_k_cost, scratch=24)
def top_k(c: OpKernelConstruction) -> Compute:
    """Values and indices of the k largest along the last dimension; NaN counts as largest."""
    find, k = _top_k_of(c), c.attr("k")
    return lambda x: find(x, k)


@kernel("TopKV2", T=dtypes.REAL_NUMBER, index_type=_TOP_K_INDEX_TYPES, cost=_top_k_cost, scratch=24)
def top_k_v2(c: OpKernelConstruction) -> Compute:
    """Like TopK, with k as an input.  The result is always sorted, even if the attr `sorted` is False."""
    find = _top_k_of(c)

    def compute(x: Any, k: Any) -> Any:
        if k.ndim:
            raise errors.InvalidArgumentError(f"k must be scalar, got shape {shape_text(k.shape)}")
        return find(x, int(k))

    return compute


@kernel("NthElement", T=dtypes.REAL_NUMBER, cost=10.0, scratch=8)
def nth_element(c: OpKernelConstruction) -> Compute:
    """Return the n-th smallest (largest, if `reverse`) along the last dimension, counted from 0."""
    partition, reverse, dtype = c.xp.partition, c.attr("reverse"), c.output_types[0]

    def compute(x: Any, n: Any) -> Any:
        if n.ndim:
            raise errors.InvalidArgumentError(f"N must be scalar but has rank {n.ndim}")
        at = int(n)
        if at < 0:
            raise errors.InvalidArgumentError(f"n must be non-negative but is {at}")
        if x.ndim < 1:
            raise errors.InvalidArgumentError(f"Input must be at least rank 1 but is rank {x.ndim}")
        if x.shape[-1] <= at:
            raise errors.InvalidArgumentError(f"Input must have last dimension > n = {at}")
        at = x.shape[-1] - 1 - at if reverse else at
        return partition(_ordered(x), at, axis=-1)[..., at].astype(dtype.np, copy=False)

    return compute


# ------------------------------------------------------------------ Losses


def _shifted(xp: Any, logits: Any) -> tuple[Any, Any, Any]:
    """logits minus their row maximum, exp of that, and its row sums [n, 1]."""
    shifted = logits - logits.max(axis=1, keepdims=True)
    exp = xp.exp(shifted)
    return shifted, exp, exp.sum(axis=1, keepdims=True)


# Numbers in a piece: half a millisecond.
_LOSS_PIECE = 1 << 18


def _losses_in_c(loop: Any, logits: Any, labels: Any) -> tuple[Any, Any]:
    """(losses, gradients) by a loop in C, for contiguous float32 logits [rows, classes]."""
    rows, classes = logits.shape
    losses, grads = np.empty(rows, np.float32), np.empty(logits.shape, np.float32)
    size = max(1, _LOSS_PIECE // classes)

    def piece(i: int) -> None:
        part = slice(i * size, min(rows, (i + 1) * size))
        loop(logits[part], labels[part], losses[part], grads[part], part.stop - part.start, classes)

    in_pieces(-(-rows // size), piece)
    return losses, grads


@kernel("SoftmaxCrossEntropyWithLogits", T=dtypes.FLOAT, cost=20.0, scratch=20)
def softmax_cross_entropy(c: OpKernelConstruction) -> Compute:
    """Return (loss [n], gradient [n, classes]) for labels that are distributions; logits and labels broadcast."""
    xp, dtype = c.xp, c.output_types[0]
    narrow = dtype in _NARROW

    def compute(logits: Any, labels: Any) -> Any:
        try:
            shape = np.broadcast_shapes(logits.shape, labels.shape)
        except ValueError:
            raise errors.InvalidArgumentError(
                f"logits and labels must be broadcastable: logits_size={shape_text(logits.shape)} "
                f"labels_size={shape_text(labels.shape)}"
            ) from None
        if len(shape) != 2:
            raise errors.InvalidArgumentError(
                "logits and labels must be either 2-dimensional, or broadcasted to be 2-dimensional"
            )
        if not shape[0] * shape[1]:
            return xp.zeros(shape[:1], dtype.np), xp.zeros(shape, dtype.np)
        if native.loops is not None and dtype is dtypes.float32 and xp is np:
            announce_scratch(4 * (2 * shape[0] * shape[1] - logits.size - labels.size))
            whole = [np.ascontiguousarray(np.broadcast_to(given, shape)) for given in (logits, labels)]
            return _losses_in_c(native.loops.cross_entropy, *whole)
        if narrow:
            logits, labels = logits.astype(np.float32), labels.astype(np.float32)
        shifted, exp, total = _shifted(xp, xp.broadcast_to(logits, shape))
        loss = (labels * (xp.log(total) - shifted)).sum(axis=1)
        grad = exp / total - labels
        return (loss.astype(dtype.np), grad.astype(dtype.np)) if narrow else (loss, grad)

    return compute


def _check_sparse_labels(logits: Any, labels: Any) -> None:
    if logits.ndim != 2:
        raise errors.InvalidArgumentError(f"logits must be 2-D, but got shape {shape_text(logits.shape)}")
    if labels.ndim != 1:
        raise errors.InvalidArgumentError(f"labels must be 1-D, but got shape {shape_text(labels.shape)}")
    if logits.shape[0] != labels.shape[0]:
        raise errors.InvalidArgumentError(
            "logits and labels must have the same first dimension, got logits shape "
            f"{shape_text(logits.shape)} and labels shape {shape_text(labels.shape)}"
        )
    if not logits.shape[1]:
        raise errors.InvalidArgumentError(
            f"Must have at least one class, but got logits shape {shape_text(logits.shape)}"
        )


@kernel("SparseSoftmaxCrossEntropyWithLogits", T=dtypes.FLOAT, Tlabels=_LABEL_TYPES, cost=20.0, scratch=20)
def sparse_softmax_cross_entropy(c: OpKernelConstruction) -> Compute:
    """Return (loss [n], gradient [n, classes]) for labels that are class numbers."""
    xp, dtype = c.xp, c.output_types[0]
    narrow = dtype in _NARROW

    def compute(logits: Any, labels: Any) -> Any:
        _check_sparse_labels(logits, labels)
        rows, classes = logits.shape
        if not rows:
            return xp.zeros(0, dtype.np), xp.zeros((0, classes), dtype.np)
        outside = (labels < 0) | (labels >= classes)
        if outside.any():
            raise errors.InvalidArgumentError(
                f"Received a label value of {labels[outside][0]} which is outside the valid range of "
                f"[0, {classes}).  Label values: {abridged_list(labels.ravel(), ' ')}"
            )
        if native.loops is not None and native.are_single(logits):
            return _losses_in_c(native.loops.sparse_cross_entropy, logits, labels.astype(np.int64, order="C"))
        if narrow:
            logits = logits.astype(np.float32)
        shifted, exp, total = _shifted(xp, logits)
        own = (xp.arange(rows), labels)
        loss = xp.log(total[:, 0]) - shifted[own]
        grad = exp / total
        grad[own] -= 1
        return (loss.astype(dtype.np), grad.astype(dtype.np)) if narrow else (loss, grad)

    return compute
