"""Writes the answer to a run in the form in which it was asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from aiohttp import web
from aiohttp.hdrs import CONTENT_TYPE
from google.protobuf import json_format
from multidict import CIMultiDict, istr

import aexec
from aexec import errors
from aexec.hosting import DType, datatype_of, loop_budget
from aexec_server.http.answer_parts import AnswerParts
from aexec_server.http.bodies import encode_json
from aexec_server.http.json_style import JsonStyle
from aexec_server.requests import protobuf, tensors
from aexec_server.requests.run_request import RunRequest
from aexec_server.requests.served_call import AnswerForm
from aexec_server.requests.tensors import size_of

__all__ = [
    "JSON_LENGTH",
    "Answer",
    "Writer",
    "answer_bytes",
    "answer_ns",
    "check_answer_size",
    "check_answerable",
    "is_soon_written",
    "list_answer",
    "message_answer",
    "metadata_ns",
    "people_answer",
    "tensors_answer",
    "tensors_response",
]

JSON_LENGTH = istr("Inference-Header-Content-Length")

_AS_JSON = CIMultiDict({CONTENT_TYPE: "application/json"})

# Answers above this many bytes are compared with the server's limits.
_SMALL_ANSWER = 2**10

# Typical number of characters of a number in JSON.
_NUMBER_BYTES = 20

# Estimated nanoseconds to write a node of a trace or of a graph as JSON.
_NODE_NS = 100_000.0

# The body, and the length of its JSON if binary tensors follow.
Answer = tuple[bytes | AnswerParts, int | None]
# Writes the answer to the run with the given id.
Writer = Callable[[str, RunRequest, AnswerForm, Sequence[Any], aexec.RunMetadata | None], Answer]


def tensors_response(body: bytes | AnswerParts, json_length: int | None) -> web.Response:
    """Return the response for an answer that `list_answer` has written."""
    if json_length is None:
        return web.Response(body=body, headers=_AS_JSON)
    return web.Response(body=body, headers={CONTENT_TYPE: "application/octet-stream", JSON_LENGTH: str(json_length)})


def check_answer_size(size: int, most: int) -> None:
    """Raise ResourceExhaustedError if the tensors of an answer have more bytes than an answer may have."""
    if size > most:
        raise errors.ResourceExhaustedError(f"The tensors have {size} bytes together; an answer may have {most}")


def check_answerable(request: RunRequest, served: AnswerForm) -> None:
    """Check before the run that the answer can hold what is fetched.

    Raises:
        InvalidArgumentError, UnimplementedError: the type of a fetch cannot be sent in the form that is asked for.
    """
    if not request.as_list and served.people_can_read:
        return
    for name, dtype, binary in zip(served.names, served.dtypes, request.binary, strict=True):
        if request.as_list:
            tensors.check_v2_form(name, dtype, binary)
        else:
            tensors.check_people_form(name, dtype)


def people_answer(
    run_id: str, request: RunRequest, served: AnswerForm, values: Sequence[Any], metadata: aexec.RunMetadata | None
) -> Answer:
    """Write `{"run_id", "outputs": {name: nested}, "dtypes": {…}, "shapes": {…}}`."""
    outputs: dict[str, str] = {}
    shapes: dict[str, list[int]] = {}
    for name, dtype, value in zip(served.name_texts, served.dtypes, values, strict=True):
        if name not in outputs:
            array = tensors.as_array(value, dtype)
            outputs[name] = tensors.people_text(array, dtype, request.style)
            shapes[name] = list(array.shape)
    text = (
        f'{{"run_id":"{run_id}","outputs":{{{",".join([f"{n}:{text}" for n, text in outputs.items()])}}},'
        f'"dtypes":{served.dtypes_text},"shapes":{{{",".join([f"{n}:{shape}" for n, shape in shapes.items()])}}}'
        f"{_metadata_text(metadata)}}}"
    )
    return text.encode(), None


def list_answer(
    run_id: str, request: RunRequest, served: AnswerForm, values: Sequence[Any], metadata: aexec.RunMetadata | None
) -> Answer:
    """Write V2 tensors."""
    head, tail = f'"run_id":"{run_id}","outputs"', _metadata_text(metadata)
    return tensors_answer(head, served.name_texts, served.dtypes, values, request.binary, tail, request.style)


def tensors_answer(
    head: str,
    name_texts: Iterable[str],
    dtypes: Iterable[DType],
    values: Iterable[Any],
    binary: Iterable[bool],
    tail: str = "",
    style: JsonStyle | None = None,
) -> Answer:
    """Write an object with V2 tensors.

    Args:
        head: the members before the tensors, and the name of the tensors' member.
        name_texts: names of the tensors, as JSON.
        binary: which tensors follow the JSON as bytes.
        tail: the members after the tensors, with a comma before each.
        style: how numbers are written.
    """
    texts, raws = [], []
    for name, dtype, value, as_bytes in zip(name_texts, dtypes, values, binary, strict=True):
        array = tensors.as_array(value, dtype)
        facts = f'{{"name":{name},"datatype":"{datatype_of(dtype)}","shape":{list(array.shape)}'
        if as_bytes:
            raw = tensors.to_binary(array, dtype)
            raws.append(raw)
            texts.append(f'{facts},"parameters":{{"binary_data_size":{len(raw)}}}}}')
        else:
            texts.append(f'{facts},"data":{tensors.v2_text(array, dtype, style)}}}')
    text = f"{{{head}:[{','.join(texts)}]{tail}}}".encode()
    if not raws:
        return text, None
    parts = [text, *raws]
    return AnswerParts(parts) if sum(map(len, raws)) >= tensors.SENT_APART else b"".join(parts), len(text)


def answer_ns(request: RunRequest, values: Sequence[Any]) -> float:
    """Return the estimated nanoseconds to write the answer."""
    if request.as_message:
        return sum(map(size_of, values)) * loop_budget.WIRE_NS
    return sum([tensors.write_ns(v, binary=b) for v, b in zip(values, request.binary, strict=True)])


def metadata_ns(metadata: aexec.RunMetadata) -> float:
    """Return the estimated nanoseconds to write a run's metadata."""
    stats, graphs = metadata.step_stats, metadata.partition_graphs
    nodes = sum(len(device.node_stats) for device in stats.dev_stats) if stats is not None else 0
    return _NODE_NS * (nodes + sum(len(graph.node) for graph in graphs))


