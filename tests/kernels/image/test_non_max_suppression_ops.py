"""Suppression: a slow model box by box, soft scores, padding, classes, TensorFlow's messages."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aexec.framework import errors
from aexec.kernels.image import non_max_suppression_ops
from tests.kernels.array_support import F32, I32, assert_gives, assert_refuses
from tests.kernels.harness import in_tensorflow, ops_of, registered, run_op


@pytest.mark.parametrize("op", ops_of("image.non_max_suppression_ops"))
def test_types_are_tensorflows(op):
    assert registered(op) == in_tensorflow(op)


def overlap(a, b):
    (t1, b1), (l1, r1) = sorted((a[0], a[2])), sorted((a[1], a[3]))
    (t2, b2), (l2, r2) = sorted((b[0], b[2])), sorted((b[1], b[3]))
    areas = (b1 - t1) * (r1 - l1), (b2 - t2) * (r2 - l2)
    if min(areas) <= 0:
        return 0.0
    shared = max(0, min(b1, b2) - max(t1, t2)) * max(0, min(r1, r2) - max(l1, l2))
    return shared / (sum(areas) - shared)


def slowly(scores, similar, limit, threshold, count):
    chosen = []
    for i in sorted(range(len(scores)), key=lambda i: (-scores[i], i)):
        if len(chosen) < count and scores[i] > threshold and all(similar(i, j) <= limit for j in chosen):
            chosen.append(i)
    return chosen


BOX = st.tuples(*[st.integers(0, 4)] * 4)


@given(
    st.lists(st.tuples(BOX, st.integers(0, 6)), max_size=12),
    st.integers(0, 8),
    st.sampled_from([0.0, 0.25, 0.5, 1.0]),
    st.sampled_from([-1.0, 0.2]),
)
def test_all_versions_agree_with_the_slow_model(items, count, limit, threshold):
    boxes = F32([box for box, _ in items]).reshape(-1, 4)
    scores = F32([score / 8 for _, score in items])

    def similar(i, j):
        return overlap(boxes[i], boxes[j])

    unlimited = I32(slowly(scores, similar, limit, -np.inf, count))
    want = I32(slowly(scores, similar, limit, threshold, count))
    assert_gives("NonMaxSuppression", [boxes, scores, I32(count)], unlimited, iou_threshold=limit)
    assert_gives("NonMaxSuppressionV2", [boxes, scores, I32(count), F32(limit)], unlimited)
    inputs = [boxes, scores, I32(count), F32(limit), F32(threshold)]
    assert_gives("NonMaxSuppressionV3", inputs, want)
    assert_gives("NonMaxSuppressionV4", inputs, (want, np.int32(len(want))))
    padding = np.zeros(count - len(want), np.int32)
    padded = np.concatenate([want, padding])
    assert_gives("NonMaxSuppressionV4", inputs, (padded, np.int32(len(want))), pad_to_max_output_size=True)
    hard = (want, scores[want], np.int32(len(want)))
    assert_gives("NonMaxSuppressionV5", [*inputs, F32(0)], hard)
    if items:
        table = F32([[similar(i, j) for j in range(len(items))] for i in range(len(items))])
        assert_gives("NonMaxSuppressionWithOverlaps", [table, *inputs[1:]], want)


def crowd(seed, count, size):
    """Boxes of which many overlap, and scores of which many are equal."""
    rng = np.random.default_rng(seed)
    corner, sides = rng.random((2, count, 2), np.float32)
    return np.concatenate([corner, corner + size * sides], 1), rng.integers(0, count // 2, count).astype(np.float32)


@pytest.mark.parametrize(("size", "wanted"), [(0.05, 40), (0.05, 700), (0.5, 40), (0.5, 1500)])
def test_many_boxes_agree_with_the_slow_model(size, wanted):
    """So many that they are sorted and compared in parts."""
    boxes, scores = crowd(1, 1500, size)
    limit, threshold = np.float32(0.3), np.float32(20)
    inputs = [boxes, scores, I32(wanted), limit, threshold]

    @cache
    def similar(i, j):
        return overlap(boxes[i], boxes[j])

    want = slowly(scores, similar, limit, threshold, wanted)
    assert_gives("NonMaxSuppressionV3", inputs, I32(want))
    chosen, _, count = run_op("NonMaxSuppressionV5", [*inputs, F32(0)])
    assert (chosen.tolist(), count) == (want, len(want))


def test_many_overlaps_agree_with_the_slow_model():
    rng = np.random.default_rng(3)
    table, scores = rng.random((700, 700), np.float32), rng.random(700, np.float32)
    want = I32(slowly(scores, lambda i, j: table[i, j], 0.99, 0.1, 300))
    assert_gives("NonMaxSuppressionWithOverlaps", [table, scores, I32(300), F32(0.99), F32(0.1)], want)


def test_overlaps_need_not_be_symmetric():
    table = F32([[1, 0], [0.9, 1]])
    inputs = [F32([2, 1]), I32(2), F32(0.5), F32(0)]
    assert_gives("NonMaxSuppressionWithOverlaps", [table, *inputs], I32([0]))
    assert_gives("NonMaxSuppressionWithOverlaps", [table.T, *inputs], I32([0, 1]))


def test_soft_suppression_lowers_scores_and_reorders():
    boxes = F32([[0, 0, 1, 1], [0, 0, 1, 1], [0, 2, 1, 3]])
    scores = F32([0.9, 0.8, 0.5])
    chosen, lowered, count = run_op(
        "NonMaxSuppressionV5", [boxes, scores, I32(5), F32(1), F32(0.1), F32(0.5)], pad_to_max_output_size=True
    )
    assert chosen.tolist() == [0, 2, 1, 0, 0]
    assert lowered.tolist() == pytest.approx([0.9, 0.5, 0.8 * np.exp(-1), 0, 0])
    assert count == 3
    dropped, _, _ = run_op("NonMaxSuppressionV5", [boxes, scores, I32(5), F32(1), F32(0.3), F32(0.5)])
    assert dropped.tolist() == [0, 2]


def softly(boxes, scores, threshold, sigma, count):
    """TensorFlow's queue: a score is lowered by the boxes chosen since it was looked at last, the newest first."""
    queue = [(score, i, 0) for i, score in enumerate(scores) if score > threshold]
    chosen = []
    while queue and len(chosen) < count:
        score, i, seen = best = max(queue, key=lambda item: (item[0], -item[1]))
        queue.remove(best)
        lowered = score
        for j, _ in chosen[seen:][::-1]:
            lowered *= np.exp(np.float32(-0.5 / sigma) * np.float32(overlap(boxes[i], boxes[j])) ** 2)
        if lowered == score:
            chosen.append((i, score))
        elif lowered > threshold:
            queue.append((lowered, i, len(chosen)))
    return chosen


