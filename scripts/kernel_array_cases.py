"""More cases of the kernel benchmark: ops that move elements, images, normalisation, counting.

Convolution and pooling are compared with the form that gathers windows (im2col) and then computes at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import isqrt
from typing import Any

import numpy as np
from kernel_cases import Case, Data
from numpy.lib.stride_tricks import sliding_window_view

__all__ = ["cases"]


# ------------------------------------------------------------------ Arrays


def _arrays() -> Iterator[Case]:
    def halves(d: Data) -> list[Any]:
        return [d.real(d.side, d.side // 2), d.real(d.side, d.side // 2)]

    yield Case("Transpose", lambda d: [d.matrix(), [1, 0]], lambda x, _: np.ascontiguousarray(x.T))
    yield Case("Reshape", lambda d: [d.matrix(), [-1]], lambda x, _: x.reshape(-1))
    yield Case("ExpandDims", lambda d: [d.matrix(), 0], lambda x, _: np.expand_dims(x, 0))
    yield Case("Squeeze", lambda d: [d.real(1, d.n)], np.squeeze)
    yield Case("ReverseV2", lambda d: [d.matrix(), [1]], lambda x, _: np.ascontiguousarray(np.flip(x, 1)))
    yield Case("Roll", lambda d: [d.matrix(), 3, 1], lambda x, *_: np.roll(x, 3, 1))
    yield Case("ConcatV2", lambda d: [halves(d), 1], lambda x, y, _: np.concatenate((x, y), 1))
    yield Case("Pack", lambda d: [halves(d)], lambda x, y: np.stack((x, y)))
    yield Case("Pack", lambda d: [halves(d)], lambda x, y: np.stack((x, y), -1), {"axis": -1}, "last axis")
    yield Case("Unpack", lambda d: [d.real(4, d.n // 4)], lambda x: [a.copy() for a in x], {"num": 4})
    yield Case(
        "Split",
        lambda d: [1, d.real(d.side, d.side // 4 * 4)],
        lambda _, x: [a.copy() for a in np.split(x, 4, 1)],
        {"num_split": 4},
    )
    yield Case(
        "SplitV",
        lambda d: [d.matrix(), np.array([d.side // 2, -1]), 1],
        lambda x, sizes, _: [a.copy() for a in np.split(x, [int(sizes[0])], 1)],
        {"num_split": 2},
    )
    yield Case("Slice", lambda d: [d.matrix(), [1, 1], [-1, -1]], lambda x, *_: x[1:, 1:].copy())
    yield Case(
        "StridedSlice",
        lambda d: [d.matrix(), [0, 1], [0, -1], [1, 1]],
        lambda x, *_: x[:, 1:-1].copy(),
        {"begin_mask": 1, "end_mask": 1},
    )
    yield Case(
        "StridedSlice",
        lambda d: [d.matrix(), [0, 0], [0, 0], [2, -1]],
        lambda x, *_: x[::2, ::-1].copy(),
        {"begin_mask": 3, "end_mask": 3},
        "with steps",
    )

    def slice_gradient(shape: Any, _begin: Any, _end: Any, _strides: Any, dy: Any) -> Any:
        out = np.zeros(shape, dy.dtype)
        out[1:, 1:] = dy
        return out

    yield Case(
        "StridedSliceGrad",
        lambda d: [[d.side, d.side], [1, 1], [d.side, d.side], [1, 1], d.real(d.side - 1, d.side - 1)],
        slice_gradient,
    )
    yield Case("Tile", lambda d: [d.real(d.side, d.side // 4), [2, 2]], lambda x, _: np.tile(x, (2, 2)))
    yield Case("Pad", lambda d: [d.matrix(), [[1, 1], [2, 2]]], lambda x, _: np.pad(x, ((1, 1), (2, 2))))
    yield Case(
        "PadV2",
        lambda d: [d.matrix(), [[1, 1], [2, 2]], 1.0],
        lambda x, *_: np.pad(x, ((1, 1), (2, 2)), constant_values=1),
    )
    for mode in ("reflect", "symmetric"):
        yield Case(
            "MirrorPad",
            lambda d: [d.matrix(), [[1, 1], [2, 2]]],
            lambda x, _, m=mode: np.pad(x, ((1, 1), (2, 2)), m),
            {"mode": mode.upper()},
            mode,
        )
    yield Case("Fill", lambda d: [[d.side, d.side], 2.0], lambda shape, _: np.full(shape, 2, np.float32))
    yield Case("ZerosLike", lambda d: [d.real()], np.zeros_like)
    yield Case("OnesLike", lambda d: [d.real()], np.ones_like)
    yield Case("BroadcastTo", lambda d: [d.real(d.side), [d.side, d.side]], lambda x, s: np.broadcast_to(x, s).copy())
    yield Case("Range", lambda d: [0, d.n, 1], lambda _, n, __: np.arange(n, dtype=np.int32))
    yield Case("LinSpace", lambda d: [0.0, 1.0, d.n], lambda _, __, n: np.linspace(0, 1, n, dtype=np.float32))
    yield Case("Shape", lambda d: [d.matrix()], lambda x: np.array(x.shape, np.int32))
    blocks = {"SpaceToDepth": "NHWC", "DepthToSpace": "NHWC"}

    def space_to_depth(x: Any) -> Any:
        n, h, w, c = x.shape
        return x.reshape(n, h // 2, 2, w // 2, 2, c).transpose(0, 1, 3, 2, 4, 5).reshape(n, h // 2, w // 2, 4 * c)

    def depth_to_space(x: Any) -> Any:
        n, h, w, c = x.shape
        return x.reshape(n, h, w, 2, 2, c // 4).transpose(0, 1, 3, 2, 4, 5).reshape(n, 2 * h, 2 * w, c // 4)

    def even(d: Data) -> Any:
        side = isqrt(d.n // 16) // 2 * 2
        return d.real(1, side, side, 16)

    for op, expression in zip(blocks, (space_to_depth, depth_to_space), strict=True):
        yield Case(op, lambda d: [even(d)], expression, {"block_size": 2})

    def space_to_batch(x: Any, *_: Any) -> Any:
        n, h, w, c = x.shape
        return x.reshape(n, h // 2, 2, w // 2, 2, c).transpose(2, 4, 0, 1, 3, 5).reshape(4 * n, h // 2, w // 2, c)

    def batch_to_space(x: Any, *_: Any) -> Any:
        n, h, w, c = x.shape
        return x.reshape(2, 2, n // 4, h, w, c).transpose(2, 3, 0, 4, 1, 5).reshape(n // 4, 2 * h, 2 * w, c)

    none = [[0, 0], [0, 0]]
    yield Case("SpaceToBatchND", lambda d: [even(d), [2, 2], none], space_to_batch)
    yield Case("BatchToSpaceND", lambda d: [(x := even(d)).reshape(4, *x.shape[1:3], 4), [2, 2], none], batch_to_space)


# ----------------------------------------------------------------- Indices


def _indices() -> Iterator[Case]:
    def rows(d: Data) -> Any:
        return d.ints(d.side, low=0, high=d.side)

    yield Case("GatherV2", lambda d: [d.matrix(), rows(d), 0], lambda x, i, _: np.take(x, i, 0), note="rows")
    yield Case("GatherV2", lambda d: [d.matrix(), rows(d), 1], lambda x, i, _: np.take(x, i, 1), note="columns")
    yield Case(
        "Gather", lambda d: [d.real(), d.ints(low=0, high=d.n)], lambda x, i: np.take(x, i), note="single numbers"
    )
    yield Case(
        "GatherNd",
        lambda d: [d.matrix(), d.ints(d.n, 2, low=0, high=d.side)],
        lambda x, i: x[i[:, 0], i[:, 1]],
    )

    def scatter_nd(indices: Any, updates: Any, shape: Any) -> Any:
        out = np.zeros(shape, updates.dtype)
        np.add.at(out, indices[:, 0], updates)
        return out

    yield Case("ScatterNd", lambda d: [rows(d)[:, None], d.matrix(), [d.side, d.side]], scatter_nd, note="rows")
    yield Case(
        "ScatterNd",
        lambda d: [d.ints(d.n, 1, low=0, high=d.n), d.real(), [d.n]],
        scatter_nd,
        note="single numbers",
    )

    def tensor_scatter(change: Callable[[Any, Any, Any], Any]) -> Callable[..., Any]:
        def expression(x: Any, indices: Any, updates: Any) -> Any:
            out = x.copy()
            change(out, indices[:, 0], updates)
            return out

        return expression

    scatters = {
        "TensorScatterUpdate": lambda out, i, u: out.__setitem__(i, u),
        "TensorScatterAdd": np.add.at,
        "TensorScatterSub": np.subtract.at,
        "TensorScatterMax": np.maximum.at,
        "TensorScatterMin": np.minimum.at,
    }
    for op, change in scatters.items():
        yield Case(op, lambda d: [d.matrix(), rows(d)[:, None], d.matrix()], tensor_scatter(change))
    yield Case(
        "OneHot",
        lambda d: [rows(d), d.side, 1.0, 0.0],
        lambda i, depth, *_: (i[:, None] == np.arange(depth)).astype(np.float32),
    )
    yield Case("Where", lambda d: [d.bools(d.side, d.side)], np.argwhere)
    yield Case("Unique", lambda d: [d.ints()], lambda x: np.unique(x, return_inverse=True))
    yield Case(
        "UniqueWithCounts", lambda d: [d.ints()], lambda x: np.unique(x, return_inverse=True, return_counts=True)
    )
    yield Case("InvertPermutation", lambda d: [d.rng.permutation(d.n).astype(np.int32)], np.argsort)
    yield Case("ListDiff", lambda d: [d.ints(), d.ints(8)], lambda x, y: (x[k := ~np.isin(x, y)], np.flatnonzero(k)))

    def top_k(x: Any, k: Any) -> Any:
        part = np.argpartition(-x, int(k), axis=-1)[:, :k]
        values = np.take_along_axis(x, part, -1)
        order = np.argsort(-values, axis=-1)
        return np.take_along_axis(values, order, -1), np.take_along_axis(part, order, -1)

    yield Case("TopKV2", lambda d: [d.matrix(), 5], top_k)
    yield Case("NthElement", lambda d: [d.matrix(), 5], lambda x, n: np.partition(x, n, -1)[:, n])
    yield Case(
        "DynamicPartition",
        lambda d: [d.real(), d.ints(low=0, high=4)],
        lambda x, p: [x[p == i] for i in range(4)],
        {"num_partitions": 4},
    )

    def stitch(i: Any, j: Any, x: Any, y: Any) -> Any:
        out = np.empty(len(i) + len(j), x.dtype)
        out[i], out[j] = x, y
        return out

    def split_indices(d: Data) -> list[Any]:
        order = d.rng.permutation(d.n // 2 * 2).astype(np.int32)
        return [[order[::2], order[1::2]], [d.real(d.n // 2), d.real(d.n // 2)]]

    yield Case("DynamicStitch", split_indices, stitch)

    def turned(x: Any, lengths: Any) -> Any:
        step, ends = np.arange(x.shape[1]), lengths[:, None]
        return np.take_along_axis(x, np.where(step < ends, ends - 1 - step, step), axis=1)

    yield Case(
        "ReverseSequence",
        lambda d: [d.matrix(), d.ints(d.side, high=d.side)],
        turned,
        {"seq_dim": 1, "batch_dim": 0},
    )


def _segments() -> Iterator[Case]:
    def sorted_ids(d: Data) -> Any:
        return np.sort(d.ints(d.side, low=0, high=max(1, d.side // 4)))

    def starts(ids: Any) -> Any:
        return np.flatnonzero(np.r_[True, ids[1:] != ids[:-1]])

    for op, ufunc in {
        "SegmentSum": np.add,
        "SegmentProd": np.multiply,
        "SegmentMax": np.maximum,
        "SegmentMin": np.minimum,
    }.items():
        yield Case(op, lambda d: [d.matrix(), sorted_ids(d)], lambda x, i, f=ufunc: f.reduceat(x, starts(i), axis=0))
        start = {"SegmentSum": 0, "SegmentProd": 1, "SegmentMax": -np.inf, "SegmentMin": np.inf}[op]

        def unsorted(x: Any, ids: Any, count: Any, f: Any = ufunc, first: float = start) -> Any:
            out = np.full((int(count), *x.shape[1:]), first, x.dtype)
            f.at(out, ids, x)
            return out

        yield Case(
            f"Unsorted{op}", lambda d: [d.matrix(), sorted_ids(d)[::-1].copy(), d.side // 4], unsorted, note="rows"
        )
        yield Case(
            f"Unsorted{op}",
            lambda d: [d.real(), d.ints(low=0, high=d.side), d.side],
            unsorted,
            note="single numbers",
        )
    yield Case(
        "SegmentMean",
        lambda d: [d.matrix(), sorted_ids(d)],
        lambda x, i: np.add.reduceat(x, s := starts(i), axis=0) / np.diff(np.r_[s, len(i)])[:, None].astype(np.float32),
    )
    yield Case(
        "SparseSegmentSum",
        lambda d: [d.matrix(), d.ints(d.side, low=0, high=d.side), sorted_ids(d)],
        lambda x, rows, i: np.add.reduceat(x[rows], starts(i), axis=0),
    )


# ------------------------------------------------------------------ Images


def _padded(x: Any, by: int = 1, value: float = 0) -> Any:
    return np.pad(x, ((0, 0), (by, by), (by, by), (0, 0)), constant_values=value)


def _windows(x: Any, size: int, stride: int = 1) -> Any:
    """[n, rows, columns, c, size, size]."""
    return sliding_window_view(x, (size, size), axis=(1, 2))[:, ::stride, ::stride]


def im2col(x: Any, weights: Any, stride: int = 1) -> Any:
    """Convolve with size // 2 zeros around the image, by one copy and one product."""
    size, depth = weights.shape[0], weights.shape[2]
    view = _windows(_padded(x, size // 2), size, stride).transpose(0, 1, 2, 4, 5, 3)
    return (view.reshape(-1, size * size * depth) @ weights.reshape(-1, weights.shape[3])).reshape(*view.shape[:3], -1)


def _images() -> Iterator[Case]:
    def best_boxes(boxes: Any, scores: Any, count: int, limit: float, threshold: float) -> Any:
        order = np.flatnonzero(scores > threshold)
        order = order[np.argsort(-scores[order])]
        top, left, bottom, right = boxes.T
        area = (bottom - top) * (right - left)
        chosen = []
        while order.size and len(chosen) < count:
            best, order = order[0], order[1:]
            chosen.append(best)
            height = np.minimum(bottom[best], bottom[order]) - np.maximum(top[best], top[order])
            width = np.minimum(right[best], right[order]) - np.maximum(left[best], left[order])
            shared = np.maximum(height, 0) * np.maximum(width, 0)
            order = order[shared / (area[best] + area[order] - shared) <= limit]
        return np.array(chosen, np.int32)

    def boxes(d: Data) -> list[Any]:
        corner = d.unit(d.n // 5, 2)
        return [np.concatenate([corner, corner + 0.1], 1), d.unit(d.n // 5), 100, 0.5, 0.1]

    yield Case("NonMaxSuppressionV3", boxes, best_boxes)
    same = {"strides": [1, 1, 1, 1], "padding": "SAME"}

    def filters(d: Data, size: int, times: int = 16) -> Any:
        return d.real(size, size, 16, times)

    for size in (1, 3):
        yield Case("Conv2D", lambda d, s=size: [d.image(), filters(d, s)], im2col, same, f"{size}x{size}")

    yield Case(
        "Conv2D",
        lambda d: [d.image(), filters(d, 3)],
        lambda x, w: im2col(x, w, 2),
        {"strides": [1, 2, 2, 1], "padding": "EXPLICIT", "explicit_paddings": [0, 0, 1, 1, 1, 1, 0, 0]},
        "3x3, stride 2",
    )

    def volume(d: Data) -> Any:
        side = round((d.n / 16) ** (1 / 3))
        return d.real(1, side, side, side, 16)

    def im2col_3d(x: Any, weights: Any) -> Any:
        padded = np.pad(x, ((0, 0), (1, 1), (1, 1), (1, 1), (0, 0)))
        view = sliding_window_view(padded, (3, 3, 3), axis=(1, 2, 3)).transpose(0, 1, 2, 3, 5, 6, 7, 4)
        return (view.reshape(-1, 27 * 16) @ weights.reshape(-1, 16)).reshape(x.shape)

    yield Case(
        "Conv3D",
        lambda d: [volume(d), d.real(3, 3, 3, 16, 16)],
        im2col_3d,
        {"strides": [1] * 5, "padding": "SAME"},
    )
    cubes = {"ksize": [1, 2, 2, 2, 1], "strides": [1, 2, 2, 2, 1], "padding": "VALID"}

    def windows_3d(x: Any) -> Any:
        return sliding_window_view(x, (2, 2, 2), axis=(1, 2, 3))[:, ::2, ::2, ::2]

    yield Case("MaxPool3D", lambda d: [volume(d)], lambda x: windows_3d(x).max(axis=(5, 6, 7)), cubes)
    yield Case("AvgPool3D", lambda d: [volume(d)], lambda x: windows_3d(x).mean(axis=(5, 6, 7)), cubes)
    yield Case(
        "ExtractImagePatches",
        lambda d: [d.image()],
        lambda x: _windows(x, 3).transpose(0, 1, 2, 4, 5, 3).reshape(1, x.shape[1] - 2, x.shape[2] - 2, -1),
        {"ksizes": [1, 3, 3, 1], "strides": [1] * 4, "rates": [1] * 4, "padding": "VALID"},
    )
    yield Case(
        "ResizeNearestNeighbor",
        lambda d: [x := d.image(4), [2 * x.shape[1], 2 * x.shape[2]]],
        lambda x, _: x.repeat(2, axis=1).repeat(2, axis=2),
    )
    yield Case(
        "AdjustContrastv2",
        lambda d: [d.image(3), 2.0],
        lambda x, factor: (x - (mean := x.mean(axis=(1, 2), keepdims=True))) * factor + mean,
    )

    def filter_gradient(x: Any, _: Any, grad: Any) -> Any:
        columns = _windows(_padded(x), 3).transpose(0, 1, 2, 4, 5, 3).reshape(-1, 9 * x.shape[3])
        return columns.T @ grad.reshape(-1, grad.shape[3])

    def input_gradient(_: Any, weights: Any, grad: Any) -> Any:
        return im2col(grad, weights[::-1, ::-1].transpose(0, 1, 3, 2))

    yield Case("Conv2DBackpropFilter", lambda d: [d.image(), [3, 3, 16, 16], d.image()], filter_gradient, same)
    yield Case("Conv2DBackpropInput", lambda d: [(x := d.image()).shape, filters(d, 3), x], input_gradient, same)

    def depthwise(x: Any, weights: Any) -> Any:
        return np.einsum("nhwcij,ijc->nhwc", _windows(_padded(x), 3), weights[..., 0])

    yield Case("DepthwiseConv2dNative", lambda d: [d.image(), filters(d, 3, 1)], depthwise, same)

    def four_each(x: Any, weights: Any) -> Any:
        out = np.einsum("nhwcij,ijcm->nhwcm", _windows(_padded(x), 3), weights)
        return out.reshape(*out.shape[:3], -1)

    yield Case("DepthwiseConv2dNative", lambda d: [d.image(), filters(d, 3, 4)], four_each, same, "4 filters each")
    pool = {"ksize": [1, 2, 2, 1], "strides": [1, 2, 2, 1], "padding": "VALID"}
    overlapping = {"ksize": [1, 3, 3, 1], "strides": [1, 1, 1, 1], "padding": "SAME"}

    yield Case("MaxPool", lambda d: [d.image()], lambda x: _windows(x, 2, 2).max(axis=(4, 5)), pool, "2x2")
    yield Case("AvgPool", lambda d: [d.image()], lambda x: _windows(x, 2, 2).mean(axis=(4, 5)), pool, "2x2")
    yield Case(
        "MaxPool",
        lambda d: [d.image()],
        lambda x: _windows(_padded(x, 1, -np.inf), 3).max(axis=(4, 5)),
        overlapping,
        "3x3",
    )
    yield Case(
        "AvgPool",
        lambda d: [d.image()],
        lambda x: _windows(_padded(x), 3).mean(axis=(4, 5)),
        overlapping,
        "3x3",
    )

    wide = {"ksize": [1, 9, 9, 1], "strides": [1, 1, 1, 1], "padding": "SAME"}

    def along_both(x: Any, reduce: Callable[..., Any], outside: float) -> Any:
        """Reduce windows of 9 x 9, one dimension after the other."""
        for axis in (1, 2):
            by = [(4, 4) if i == axis else (0, 0) for i in range(4)]
            x = reduce(sliding_window_view(np.pad(x, by, constant_values=outside), 9, axis=axis), axis=4)
        return x

    yield Case("MaxPool", lambda d: [d.image()], lambda x: along_both(x, np.max, -np.inf), wide, "9x9")
    yield Case(
        "AvgPool",
        lambda d: [d.image()],
        lambda x: along_both(x, np.sum, 0) / along_both(np.ones_like(x[..., :1]), np.sum, 0),
        wide,
        "9x9",
    )

    def blocks(x: Any) -> Any:
        """Return the windows of 2 x 2 as a view [n, rows, 2, columns, 2, c]."""
        n, h, w, c = x.shape
        return x[:, : h // 2 * 2, : w // 2 * 2].reshape(n, h // 2, 2, w // 2, 2, c)

    def max_gradient(x: Any, y: Any, grad: Any) -> Any:
        windows = blocks(x).transpose(0, 1, 3, 5, 2, 4)
        columns = np.zeros((*y.shape, 4), x.dtype)
        np.put_along_axis(columns, windows.reshape(columns.shape).argmax(-1)[..., None], grad[..., None], -1)
        return columns.reshape(windows.shape).transpose(0, 1, 4, 2, 5, 3).reshape(x.shape)

    def pooled(d: Data) -> list[Any]:
        side = isqrt(d.n // 16) // 2 * 2
        x = d.real(1, side, side, 16)
        y = blocks(x).max(axis=(2, 4))
        return [x, y, d.real(*y.shape)]

    yield Case("MaxPoolGrad", pooled, max_gradient, pool)

    def mean_gradient(shape: Any, grad: Any) -> Any:
        out = np.empty(shape, np.float32)
        blocks(out)[...] = (grad * np.float32(0.25))[:, :, None, :, None]
        return out

    yield Case("AvgPoolGrad", lambda d: [(p := pooled(d))[0].shape, p[2]], mean_gradient, pool)

    def argmax_pool(x: Any) -> Any:
        view = _windows(x, 2, 2)
        flat = view.reshape(*view.shape[:4], 4)
        return flat.max(-1), flat.argmax(-1)

    yield Case("MaxPoolWithArgmax", lambda d: [d.image()], argmax_pool, pool)


def _nn() -> Iterator[Case]:
    yield Case("BiasAdd", lambda d: [d.matrix(), d.real(d.side)], np.add)
    yield Case("BiasAdd", lambda d: [d.image(), d.real(16)], np.add, note="image")
    yield Case("BiasAddGrad", lambda d: [d.matrix()], lambda x: x.sum(axis=0))
    yield Case("BiasAddGrad", lambda d: [d.image()], lambda x: x.reshape(-1, 16).sum(axis=0), note="image")

    def normalise(x: Any, scale: Any, offset: Any, mean: Any, variance: Any) -> Any:
        factor = scale / np.sqrt(variance + np.float32(1e-3))
        return x * factor + (offset - mean * factor)

    def statistics(d: Data) -> list[Any]:
        return [d.image(), d.real(16), d.real(16), d.real(16), d.above(16)]

    inference = {"epsilon": 1e-3, "is_training": False}
    yield Case("FusedBatchNorm", statistics, normalise, inference, "inference")
    yield Case("FusedBatchNormV3", statistics, normalise, inference, "inference")

    def train(x: Any, scale: Any, offset: Any, *_: Any) -> Any:
        return normalise(x, scale, offset, x.mean(axis=(0, 1, 2)), x.var(axis=(0, 1, 2)))

    empty = np.zeros(0, np.float32)
    yield Case("FusedBatchNormV3", lambda d: [*statistics(d)[:3], empty, empty], train, {"epsilon": 1e-3}, "training")

    def lrn(x: Any) -> Any:
        squares = np.pad(np.square(x), ((0, 0), (0, 0), (0, 0), (5, 5)))
        return x * (1 + sliding_window_view(squares, 11, axis=3).sum(axis=-1)) ** np.float32(-0.5)

    def normalise_gradient(grad: Any, x: Any, scale: Any, mean: Any, variance: Any, _: Any) -> Any:
        factor = 1 / np.sqrt(variance + np.float32(1e-3))
        normal = (x - mean) * factor
        by_scale, by_offset = (grad * normal).sum(axis=(0, 1, 2)), grad.sum(axis=(0, 1, 2))
        count = np.float32(x.size / x.shape[-1])
        return scale * factor * (grad - by_offset / count - normal * (by_scale / count)), by_scale, by_offset

    yield Case(
        "FusedBatchNormGradV3",
        lambda d: [d.image(), d.image(), d.real(16), d.real(16), d.above(16), d.real(16)],
        normalise_gradient,
        {"epsilon": 1e-3},
    )

    yield Case("LRN", lambda d: [d.image()], lrn)
    yield Case(
        "InTopKV2",
        lambda d: [d.matrix(), d.ints(d.side, high=d.side), 5],
        lambda x, t, k: (x > x[np.arange(len(x)), t][:, None]).sum(axis=1) < k,
    )
    yield Case(
        "FakeQuantWithMinMaxArgs",
        lambda d: [d.real()],
        lambda x: np.rint((np.clip(x, -6, 6) + 6) * np.float32(255 / 12)) * np.float32(12 / 255) - 6,
    )
    yield Case(
        "Dequantize",
        lambda d: [d.ints(dtype=np.uint8), 0.0, 1.0],
        lambda x, *_: x * np.float32(1 / 255),
        {"T": "quint8"},
    )
    yield Case(
        "QuantizeV2",
        lambda d: [d.unit(), 0.0, 1.0],
        lambda x, *_: (np.clip(x, 0, 1) * np.float32(255) + np.float32(0.5)).astype(np.uint8),
        {"T": "quint8"},
    )


def _math() -> Iterator[Case]:
    for op, transform in {"FFT": np.fft.fft, "IFFT": np.fft.ifft}.items():
        yield Case(op, lambda d: [d.complex()], transform)
    yield Case("FFT2D", lambda d: [d.complex()[: d.side**2].reshape(d.side, d.side)], np.fft.fft2)
    yield Case("RFFT", lambda d: [d.real(), [d.n]], lambda x, _: np.fft.rfft(x))

    def dense(indices: Any, shape: Any, values: Any, default: Any) -> Any:
        if (indices < 0).any() or (indices >= shape).any() or (np.diff(indices[:, 0]) <= 0).any():
            raise ValueError("indices are out of order, repeated or out of bounds")
        out = np.full(shape, default)
        out[indices[:, 0]] = values
        return out

    yield Case("SparseToDense", lambda d: [np.arange(0, d.n, 2)[:, None], [d.n], d.real(d.n // 2), 0.0], dense)
    yield Case(
        "Bincount", lambda d: [d.ints(), 100, np.zeros(0, np.float32)], lambda x, n, _: np.bincount(x, minlength=int(n))
    )
    yield Case(
        "DenseBincount",
        lambda d: [d.ints(), 100, np.zeros(0, np.float32)],
        lambda x, n, _: np.bincount(x, minlength=int(n)),
    )
    yield Case(
        "Bucketize",
        lambda d: [d.real()],
        lambda x: np.searchsorted(np.array([-1, 0, 1], np.float32), x, "right"),
        {"boundaries": [-1.0, 0.0, 1.0]},
    )
    edges = np.linspace(-3, 3, 101, dtype=np.float32)
    for op, side in (("LowerBound", "left"), ("UpperBound", "right")):
        yield Case(op, lambda d: [edges[None], d.real(1, d.n)], lambda e, x, s=side: np.searchsorted(e[0], x[0], s))
    yield Case(
        "HistogramFixedWidth",
        lambda d: [d.real(), [-3.0, 3.0], 50],
        lambda x, _, n: np.bincount(np.clip((x + 3) * np.float32(50 / 6), 0, 49).astype(np.intp), minlength=50),
    )
    yield Case(
        "UnravelIndex",
        lambda d: [d.ints(low=0, high=d.side * d.side), [d.side, d.side]],
        lambda i, dims: np.stack(np.unravel_index(i, dims)),
    )


def cases() -> Iterator[Case]:
    """Iterate over the cases of this module."""
    for family in (_arrays, _indices, _segments, _images, _nn, _math):
        yield from family()