def is_soon_written(request: RunRequest, values: Sequence[Any]) -> bool:
    """True for an answer that is small, and can be written on the event loop."""
    size = sum(map(size_of, values))
    return size <= _SMALL_ANSWER and loop_budget.DEFAULT.allows(answer_ns(request, values))


def answer_bytes(values: Sequence[Any], *, as_text: bool) -> int:
    """Return the estimated memory for writing an answer.  JSON takes the text and its encoded bytes."""
    if not as_text:
        return 2 * sum(map(size_of, values))
    return sum(3 * size_of(v) if np.asarray(v).dtype.kind == "O" else 2 * _NUMBER_BYTES * np.size(v) for v in values)


def message_answer(
    run_id: str, request: RunRequest, served: AnswerForm, values: Sequence[Any], metadata: aexec.RunMetadata | None
) -> Answer:
    """Write a RunStepResponse."""
    return protobuf.run_step_response(served.names, served.dtypes, values, metadata), None


def _metadata_text(metadata: aexec.RunMetadata | None) -> str:
    """Return the metadata as a member of the answer's JSON, with a comma before it; "" if there are none."""
    if metadata is None:
        return ""
    fields = json_format.MessageToDict(metadata.to_proto(), preserving_proto_field_name=True)
    if metadata.peak_bytes is not None:
        fields["peak_bytes"] = metadata.peak_bytes
    if metadata.prints is not None:
        fields["prints"] = metadata.prints
        if metadata.prints_left_out:
            fields["prints_left_out"] = metadata.prints_left_out
    return f',"metadata":{encode_json(fields)}' if fields else ""
