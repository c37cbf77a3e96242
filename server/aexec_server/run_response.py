"""The answer to a run, in the shape in which it was asked for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from google.protobuf import json_format

import aexec
from aexec_server import protobuf, tensors
from aexec_server.bodies import encode_json
from aexec_server.run_request import RunRequest
from aexec_server.served_call import ServedCall

__all__ = ["Answer", "answer_ns", "check_answerable", "list_answer", "message_answer", "people_answer"]

# What is sent, and how much of it is JSON if binary tensors follow that.
Answer = tuple[bytes, int | None]


def check_answerable(request: RunRequest, served: ServedCall) -> None:
    """Refuse before the run what its answer could not hold.

    Raises:
        InvalidArgumentError, UnimplementedError: a fetch has a type without such a form.
    """
    if not request.as_list and served.people_can_read:
        return
    for name, dtype, binary in zip(request.fetches, served.dtypes, request.binary, strict=True):
        if request.as_list:
            tensors.check_v2_form(name, dtype, binary)
        else:
            tensors.check_people_form(name, dtype)


def people_answer(
    run_id: str, request: RunRequest, served: ServedCall, values: Sequence[Any], metadata: aexec.RunMetadata | None
) -> Answer:
    """`{"run_id", "outputs": {name: nested}, "dtypes": {…}, "shapes": {…}}`."""
    outputs: dict[str, str] = {}
    shapes: dict[str, list[int]] = {}
    for name, dtype, value in zip(served.name_texts, served.dtypes, values, strict=True):
        if name not in outputs:
            array = tensors.as_array(value, dtype)
            outputs[name] = tensors.people_text(array, dtype)
            shapes[name] = list(array.shape)
    text = (
        f'{{"run_id":"{run_id}","outputs":{{{",".join([f"{n}:{text}" for n, text in outputs.items()])}}},'
        f'"dtypes":{served.dtypes_text},"shapes":{{{",".join([f"{n}:{shape}" for n, shape in shapes.items()])}}}'
        f"{_metadata_text(metadata)}}}"
    )
    return text.encode(), None


def list_answer(
    run_id: str, request: RunRequest, served: ServedCall, values: Sequence[Any], metadata: aexec.RunMetadata | None
) -> Answer:
    """V2 tensors."""
    texts, raws = [], []
    for name, dtype, value, binary in zip(served.name_texts, served.dtypes, values, request.binary, strict=True):
        array = tensors.as_array(value, dtype)
        head = f'{{"name":{name},"datatype":"{tensors.datatype_of(dtype)}","shape":{list(array.shape)}'
        if binary:
            raw = tensors.to_binary(array, dtype)
            raws.append(raw)
            texts.append(f'{head},"parameters":{{"binary_data_size":{len(raw)}}}}}')
        else:
            texts.append(f'{head},"data":{tensors.v2_text(array, dtype)}}}')
    text = f'{{"run_id":"{run_id}","outputs":[{",".join(texts)}]{_metadata_text(metadata)}}}'.encode()
    return (b"".join([text, *raws]), len(text)) if raws else (text, None)


def answer_ns(request: RunRequest, values: Sequence[Any]) -> float:
    """How long `people_answer` or `list_answer` takes."""
    return sum([tensors.write_ns(v, binary=b) for v, b in zip(values, request.binary, strict=True)])


def message_answer(
    run_id: str, request: RunRequest, served: ServedCall, values: Sequence[Any], metadata: aexec.RunMetadata | None
) -> Answer:
    """A RunStepResponse."""
    return protobuf.run_step_response(served.names, served.dtypes, values, metadata), None


def _metadata_text(metadata: aexec.RunMetadata | None) -> str:
    """What the run, or the session for some of its runs, asks to be told; "" if nothing."""
    if metadata is None:
        return ""
    fields = json_format.MessageToDict(metadata.to_proto(), preserving_proto_field_name=True)
    if metadata.peak_bytes is not None:
        fields["peak_bytes"] = metadata.peak_bytes
    return f',"metadata":{encode_json(fields)}' if fields else ""
