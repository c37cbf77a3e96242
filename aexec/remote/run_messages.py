"""Runs as TensorFlow's messages: writes RunStepRequest, reads RunStepResponse."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError, Message

from aexec import proto
from aexec.framework import dtypes, errors
from aexec.framework.dtypes import DType, as_dtype
from aexec.framework.near_names import listed
from aexec.framework.shape import UNKNOWN_RANK
from aexec.framework.state.resource_manager import ResourceHandle, make_handle_tensor
from aexec.framework.wire.tensor_codec import from_proto, to_parts
from aexec.framework.wire.tensors_apart import named_tensors_apart
from aexec.framework.wire.wire_format import enclosed
from aexec.graph.signature import TensorInfo
from aexec.remote.service import Part
from aexec.runtime.config import RunMetadata, RunOptions
from aexec.runtime.feeding.feeds import FeedSpec, in_host_memory
from aexec.runtime.session.callable import canonical_name

__all__ = [
    "both_fed_and_fetched",
    "fed_once",
    "named_tensors",
    "options_message",
    "read_response",
    "read_tensors",
    "run_message",
    "sent_feeds",
]

_FEED = proto.RunStepRequest.FEED_FIELD_NUMBER
_FETCHED = proto.RunStepResponse.TENSOR_FIELD_NUMBER
_NAME, _TENSOR = proto.NamedTensorProto.NAME_FIELD_NUMBER, proto.NamedTensorProto.TENSOR_FIELD_NUMBER


def fed_once(names: Sequence[str], values: Iterable[Any]) -> dict[str, Any]:
    """Tensor name → value.

    Raises:
        InvalidArgumentError: a tensor is named twice.
    """
    tensors = list(map(canonical_name, names))
    if len(set(tensors)) < len(tensors):
        twice = next(name for i, name in enumerate(names) if tensors[i] in tensors[:i])
        raise errors.InvalidArgumentError(f'Endpoint "{twice}" fed more than once.')
    return dict(zip(names, values, strict=True))


def both_fed_and_fetched(feeds: Iterable[str], fetches: Iterable[str]) -> list[str]:
    """Return the fetches that are also fed."""
    fed = set(map(canonical_name, feeds))
    return [name for name in fetches if canonical_name(name) in fed]


def sent_feeds(body: bytes) -> dict[str, Any]:
    """Tensor → its value, converted to its type, from a message of `run_message`."""
    feeds = proto.RunStepRequest.FromString(body).feed
    return {canonical_name(feed.name): from_proto(feed.tensor) for feed in feeds}


def run_message(
    beginning: Part,
    feeds: Mapping[str, Any],
    known: Mapping[str, TensorInfo],
    fetches: Sequence[str],
    targets: Sequence[str],
    options: proto.RunOptions,
    partial_run: str = "",
) -> bytes:
    """A run as a RunStepRequest.

    Args:
        beginning: the message's first bytes.
        feeds: tensor name → value.
        known: tensor name → what is known of its type and shape.  A value for another tensor is sent with its own type,
            or the one that `aexec.constant` would give it; a resource handle as it is.
        partial_run: the handle of the partial run that this is a part of, or "".

    Raises:
        InvalidArgumentError: a value that its tensor cannot have.
    """
    rest = proto.RunStepRequest(fetch=fetches, target=targets, options=options, partial_run_handle=partial_run)
    parts = [beginning]
    for named in named_tensors(feeds, known):
        parts += enclosed(_FEED, named)
    return b"".join([*parts, rest.SerializeToString()])


def named_tensors(feeds: Mapping[str, Any], known: Mapping[str, TensorInfo]) -> list[Sequence[Part]]:
    """NamedTensorProtos, each in parts, of which those of a large array are its own bytes.

    Arguments and errors as of `run_message`.
    """
    made: list[Sequence[Part]] = []
    for position, (name, value) in enumerate(feeds.items()):
        if type(value) is ResourceHandle:
            tensor = to_parts(make_handle_tensor(value), dtypes.resource)
        else:
            value = in_host_memory(value, name)
            info = known.get(name)
            dtype = None if info is None else info.dtype
            shape = UNKNOWN_RANK if info is None else info.shape
            spec = FeedSpec(name, dtype or _dtype_of(value), shape, position)
            tensor = to_parts(spec.convert(value), spec.dtype)
        made.append([*enclosed(_NAME, [name.encode()]), *enclosed(_TENSOR, tensor)])
    return made


def _dtype_of(value: Any) -> DType:
    given = value.dtype if hasattr(value, "dtype") else np.asarray(value).dtype
    if given.kind in "OSU":
        return dtypes.string
    if not hasattr(value, "dtype"):
        # Python's numbers are float32 and int32, as in constants.
        return {"f": dtypes.float32, "i": dtypes.int32}.get(given.kind) or as_dtype(given)
    return as_dtype(given)


def options_message(options: RunOptions | Message | None) -> proto.RunOptions:
    """The options as a message.  Raises UnimplementedError for options that a server does not have."""
    if options is None:
        return proto.RunOptions()
    given = RunOptions.of(options)
    if given.cost_graph:
        raise errors.UnimplementedError("RunOptions.cost_graph is not supported in a server: leave it unset")
    timeout = 0 if given.timeout is None else max(1, round(given.timeout * 1e3))
    return proto.RunOptions(
        timeout_in_ms=timeout,
        trace_level=proto.RunOptions.FULL_TRACE if given.trace else proto.RunOptions.NO_TRACE,
        output_partition_graphs=given.output_partition_graphs,
        report_tensor_allocations_upon_oom=given.report_tensor_allocations_upon_oom,
    )


def read_response(body: bytes, names: Sequence[str], metadata: RunMetadata | None) -> list[Any]:
    """Return the fetched arrays of a RunStepResponse, and fill `metadata`.

    Args:
        names: names of the fetches, in the order of the result, which may differ from that of the response.

    Raises:
        UnavailableError: the bytes are no such message, or it lacks a fetch.
    """
    arrays = dict(read_tensors(body, metadata))
    for name in names:
        if name not in arrays:
            raise errors.UnavailableError(
                f"the server's answer to a run lacks the fetch {name}: it has {listed(arrays)}"
            )
    return [arrays[name] for name in names]


def read_tensors(body: bytes, metadata: RunMetadata | None = None) -> list[tuple[str, Any]]:
    """The tensors of a RunStepResponse with their names, in its order; fills `metadata`.

    Raises:
        UnavailableError: the bytes are no such message.
    """
    rest, _, contents = named_tensors_apart(body, _FETCHED)
    try:
        message = proto.RunStepResponse.FromString(rest)
    except DecodeError:
        raise errors.UnavailableError(f"the server answered a run with {len(body)} bytes that are no answer") from None
    if metadata is not None:
        given = message.metadata
        metadata.step_stats = given.step_stats if given.HasField("step_stats") else None
        metadata.partition_graphs = list(given.partition_graphs)
        metadata.cost_graph = given.cost_graph if given.HasField("cost_graph") else None
    return [
        (named.name, from_proto(named.tensor, content=contents.get(position)))
        for position, named in enumerate(message.tensor)
    ]
