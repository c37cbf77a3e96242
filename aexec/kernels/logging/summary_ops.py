"""Summaries: values, histograms, pictures and sounds, with tags, as serialised messages."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError

from aexec import proto
from aexec.framework import dtypes, errors
from aexec.framework.abridged_text import abridged
from aexec.framework.dtypes import DType
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.kernel_contract.op_kernel import Compute, OpKernelConstruction
from aexec.framework.memory.allocator import Growth, announce_scratch
from aexec.framework.memory.tensor_buffer import STRING_BYTES
from aexec.framework.shape import shape_text
from aexec.framework.waiting.loop_budget import DEFAULT, giving_way
from aexec.framework.wire.wire_format import enclosed
from aexec.kernels.common.strings import lists_of
from aexec.kernels.common.tensor_bytes import tensor_parts
from aexec.kernels.logging.summaries import histogram, pictures, sounds

__all__: list[str] = []

# Nanoseconds of a summary that is read and written.
_SUMMARY_NS = 2000.0
# Nanoseconds of a number with its tag; and how many are made a message at a time.
_SCALAR_NS = 500.0
_AT_ONCE = DEFAULT.pieces(_SCALAR_NS)


def _scalar(contents: bytes) -> Any:
    out = np.empty((), object)
    out[()] = contents
    return out


def _serialized(summary: proto.Summary) -> Any:
    return _scalar(summary.SerializeToString())


def _in_parts(values: Iterable[proto.Summary.Value]) -> Any:
    """A summary of these values, serialised one by one: concatenated messages are one message with all values."""
    return _scalar(b"".join([proto.Summary(value=[value]).SerializeToString() for value in values]))


def _text(tag: Any) -> str:
    try:
        return str(tag, "utf-8")
    except UnicodeDecodeError:
        raise errors.InvalidArgumentError(f"tag is not UTF-8: {abridged(repr(tag))}") from None


def _scalar_tag(tag: Any, message: str) -> str:
    if tag.ndim:
        raise errors.InvalidArgumentError(message)
    return _text(tag.item())


def _scalars(tags: Any, values: Any) -> Iterator[bytes]:
    """Yield serialised summaries of a few numbers each; concatenated they are one summary."""
    growth, scalars = Growth(joined=True), _AT_ONCE * _SCALAR_NS
    for start in giving_way(range(0, tags.size, _AT_ONCE), scalars):
        some, numbers = (array.flat[start : start + _AT_ONCE] for array in (tags, values))
        summary = proto.Summary()
        for tag, value in zip(some.tolist(), numbers.astype(np.float32).tolist(), strict=True):
            summary.value.add(tag=_text(tag), simple_value=value)
        serialized = summary.SerializeToString()
        growth.add(len(serialized))
        yield serialized


@kernel("ScalarSummary", T=dtypes.REAL_NUMBER, cost=_SCALAR_NS)
def scalar_summary(c: OpKernelConstruction) -> Compute:
    """Return a summary of numbers with a tag each."""

    def compute(tags: Any, values: Any) -> Any:
        if tags.shape != values.shape and not (tags.size == values.size == 1 and tags.ndim == values.ndim):
            which = f" (tag '{_text(tags.item())}')" if not tags.ndim else ""
            raise errors.InvalidArgumentError(
                f"tags and values are not the same shape: {shape_text(tags.shape)} != {shape_text(values.shape)}{which}"
            )
        return _scalar(b"".join(_scalars(tags, values)))

    return compute


@kernel("HistogramSummary", T=dtypes.REAL_NUMBER, cost=30.0, scratch=20.0)
def histogram_summary(c: OpKernelConstruction) -> Compute:
    """Return a summary with a histogram of a tensor's values."""
    name = c.name

    def compute(tag: Any, values: Any) -> Any:
        text = _scalar_tag(tag, "tags must be scalar")
        summary = proto.Summary()
        summary.value.add(tag=text, histo=histogram(values, name))
        return _serialized(summary)

    return compute


def _bad_color(c: OpKernelConstruction) -> Any:
    color = c.attr("bad_color")
    if color.dtype != np.uint8:
        raise errors.InvalidArgumentError(f"bad_color must be uint8, got {dtypes.from_numpy(color.dtype)}")
    if color.ndim != 1:
        raise errors.InvalidArgumentError(f"bad_color must be a vector, got shape {shape_text(color.shape)}")
    return color