@pytest.mark.parametrize("kept", [7, 128])
@pytest.mark.parametrize("size", [0.05, 0.5])
def test_soft_suppression_of_many_is_the_slow_model(size, kept, monkeypatch):
    monkeypatch.setattr(non_max_suppression_ops, "_KEPT", kept)
    boxes, scores = crowd(2, 600, size)
    boxes[::50, 2:] = boxes[::50, :2]  # some have no area
    want = softly(boxes, scores, 10, 0.25, 60)
    inputs = [boxes, scores, I32(60), F32(1), F32(10), F32(0.25)]
    chosen, lowered, count = run_op("NonMaxSuppressionV5", inputs)
    assert chosen.tolist() == [i for i, _ in want]
    np.testing.assert_allclose(lowered, [score for _, score in want], rtol=1e-5)
    assert count == 60


def test_soft_suppression_of_none():
    boxes, scores = crowd(2, 9, 0.5)
    chosen, lowered, count = run_op("NonMaxSuppressionV5", [boxes, scores, I32(0), F32(1), F32(0), F32(0.25)])
    assert (chosen.tolist(), lowered.tolist(), count) == ([], [], 0)


def test_half_precision():
    boxes = np.float16([[0, 0, 1, 1], [0, 0, 1, 0.9], [0, 2, 1, 3]])
    scores, half = np.float16([0.9, 0.8, 0.5]), np.float16(0.5)
    assert_gives("NonMaxSuppressionV3", [boxes, scores, I32(5), half, np.float16(0)], I32([0, 2]), T_threshold="half")
    chosen, lowered, _ = run_op("NonMaxSuppressionV5", [boxes, scores, I32(5), half, np.float16(0), half])
    assert chosen.tolist() == [0, 2, 1]
    assert lowered.dtype == np.float16


