"""Choosing boxes: the best of those that overlap too much, by score, one after the other.

Boxes are any two opposite corners [y, x, y, x].  Scores of boxes that overlap a chosen
one make them drop out, or (soft suppression) lower their scores.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any

import numpy as np

from aexec.framework import dtypes, errors
from aexec.framework.kernel_registry import kernel
from aexec.framework.op_kernel import Compute, OpKernelConstruction
from aexec.framework.shape import shape_text
from aexec.kernels.common.allocation import allocator

__all__: list[str] = []

# Given a box's number and the numbers of others: how similar each is to it.
Similarity = Callable[[Any, Any], Any]

_TYPES = (dtypes.float16, dtypes.float32)


def _overlap_of(boxes: Any) -> Similarity:
    """Intersection over union."""
    corners = boxes.T
    top, bottom = np.minimum(corners[0], corners[2]), np.maximum(corners[0], corners[2])
    left, right = np.minimum(corners[1], corners[3]), np.maximum(corners[1], corners[3])
    with np.errstate(all="ignore"):
        area = (bottom - top) * (right - left)

    def similarity(box: Any, others: Any) -> Any:
        with np.errstate(all="ignore"):
            height = np.minimum(bottom[others], bottom[box]) - np.maximum(top[others], top[box])
            width = np.minimum(right[others], right[box]) - np.maximum(left[others], left[box])
            shared = np.maximum(height, 0) * np.maximum(width, 0)
            ratio = shared / (area[others] + area[box] - shared)
        return np.where((area[others] > 0) & (area[box] > 0), ratio, area.dtype.type(0))

    return similarity


def _in_order(scores: Any, threshold: Any) -> Any:
    """Numbers of the boxes with scores above the threshold, best first."""
    able = np.flatnonzero(scores > threshold)
    return able[np.argsort(-scores[able], kind="stable")]


def _choose(order: Any, similarity: Similarity, limit: Any, count: int) -> list[int]:
    """At most `count` of the boxes, best first: none is more similar to a better one than `limit`."""
    chosen: list[int] = []
    while order.size and len(chosen) < count:
        best, order = order[0], order[1:]
        chosen.append(int(best))
        order = order[~(similarity(best, order) > limit)]
    return chosen


def _choose_softly(
    scores: Any, similarity: Similarity, threshold: Any, sigma: Any, count: int
) -> tuple[list[int], list[Any]]:
    """(boxes, their scores after suppression) in the order of these scores.

    A candidate's score falls by its similarity to each box chosen since it was looked at
    last; then it queues again.
    """
    scale = scores.dtype.type(-0.5) / sigma
    queue = [(-scores[i], int(i), 0) for i in _in_order(scores, threshold)]
    chosen: list[int] = []
    final: list[Any] = []
    while queue and len(chosen) < count:
        negative, box, seen = heapq.heappop(queue)
        score = -negative
        if seen < len(chosen):
            likeness = similarity(box, np.array(chosen[seen:][::-1]))
            with np.errstate(all="ignore"):
                weights = np.exp(scale * likeness * likeness)
            score = np.multiply.accumulate(np.append(score, weights))[-1]
        if score == -negative:
            chosen.append(box)
            final.append(score)
        elif score > threshold:
            heapq.heappush(queue, (-score, box, len(chosen)))
    return chosen, final


# Checks, in TensorFlow's words


def _check_scalar(value: Any, name: str, *, explained: bool = True) -> None:
    if value.ndim:
        why = f" (Shape must be rank 0 but is rank {value.ndim})" if explained else ""
        raise errors.InvalidArgumentError(f"{name} must be 0-D, got shape {shape_text(value.shape)}{why}")


def _check_boxes(boxes: Any) -> None:
    if boxes.ndim != 2:
        raise errors.InvalidArgumentError(
            f"boxes must be 2-D{shape_text(boxes.shape)} (Shape must be rank 2 but is rank {boxes.ndim})"
        )
    if boxes.shape[1] != 4:
        raise errors.InvalidArgumentError(f"boxes must have 4 columns (Dimension must be 4 but is {boxes.shape[1]})")


def _check_scores(scores: Any, count: int) -> None:
    if scores.ndim != 1:
        raise errors.InvalidArgumentError(
            f"scores must be 1-D{shape_text(scores.shape)} (Shape must be rank 1 but is rank {scores.ndim})"
        )
    if len(scores) != count:
        raise errors.InvalidArgumentError(
            f"scores has incompatible shape (Dimensions must be equal, but are {count} and {len(scores)})"
        )


def _check_limit(limit: Any) -> None:
    if not 0 <= limit <= 1:
        raise errors.InvalidArgumentError("iou_threshold must be in [0, 1]")


def _checked_count(count: Any) -> int:
    wanted = int(count)
    if wanted < 0:
        raise errors.InvalidArgumentError("output size must be non-negative")
    return wanted


def _indices(chosen: list[int]) -> Any:
    return np.array(chosen, np.int32)


@kernel("NonMaxSuppression", cost=50.0)
@kernel("NonMaxSuppressionV2", T=_TYPES, cost=50.0)
@kernel("NonMaxSuppressionV3", T=_TYPES, cost=50.0)
def suppress(c: OpKernelConstruction) -> Compute:
    """int32 vector of the chosen boxes.  Version 1 has the overlap as attr, version 3 a lowest score."""
    fixed = np.float32(c.attr("iou_threshold")) if c.op == "NonMaxSuppression" else None
    if fixed is not None:
        _check_limit(fixed)
    lowest = np.finfo(c.input_types[0].np).min

    def compute(boxes: Any, scores: Any, max_output_size: Any, limit: Any = fixed, threshold: Any = lowest) -> Any:
        _check_scalar(max_output_size, "max_output_size")
        _check_scalar(limit, "iou_threshold")
        _check_scalar(threshold, "score_threshold", explained=False)
        _check_limit(limit)
        _check_boxes(boxes)
        _check_scores(scores, len(boxes))
        if not len(boxes):
            return _indices([])
        count = _checked_count(max_output_size)
        return _indices(_choose(_in_order(scores, threshold), _overlap_of(boxes), limit, count))

    return compute


@kernel("NonMaxSuppressionV4", T=_TYPES, cost=50.0)
@kernel("NonMaxSuppressionV5", T=_TYPES, cost=80.0)
def suppress_and_count(c: OpKernelConstruction) -> Compute:
    """(boxes, their scores in version 5, number of them), with zeros up to the size asked for if that is wished."""
    padded, soft, hard = c.attr("pad_to_max_output_size"), c.op == "NonMaxSuppressionV5", np.float32(0)
    allocators = [allocator(c, output) for output in range(2 if soft else 1)]

    def fill(count: int, columns: list[Any]) -> Any:
        found = len(columns[0])
        results = [allocate(count if padded else found) for allocate in allocators]
        for result, column in zip(results, columns, strict=True):
            result[:found] = column
            result[found:] = 0
        return (*results, np.int32(found))

    def compute(boxes: Any, scores: Any, max_output_size: Any, limit: Any, threshold: Any, sigma: Any = hard) -> Any:
        _check_scalar(max_output_size, "max_output_size")
        _check_scalar(limit, "iou_threshold")
        _check_scalar(threshold, "score_threshold", explained=False)
        _check_scalar(sigma, "soft_nms_sigma", explained=False)
        _check_limit(limit)
        if sigma < 0:
            raise errors.InvalidArgumentError("soft_nms_sigma_val must be >= 0")
        _check_boxes(boxes)
        _check_scores(scores, len(boxes))
        count = _checked_count(max_output_size)
        similarity = _overlap_of(boxes)
        if sigma > 0:
            return fill(count, list(_choose_softly(scores, similarity, threshold, sigma, count)))
        chosen = _choose(_in_order(scores, threshold), similarity, limit, count)
        return fill(count, [chosen, scores[chosen]] if soft else [chosen])

    return compute


@kernel("NonMaxSuppressionWithOverlaps", cost=2.0)
def suppress_with_overlaps(c: OpKernelConstruction) -> Compute:
    """As version 3, with the similarity of each pair of boxes given as a matrix."""

    def compute(overlaps: Any, scores: Any, max_output_size: Any, limit: Any, threshold: Any) -> Any:
        for value, name in (
            (max_output_size, "max_output_size"),
            (limit, "overlap_threshold"),
            (threshold, "score_threshold"),
        ):
            _check_scalar(value, name, explained=False)
        if overlaps.ndim != 2:
            raise errors.InvalidArgumentError(f"overlaps must be 2-D{shape_text(overlaps.shape)}")
        if overlaps.shape[0] != overlaps.shape[1]:
            raise errors.InvalidArgumentError(f"overlaps must be square{shape_text(overlaps.shape)}")
        _check_scores(scores, len(overlaps))
        if not len(scores):
            return _indices([])
        count = _checked_count(max_output_size)
        # A candidate's row, as TensorFlow asks it, should the matrix not be symmetric.
        return _indices(_choose(_in_order(scores, threshold), lambda box, rest: overlaps[rest, box], limit, count))

    return compute


# Many classes, many images


def _check_combined(boxes: Any, scores: Any, per_class: Any, total: Any, limit: Any, threshold: Any) -> tuple[int, int]:
    """(boxes per class, boxes in all) that are asked for."""
    if not boxes.ndim or not scores.ndim or boxes.shape[0] != scores.shape[0]:
        raise errors.InvalidArgumentError("boxes and scores must have same batch size")
    _check_scalar(per_class, "max_size_per_class", explained=False)
    if int(per_class) <= 0:
        raise errors.InvalidArgumentError("max_size_per_class must be positive")
    _check_scalar(total, "max_total_size", explained=False)
    if int(total) <= 0:
        raise errors.InvalidArgumentError("max_total_size must be > 0")
    _check_scalar(limit, "iou_threshold", explained=False)
    _check_limit(limit)
    _check_scalar(threshold, "score_threshold", explained=False)
    if boxes.ndim != 4:
        raise errors.InvalidArgumentError(f"boxes must be 4-D{shape_text(boxes.shape)}")
    if boxes.shape[3] != 4:
        raise errors.InvalidArgumentError("boxes must have 4 columns")
    if scores.ndim != 3:
        raise errors.InvalidArgumentError(f"scores must be 3-D{shape_text(scores.shape)}")
    if scores.shape[1] != boxes.shape[1]:
        raise errors.InvalidArgumentError("scores has incompatible shape")
    if boxes.shape[2] not in (1, scores.shape[2]):
        raise errors.InvalidArgumentError("third dimension of boxes must be either 1 or num classes")
    return int(per_class), int(total)


def _best_of_image(
    boxes: Any, scores: Any, per_class: int, total: int, limit: Any, threshold: Any
) -> tuple[Any, Any, Any]:
    """(boxes, scores, classes) of one image, best first."""
    shared = _overlap_of(boxes[:, 0]) if boxes.shape[1] == 1 else None
    chosen: list[int] = []
    classes: list[int] = []
    for number, of_class in enumerate(scores.T):
        order = _in_order(of_class, threshold)
        found = _choose(order, shared or _overlap_of(boxes[:, number]), limit, per_class) if order.size else []
        chosen += found
        classes += [number] * len(found)
    index, kind = np.array(chosen, np.intp), np.array(classes, np.intp)
    values = scores[index, kind]
    best = np.argsort(-values, kind="stable")[:total]
    index, kind = index[best], kind[best]
    return boxes[index, 0 if shared else kind], values[best], kind


@kernel("CombinedNonMaxSuppression", cost=100.0)
def suppress_classes(c: OpKernelConstruction) -> Compute:
    """(boxes [n, k, 4], scores [n, k], classes [n, k], number of valid ones [n]), zeros behind these."""
    padded_per_class, clip = c.attr("pad_per_class"), c.attr("clip_boxes")
    allocate = allocator(c)

    def compute(boxes: Any, scores: Any, per_class: Any, total: Any, limit: Any, threshold: Any) -> Any:
        each, wanted = _check_combined(boxes, scores, per_class, total, limit, threshold)
        batch, classes = len(boxes), scores.shape[2]
        size = min(wanted, each * classes) if padded_per_class else wanted
        all_boxes, all_scores, all_classes = (allocate((batch, size, *rest), np.zeros) for rest in ((4,), (), ()))
        valid = np.zeros(batch, np.int32)
        for n in range(batch):
            found = _best_of_image(boxes[n], scores[n], each, size, limit, threshold)
            valid[n] = count = len(found[1])
            for whole, part in zip((all_boxes, all_scores, all_classes), found, strict=True):
                whole[n, :count] = part
        if clip:
            np.clip(all_boxes, 0, 1, out=all_boxes)
        return all_boxes, all_scores, all_classes, valid

    return compute
