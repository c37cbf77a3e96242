"""Summary ops: each returns a serialised Summary of a tensor, with a tag, and is in the collection `summaries`.

The tag is the name of the op with its scopes, as in TensorFlow; `family` is put before it once more, since TensorBoard
groups by it.  Next to read: `file_writer.py`, which writes their outputs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from aexec import proto
from aexec.client.building import name_scope
from aexec.framework import dtypes, errors
from aexec.graph.collections import GraphKeys
from aexec.graph.nodes.node import Tensor
from aexec.graph.op_functions import convert_to_tensor, create_node, require_graph

__all__ = ["audio", "histogram", "image", "merge", "merge_all", "scalar", "tensor_summary", "text"]

_NOT_IN_NAMES = re.compile(r"[^-/\w.]", re.ASCII)


@contextmanager
def _summary_scope(name: str, family: str | None) -> Iterator[tuple[str, str]]:
    """Yield the tag, and the name scope of the op."""
    family = None if family is None else _clean(family)
    with name_scope(_clean(name) if family is None else f"{family}/{_clean(name)}") as scope:
        tag = scope.rstrip("/")
        yield tag if family is None else f"{family}/{tag}", scope


def _clean(name: str) -> str:
    return _NOT_IN_NAMES.sub("_", name).lstrip("/")


def _summary(
    op: str, scope: str, inputs: dict[str, Any], attrs: dict[str, Any], collections: Iterable[str] | None
) -> Tensor:
    made = create_node(op, inputs, attrs, name=scope).output(0)
    names = [GraphKeys.SUMMARIES] if collections is None else collections
    require_graph().collections.add_to_each(names, made)
    return made


def scalar(name: str, tensor: Any, collections: Iterable[str] | None = None, family: str | None = None) -> Tensor:
    """A summary of the value of a real scalar.

    Args:
        name: of the op; invalid characters become `_`.
        collections: the collections to add the summary to; by default `GraphKeys.SUMMARIES`.
        family: put before the name, and before the tag.

    Returns:
        a string scalar.
    """
    with _summary_scope(name, family) as (tag, scope):
        inputs = {"tags": convert_to_tensor(tag, None, "tags"), "values": tensor}
        return _summary("ScalarSummary", scope, inputs, {}, collections)


def histogram(name: str, values: Any, collections: Iterable[str] | None = None, family: str | None = None) -> Tensor:
    """A summary with a histogram of a real tensor of any shape.  Other arguments as of `scalar`."""
    with _summary_scope(name, family) as (tag, scope):
        inputs = {"tag": convert_to_tensor(tag, None, "tag"), "values": values}
        return _summary("HistogramSummary", scope, inputs, {}, collections)


def image(
    name: str, tensor: Any, max_outputs: int = 3, collections: Iterable[str] | None = None, family: str | None = None
) -> Tensor:
    """A summary of the first images of a batch, under `tag/image/0` and so on.

    Args:
        tensor: [batch, height, width, channels] with 1, 3 or 4 channels: uint8, or floats, which are scaled to fit.
    """
    with _summary_scope(name, family) as (tag, scope):
        inputs = {"tag": convert_to_tensor(tag, None, "tag"), "tensor": tensor}
        return _summary("ImageSummary", scope, inputs, {"max_images": max_outputs}, collections)


def audio(
    name: str,
    tensor: Any,
    sample_rate: Any,
    max_outputs: int = 3,
    collections: Iterable[str] | None = None,
    family: str | None = None,
) -> Tensor:
    """A summary of the first sounds of a batch, under `tag/audio/0` and so on.

    Args:
        tensor: float32 in [-1, 1], [batch, frames] or [batch, frames, channels].
        sample_rate: frames per second, in hertz.
    """
    with _summary_scope(name, family) as (tag, scope):
        rate = convert_to_tensor(sample_rate, dtypes.float32, "sample_rate")
        inputs = {"tag": convert_to_tensor(tag, None, "tag"), "tensor": tensor, "sample_rate": rate}
        return _summary("AudioSummaryV2", scope, inputs, {"max_outputs": max_outputs}, collections)


def text(name: str, tensor: Any, collections: Iterable[str] | None = None) -> Tensor:
    """A summary of text in Markdown, of any shape; a matrix becomes a table.

    Raises:
        InvalidArgumentError: the tensor is not of strings.
    """
    value = convert_to_tensor(tensor)
    if value.dtype.base is not dtypes.string:
        raise errors.InvalidValueError(f"Expected tensor {value.name} to have dtype string, got {value.dtype}")
    plugin = proto.SummaryMetadata.PluginData(plugin_name="text")
    return tensor_summary(name, value, proto.SummaryMetadata(plugin_data=plugin), collections)


def tensor_summary(
    name: str,
    tensor: Any,
    metadata: Any = None,
    collections: Iterable[str] | None = None,
    family: str | None = None,
) -> Tensor:
    """A summary of the tensor itself, for the TensorBoard plugin that `metadata`, a SummaryMetadata, names."""
    given = b"" if metadata is None else metadata.SerializeToString()
    with _summary_scope(name, family) as (tag, scope):
        inputs = {
            "tag": convert_to_tensor(tag, None, "tag"),
            "tensor": tensor,
            "serialized_summary_metadata": convert_to_tensor(given, None, "serialized_summary_metadata"),
        }
        return _summary("TensorSummaryV2", scope, inputs, {}, collections)


def merge(inputs: Sequence[Any], collections: Iterable[str] = (), name: str | None = None) -> Tensor:
    """One Summary of all values of several.  A run in which two have the same tag fails with InvalidArgumentError."""
    with name_scope(_clean(name or "Merge")):
        made = create_node("MergeSummary", {"inputs": list(inputs)}, {}).output(0)
    require_graph().collections.add_to_each(collections, made)
    return made


def merge_all(key: str = GraphKeys.SUMMARIES, scope: str | None = None, name: str | None = None) -> Tensor | None:
    """One Summary of all in a collection whose names begin with a match of `scope`; None if there are none."""
    found = require_graph().collections.get(key, scope)
    return merge(found, name=name) if found else None