def test_nan_score_is_not_selected():
    boxes = F32([[0, 0, 1, 1], [0, 2, 1, 3]])
    assert_gives("NonMaxSuppression", [boxes, F32([np.nan, 1]), I32(2)], I32([1]))


BOXES, SCORES = F32(np.ones((3, 4))), F32([1, 2, 3])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({0: BOXES[0]}, "boxes must be 2-D[4] (Shape must be rank 2 but is rank 1)"),
        ({0: BOXES[:, :3]}, "boxes must have 4 columns (Dimension must be 4 but is 3)"),
        ({1: SCORES[:2]}, "scores has incompatible shape (Dimensions must be equal, but are 3 and 2)"),
        ({1: BOXES}, "scores must be 1-D[3,4] (Shape must be rank 1 but is rank 2)"),
        ({2: I32([1])}, "max_output_size must be 0-D, got shape [1] (Shape must be rank 0 but is rank 1)"),
        ({2: I32(-1)}, "output size must be non-negative"),
        ({3: F32([1])}, "iou_threshold must be 0-D, got shape [1] (Shape must be rank 0 but is rank 1)"),
        ({3: F32(1.5)}, "iou_threshold must be in [0, 1]"),
        ({3: F32(np.nan)}, "iou_threshold must be in [0, 1]"),
        ({4: F32([1])}, "score_threshold must be 0-D, got shape [1]"),
        ({5: F32([1])}, "soft_nms_sigma must be 0-D, got shape [1]"),
        ({5: F32(-1)}, "soft_nms_sigma_val must be >= 0"),
    ],
)
def test_inputs_are_checked(change, message):
    inputs = [BOXES, SCORES, I32(2), F32(0.5), F32(0), F32(0)]
    for index, value in change.items():
        inputs[index] = value
    assert_refuses("NonMaxSuppressionV5", inputs, message)
    if max(change) < 5:
        assert_refuses("NonMaxSuppressionV4", inputs[:5], message)
        assert_refuses("NonMaxSuppressionV3", inputs[:5], message)


def test_attrs_and_sizes_are_checked():
    assert_refuses("NonMaxSuppression", [BOXES, SCORES, I32(2)], "iou_threshold must be in [0, 1]", iou_threshold=-0.1)
    assert_gives("NonMaxSuppression", [BOXES[:0], SCORES[:0], I32(-2)], I32([]))
    assert_gives("NonMaxSuppressionWithOverlaps", [BOXES[:0, :0], SCORES[:0], I32(1), F32(0), F32(0)], I32([]))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({0: SCORES}, "overlaps must be 2-D[3]"),
        ({0: BOXES}, "overlaps must be square[3,4]"),
        ({1: SCORES[:2]}, "scores has incompatible shape (Dimensions must be equal, but are 3 and 2)"),
        ({2: I32([1])}, "max_output_size must be 0-D, got shape [1]"),
        ({2: I32(-1)}, "output size must be non-negative"),
        ({3: F32([1])}, "overlap_threshold must be 0-D, got shape [1]"),
        ({4: F32([1])}, "score_threshold must be 0-D, got shape [1]"),
    ],
)
def test_inputs_with_overlaps_are_checked(change, message):
    inputs = [BOXES[:, :3], SCORES, I32(2), F32(0.5), F32(0)]
    for index, value in change.items():
        inputs[index] = value
    assert_refuses("NonMaxSuppressionWithOverlaps", inputs, message)


# Many classes


def combined(boxes, scores, per_class, total, limit=0.5, threshold=0.0, **attrs):
    inputs = [F32(boxes), F32(scores), I32(per_class), I32(total), F32(limit), F32(threshold)]
    return run_op("CombinedNonMaxSuppression", inputs, **attrs)