@kernel("ImageSummary", cost=60.0)
def image_summary(c: OpKernelConstruction) -> Compute:
    """The first images of a batch [n, height, width, 1, 3 or 4]."""
    most, bad_color = c.attr("max_images"), _bad_color(c)

    def compute(tag: Any, images: Any) -> Any:
        text = _scalar_tag(tag, "Tags must be a scalar")
        return _in_parts(pictures(text, images, most, bad_color))

    return compute


@kernel("AudioSummary", "AudioSummaryV2", cost=10.0, scratch=16)
def audio_summary(c: OpKernelConstruction) -> Compute:
    """The first sounds of a batch [n, samples] or [n, samples, channels]; version 1 has the rate as attr."""
    most = c.attr("max_outputs")
    fixed = np.float32(c.attrs["sample_rate"]) if "sample_rate" in c.attrs else None

    def compute(tag: Any, audio: Any, sample_rate: Any = fixed) -> Any:
        text = _scalar_tag(tag, "Tag must be a scalar")
        return _in_parts(sounds(text, audio, sample_rate, most))

    return compute


@kernel("TensorSummary", T=dtypes.ALL, cost=5.0)
def tensor_summary(c: OpKernelConstruction) -> Compute:
    """Return a summary of a tensor, with the node's name."""
    head, dtype = proto.Summary.Value(node_name=c.name).SerializeToString(), c.attr("T")
    return lambda tensor: _with_tensor(head, tensor, dtype, b"")


def _with_tensor(head: bytes, tensor: Any, dtype: DType, metadata: bytes) -> Any:
    """A summary of one value, from serialised parts: those before its tensor, the tensor, and its metadata or b""."""
    announce_scratch(2 * tensor.nbytes)  # the tensor's message, and the one around it
    field = enclosed(proto.Summary.Value.TENSOR_FIELD_NUMBER, tensor_parts(tensor, dtype))
    return _scalar(b"".join(enclosed(proto.Summary.VALUE_FIELD_NUMBER, [head, *field, metadata])))


@kernel("TensorSummaryV2", T=dtypes.ALL, cost=5.0)
def tensor_summary_v2(c: OpKernelConstruction) -> Compute:
    """Return a summary of a tensor with a tag and a serialised SummaryMetadata, which is left out if it cannot be
    parsed.
    """
    dtype = c.attr("T")

    def compute(tag: Any, tensor: Any, metadata: Any) -> Any:
        text = _scalar_tag(tag, "tag must be scalar")
        if metadata.ndim:
            raise errors.InvalidArgumentError("serialized_summary_metadata must be scalar")
        parsed = proto.SummaryMetadata()
        try:
            parsed.MergeFromString(metadata.item())
        except DecodeError:
            parsed = proto.SummaryMetadata()
        head, tail = proto.Summary.Value(tag=text), proto.Summary.Value(metadata=parsed)
        return _with_tensor(head.SerializeToString(), tensor, dtype, tail.SerializeToString())

    return compute


@kernel("MergeSummary", cost=_SUMMARY_NS)
def merge_summary(c: OpKernelConstruction) -> Compute:
    """Return all values of all summaries in one; no tag may occur twice."""

    def compute(*inputs: Any) -> Any:
        # Concatenated messages are one message with all values.
        parts, growth, seen = list[bytes](), Growth(joined=True), set()
        for data in giving_way(chain.from_iterable(chain.from_iterable(map(lists_of, inputs))), _SUMMARY_NS):
            growth.add(len(data) + STRING_BYTES)
            try:
                summary = proto.Summary.FromString(data)
            except DecodeError:
                raise errors.InvalidArgumentError("Could not parse one of the summary inputs") from None
            for value in summary.value:
                # Tensors may have no tag.
                if value.tag and value.tag in seen:
                    raise errors.InvalidArgumentError(f"Duplicate tag {value.tag} found in summary inputs ")
                seen.add(value.tag)
            parts.append(summary.SerializeToString())
        return _scalar(b"".join(parts))

    return compute
