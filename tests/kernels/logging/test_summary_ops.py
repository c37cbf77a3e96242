"""Summaries: TensorFlow's bytes, a slow histogram, pictures and sounds decoded again, its messages."""

from __future__ import annotations

import io
import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from aexec import proto
from aexec.framework.wire import tensor_codec
from tests.kernels.array_support import F32, I32, assert_refuses
from tests.kernels.harness import in_tensorflow, ops_of, registered, run_op, strings


@pytest.mark.parametrize("op", ops_of("logging.summary_ops"))
def test_types_are_tensorflows(op):
    assert registered(op) == in_tensorflow(op)


def text(data):
    return strings(data, shape=())


def summary(op, inputs, **attrs):
    return proto.Summary.FromString(run_op(op, inputs, **attrs).item())


def test_scalars():
    one = run_op("ScalarSummary", [text("a"), F32(1.5)])
    assert one.item() == b"\n\x08\n\x01a\x15\x00\x00\xc0?"
    two = summary("ScalarSummary", [strings("a", "b"), I32([1, 2])])
    assert [(v.tag, v.simple_value) for v in two.value] == [("a", 1), ("b", 2)]
    assert run_op("ScalarSummary", [strings(), F32([])]).item() == b""


@pytest.mark.parametrize(
    ("tags", "values", "message"),
    [
        (text("a"), F32([1]), "tags and values are not the same shape: [] != [1] (tag 'a')"),
        (strings("a", "b"), F32([1]), "tags and values are not the same shape: [2] != [1]"),
        (text(b"\xff"), F32(1), "tag is not UTF-8: b'\\xff'"),
    ],
)
def test_scalars_are_checked(tags, values, message):
    assert_refuses("ScalarSummary", [tags, values], message)


# Histograms


def test_known_histogram():
    empty = summary("HistogramSummary", [text("h"), F32([])]).value[0].histo
    greatest = np.finfo(np.float64).max
    assert (empty.min, empty.max, list(empty.bucket_limit), list(empty.bucket)) == (
        greatest,
        -greatest,
        [greatest],
        [0],
    )
    data = run_op("HistogramSummary", [text("h"), F32([0])]).item()
    assert data == (
        b"\nB\n\x01h*=\x19\x00\x00\x00\x00\x00\x00\xf0?2\x18\x00\x00\x00\x00\x00\x00\x00\x00\x11\xea-\x81\x99\x97q=\xff"
        b"\xff\xff\xff\xff\xff\xef\x7f:\x18\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\xf0?\x00\x00\x00\x00"
        b"\x00\x00\x00\x00"
    )


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False, max_value=1e30, min_value=-1e30)))
def test_histograms_count_every_value(values):
    found = summary("HistogramSummary", [text("h"), np.array(values, np.float64)]).value[0].histo
    limits, counts = list(found.bucket_limit), list(found.bucket)
    assert limits == sorted(limits) and sum(counts) == found.num == len(values)
    assert not any(a == b == 0 for a, b in itertools.pairwise(counts))
    below = -math.inf
    for limit, count in zip(limits, counts, strict=True):
        assert count == sum(below <= v < limit for v in values)
        below = limit
    if values:
        total = squares = 0.0
        for value in values:
            total += value
            squares += value * value
        assert (found.min, found.max) == (min(values), max(values))
        assert (found.sum, found.sum_squares) == (total, squares)


def test_greatest_number_has_a_bucket():
    found = summary("HistogramSummary", [text("h"), np.array([np.finfo(np.float64).max])]).value[0].histo
    assert list(found.bucket) == [0, 1]


@pytest.mark.parametrize(
    ("tag", "values", "message"),
    [
        (text("h"), [1, np.nan, np.inf], "Nan in summary histogram for: HistogramSummary"),
        (text("h"), [-np.inf, np.nan], "Infinity in Histogram for: HistogramSummary"),
        (strings("h"), [1], "tags must be scalar"),
    ],
)
def test_histograms_are_checked(tag, values, message):
    assert_refuses("HistogramSummary", [tag, F32(values)], message)


# Pictures


def pictures(images, **attrs):
    found = summary("ImageSummary", [text("i"), images], **attrs)
    return {v.tag: np.asarray(Image.open(io.BytesIO(v.image.encoded_image_string))) for v in found.value}


def test_bytes_are_kept_and_the_first_images_numbered():
    images = np.random.default_rng(0).integers(0, 256, (5, 3, 4, 3)).astype(np.uint8)
    found = pictures(images)
    assert list(found) == ["i/image/0", "i/image/1", "i/image/2"]
    assert all((found[f"i/image/{n}"] == images[n]).all() for n in range(3))
    assert list(pictures(images, max_images=1)) == ["i/image"]
    value = summary("ImageSummary", [text("i"), images[:1]]).value[0].image
    assert (value.height, value.width, value.colorspace) == (3, 4, 3)
    assert run_op("ImageSummary", [text("i"), images[:0]]).item() == b""


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_floats_are_scaled_to_their_range(dtype):
    def row(*values):
        return np.array(values, dtype).reshape(1, 1, -1, 1)

    assert pictures(row(0, 1, 2, 4))["i/image/0"].tolist() == [[0, 63, 127, 255]]
    assert pictures(row(-2, -1, 0, 1))["i/image/0"].tolist() == [[1, 64, 128, 191]]
    assert pictures(row(0, 0))["i/image/0"].tolist() == [[0, 0]]
    assert pictures(row(np.nan, 1, np.inf))["i/image/0"].tolist() == [[255, 255, 255]]
    own = pictures(row(np.nan, 1, -np.inf), bad_color=np.uint8([7]))
    assert own["i/image/0"].tolist() == [[7, 255, 7]]


