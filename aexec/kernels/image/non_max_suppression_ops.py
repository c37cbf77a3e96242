"""Non-maximum suppression: chooses boxes by score, the best first, and drops those that overlap a chosen one too much.

Boxes are any two opposite corners [y, x, y, x].  Soft suppression lowers the scores of overlapping boxes instead of
dropping them.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

import numpy as np

from aexec.framework import dtypes, errors
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.kernel_contract.op_kernel import Compute, OpKernelConstruction
from aexec.framework.kernel_contract.output_sizes import AttrCost
from aexec.framework.memory.allocator import announce_scratch
from aexec.framework.shape import shape_text
from aexec.framework.waiting.abandoned_calls import check_wanted
from aexec.kernels.common.allocation import allocator
from aexec.kernels.common.scratch import scratch

__all__: list[str] = []

# Called with the numbers of chosen boxes and of others; returns which of the others overlap them too much, [chosen,
# others].
Rivalry = Callable[[Any, Any], Any]

_TYPES = (dtypes.float16, dtypes.float32)

# At most this many candidates are compared with each other at once: the tables stay in the cache.
_BLOCK = 192
_BEST_FEW = 16
# And with at most this many of the chosen boxes.
_MOST_CHOSEN = 1024
# Soft suppression compares this many candidates with all others at once when it chooses the first of them.
_GROUP = 16
# For this many of the newest chosen boxes, it keeps their weights on the scores of all candidates.
_KEPT = 128


class _Boxes:
    """Boxes as their lower and upper corners, [2, n] each, and their areas, [n]."""

    __slots__ = ("areas", "lower", "upper")

    def __init__(self, lower: Any, upper: Any, areas: Any) -> None:
        self.lower, self.upper, self.areas = lower, upper, areas

    @classmethod
    def of(cls, boxes: Any) -> _Boxes:
        """From rows of two opposite corners."""
        corners = np.ascontiguousarray(boxes.T)
        lower, upper = np.minimum(corners[:2], corners[2:]), np.maximum(corners[:2], corners[2:])
        with np.errstate(all="ignore"):
            sides = upper - lower
            return cls(lower, upper, sides[0] * sides[1])

    def __getitem__(self, which: Any) -> _Boxes:
        return _Boxes(self.lower[:, which], self.upper[:, which], self.areas[which])

    def part_from_all(self, which: Any) -> None:
        """Replace these boxes by boxes that overlap no other box."""
        self.lower[:, which], self.upper[:, which], self.areas[which] = np.inf, -np.inf, np.inf

    def followed_by(self, more: _Boxes) -> _Boxes:
        """These boxes, then `more`."""
        pairs = (self.lower, more.lower), (self.upper, more.upper), (self.areas, more.areas)
        return _Boxes(*(np.concatenate(pair, axis=-1) for pair in pairs))

    def overlaps(self, others: _Boxes) -> Any:
        """Intersection over union of each with each of `others`, in memory that the next call reuses.

        For two boxes without area it is NaN.
        """
        dtype = self.areas.dtype
        shape = 2, len(self.areas), len(others.areas)
        shared, lower = (scratch.empty(np, what, shape, dtype) for what in ("shared upper", "shared lower"))
        with np.errstate(all="ignore"):
            np.minimum(self.upper[:, :, None], others.upper[:, None], out=shared)
            np.maximum(self.lower[:, :, None], others.lower[:, None], out=lower)
            shared -= lower
            shared.clip(dtype.type(0), dtype.type(np.inf), shared)  # faster than with one bound, or `maximum`
            height, width = shared
            height *= width
            np.add(self.areas[:, None], others.areas, out=width)
            width -= height
            height /= width
        return height


def _rivalry(boxes: Any, limit: Any) -> Rivalry:
    return lambda chosen, others: _overlaps(boxes.__getitem__, chosen, others) > limit


def _overlaps(boxes_of: Callable[[Any], Any], chosen: Any, others: Any) -> Any:
    mine = _Boxes.of(boxes_of(chosen))
    return mine.overlaps(mine if others is chosen else _Boxes.of(boxes_of(others)))


def _in_order(scores: Any, threshold: Any, first: int) -> Iterator[Any]:
    """Yield numbers of the boxes with scores above the threshold, best first: about `first` of them, then increasing
    numbers.

    Usually few are needed, so the others are not sorted.
    """
    able = np.flatnonzero(scores > threshold)
    while len(able):
        check_wanted()
        values = scores[able]
        rest = able[:0]
        if len(able) > 2 * first:
            # Include all that equal the last one: equal scores are taken in the order of their numbers.
            above = values >= np.partition(values, len(values) - first)[len(values) - first]
            rest, able, values = able[~above], able[above], values[above]
        order = able[np.argsort(-values, kind="stable")]
        for start in range(0, len(order), _BLOCK):
            yield order[start : start + _BLOCK]
        able, first = rest, 4 * first


def _choose(candidates: Iterable[Any], too_similar: Rivalry, count: int, admitted: Callable[[Any], Any]) -> Any:
    """At most `count` of the candidates, best first; none is too similar to a better one that is chosen.

    `admitted` may drop some of those that would be chosen next, for other reasons.
    """
    chosen = np.empty(0, np.intp)
    for block in candidates:
        check_wanted()
        # A few of the best chosen boxes suppress most candidates.
        start, end = 0, _BEST_FEW
        while start < len(chosen) and len(block):
            block = block[~too_similar(chosen[start:end], block).any(0)]
            start, end = end, min(4 * end, end + _MOST_CHOSEN)
        chosen = np.append(chosen, admitted(block[_survivors(too_similar(block, block))]))[:count]
        if len(chosen) == count:
            break
    return chosen


def _survivors(rivals: Any) -> Any:
    """Return the candidates that stay, given for each pair whether the second must go if the first stays."""
    stays = np.ones(len(rivals), bool)
    rivals.ravel()[:: len(rivals) + 1] = False  # no candidate is its own rival
    for better in np.flatnonzero(rivals.any(1)).tolist():
        if stays[better]:
            stays[better + 1 :] &= ~rivals[better, better + 1 :]
    return stays


def _all(numbers: Any) -> Any:
    return numbers


def _best(scores: Any, threshold: Any, too_similar: Rivalry, count: int, admitted: Callable[[Any], Any] = _all) -> Any:
    """Numbers of the chosen boxes, at most `count`."""
    if not count:
        return np.empty(0, np.intp)
    return _choose(_in_order(scores, threshold, count + count // 8 + 16), too_similar, count, admitted)


class _Weights:
    """The factors by which boxes chosen by soft suppression lower the scores of candidates.

    Candidates are named by their positions in the order of arrival.  A row belongs to a candidate: it has a place for
    the score, then the weights of the chosen boxes, the newest first.
    """

    def __init__(self, boxes: Any, room: int, scale: Any) -> None:
        self._boxes, self._scale = boxes, scale
        self._chosen: list[int] = []
        self._candidates = _Boxes.of(boxes[:0])
        self._room = min(room, _KEPT)
        self._kept = 0  # filled columns, at the end of the rows
        self._rows = np.empty((0, self._room + 1), boxes.dtype)
        self._of: dict[int, Any] = {}

    def look_at(self, numbers: Any) -> None:
        """Add candidates: the boxes of these numbers."""
        more = _Boxes.of(self._boxes[numbers])
        more.part_from_all(~(more.areas > 0))
        rows = np.empty((len(numbers), self._room + 1), self._rows.dtype)
        if self._kept:
            rows[:, -self._kept :] = self._weights(self._newest(self._kept), more).T
        self._rows = np.concatenate([self._rows, rows])
        self._candidates = self._candidates.followed_by(more)
        self._of.clear()

    def choose(self, place: int, group: int) -> None:
        """Choose this candidate; the `group` from it on are compared together, since they may be chosen soon."""
        if place not in self._of:
            weights = self._weights(self._candidates[place : place + group], self._candidates)
            self._of.update(enumerate(weights, place))
        if self._kept == self._room:
            self._kept //= 2
            self._rows[:, self._room + 1 - self._kept :] = self._rows[:, 1 : 1 + self._kept]
        self._chosen.append(place)
        self._kept += 1
        self._rows[:, -self._kept] = self._of[place]

    def lowered(self, score: float, place: int, seen: int) -> float:
        """The score lowered by all boxes chosen since there were `seen`, the newest first."""
        new, before = len(self._chosen) - seen, self._room - self._kept
        if new <= self._kept:
            row = self._rows[place, before : before + 1 + new]
            row[0] = score
        else:
            row = self._weights(self._newest(new), self._candidates[place : place + 1])[:, 0]
            row[0] *= score
        return float(np.multiply.accumulate(row)[-1])

    def _newest(self, count: int) -> _Boxes:
        return self._candidates[self._chosen[: -count - 1 : -1]]

    def _weights(self, chosen: _Boxes, candidates: _Boxes) -> Any:
        likeness = chosen.overlaps(candidates)
        weights = likeness * self._scale
        weights *= likeness
        return np.exp(weights, out=weights)


def _choose_softly(scores: Any, boxes: Any, threshold: Any, sigma: Any, count: int) -> tuple[list[int], list[float]]:
    """Return (boxes, their scores after suppression) in the order of these scores.

    A candidate's score is lowered by its similarity to each box chosen since it was last considered; then it queues
    again.
    """
    chosen: list[int] = []
    final: list[float] = []
    if not count:
        return chosen, final
    weights, least = _Weights(boxes, min(count, len(scores)), scores.dtype.type(-0.5) / sigma), float(threshold)

    def candidates() -> Iterator[tuple[float, int, int, int]]:
        place = 0
        for block in _in_order(scores, threshold, 2 * count):
            weights.look_at(block)
            for negative, box in zip((-scores[block]).tolist(), block.tolist(), strict=True):
                yield negative, box, 0, place
                place += 1

    fresh = candidates()
    with np.errstate(all="ignore"):
        queue = list(islice(fresh, 1))
        while queue and len(chosen) < count:
            check_wanted()
            negative, box, seen, place = heapq.heappop(queue)
            lowered = seen > 0
            if not lowered:  # the best new candidate; the next one takes its place
                for candidate in islice(fresh, 1):
                    heapq.heappush(queue, candidate)
            score = weights.lowered(-negative, place, seen) if seen < len(chosen) else -negative
            if score == -negative:
                chosen.append(box)
                # If few overlap, they are chosen in the order of their scores.
                weights.choose(place, 1 if lowered else _GROUP)
                final.append(score)
            elif score > least:
                heapq.heappush(queue, (-score, box, len(chosen), place))
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


def _cost(per_box: float, per_pair: float) -> Callable[..., float]:
    """By the scores, and by the pairs among the boxes that are wanted, several times over."""

    def cost(_boxes: Any, scores: Any, count: Any, *_rest: Any) -> float:
        boxes = float(scores.size)
        wanted = min(boxes, float(count.item()) if count.size == 1 else 0.0)
        return 50_000.0 + per_box * boxes + per_pair * wanted * wanted

    return cost


_hard_cost, _soft_cost, _cost_with_overlaps = _cost(15.0, 6.0), _cost(15.0, 300.0), _cost(15.0, 2.0)

# Bytes per score while the best are searched: its position in their order, and comparisons.
_CANDIDATE_BYTES = 40


# Bytes per pair of boxes that are compared.
_PAIR_BYTES = 24


def _hard_scratch(_boxes: Any, scores: Any, count: Any, *_: Any) -> int:
    boxes = scores.size
    pairs = min(_BLOCK, boxes) * min(boxes, int(count), _MOST_CHOSEN)
    return int(_CANDIDATE_BYTES * boxes + _PAIR_BYTES * pairs)


@kernel("NonMaxSuppression", cost=_hard_cost, scratch=_hard_scratch)
@kernel("NonMaxSuppressionV2", T=_TYPES, cost=_hard_cost, scratch=_hard_scratch)
@kernel("NonMaxSuppressionV3", T=_TYPES, cost=_hard_cost, scratch=_hard_scratch)
def suppress(c: OpKernelConstruction) -> Compute:
    """Return an int32 vector of the chosen boxes.  Version 1 has the overlap as attr, version 3 a lowest score."""
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
            return np.empty(0, np.int32)
        count = _checked_count(max_output_size)
        return _best(scores, threshold, _rivalry(boxes, limit), count).astype(np.int32)

    return compute


def _padded(cost: Callable[..., float]) -> Callable[[Any], Any]:
    """The cost of a node whose attr may ask to pad the outputs."""

    def of_attrs(attrs: Any) -> Any:
        if not attrs["pad_to_max_output_size"]:
            return cost
        return lambda boxes, scores, count, *rest: cost(boxes, scores, count, *rest) + float(count)

    return of_attrs


def _soft_scratch(boxes: Any, *_: Any) -> int:
    """Bytes per box: its position in the order, and the weights of others."""
    return 300 * len(boxes)


@kernel("NonMaxSuppressionV4", T=_TYPES, cost=AttrCost(_padded(_hard_cost)), scratch=_hard_scratch)
@kernel("NonMaxSuppressionV5", T=_TYPES, cost=AttrCost(_padded(_soft_cost)), scratch=_soft_scratch)
def suppress_and_count(c: OpKernelConstruction) -> Compute:
    """Return (boxes, their scores in version 5, number of them), padded with zeros to the requested size if an attr
    asks.
    """
    padded, soft, hard = c.attr("pad_to_max_output_size"), c.op == "NonMaxSuppressionV5", np.float32(0)
    allocators = [allocator(c, output) for output in range(2 if soft else 1)]

    def fill(count: int, columns: list[Any]) -> Any:
        found = len(columns[0])
        # The system has zeroed pages ready: unwritten ones take no time.
        results = [allocate(count if padded else found, np.zeros) for allocate in allocators]
        for result, column in zip(results, columns, strict=True):
            result[:found] = column
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
        if sigma > 0:
            return fill(count, list(_choose_softly(scores, boxes, threshold, sigma, count)))
        chosen = _best(scores, threshold, _rivalry(boxes, limit), count)
        return fill(count, [chosen, scores[chosen]] if soft else [chosen])

    return compute


@kernel("NonMaxSuppressionWithOverlaps", cost=_cost_with_overlaps)
def suppress_with_overlaps(c: OpKernelConstruction) -> Compute:
    """Like version 3, with a matrix of the similarities of all pairs of boxes."""

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
            return np.empty(0, np.int32)

        def too_similar(chosen: Any, others: Any) -> Any:
            # The candidate's row, as in TensorFlow, in case the matrix is not symmetric.
            return limit < overlaps.take(others, 0).take(chosen, 1).T

        return _best(scores, threshold, too_similar, _checked_count(max_output_size)).astype(np.int32)

    return compute


# Many classes, many images


def _check_combined(boxes: Any, scores: Any, per_class: Any, total: Any, limit: Any, threshold: Any) -> tuple[int, int]:
    """Return the requested (boxes per class, boxes in all).  Raises InvalidArgumentError for inputs that do not
    match.
    """
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
    """Return (boxes, scores, classes) of one image, best first.

    All classes are one list of candidates, class by class, in which boxes of different classes do not suppress each
    other. So no more candidates are considered than the best `total` need.
    """
    count, shared = len(boxes), boxes.shape[1] == 1
    found_of_class: Counter[int] = Counter()

    def too_similar(chosen: Any, others: Any) -> Any:
        rivals = _overlaps(box, chosen, others) > limit
        rivals &= (chosen // count)[:, None] == others // count
        return rivals

    def box(numbers: Any) -> Any:
        kind, number = np.divmod(numbers, count)
        return boxes[number, 0 if shared else kind]

    def of_classes_with_room(found: Any) -> Any:
        keep = []
        for kind in (found // count).tolist():
            keep.append(found_of_class[kind] < per_class)
            found_of_class[kind] += 1
        return found[keep]

    values = scores.T.reshape(-1)
    chosen = _best(values, threshold, too_similar, total, of_classes_with_room)
    return box(chosen), values[chosen], chosen // count


def _combined_cost(_boxes: Any, scores: Any, _per_class: Any, total: Any, *_rest: Any) -> float:
    return _hard_cost(_boxes, scores, total) * max(1, len(scores))


@kernel("CombinedNonMaxSuppression", cost=_combined_cost)
def suppress_classes(c: OpKernelConstruction) -> Compute:
    """Return (boxes [n, k, 4], scores [n, k], classes [n, k], number of valid ones [n]), zeros behind these."""
    padded_per_class, clip = c.attr("pad_per_class"), c.attr("clip_boxes")
    allocate = allocator(c)

    def compute(boxes: Any, scores: Any, per_class: Any, total: Any, limit: Any, threshold: Any) -> Any:
        each, wanted = _check_combined(boxes, scores, per_class, total, limit, threshold)
        batch, classes = len(boxes), scores.shape[2]
        size = min(wanted, each * classes) if padded_per_class else wanted
        all_boxes, all_scores, all_classes = (allocate((batch, size, *rest), np.zeros) for rest in ((4,), (), ()))
        valid = np.zeros(batch, np.int32)
        announce_scratch(_CANDIDATE_BYTES * scores.shape[1] * classes)
        for n in range(batch):
            check_wanted()
            found = _best_of_image(boxes[n], scores[n], each, size, limit, threshold)
            valid[n] = count = len(found[1])
            for whole, part in zip((all_boxes, all_scores, all_classes), found, strict=True):
                whole[n, :count] = part
        if clip:
            np.clip(all_boxes, 0, 1, out=all_boxes)
        return all_boxes, all_scores, all_classes, valid

    return compute