def test_classes_are_suppressed_by_themselves():
    boxes = F32([[0, 0, 1, 1], [0, 0, 1, 1.5], [0, 2, 1, 3]]).reshape(1, 3, 1, 4)
    scores = F32([[[0.9, 0.1], [0.8, 0.7], [0.3, 0]]])
    found, values, classes, count = combined(boxes, scores, 2, 4)
    assert values[0].tolist() == F32([0.9, 0.7, 0.3, 0]).tolist()
    assert classes[0].tolist() == [0, 1, 0, 0]
    assert found[0].tolist() == [[0, 0, 1, 1], [0, 0, 1, 1], [0, 1, 1, 1], [0, 0, 0, 0]]
    assert count.tolist() == [3]
    whole, _, _, _ = combined(boxes, scores, 2, 2, clip_boxes=False)
    assert whole[0].tolist() == [[0, 0, 1, 1], [0, 0, 1, 1.5]]
    assert combined(boxes, scores, 1, 50, pad_per_class=True)[1].shape == (1, 2)


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize(("per_class", "total"), [(3, 20), (50, 30), (50, 400)])
def test_many_classes_agree_with_the_slow_model(shared, per_class, total):
    rng = np.random.default_rng(total)
    boxes = crowd(per_class, 80 if shared else 480, 0.5)[0].reshape(80, 1 if shared else 6, 4)
    scores = rng.integers(0, 50, (80, 6)).astype(np.float32)
    want = []
    for kind in range(6):
        own = boxes[:, 0 if shared else kind]
        found = slowly(scores[:, kind], lambda i, j, own=own: overlap(own[i], own[j]), 0.4, 5, per_class)
        want += [(-scores[i, kind], kind, i) for i in found]
    want = sorted(want)[:total]
    found, values, classes, count = combined(
        boxes[None], scores[None], per_class, total, F32(0.4), F32(5), clip_boxes=False
    )
    assert count.tolist() == [len(want)]
    assert values[0, : len(want)].tolist() == [-negative for negative, _, _ in want]
    assert classes[0, : len(want)].tolist() == [kind for _, kind, _ in want]
    np.testing.assert_array_equal(found[0, : len(want)], [boxes[i, 0 if shared else kind] for _, kind, i in want])


def test_each_class_may_have_its_own_boxes():
    boxes = F32([[[0, 0, 1, 1], [0, 0, 0.5, 0.5]]]).reshape(1, 1, 2, 4)
    found, _, classes, _ = combined(boxes, [[[0.5, 0.9]]], 1, 2)
    assert classes[0].tolist() == [1, 0]
    assert found[0].tolist() == [[0, 0, 0.5, 0.5], [0, 0, 1, 1]]


def test_empty_batches_of_boxes_and_images():
    found, _, _, count = combined(np.zeros((2, 0, 1, 4)), np.zeros((2, 0, 3)), 2, 4)
    assert not found.any() and count.tolist() == [0, 0]
    assert combined(np.zeros((0, 5, 1, 4)), np.zeros((0, 5, 3)), 2, 4)[0].shape == (0, 4, 4)


MANY, SCORED = np.ones((2, 3, 1, 4)), np.ones((2, 3, 5))


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ((MANY[0], SCORED, 1, 1), "boxes and scores must have same batch size"),
        ((MANY[:, 0], SCORED, 1, 1), "boxes must be 4-D[2,1,4]"),
        ((MANY, SCORED[0], 1, 1), "boxes and scores must have same batch size"),
        ((MANY, SCORED[:, 0], 1, 1), "scores must be 3-D[2,5]"),
        ((MANY, SCORED, [1], 1), "max_size_per_class must be 0-D, got shape [1]"),
        ((MANY, SCORED, 0, 1), "max_size_per_class must be positive"),
        ((MANY, SCORED, 1, [1]), "max_total_size must be 0-D, got shape [1]"),
        ((MANY, SCORED, 1, 0), "max_total_size must be > 0"),
        ((MANY, SCORED, 1, 1, [1]), "iou_threshold must be 0-D, got shape [1]"),
        ((MANY, SCORED, 1, 1, 2), "iou_threshold must be in [0, 1]"),
        ((MANY, SCORED, 1, 1, 1, [1]), "score_threshold must be 0-D, got shape [1]"),
        ((MANY[..., :3], SCORED, 1, 1), "boxes must have 4 columns"),
        ((MANY, SCORED[:, :2], 1, 1), "scores has incompatible shape"),
        ((np.ones((2, 3, 2, 4)), SCORED, 1, 1), "third dimension of boxes must be either 1 or num classes"),
    ],
)
def test_combined_inputs_are_checked(inputs, message):
    with pytest.raises(errors.InvalidArgumentError) as caught:
        combined(*inputs)
    assert caught.value.message == message


def test_huge_outputs_are_refused():
    with pytest.raises(errors.ResourceExhaustedError):
        combined(np.ones((2**14, 1, 1, 4)), np.ones((2**14, 1, 1)), 1, 2**31 - 1)