@pytest.mark.parametrize(
    ("tag", "shape", "attrs", "message"),
    [
        (text("i"), (3, 4, 3), {}, "Tensor must be 4-D with last dim 1, 3, or 4, not [3,4,3]"),
        (text("i"), (1, 3, 4, 2), {}, "Tensor must be 4-D with last dim 1, 3, or 4, not [1,3,4,2]"),
        (text("i"), (2, 0, 4, 3), {}, "input tensor must have non-zero dims. Found: [2, 0, 4, 3]."),
        (strings("i"), (1, 3, 4, 3), {}, "Tags must be a scalar"),
        (
            text("i"),
            (1, 3, 4, 3),
            {"bad_color": np.uint8([1])},
            "expected depth <= bad_color.size, got depth = 3, bad_color.size = 1",
        ),
        (text("i"), (1, 3, 4, 3), {"bad_color": np.uint8(1)}, "bad_color must be a vector, got shape []"),
        (text("i"), (1, 3, 4, 3), {"bad_color": I32([1])}, "bad_color must be uint8, got int32"),
    ],
)
def test_pictures_are_checked(tag, shape, attrs, message):
    assert_refuses("ImageSummary", [tag, F32(np.zeros(shape))], message, **attrs)


# Sounds


def test_sounds():
    audio = np.random.default_rng(0).uniform(-1, 1, (4, 5, 2)).astype(np.float32)
    found = summary("AudioSummaryV2", [text("a"), audio, F32(22050.5)])
    assert [v.tag for v in found.value] == ["a/audio/0", "a/audio/1", "a/audio/2"]
    first = found.value[0].audio
    assert (first.sample_rate, first.num_channels, first.length_frames) == (22050.5, 2, 5)
    assert first.content_type == "audio/wav"
    decoded, rate = run_op("DecodeWav", [text(first.encoded_audio_string)])
    assert rate == 22050
    rounded = summary("AudioSummaryV2", [text("a"), audio, F32(22049.75)]).value[0].audio
    assert rounded.sample_rate == 22049.75
    assert run_op("DecodeWav", [text(rounded.encoded_audio_string)])[1] == 22050
    np.testing.assert_allclose(decoded, audio[0], atol=1 / 32768)
    mono = summary("AudioSummary", [text("a"), audio[..., 0]], sample_rate=8000.0, max_outputs=1)
    assert [(v.tag, v.audio.num_channels) for v in mono.value] == [("a/audio", 1)]


@pytest.mark.parametrize(
    ("tag", "shape", "rate", "message"),
    [
        (text("a"), (5,), F32(1), "Tensor must be 3-D or 2-D, got: [5]"),
        (text("a"), (1, 5), F32(0), "sample_rate must be > 0"),
        (text("a"), (1, 5), F32(0.4), "sample_rate must be > 0"),
        (text("a"), (1, 5), F32(np.nan), "sample_rate must be > 0"),
        (text("a"), (1, 5), F32([1, 2]), "sample_rate must be a scalar, got: [2]"),
        (strings("a"), (1, 5), F32(1), "Tag must be a scalar"),
    ],
)
def test_sounds_are_checked(tag, shape, rate, message):
    assert_refuses("AudioSummaryV2", [tag, F32(np.zeros(shape)), rate], message)


# Tensors, and merging


def test_tensors():
    plain = run_op("TensorSummary", [F32([1, 2])], description="d", labels=["x"]).item()
    assert plain == b'\n#:\rTensorSummaryB\x12\x08\x01\x12\x04\x12\x02\x08\x02"\x08\x00\x00\x80?\x00\x00\x00@'
    assert run_op("TensorSummary", [text("s")]).item() == b"\n\x18:\rTensorSummaryB\x07\x08\x07\x12\x00B\x01s"
    equal = summary("TensorSummary", [F32([2, 2])]).value[0].tensor
    assert len(equal.tensor_content) == 8 and tensor_codec.from_proto(equal).tolist() == [2, 2]
    metadata = proto.SummaryMetadata(display_name="n").SerializeToString()
    value = summary("TensorSummaryV2", [text("t"), F32(3), text(metadata)]).value[0]
    assert (value.tag, value.metadata.display_name) == ("t", "n")
    assert summary("TensorSummaryV2", [text("t"), F32(3), text(b"\xff")]).value[0].HasField("metadata")
    assert_refuses("TensorSummaryV2", [strings("t"), F32(3), text("")], "tag must be scalar")
    message = "serialized_summary_metadata must be scalar"
    assert_refuses("TensorSummaryV2", [text("t"), F32(3), strings("")], message)


def test_merging():
    one, two = (run_op("ScalarSummary", [strings(*tags), F32([1] * len(tags))]) for tags in (["a", "b"], ["c"]))
    merged = summary("MergeSummary", [[one, two, strings("", "")]])
    assert [v.tag for v in merged.value] == ["a", "b", "c"]
    untagged = run_op("TensorSummary", [F32(1)])
    assert len(summary("MergeSummary", [[untagged, untagged]]).value) == 2
    assert_refuses("MergeSummary", [[one, one]], "Duplicate tag a found in summary inputs ")
    assert_refuses("MergeSummary", [[one, text("junk")]], "Could not parse one of the summary inputs")
